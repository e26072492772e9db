"""The picture of ``simulate --occupancy FILE.json``: who holds how much of each cache over time.

One panel a level, the innermost on top: the lines that each tensor holds, stacked, over the accesses
that had been made. What stays white is empty.
"""

import textwrap

from .plot_input import BadInput, COLOURS, HATCHES, new_figure, put_caption

def is_occupancy(document):
    return isinstance(document, dict) and document.get("kind") == "occupancy"


def _count(value, where):
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{where}: {value!r} is not a count; accepted: 0 or more")
    return value


class Occupancy:
    """What the file says, checked: .levels as (name, lines), .times and .lines[level][tensor]."""

    def __init__(self, document, where):
        self.document = document
        self.tensors = document.get("tensors")
        levels, events = document.get("levels"), document.get("traceEvents")
        if not isinstance(self.tensors, list) or not self.tensors \
                or not all(isinstance(t, str) for t in self.tensors):
            raise BadInput(f"{where}: tensors: is not a list of names; accepted: simulate --occupancy's")
        if not isinstance(levels, list) or not levels or not isinstance(events, list):
            raise BadInput(f"{where}: levels, traceEvents: are missing; accepted: simulate "
                           "--occupancy's")
        self.levels = []
        for i, level in enumerate(levels):
            if not isinstance(level, dict) or not isinstance(level.get("level"), str):
                raise BadInput(f"{where}: levels[{i}]: is not a level; accepted: a name and its lines")
            self.levels.append((level["level"], _count(level.get("lines"), f"{where}: levels[{i}]")))
        self.times = {name: [] for name, _ in self.levels}
        self.lines = {name: {t: [] for t in self.tensors} for name, _ in self.levels}
        for i, event in enumerate(events):
            if isinstance(event, dict) and event.get("ph") == "C":
                self._add(event, f"{where}: traceEvents[{i}]")
        for name, _ in self.levels:
            if not self.times[name]:
                raise BadInput(f"{where}: traceEvents: has no sample of {name}; accepted: one or more")

    def _add(self, event, where):
        level, lines = event.get("name"), event.get("args")
        if level not in self.times or not isinstance(lines, dict) \
                or any(t not in lines for t in self.tensors):
            raise BadInput(f"{where}: is not a sample; accepted: a level and each tensor's lines")
        self.times[level].append(_count(event.get("ts"), f"{where}: ts"))
        for t in self.tensors:
            self.lines[level][t].append(_count(lines[t], f"{where}: {t}"))


def _grouped(count):
    return f"{count:,}" if isinstance(count, int) else "not recorded"


def draw(occupancy):
    """A matplotlib figure: a panel a level."""
    document, count = occupancy.document, len(occupancy.levels)
    figure = new_figure(9, 1 + 2.6 * count)
    panels = figure.subplots(count, 1, squeeze=False, sharex=True).flatten()
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(occupancy.tensors))]
    for axes, (level, lines) in zip(panels, occupancy.levels):
        held = occupancy.lines[level]
        bands = axes.stackplot(occupancy.times[level], [held[t] for t in occupancy.tensors],
                               labels=occupancy.tensors, colors=colours, linewidth=0.3,
                               edgecolor="black")
        for i, band in enumerate(bands):
            band.set_hatch(HATCHES[i % len(HATCHES)])
        axes.set_ylim(0, lines)
        axes.set_ylabel(f"lines held in {level}, of {lines:,}")
        axes.margins(x=0)
    panels[0].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    panels[-1].xaxis.set_major_formatter("{x:,.0f}")
    panels[-1].set_xlabel("time in accesses (touches of a line), sampled every "
                          f"{_grouped(document.get('stride_accesses'))}")
    title = (f"Cache lines held, by tensor: {document.get('workload', 'not recorded')} on "
             f"{document.get('machine', 'not recorded')}, simulated")
    panels[0].set_title(textwrap.fill(title, 100), fontsize=10)
    put_caption(panels[-1], [f"{_grouped(document.get('accesses'))} accesses; lines of " + ", ".join(
        f"{row['line_bytes']} bytes in {row['level']}" for row in document["levels"]
        if isinstance(row.get("line_bytes"), int)) + "; white: empty"], 110)
    return figure
