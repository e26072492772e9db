"""(c) of `graphs`: schedules that are drawn from all that a graph's longest kernel could have, each verified
and timed beside what the model says of it (graph_turns.py).
"""
import json
import os
import signal
import subprocess
import threading

import graph_functions as graphs
from graph_process import Worker

MOST_SECONDS = 200  # of one graph and size


def drawn(options, stitch, workload, size):
    """The schedules that `explain --samples` draws: [{"schedule", "seconds", "request"}], or why none.
    `request` has what a line of a batch needs beside the workload and the model."""
    words = [options.tilewright, "explain", graphs.subject(workload, size), "-m", options.machine,
             "--model", options.model, "--samples", str(options.samples), "--seed", str(options.seed), "--json",
             *(word for option in stitch for word in ("--stitch", option))]
    said = subprocess.run(words, capture_output=True, text=True)
    try:
        document = json.loads(said.stdout)
    except json.JSONDecodeError:
        return {"reason": said.stderr.strip()[:300] or "explain has said nothing"}
    if "drawn" not in document:
        return {"reason": document.get("reason", "explain draws no schedules of this model")}
    return document["drawn"]


def key_of(workload, size):
    """Under which the recording has them."""
    return workload if size == "small" else f"{workload} {size}"


class Ranking:
    """Schedules are drawn and built beside everything else, at low priority, and timed at the end."""

    def __init__(self, command, options, stitch, say):
        self.command, self.options, self.stitch, self.say = command, options, stitch, say
        self.process, self.out, self.drawn, self.built, self.answers = None, None, {}, {}, {}
        self.asked = [(w, size) for size in options.ranking_sizes for w in options.workloads]
        self.thread = threading.Thread(target=self._begin)

    def start(self):
        self.thread.start()

    def _begin(self):
        requests = []
        for asked in self.asked:
            found = self.drawn[asked] = drawn(self.options, self.stitch, *asked)
            if isinstance(found, dict):
                self.say(f"(c) {key_of(*asked)}: {found['reason']}")
                continue
            base = {"workload": graphs.subject(*asked), "model": self.options.model}
            requests += [{**base, **one["request"], "name": f"{key_of(*asked)} {one['schedule']}"}
                         for one in found]
        if requests:
            words, self.out = self.command.words(["run"], requests, ["--build-only"])
            self.process = subprocess.Popen(["nice", *words], stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL, start_new_session=True)

    def pause(self, paused):
        """Nothing is built while others are timed."""
        if self.thread.ident is None:  # part (c) was not asked for
            return
        self.thread.join()
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def finish(self, result, left):
        self.thread.join()
        result.document["ranking"] = {}
        if self.process:
            self._wait(left)
            self.built = {a["name"]: a for a in map(json.loads, self.out.read_text().splitlines())}
        workers = {w: Worker(self.options.python, w, self.command.folder, self.say)
                   for w in self.options.workloads if self.process}
        for asked in self.asked:
            result.document["ranking"][key_of(*asked)] = said = self._said(asked, workers, left)
            self.say(f"(c) {key_of(*asked)}: {len(said['points'])} timed, {len(said['failed'])} not")
            result.write()
        for worker in workers.values():
            worker.close()

    def _wait(self, left):
        """For half of the time that is left."""
        try:
            self.process.wait(timeout=max(1.0, left() / 2))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.say("(c): building stops: what is built is timed")

    def _said(self, asked, workers, left):
        workload, size = asked
        said = {"workload": graphs.subject(*asked), "size": size, "seed": self.options.seed, "timed_by":
                f"CUDA graphs, schedules in turn on the same tensors, {self.options.rounds} rounds on each of two "
                "allocations"}
        found = self.drawn.get(asked, {"reason": "out of time"})
        if isinstance(found, dict):
            return {**said, "points": [], "failed": [found]}
        kept = ("cubin", "launches", "workspace_bytes", "tensor_elements", "reason")
        built = [self.built.get(f"{key_of(*asked)} {one['schedule']}", {"reason": "was not built in time"})
                 for one in found]
        request = {"do": "rank", "workload": workload, "size": size, "rounds": self.options.rounds,
                   "seed": self.options.seed, "answers": [{k: a[k] for k in kept if k in a} for a in built]}
        answer = ({"reason": "out of time"} if left() < 10 else
                  workers[workload].ask(request, min(MOST_SECONDS, left())))
        points = []
        for i, one in enumerate(found):
            point = {k: one[k] for k in ("schedule", "rank", "tree", "latency_seconds") if k in one}
            point["predicted_seconds"] = one["seconds"]
            point |= {k: built[i][k] for k in ("source_fnv64",) if k in built[i]}
            points.append(point | (answer["points"][i] if "points" in answer else
                                   {"reason": answer.get("reason", "the process has timed nothing")}))
        return {**said, "points": [p for p in points if "reason" not in p],
                "failed": [p for p in points if "reason" in p]}
