"""Which operators share a kernel, and what the other choice would cost, from explain --why or plan --why."""

from .plot_input import (BLUE, BadInput, GREY, ORANGE, VERMILLION, light_grid, new_figure, number,
                         put_caption, rows, text)

MOST = 40  # edges that can still be read; the rest is counted in the caption


def is_edges(document):
    edges = document.get("edges")
    return isinstance(edges, list) and bool(edges) and isinstance(edges[0], dict) and "fused" in edges[0]


def _edges(document, where):
    """[(label, fused, together, apart)] in the answer's order, microseconds or bytes, and the unit."""
    found, unit = [], None
    for i, row in enumerate(rows(document, "edges", where)):
        at = f"{where}: edges[{i}]"
        for key in ("from", "tensor", "to"):
            if not isinstance(row.get(key), str):
                raise BadInput(f"{at}.{key}: is not a name; accepted: the JSON of explain")
        unit = unit or ("seconds" if "seconds_fused" in row or "seconds_apart" in row else "bytes")
        scale = 1e6 if unit == "seconds" else 1
        both = [number(row, f"{unit}_{which}", at, missing=True) for which in ("fused", "apart")]
        found.append((f"{row['from']} > {row['tensor']} > {row['to']}", bool(row.get("fused")),
                      *[None if v is None else v * scale for v in both]))
    return found, "µs" if unit == "seconds" else "bytes"


def _weight(edge):
    """What the choice decides."""
    _, _, together, apart = edge
    return -1 if together is None or apart is None else abs(together - apart)


def draw_edges(document, where):
    """A figure: two bars an edge, the choice that was made in full colour, what decides most on top."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    edges, unit = _edges(document, where)
    shown = sorted(edges, key=_weight, reverse=True)[:MOST]
    figure = new_figure(7.4, 1.6 + 0.33 * len(shown))
    axes = figure.subplots()
    largest = max([v for e in shown for v in e[2:] if v is not None], default=1)
    for place, (_, fused, together, apart) in enumerate(shown):
        for value, low, colour, chosen in ((together, -0.38, BLUE, fused), (apart, 0.0, ORANGE, not fused)):
            if value is None:
                axes.plot([0.004 * largest], [place + low + 0.19], marker="x", color=VERMILLION, markersize=5)
                continue
            axes.barh(place + low + 0.19, value, 0.36, color=colour, alpha=1 if chosen else 0.35,
                      edgecolor="black", linewidth=0.9 if chosen else 0.3, hatch="" if chosen else "////")
            axes.annotate(f" {value:.3g}", (value, place + low + 0.19), va="center", fontsize=6.5,
                          fontweight="bold" if chosen else "normal", color="black" if chosen else GREY)
    axes.set_yticks(range(len(shown)), [e[0] for e in shown], fontsize=7.5, family="monospace")
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, largest * 1.14)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(f"predicted for the kernels on both sides ({unit})")
    axes.set_ylabel("operator > tensor > operator")
    light_grid(axes, "x")
    axes.legend(handles=[Patch(facecolor=BLUE, edgecolor="black", label="one kernel"),
                         Patch(facecolor=ORANGE, edgecolor="black", label="kernels of their own"),
                         Patch(facecolor="white", hatch="////", edgecolor="black", label="not chosen"),
                         Line2D([], [], marker="x", color=VERMILLION, linestyle="none", label="no such kernel")],
                fontsize=7.5, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False)
    axes.set_title(text(document, "workload", where), fontsize=10, pad=22)
    fused = sum(e[1] for e in edges)
    lines = [f"{fused} of {len(edges)} tensors between operators stay in a kernel; machine: {text(document, 'machine')}; "
             f"predicted by {text(document, 'model', 'the planner')}"]
    if len(edges) > MOST:
        lines.append(f"the {MOST} that decide most of {len(edges)}")
    put_caption(axes, lines, 104, 36)
    return figure
