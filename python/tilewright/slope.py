"""The ski slope: the least bytes moved by buffer size, proven and attainable, fused and not.

Drawn from the JSON of ``explain --curve`` or of ``reproduce bounds/...``; a machine's levels are
vertical lines, measurements are points.
"""

import math

from .plot_input import (BLUE, BadInput, GREY, VERMILLION, amount, balanced, light_grid, new_figure,
                         put_caption)

# key in a row -> (of which kernels, label, style)
SERIES = [
    ("unfused", "attainable_bytes", "unfused, attainable", dict(color=BLUE, linewidth=1.8)),
    ("unfused", "proven_bytes", "unfused, proven", dict(color=BLUE, linewidth=1, linestyle="--")),
    ("fused", "attainable_bytes", "fused, attainable", dict(color=VERMILLION, linewidth=1.8)),
    ("fused", "proven_without_recomputation_bytes", "fused, proven, nothing recomputed",
     dict(color=VERMILLION, linewidth=1, linestyle="--")),
    ("fused", "proven_bytes", "any plan, proven", dict(color=GREY, linewidth=1, linestyle=":")),
]
MEASURED_MARKS = "os^vDPX*<>"


def _number(row, key, where, missing_is_good=False):
    value = row.get(key) if isinstance(row, dict) else None
    if value is None and missing_is_good:
        return None
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value <= 0:
        raise BadInput(f"{where}.{key}: {value!r} is not a number of bytes; accepted: above 0")
    return value


def _list(document, key, where):
    found = document.get(key, [])
    if not isinstance(found, list):
        raise BadInput(f"{where}: {key}: is not a list; accepted: the JSON of explain --curve")
    return found


def series_of(document, where):
    """[(label, style, [(buffer, bytes)])] of what the document has. Raises BadInput."""
    rows = _list(document, "curve", where)
    if not rows:
        raise BadInput(f"{where}: curve: is empty; accepted: at least one row")
    found = []
    for kernels, key, label, style in SERIES:
        points = []
        for i, row in enumerate(rows):
            at = f"{where}: curve[{i}]"
            size = _number(row, "buffer_bytes", at)
            block = row.get(kernels)
            if block is None:
                continue
            if not isinstance(block, dict):
                raise BadInput(f"{at}.{kernels}: is not an object; accepted: one with {key}")
            value = _number(block, key, f"{at}.{kernels}", missing_is_good=True)
            if value is not None:
                points.append((size, value))
        if points:
            found.append((label, style, points))
    if not found:
        raise BadInput(f"{where}: curve: holds no bytes; accepted: the JSON of explain --curve")
    return found


def marks_of(document, where):
    """(measured [(name, buffer, bytes)], levels [(name, bytes)]). Raises BadInput."""
    measured = []
    for i, row in enumerate(_list(document, "measured", where)):
        at = f"{where}: measured[{i}]"
        point = (_number(row, "buffer_bytes", at), _number(row, "measured_bytes", at))
        measured.append((str(row.get("name", "measured")), *point))
    levels = []
    for i, row in enumerate(_list(document, "levels", where)):
        size = _number(row, "buffer_bytes", f"{where}: levels[{i}]")
        levels.append((str(row.get("level", "")), size))
    return measured, levels


def caption(document):
    lines = []
    minimum = document.get("minimum")
    for kernels in ("unfused", "fused"):
        least = minimum.get(kernels) if isinstance(minimum, dict) else None
        if isinstance(least, dict) and isinstance(least.get("traffic_bytes"), int):
            lines.append(f"{kernels}: at least {amount(least['traffic_bytes'])}, from a buffer of "
                         f"{amount(least['buffer_bytes'])} on")
    cross = document.get("crossover_bytes")
    if isinstance(cross, int):
        lines.append(f"fusion first moves less with {amount(cross)}")
    if isinstance(document.get("measured_source"), str):
        lines.append(f"measured (source: paper): {document['measured_source']}")
    lines.append(f"machine: {document.get('machine') or 'none'}; command: "
                 f"{document.get('command', 'not recorded')}")
    return lines


def draw_slope(document, where):
    """A matplotlib figure, both axes logarithmic, with sizes written out."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    series = series_of(document, where)
    measured, levels = marks_of(document, where)
    figure = new_figure(7.2, 5.2)
    axes = figure.subplots()
    for label, style, points in series:
        axes.plot([p[0] for p in points], [p[1] for p in points], label=label, zorder=2,
                  drawstyle="steps-post" if "attainable" in label else "default", **style)
    for i, (name, size, value) in enumerate(measured):
        axes.scatter([size], [value], s=30, marker=MEASURED_MARKS[i % len(MEASURED_MARKS)],
                     color="black", label=f"{name}, measured", zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, size in levels:
        axes.axvline(size, color=GREY, linewidth=0.8, zorder=1)
        axes.annotate(f"{name} {amount(size)}", (size, 1), xycoords=("data", "axes fraction"),
                      xytext=(-2, -4), textcoords="offset points", rotation=90, va="top", ha="right",
                      fontsize=7, color=GREY)
    cross = document.get("crossover_bytes")
    if isinstance(cross, int) and cross > 0:
        axes.axvline(cross, color="black", linewidth=0.9, linestyle="-.", zorder=1)
        axes.annotate(f"fusion pays from {amount(cross)}", (cross, 1), xycoords=("data", "axes fraction"),
                      xytext=(-3, -4), textcoords="offset points", rotation=90, va="top", ha="right",
                      fontsize=7)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=4 if axis is axes.yaxis else 8))
        axis.set_major_formatter(FuncFormatter(lambda value, _: amount(value)))
        axis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=8)
    axes.set_xlabel("buffer size")
    axes.set_ylabel("bytes moved")
    light_grid(axes)
    axes.legend(loc="lower left", fontsize=7.5, framealpha=0.9)  # every curve falls to the right
    heading = [str(document[k]) for k in ("title", "workload") if document.get(k)]
    axes.set_title(balanced(heading, 84) or where, fontsize=10)
    put_caption(axes, caption(document), 110)
    return figure
