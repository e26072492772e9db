"""Schedules of one graph timed in turn, all on the very same tensors, so that neither the clock's drift nor
where tensors lie tells one from another. All of it is done twice, on tensors that are allocated anew: how
the two orders agree says what noise leaves to any prediction.
"""
import math
import random
import statistics
import time

import torch
from graph_contestants import Size, frobenius, home, ours, worst

BATCH_SECONDS, WARM_SECONDS = 4e-3, 50e-3
PADS = (0, 201 << 20)  # bytes that are allocated before a layout's tensors


class Layout:
    """One allocation of the tensors, and the schedules that run on it."""

    def __init__(self, workload, name, pad, answers, tolerance):
        torch.cuda.empty_cache()
        self.pad = torch.empty(pad, dtype=torch.uint8, device="cuda")
        self.size = Size(workload, name)
        self.references = {i: self.size.function(**{t: v.double() if v.is_floating_point() else v
                                                    for t, v in self.size.sets[i].items()})
                           for i in {0, len(self.size.sets) - 1}}
        self.full, self.contestants, self.said = None, {}, []
        for n, answer in enumerate(answers):
            self.said.append(self._prepare(n, answer, tolerance))
        start = time.monotonic()
        while self.contestants and time.monotonic() - start < WARM_SECONDS:  # the clock rises
            next(iter(self.contestants.values())).seconds(3)
        self.times = {n: max(1, math.ceil(BATCH_SECONDS / max(c.seconds(2), 1e-6)))
                      for n, c in self.contestants.items()}

    def _prepare(self, n, answer, tolerance):
        if "reason" in answer:
            return {"reason": answer["reason"]}
        self.full = self.full or home(self.size, answer)
        contestant = ours(self.size, answer, self.full)
        error = worst([self._error(contestant, i) for i in self.references])
        if not error <= tolerance:
            return {"reason": f"wrong: relative error {error:.1e}, at most {tolerance:.0e}"}
        self.contestants[n] = contestant
        return {"relative_error": error}

    def _error(self, contestant, i):
        for tensors in self.full:  # what another schedule has left must not pass
            for t in set(tensors) - set(self.size.sets[0]):
                tensors[t].fill_(float("nan"))
        return worst([frobenius(got.reshape(right.shape), right)
                      for got, right in zip(contestant.outputs(i), self.references[i])])

    def round(self, order):
        """{schedule: seconds a run}, in a shuffled order."""
        found = {}
        for n in order.sample(list(self.contestants), len(self.contestants)):
            c = self.contestants[n]
            c.graph.replay()  # so that the GPU does not wait between what is timed
            found[n] = c.seconds(self.times[n]) / c.runs
        return found


def ranked(request, tolerance):
    """A point an answer: seconds_median over all rounds, seconds_layouts of each layout alone."""
    found = [[] for _ in request["answers"]]
    for number, pad in enumerate(PADS):
        layout = Layout(request["workload"], request["size"], pad, request["answers"], tolerance)
        order = random.Random(request["seed"] + number)
        rounds = [layout.round(order) for _ in range(request["rounds"])]
        for n, said in enumerate(layout.said):
            found[n].append({**said, "seconds": [r[n] for r in rounds if n in r]})
        del layout
    return [point(layouts) for layouts in found]


def point(layouts):
    for layout in layouts:
        if "reason" in layout:
            return {"reason": layout["reason"]}
    every = [s for layout in layouts for s in layout["seconds"]]
    return {"relative_error": worst([layout["relative_error"] for layout in layouts]),
            "seconds_median": statistics.median(every), "seconds_min": min(every),
            "seconds_layouts": [statistics.median(layout["seconds"]) for layout in layouts]}
