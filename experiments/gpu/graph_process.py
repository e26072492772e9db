"""The process of graph_worker.py that a graph has, as `graphs` speaks with it."""
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading

HERE = pathlib.Path(__file__).resolve().parent


class Worker:
    """A process of graph_worker.py, asked a line and answering one."""

    def __init__(self, python, workload, folder, say):
        self.workload, self.say, self.dead = workload, say, None
        self.log = open(folder / f"{workload}.log", "w")
        self.process = subprocess.Popen(
            [python, str(HERE / "graph_worker.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, start_new_session=True,
            env={**os.environ, "TILEWRIGHT_GPU_LOCK": str(folder / "gpu.lock"),
                 "TORCHINDUCTOR_COMPILE_THREADS": "4",
                 "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor" / workload),
                 "TRITON_CACHE_DIR": str(folder / "triton" / workload)})
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, request, timeout):
        """The answer, or {"reason"}; a process that does not answer is ended."""
        if self.dead:
            return {"reason": self.dead}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=max(1.0, timeout))
        except queue.Empty:
            return self._end(f"{request['do']} did not end in time")
        except OSError:
            line = None
        return json.loads(line) if line else self._end("the process ended: " + self._last_words())

    def _last_words(self):
        said = pathlib.Path(self.log.name).read_text(errors="replace").strip().splitlines()
        return said[-1][:300] if said else "nothing was said"

    def _end(self, why):
        self.dead = why
        self.say(f"{self.workload}: {why}")
        self.close()
        return {"reason": why}

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
