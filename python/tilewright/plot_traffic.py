"""Traffic by level and tensor as stacked bars, from predict, simulate, measure; and plans of compare."""

from .plot_input import (BadInput, COLOURS, HATCHES, MARKERS, light_grid, new_figure, number, put_caption,
                         rows, source_line, text, unit_for, workload_of)


def is_traffic(document):
    return isinstance(document.get("traffic"), list)


def _entries(document, where):
    """{boundary: {tensor: (read, written)}}, in the document's order."""
    found = {}
    for i, row in enumerate(rows(document, "traffic", where)):
        at = f"{where}: traffic[{i}]"
        boundary, tensor = row.get("boundary"), row.get("tensor")
        if not isinstance(boundary, str) or not isinstance(tensor, str):
            raise BadInput(f"{at}: names no boundary and tensor; accepted: the JSON of simulate")
        moved = found.setdefault(boundary, {}).setdefault(tensor, [0, 0])
        moved[0] += number(row, "read_bytes", at)
        moved[1] += number(row, "written_bytes", at)
    return found


def _bar(axes, place, width, parts, style, size):
    """One stacked bar of (tensor, bytes); returns its height."""
    bottom = 0
    for tensor, value in parts:
        if value:
            colour, hatch = style[tensor]
            axes.bar(place, value / size, width, bottom=bottom / size, color=colour, hatch=hatch,
                     edgecolor="black", linewidth=0.5)
            bottom += value
    return bottom


def draw_traffic(document, where):
    """A figure: for each boundary one bar of what is read (inwards) and one of what is written."""
    from matplotlib.patches import Patch

    found = _entries(document, where)
    tensors = list(dict.fromkeys(t for by in found.values() for t in by))
    style = {t: (COLOURS[i % len(COLOURS)], HATCHES[i % len(HATCHES)]) for i, t in enumerate(tensors)}
    sums = [[sum(m[d] for m in by.values()) for d in (0, 1)] for by in found.values()]
    size, unit = unit_for([max(pair) for pair in sums])
    figure = new_figure(max(4.2, 1.9 * len(found) + 2), 4.4)
    axes = figure.subplots()
    for place, by in enumerate(found.values()):
        for side, offset in ((0, -0.2), (1, 0.2)):
            top = _bar(axes, place + offset, 0.36, [(t, m[side]) for t, m in by.items()], style, size)
            axes.annotate(f"{top / size:.3g}", (place + offset, top / size), (0, 2),
                          textcoords="offset points", ha="center", fontsize=8)
    axes.set_xticks([p + o for p in range(len(found)) for o in (-0.2, 0.2)],
                    ["read", "written"] * len(found), fontsize=8)
    for place, boundary in enumerate(found):
        axes.annotate(boundary, (place, 0), (0, -28), xycoords=("data", "axes fraction"),
                      textcoords="offset points", ha="center", fontsize=10)
    axes.set_ylabel(f"bytes moved ({unit})")
    axes.margins(y=0.1)
    light_grid(axes, "y")
    axes.legend(handles=[Patch(facecolor=c, hatch=h, edgecolor="black", label=t)
                         for t, (c, h) in style.items()], title="tensor", fontsize=8,
                title_fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    axes.set_title(workload_of(document, where), fontsize=10)
    counts = document.get("counts")
    lines = ["read: towards the inner level; written: out of it" + (
        f"; write-allocate {'counted as read' if counts.get('write_allocate') else 'none'}"
        if isinstance(counts, dict) else ""), source_line(document)]
    put_caption(axes, lines, 92, 44)
    return figure


MARK_HEIGHT = 0.11  # inches that a mark and the gap below it take


def is_compared(document):
    return isinstance(document.get("plans"), list) and "bound_bytes" in document


def _compared_row(row, where):
    """(label, exact, [(model, its price)]) of one plan, or None where it has no count. The label says why the bound
    does not hold for a plan: it does not fit, or is for another level."""
    if row.get("exact_bytes") is None:
        return None
    prices = [(str(p.get("by")), number(p, "volume_bytes", f"{where}.prices"))
              for p in row.get("prices", []) if p.get("volume_bytes") is not None]
    apart = "too large" if row.get("fits") is False else ""
    if not apart and row.get("gap", 0) is None and row.get("level"):
        apart = f"for {row['level']}"  # planned for another level than the bound's
    name = f"{row.get('model')}'s plan" + (f"\n({apart})" if apart else "")
    return name, number(row, "exact_bytes", where), prices


def draw_compared(document, where):
    """A figure: for each model's plan a bar of what exact counts, on it a mark of every model's price."""
    from matplotlib.ticker import FuncFormatter

    plans = [_compared_row(row, f"{where}: plans[{i}]")
             for i, row in enumerate(rows(document, "plans", where))]
    reasons = {}  # each is said once
    for row, p in zip(document["plans"], plans):
        if p is None:
            reasons.setdefault(row.get("reason") or "exact does not count its plan", []).append(str(row.get("model")))
    without = [f"{', '.join(models)} ({reason})" for reason, models in reasons.items()]
    plans = [p for p in plans if p is not None]
    if not plans:
        raise BadInput(f"{where}: plans: none has exact_bytes; accepted: the JSON of compare")
    pricers = list(dict.fromkeys(name for _, _, prices in plans for name, _ in prices))
    bound = number(document, "bound_bytes", where)
    values = [bound] + [v for _, exact, prices in plans for v in [exact] + [p for _, p in prices]]
    size, unit = unit_for(values)
    # Each model's marks have a line of their own in a row, as high as a mark: they overlap in no row.
    row_height = max(0.36, MARK_HEIGHT * len(pricers) / 0.86)
    figure = new_figure(5.2, 0.9 + row_height * max(len(plans), 1.44 / row_height))
    axes = figure.subplots()
    axes.barh(range(len(plans)), [exact / size for _, exact, _ in plans], 0.86, label="exact (truth)",
              color="#cccccc", edgecolor="black", linewidth=0.5)
    for i, pricer in enumerate(pricers):
        said = [(dict(prices)[pricer] / size, p + 0.86 * ((i + 0.5) / len(pricers) - 0.5))
                for p, (_, _, prices) in enumerate(plans) if pricer in dict(prices)]
        axes.plot([x for x, _ in said], [y for _, y in said], linestyle="none",
                  marker=MARKERS[i % len(MARKERS)], markersize=5, label=f"priced by {pricer}",
                  color=COLOURS[i % len(COLOURS)], markeredgecolor="black", markeredgewidth=0.5)
    axes.axvline(bound / size, color="black", linestyle="--", linewidth=1,
                 label=f"bound, {text(document, 'bound', '')}")
    positive = [v for v in values if v > 0]
    if max(positive) > 30 * min(positive):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(range(len(plans)), [p[0] for p in plans], fontsize=8)
    axes.set_ylim(len(plans) - 0.5, -0.5)
    axes.set_xlabel(f"bytes moved ({unit})")
    light_grid(axes, "x")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.02))
    axes.set_title(workload_of(document, where), fontsize=10)
    lines = [f"{text(document, 'counted', 'bytes at the level')}; prices are predicted, exact is counted "
             "in closed form", f"bound: {text(document, 'bound_is')}",
             f"machine: {text(document, 'machine')}, level {text(document, 'level')}"]
    if any("(too large)" in p[0] for p in plans):
        lines.append("too large: the plan needs more than the level holds, and the bound does not hold for it")
    if without:
        lines.append("not drawn: " + "; ".join(without))
    put_caption(axes, lines, 88, 38)
    return figure
