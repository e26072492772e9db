"""The pictures of ``reproduce``'s tables: ``side-by-side``, several models' plans of each workload, and
``table``, every column of numbers of any result that has a table.
"""

import math
import re

from .plot_input import (BLUE, COLOURS, GREY, MARKERS, PAGE, BadInput, balanced, filled, light_grid, new_figure, number,
                         put_caption, report_lines, rows, text, unit_for, width_of)

MOST_COLUMNS = 6  # of a table, that are drawn
MOST_BARS = 60  # a column; of more rows, those with the same first text share a row of marks
# What a result calls those that were timed beside the plans, as people know them.
OTHERS = {"xla": "XLA", "compile": "torch.compile", "eager": "PyTorch, eager", "cudnn": "cuDNN"}


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


def _panel(axes, found, what, scale):
    """A row of marks a workload, each model's a little below the one before; their (mark, name)."""
    names, count = found.models + (found.others if what == "measured" else []), len(found.workloads)
    marks = []
    for n, who in enumerate(names):
        points = [(scale * v, i + 0.7 * (n + 0.5) / len(names) - 0.35) for i in range(count)
                  if (v := found.values.get((what, who, i))) is not None and v > 0]
        if points:
            marks += axes.plot(*zip(*points), MARKERS[n % len(MARKERS)], markersize=2.8, color=COLOURS[n % len(COLOURS)],
                               label=who if who in found.models else OTHERS.get(who, who))
    axes.set_xscale("log")
    for i in range(1, count, 2):
        axes.axhspan(i - 0.5, i + 0.5, color="#f3f3f3", linewidth=0, zorder=0)
    light_grid(axes, "x")
    axes.tick_params(axis="x", labelsize=6.3)
    axes.tick_params(axis="y", length=0)
    return marks


def draw_side_by_side(document, where):
    """A row a workload and a column a quantity: kernels, bytes over the workload's own, predicted and measured time."""
    found = SideBySide(document, where)
    count, letters = len(found.workloads), 6.3  # points
    height = 0.152 * count + 2.2
    figure = new_figure(PAGE, height)
    by = text(document, "seconds_by", "one model")
    panels = [("kernels", "kernels", 1), ("bytes", "bytes moved /\ncompulsory\nbytes", 1),
              ("predicted", f"time (us)\npredicted by\n{by}", 1e6), ("own", "time (us)\npredicted by its\nown model", 1e6),
              ("measured", "time (us)\nmeasured", 1e6)]
    panels = [p for p in panels if any(v for (what, _, _), v in found.values.items() if what == p[0])]
    every, marks = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], {}
    for axes, (what, label, scale) in zip(every, panels):
        for mark in _panel(axes, found, what, scale):
            marks.setdefault(mark.get_label(), mark)
        axes.set_title(label, fontsize=6.5)
    every[0].set_yticks(range(count), found.workloads, fontsize=letters)
    every[0].set_ylim(count - 0.5, -0.5)
    left = (width_of(found.workloads, letters) + 0.15) / PAGE
    figure.subplots_adjust(left=left, right=0.995, top=1 - 0.95 / height, bottom=1.2 / height, wspace=0.16)
    figure.suptitle(balanced([text(document, "title", "")], 90), fontsize=9, va="top", y=1 - 0.12 / height)
    figure.legend(marks.values(), marks.keys(), fontsize=6.5, loc="lower center", ncols=5, bbox_to_anchor=(0.5, 0.6 / height), frameon=False)
    lines = [f"Machine planned for: {text(document, 'machine')}; measured on: " + (", ".join(found.devices()) or "nothing recorded")
             + ". Bytes: each kernel's inputs and outputs once. No mark: no plan, no prediction or no recording.",
             "Workloads without a plan: " + (", ".join(found.without()) or "none") + "."]
    figure.text(0.01, 0.05 / height, filled(lines, 115, "  "), fontsize=6.5, va="bottom")
    return figure


def _as_number(cell):
    """A cell as a number, which a count in brackets may follow; None where it is text. "-" is a number that is missing."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        return float(cell) if math.isfinite(cell) else None
    if not isinstance(cell, str):
        return None
    try:
        value = float(re.sub(r" \(\d+\)$", "", cell).replace(",", "").rstrip("%"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def numeric_columns(document, where):
    """([the texts that name a row, at most two], [(column, [number or None])]) of columns that hold numbers and gaps alone."""
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
        elif not missing and (len(table) == 1 or len(set(map(str, cells))) > 1):  # what all rows say names none
            texts.append(c)
    if not texts and len(found) > 1:  # then the first column of numbers does
        name, values = found.pop(0)
        return [("–" if v is None else f"{name} = {v:g}",) for v in values], found
    return [tuple(str(row[c]) for c in texts[:2]) or (str(i + 1),) for i, row in enumerate(table)], found


def _shared_rows(names):
    """Of a long table whose rows two texts name: ([first text], [second text], [(the place of each row's first text, of its
    second)]). None where that is not so, or where there are more second texts than marks."""
    if all(len(n) == 1 and " " in n[0] for n in names):  # one text, as "a workload its tiles"
        names = [tuple(n[0].rsplit(" ", 1)) for n in names]
    if len(names) <= MOST_BARS or any(len(n) != 2 for n in names) or len(set(names)) < len(names):
        return None
    first, second = list(dict.fromkeys(n[0] for n in names)), list(dict.fromkeys(n[1] for n in names))
    if len(second) > len(MARKERS):
        return None
    return first, second, [(first.index(a), second.index(b)) for a, b in names]


def _unit_of(cells):
    """"%" where every number of a column has it behind it."""
    return "%" if all(str(c).endswith("%") for c in cells if c not in ("-", "", None)) else ""


def _folded(label, width=36):
    """A row's name in lines, broken behind blanks, commas and colons."""
    lines = [""]
    for part in re.split("(?<=[ ,:])", label):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _draw_texts(document):
    """A table without numbers as it is: its cells, in columns as wide as their longest words."""
    cells = [[str(c).replace(" (paper)", "") for c in document["columns"]]]
    cells += [["–" if c in ("-", "", None) else str(c) for c in row] for row in document["table"]]
    longest = [max(max(map(len, row[c].split(" "))) + 1 for row in cells) for c in range(len(cells[0]))]
    letters = max(sum(longest), 100)
    widths = [w * letters / sum(longest) for w in longest]
    points = min(7, 7 * 118 / letters)
    cells = [[filled([cell], max(4, int(w))) for cell, w in zip(row, widths)] for row in cells]
    heights = [0.0165 * points * (1 + max(cell.count("\n") for cell in row)) + 0.08 for row in cells]
    figure = new_figure(PAGE, sum(heights) + 0.4)
    axes = figure.add_axes((0, 0, 1, sum(heights) / figure.get_figheight()))
    axes.set(xlim=(0, letters), ylim=(-sum(heights), 0))
    axes.set_axis_off()
    for r, row in enumerate(cells):
        top = -sum(heights[:r])
        axes.axhline(top, color=GREY, linewidth=0.8 if r < 2 else 0.3)
        for c, cell in enumerate(row):
            axes.text(sum(widths[:c]), top - 0.04, cell, fontsize=points, va="top", weight="bold" if r == 0 else "normal")
    figure.suptitle(balanced([text(document, "title", "")], 80), fontsize=10)
    paper = [str(c) for c in document["columns"] if "(paper)" in str(c)]
    lines = [f"as the paper has it: {', '.join(c.replace(' (paper)', '') for c in paper)}"] if paper else []
    put_caption(axes, lines + report_lines(document), below=10, whole_page=True)
    return figure


def draw_table(document, where):
    """Bars of each column of numbers, to its own scale: those that the file names as drawn, else the first ones. A long
    table has marks instead of bars, several in a row. A table of texts alone is written out."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    names, found = numeric_columns(document, where)
    if not found:
        return _draw_texts(document)
    shared = _shared_rows(names)
    labels = shared[0] if shared else [", ".join(n) for n in names]
    telling = [(name, values) for name, values in found if any(values)] or found  # columns of zeros say nothing
    # Where there are too many: what is found here, before what the paper prints.
    chosen = sorted(telling, key=lambda column: "(paper" in column[0])[:MOST_COLUMNS]
    asked = document.get("drawn") or []
    drawn = ([column for name in asked for column in found if column[0] == name]
             or [column for column in telling if any(column is c for c in chosen)])
    left_out = [name for name, _ in found if name not in [n for n, _ in drawn]]
    places = {str(name): c for c, name in enumerate(document["columns"])}
    labels = [_folded(label, 44 if shared else 36) for label in labels]
    letters = 7 if len(labels) <= 40 else 6  # points
    lines_each = 1 + max(label.count("\n") for label in labels)
    rows_height = max(0.3 * min(len(labels), 5), 0.026 * letters * len(labels) * (1 + 0.6 * (lines_each - 1)))
    figure, gaps = new_figure(PAGE, rows_height + 1.6), False
    left, top = width_of(labels, letters) + 0.15, 1 - 0.9 / figure.get_figheight()
    figure.subplots_adjust(left=left / PAGE, right=0.99, top=top, bottom=top - rows_height / figure.get_figheight(), wspace=0.22)
    across = max(8, int(16 * (PAGE - left) / len(drawn)))  # letters of a column's name
    for c, (axes, (name, values)) in enumerate(zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn)):
        there = [(i, v) for i, v in enumerate(values) if v is not None]
        unit = _unit_of([row[places[name]] for row in document["table"]])
        if "bytes" in re.findall("[a-z]+", name):
            size, unit = unit_for([v for _, v in there])
            there, unit = [(i, v / size) for i, v in there], unit if size > 1 else ""
        if shared:
            for m, who in enumerate(shared[1]):
                marks = [(v, shared[2][i][0] + 0.7 * (m + 0.5) / len(shared[1]) - 0.35) for i, v in there if shared[2][i][1] == m]
                axes.plot([x for x, _ in marks], [y for _, y in marks], MARKERS[m], color=COLOURS[m], markersize=3.2, label=who)
            for i in range(1, len(labels), 2):
                axes.axhspan(i - 0.5, i + 0.5, color="#f3f3f3", linewidth=0, zorder=0)
        else:
            axes.barh([i for i, _ in there], [v for _, v in there], color=BLUE, edgecolor="black", linewidth=0.4)
        positive = [v for _, v in there if v > 0]
        if positive and len(positive) == len(there) and max(positive) > 100 * min(positive):
            axes.set_xscale("log")
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), labels if c == 0 else [""] * len(labels), fontsize=letters)
        name = name if max(map(len, name.split(" "))) <= across else name.replace("/", " / ")
        axes.set_title(filled([f"{name}, {unit}" if unit else name], across), fontsize=6.5)
        for i in set(range(len(labels))) - {i for i, _ in there} if not shared else ():
            axes.text(0.02, i, "–", transform=axes.get_yaxis_transform(), fontsize=7, va="center", color=GREY)
            gaps = True
        axes.tick_params(axis="x", labelsize=6)
        axes.xaxis.offsetText.set_fontsize(6)
        if axes.get_xscale() == "linear":
            axes.xaxis.set_major_locator(MaxNLocator(3 if len(drawn) < 6 else 2, integer=all(v == int(v) for _, v in there)))
            if max(abs(v) for _, v in there) >= 10000:
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        light_grid(axes, "x")
    lines_above = max(axes.get_title().count("\n") for axes in figure.axes)
    figure.suptitle(balanced([text(document, "title", "")], 80), fontsize=10, va="bottom",
                    y=top + (0.25 + 0.13 * lines_above) / figure.get_figheight())
    lines = ["–: no value"] if gaps else ["a mark that is missing: no value"] if shared else []
    if shared:
        figure.axes[0].legend(fontsize=7, loc="upper left", ncols=min(4, len(shared[1])), frameon=False,
                              bbox_to_anchor=(0, 0), borderaxespad=2.4)
    if left_out:
        lines.append("more columns in the file: " + ", ".join(left_out))
    lines += report_lines(document)
    keys = math.ceil(len(shared[1]) / 4) if shared else 0  # lines of marks' names
    put_caption(figure.axes[0], lines, below=30 + 13 * keys, whole_page=True)
    return figure
