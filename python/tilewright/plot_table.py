"""The pictures of ``reproduce``'s tables: ``side-by-side``, several models' plans of each workload, and
``table``, every column of numbers of any result that has a table.
"""

import math
import re

from .plot_input import (COLOURS, GREY, MARKERS, BadInput, light_grid, new_figure, number, put_caption, rows,
                         text, unit_for)

MOST_COLUMNS = 6  # of a table, that are drawn


def is_side_by_side(document):
    return isinstance(document.get("side_by_side"), list)


def is_table(document):
    return isinstance(document.get("table"), list) and isinstance(document.get("columns"), list)


def _measured(plan, where):
    found = plan.get("measured")
    return None if found is None else number(found, "seconds", f"{where}.measured")


class SideBySide:
    """What the file says, checked."""

    def __init__(self, document, where):
        self.document, self.workloads, self.models, self.others = document, [], [], []
        self.values = {}  # (what, who, row) -> number
        for i, row in enumerate(rows(document, "side_by_side", where)):
            at = f"{where}: side_by_side[{i}]"
            self.workloads.append(text(row, "workload"))
            least = number(row, "compulsory_bytes", at)
            for plan in rows(row, "plans", at):
                who = text(plan, "model")
                if who not in self.models:
                    self.models.append(who)
                self.values["kernels", who, i] = number(plan, "kernels", at, missing=True)
                moved = number(plan, "bytes", at, missing=True)
                self.values["bytes", who, i] = moved / least if moved and least else None
                self.values["predicted", who, i] = number(plan, "seconds", at, missing=True)
                self.values["own", who, i] = number(plan, "own_seconds", at, missing=True)
                self.values["measured", who, i] = _measured(plan, at)
            for who, found in (row.get("others") or {}).items():
                if who not in self.others:
                    self.others.append(who)
                self.values["measured", who, i] = number(found, "seconds", f"{at}.others.{who}")

    def without(self):
        """Models that have no plan of some workload, with how many."""
        counts = {who: sum(self.values.get(("kernels", who, i)) is None for i in range(len(self.workloads)))
                  for who in self.models}
        return [f"{who} of {n}" for who, n in counts.items() if n]

    def devices(self):
        """Where times were measured."""
        return sorted({p["measured"].get("device", "not said") for row in self.document["side_by_side"]
                       for p in row["plans"] if p.get("measured")})


def draw_side_by_side(document, where):
    """A row of dots a quantity: kernels, bytes over the workload's own, predicted and measured time."""
    found = SideBySide(document, where)
    count = len(found.workloads)
    figure = new_figure(max(7, 0.34 * count + 3), 16)
    panels = [("kernels", "kernels", 1), ("bytes", "bytes over compulsory", 1),
              ("predicted", f"predicted us ({text(document, 'seconds_by', 'one model')})", 1e6),
              ("own", "predicted us (the plan's own model)", 1e6), ("measured", "measured us", 1e6)]
    for axes, (what, label, scale) in zip(figure.subplots(len(panels), 1, sharex=True), panels):
        names = found.models + (found.others if what == "measured" else [])
        for n, who in enumerate(names):
            points = [(i + 0.6 * (n + 0.5) / len(names) - 0.3, scale * v) for i in range(count)
                      if (v := found.values.get((what, who, i))) is not None and v > 0]
            if points:
                axes.plot(*zip(*points), MARKERS[n % len(MARKERS)], markersize=4,
                          color=COLOURS[n % len(COLOURS)],
                          label=who if who in found.models else f"{who} itself")
        for i in range(1, count):
            axes.axvline(i - 0.5, color="#eeeeee", linewidth=0.5)
        axes.set_yscale("log")
        axes.set_ylabel(label, fontsize=8)
        light_grid(axes, "y")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.005, 1))
    axes.set_xticks(range(count), found.workloads, rotation=90, fontsize=6)
    axes.set_xlim(-0.6, count - 0.4)
    figure.suptitle(text(document, "title", ""), fontsize=10, y=0.9)
    put_caption(axes, [f"machine planned for: {text(document, 'machine')}; measured on: "
                       + (", ".join(found.devices()) or "nothing recorded"),
                       "bytes: each kernel's inputs and outputs once; no dot: no plan, or not recorded",
                       "workloads without a plan: " + (", ".join(found.without()) or "none")],
                110, 240)
    return figure


def _as_number(cell):
    """A cell as a number; None where it is text. "-" is a number that is missing."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        return float(cell) if math.isfinite(cell) else None
    if not isinstance(cell, str):
        return None
    try:
        value = float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def numeric_columns(document, where):
    """([label of each row], [(column, [number or None])]) of columns that hold numbers and gaps alone."""
    columns, table = document["columns"], document["table"]
    if not table or not all(isinstance(r, list) and len(r) == len(columns) for r in table):
        raise BadInput(f"{where}: table: is not a list of rows of {len(columns)} cells; accepted: at least one row")
    found = []
    texts = []
    for c, name in enumerate(columns):
        cells = [row[c] for row in table]
        values = [_as_number(cell) for cell in cells]
        missing = all(v is not None or cell in ("-", "", None) for v, cell in zip(values, cells))
        if missing and any(v is not None for v in values):
            found.append((str(name), values))
        elif not missing:
            texts.append(c)
    labels = [", ".join(str(row[c]) for c in texts[:2]) or str(i + 1) for i, row in enumerate(table)]
    return labels, found


def draw_table(document, where):
    """Bars of each column of numbers, to its own scale; of long tables the first columns."""
    from matplotlib.ticker import MaxNLocator

    labels, found = numeric_columns(document, where)
    if not found:
        raise BadInput(f"{where}: table: no column is of numbers; accepted: a table with at least one")
    telling = [(name, values) for name, values in found if any(values)] or found  # columns of zeros say nothing
    drawn = telling[:MOST_COLUMNS]
    left_out = [name for name, _ in found if name not in [n for n, _ in drawn]]
    figure = new_figure(2.6 + 2.2 * len(drawn), max(3, 0.24 * len(labels) + 1.5))
    for c, (axes, (name, values)) in enumerate(zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn)):
        there = [(i, v) for i, v in enumerate(values) if v is not None]
        if "bytes" in re.findall("[a-z]+", name):
            size, unit = unit_for([v for _, v in there])
            there, name = [(i, v / size) for i, v in there], f"{name}, {unit}" if size > 1 else name
        axes.barh([i for i, _ in there], [v for _, v in there], color=COLOURS[c % len(COLOURS)],
                  edgecolor="black", linewidth=0.4)
        positive = [v for _, v in there if v > 0]
        if positive and len(positive) == len(there) and max(positive) > 100 * min(positive):
            axes.set_xscale("log")
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), labels if c == 0 else [""] * len(labels), fontsize=7)
        axes.set_title(name, fontsize=7, color="black" if len(there) == len(labels) else GREY)
        axes.tick_params(axis="x", labelsize=6)
        axes.xaxis.offsetText.set_fontsize(6)
        if all(v == int(v) for _, v in there) and axes.get_xscale() == "linear":
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        light_grid(axes, "x")
    figure.suptitle(text(document, "title", ""), fontsize=10, y=1 + 0.12 / figure.get_figheight())
    lines = [f"command: {text(document, 'command')}"]
    if left_out:
        lines.append("more columns in the file: " + ", ".join(left_out))
    put_caption(figure.axes[0], lines, 40 + 30 * len(drawn), 30)
    return figure
