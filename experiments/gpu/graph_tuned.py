"""(d) of `graphs`: our kernels chosen by measurement. Of the model's first schedules of a graph's longest
kernel the fastest, as `tilewright run` verifies and times them.
"""
import fcntl
import threading
import time

import graph_functions as graphs

MOST_SECONDS = 60  # of one graph's measurement


class Tuned:
    """Schedules of every graph and size, built in one batch; measured a graph at a time, alone on the GPU."""

    def __init__(self, command, options, stitch, lock, say):
        self.command, self.options, self.stitch, self.lock, self.say = command, options, stitch, lock, say
        self.built, self.done, self.measuring = {}, threading.Event(), threading.Lock()

    def _requests(self, size, workload):
        return [{"name": f"{workload} {size} schedule {rank}", "workload": graphs.subject(workload, size),
                 "model": self.options.model, "stitch": [*self.stitch, f"schedule={rank}"], "cold": True}
                for rank in range(1, self.options.tuned + 1)]

    def _build(self, seconds):
        asked = [(size, w) for size in ("large", "small") for w in self.options.workloads]
        requests = [r for one in asked for r in self._requests(*one)]
        answers = self.command.answers(["run"], requests, seconds, ["--build-only"])
        for number, one in enumerate(asked):
            first = number * self.options.tuned
            self.built[one] = answers[first:first + self.options.tuned]

    def build(self, ours, until):
        """After the model's own choices, which are waited for."""
        try:
            ours.done.wait()
            self._build(max(1.0, until - time.monotonic()))
            self.say(f"(d): {sum('reason' not in a for found in self.built.values() for a in found)} of "
                     f"{sum(map(len, self.built.values()))} schedules built")
        except SystemExit as why:  # bad input: the command's own line
            self.say(f"(d): {why}")
        finally:
            self.done.set()

    def dry_run(self):
        """Why some cannot be built; a graph may have fewer schedules than are asked for."""
        self._build(1e6)
        return [f"{a['name']}: {a['reason']}" for found in self.built.values() for a in found
                if "reason" in a and "schedules that a plan can say" not in a["reason"]]

    def of(self, size, workload, until):
        """{"answer": the fastest's, built, or {"reason"}} and how it was found."""
        self.done.wait(max(0.0, until - time.monotonic()))
        built = self.built.get((size, workload), [])
        ranks = [rank for rank, a in enumerate(built, 1) if "reason" not in a]
        if not ranks:
            return {"answer": {"reason": built[0]["reason"] if built else "out of time"}}
        said = {"build_seconds": sum(built[rank - 1].get("build_seconds", 0) for rank in ranks)}
        requests = self._requests(size, workload)
        # The same lock as of the compilers that tune.
        with self.measuring, open(self.lock, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if time.monotonic() > until:
                return {"answer": {"reason": "out of time"}}
            start = time.monotonic()
            answers = self.command.answers(["run", "--seed", str(self.options.seed)],
                                           [requests[rank - 1] for rank in ranks], MOST_SECONDS,
                                           ["--seconds", "0.02"])
            said["tuning_seconds"] = time.monotonic() - start
        said["tried"] = [{"schedule": rank, **{k: a[k] for k in ("seconds_median", "reason") if k in a}}
                         for rank, a in zip(ranks, answers)]
        timed = [(a["seconds_median"], rank) for rank, a in zip(ranks, answers)
                 if "reason" not in a and "seconds_median" in a]
        if not timed:
            return {"answer": {"reason": answers[0].get("reason", "nothing was timed")}, **said}
        said["schedule"] = min(timed)[1]
        return {"answer": built[said["schedule"] - 1], **said}
