"""What ``reproduce`` answers as tables: our numbers beside the paper's (``beside``), and which loops
reuse each tensor under every order (``reuse``).
"""

import math

from .plot_input import (BLUE, BadInput, GREY, ORANGE, PAGE, PAGE_HEIGHT, balanced, filled, light_grid, new_figure,
                         put_caption, report_lines, rows, text)
from .plot_table import is_table

_MOST_ROWS = 60


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _shown(found, noun):
    """The first of them, and a line that says so where there are more."""
    left = len(found) - _MOST_ROWS
    return found[:_MOST_ROWS], [f"the first {_MOST_ROWS} of {len(found)} {noun}"] if left > 0 else []


def _height(name):
    """Of a row, in rows whose name is one line."""
    return 1 + 0.75 * name.count("\n")


def _name_rows(axes, names):
    """Names beside their rows, the first on top; where each row's middle is."""
    middles, end = [], -0.5
    for name in names:
        middles.append(end + _height(name) / 2)
        end += _height(name)
    axes.set_yticks(middles, names, fontsize=7)
    axes.set_ylim(end + 0.1, -0.6)
    return middles


def _without_common_end(names):
    """Names that end in the same words without them, and these words; the caption says them once."""
    split = [n.split(" ") for n in names]
    common = 0
    while len(names) > 1 and len({tuple(s[-common - 1:]) for s in split}) == 1 and min(map(len, split)) > common + 1:
        common += 1
    if not common:
        return names, ""
    return [" ".join(s[:-common]).rstrip(",: ") for s in split], " ".join(split[0][-common:])


def _scale(axes, values):
    """Logarithmic where values want it, else from 0 on; thousands and millions as k and M."""
    from matplotlib.ticker import EngFormatter, NullFormatter

    if min(values) > 0 and max(values) > 30 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif min(values) >= 0:
        axes.set_xlim(0, 1.08 * max(values) or 1)
    if max(map(abs, values)) >= 1000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    elif axes.get_xscale() == "log":
        axes.xaxis.set_major_formatter("{x:g}")


# ---- beside: ours and the paper's ---------------------------------------------------------------

def _pairs(document):
    found = document.get("compared")
    return [c for c in found if isinstance(c, dict) and _is_number(c.get("ours")) and _is_number(c.get("paper"))] \
        if isinstance(found, list) else []


def is_beside(document):
    return len(_pairs(document)) > 2 or bool(_pairs(document)) and not is_table(document)


def draw_beside(document, where):
    """A panel a unit: a row for each number, ours and the paper's on it."""
    pairs, more = _shown(_pairs(document), "numbers")
    names, everywhere = _without_common_end([str(c.get("what")) for c in pairs])
    names = [filled([n], 38) for n in names]
    more = [f"every row: {everywhere}", *more] if everywhere else more
    units = {}
    for c, name in zip(pairs, names):
        units.setdefault(str(c.get("unit")), []).append({**c, "what": name})
    heights = [max(2, sum(_height(c["what"]) for c in u)) + 2.2 for u in units.values()]
    figure = new_figure(PAGE - 0.9, min(0.26 * sum(heights) + 0.8, PAGE_HEIGHT))  # and the key beside it, the caption below
    panels = figure.subplots(len(units), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, (unit, found) in zip(panels, units.items()):
        middles = _name_rows(axes, [c["what"] for c in found])
        for y, c in zip(middles, found):
            axes.plot([c["ours"], c["paper"]], [y, y], color=GREY, linewidth=1, zorder=1)
        axes.scatter([c["paper"] for c in found], middles, s=60, marker="o", facecolors="none",
                     edgecolors=ORANGE, linewidths=1.6, label="paper's", zorder=2)
        axes.scatter([c["ours"] for c in found], middles, s=22, marker="D", color=BLUE, label="ours", zorder=3)
        _scale(axes, [v for c in found for v in (c["ours"], c["paper"])])
        axes.set_xlabel(unit or everywhere or "number or ratio, without a unit")
        light_grid(axes, "x")
    panels[0].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    panels[0].set_title(balanced([text(document, "title", where)], 60), fontsize=10)
    sources = sorted({str(c.get("ours_source")) for c in pairs})
    figure.tight_layout()
    put_caption(panels[-1], [f"ours: {'; '.join(sources)}", *more, *report_lines(document)], whole_page=True)
    return figure


# ---- reuse: orders by tensors -------------------------------------------------------------------

def is_reuse(document):
    found = document.get("rows")
    return isinstance(found, list) and bool(found) and all(isinstance(r, dict) and isinstance(r.get("reused_along"), dict) for r in found)


def draw_reuse(document, where):
    """A grid: an order a row, a tensor a column; the loops along which the tensor is reused, darker the more."""
    found = rows(document, "rows", where)
    tensors = list(dict.fromkeys(t for r in found for t in r["reused_along"]))
    if not tensors:
        raise BadInput(f"{where}: rows: name no tensor; accepted: the JSON of reproduce")
    shades = ["#ffffff", "#cfe3f1", "#7fb8d8", BLUE]
    figure = new_figure(1.6 + 1.1 * len(tensors), 0.24 * len(found) + 1.6)
    axes = figure.subplots()
    for y, row in enumerate(found):
        for x, tensor in enumerate(tensors):
            loops = row["reused_along"].get(tensor, [])
            axes.barh(y, 1, 0.94, x - 0.5, color=shades[min(len(loops), 3)], edgecolor=GREY, linewidth=0.4)
            axes.text(x, y, " ".join(loops) or "–", ha="center", va="center", fontsize=8,
                      color="white" if len(loops) > 2 else "black")
    _name_rows(axes, [str(r.get("order")) for r in found])
    axes.set_xticks(range(len(tensors)), tensors)
    axes.set_xlim(-0.5, len(tensors) - 0.5)
    axes.set_xlabel("tensor; in each field the loops along which it is reused")
    axes.set_ylabel("loop order, outermost loop first")
    axes.set_title(balanced([text(document, "title", where)], 44), fontsize=10)
    figure.tight_layout()
    put_caption(axes, report_lines(document), 30 + 14 * len(tensors))
    return figure
