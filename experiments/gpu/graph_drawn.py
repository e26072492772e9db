"""(c) of `graphs`: schedules that are drawn from all that a graph's longest kernel could have, each verified
and timed beside what the model says of it.
"""
import itertools
import json
import os
import signal
import subprocess
import threading

import graph_functions as graphs

KEPT_SECONDS = 36  # of the budget for timing what is built, when building takes too long


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
        self.process, self.drawn, self.requests, self.answers = None, {}, {}, {}
        self.asked = [(w, size) for size in options.ranking_sizes for w in options.workloads]
        self.thread = threading.Thread(target=self._begin)

    def start(self):
        self.thread.start()

    def _begin(self):
        for asked in self.asked:
            found = self.drawn[asked] = drawn(self.options, self.stitch, *asked)
            if isinstance(found, dict):
                self.say(f"(c) {key_of(*asked)}: {found['reason']}")
                continue
            base = {"workload": graphs.subject(*asked), "model": self.options.model, "cold": True}
            self.requests[asked] = [{**base, **one["request"], "name": f"{key_of(*asked)} {one['schedule']}"}
                                    for one in found]
        every = [r for requests in self.requests.values() for r in requests]
        if every:
            words, _ = self.command.words(["run"], every, ["--build-only"])
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
            try:
                self.process.wait(timeout=max(1.0, left() - KEPT_SECONDS))
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.say("(c): building stops: what is built is timed")
        self._time(max(5.0, left() - 5))
        for asked in self.asked:
            result.document["ranking"][key_of(*asked)] = said = self._said(asked)
            self.say(f"(c) {key_of(*asked)}: {len(said['points'])} of {len(self.requests.get(asked, []))} timed")
        result.write()

    def _time(self, seconds):
        """All in one batch, whose references are evaluated side by side; graphs take turns, so that each has some
        times where there is no time for all."""
        turns = itertools.zip_longest(*([(asked, i) for i in range(len(requests))]
                                        for asked, requests in self.requests.items()))
        order = [one for turn in turns for one in turn if one]
        answers = self.command.answers(["run", "--seed", str(self.options.seed)],
                                       [self.requests[asked][i] for asked, i in order], seconds,
                                       ["--seconds", "0.02"]) if order else []
        self.answers = dict(zip(order, answers))

    def _said(self, asked):
        said = {"workload": graphs.subject(*asked), "size": asked[1], "seed": self.options.seed}
        found = self.drawn.get(asked, {"reason": "out of time"})
        if isinstance(found, dict):
            return {**said, "points": [], "failed": [found]}
        points = []
        for i, one in enumerate(found):
            point = {k: one[k] for k in ("schedule", "rank", "tree", "latency_seconds") if k in one}
            point["predicted_seconds"] = one["seconds"]
            point |= {k: v for k, v in self.answers[asked, i].items()
                      if k in ("seconds_median", "seconds_min", "relative_error", "reason", "source_fnv64")}
            points.append(point)
        return {**said, "points": [p for p in points if "reason" not in p],
                "failed": [p for p in points if "reason" in p]}
