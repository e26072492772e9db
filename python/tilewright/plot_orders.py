"""The ranking of loop orders, from explain; the convergence of a search, from plan."""

from .plot_input import (BLUE, BadInput, GREY, ORANGE, VERMILLION, amount, light_grid, new_figure,
                         number, put_caption, rows, text, workload_of)

MOST = 48  # bars that can still be read; the rest is counted in the caption


def is_orders(document):
    return isinstance(document.get("orders"), list)


def draw_orders(document, where):
    """A figure: a bar an order, best on top; hatched where the order is not legal."""
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ranked = []
    for i, row in enumerate(rows(document, "orders", where)):
        at = f"{where}: orders[{i}]"
        if not isinstance(row.get("order"), str):
            raise BadInput(f"{at}.order: is not an order; accepted: the JSON of explain")
        volume = number(row, "volume_elements", at, missing=True)
        if volume is not None:
            ranked.append((volume, row["order"], bool(row.get("legal", True)),
                           bool(row.get("feasible", True)), str(row.get("tree", ""))))
    if not ranked:
        raise BadInput(f"{where}: orders: none has volume_elements; accepted: the JSON of explain")
    ranked.sort(key=lambda r: r[0])
    shown = ranked[:MOST]
    figure = new_figure(7, 1.5 + 0.21 * len(shown))
    axes = figure.subplots()
    for place, (volume, _, legal, feasible, _) in enumerate(shown):
        axes.barh(place, volume, 0.75, color=BLUE if legal and feasible else "#d9d9d9",
                  hatch="" if legal and feasible else "////", edgecolor="black", linewidth=0.5)
        axes.annotate(f" {volume:,}", (volume, place), va="center", fontsize=7)
    axes.set_yticks(range(len(shown)), [r[1] for r in shown], fontsize=8, family="monospace")
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, max(r[0] for r in shown) * 1.16)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("data movement (elements), least first")
    axes.set_ylabel("order, outermost loop first")
    light_grid(axes, "x")
    axes.legend(handles=[Patch(facecolor=BLUE, edgecolor="black", label="legal"),
                         Patch(facecolor="#d9d9d9", hatch="////", edgecolor="black",
                               label="not legal with several trips, or no tiles fit")],
                fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.0 + 0.25 / len(shown)), ncols=2,
                frameon=False)
    axes.set_title(workload_of(document, where), fontsize=10, pad=24)
    best, ties = shown[0], sum(r[0] == shown[0][0] for r in ranked)
    options = document.get("options")
    reading = options.get("reading") if isinstance(options, dict) else None
    lines = [f"best: {best[1]}" + (f", {best[4]}" if best[4] else "")
             + (f"; {ties} orders tie" if ties > 1 else ""),
             f"predicted by {document.get('model', 'a model')}{', reading ' + str(reading) if reading else ''}, tiles solved for "
             f"each order; capacity {text(document, 'capacity_elements')} elements of "
             f"{text(document, 'level')}; machine: {text(document, 'machine')}"]
    if len(ranked) > MOST:
        lines.append(f"the best {MOST} of {len(ranked)} orders")
    put_caption(axes, lines, 100, 36)
    return figure


def rounds_of(document):
    candidates = document.get("candidates")
    return candidates.get("rounds") if isinstance(candidates, dict) else None


def is_convergence(document):
    return isinstance(rounds_of(document), list)


def draw_convergence(document, where):
    """A figure: the best predicted time by candidates priced, round by round."""
    found = rows(document["candidates"], "rounds", f"{where}: candidates")
    priced, best, each = [], [], []
    for i, row in enumerate(found):
        at = f"{where}: candidates.rounds[{i}]"
        value = number(row, "best_seconds", at, missing=True)
        if value is None:
            continue  # nothing has run yet
        priced.append(number(row, "evaluated", at))
        best.append(value * 1e6)
        of_round = number(row, "round_best_seconds", at, missing=True)
        each.append(of_round * 1e6 if of_round is not None else float("nan"))
    if not priced:
        raise BadInput(f"{where}: candidates.rounds: no round has a candidate that runs; accepted: one")
    figure = new_figure(6.4, 4)
    axes = figure.subplots()
    axes.plot(priced, best, drawstyle="steps-post", color=BLUE, linewidth=1.8, label="best so far")
    axes.plot(priced, each, linestyle="none", marker="o", markersize=5, markerfacecolor="none",
              color=VERMILLION, label="best of the round")
    axes.set_xlabel("candidates priced")
    axes.set_ylabel("predicted time (µs)")
    axes.set_xlim(left=0)
    light_grid(axes)
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False)
    plan = document.get("plan") if isinstance(document.get("plan"), dict) else {}
    axes.set_title(workload_of(plan, where), fontsize=10, pad=22)
    c = document["candidates"]
    put_caption(axes, [
        f"{text(document, 'search')} search of {text(document, 'model')}, seed {text(document, 'seed')}: "
        f"{len(found)} rounds, {text(c, 'evaluated')} candidates priced (repeats counted), of "
        f"{text(c.get('after') or {}, 'rule4')} that the rules keep of {text(c, 'generated')}",
        f"times are predicted; machine: {text(plan, 'machine')}"], 84)
    return figure


def is_roofline(document):
    return isinstance(document.get("roofline"), dict)


def _roofs(document, where):
    roofline = document["roofline"]
    at = f"{where}: roofline"
    for key in ("peak_flops_per_second", "bandwidth_bytes_per_second"):
        if roofline.get(key) is None:
            raise BadInput(f"{at}.{key}: the machine file does not say it; accepted: a machine that does")
    instances = number(roofline, "instances", at, 1)
    return (number(roofline, "flops", at), number(roofline, "peak_flops_per_second", at, 1),
            number(roofline, "bandwidth_bytes_per_second", at, 1) * instances, instances)


def _kernels(document, where):
    """[(label, bytes, colour, marker)]: the plan, and the best without fusion."""
    bounds = document.get("bounds") if isinstance(document.get("bounds"), dict) else {}
    attainable = bounds.get("attainable") if isinstance(bounds.get("attainable"), dict) else {}
    found = []
    unfused = number(attainable, "unfused_bytes", f"{where}: bounds.attainable", 1, missing=True)
    if unfused is not None:
        found.append(("before fusion: the best with a kernel for each operator", unfused, ORANGE, "s"))
    exact = number(document, "exact_bytes", where, 1, missing=True)
    if exact is not None:
        found.append((f"after: {text(document, 'model')}'s plan", exact, BLUE, "o"))
    bound = number(document, "bound_bytes", where, 1, missing=True)
    if bound is not None:
        found.append(("proven bound: no plan moves less", bound, GREY, "D"))
    if not found:
        raise BadInput(f"{where}: exact_bytes: is missing; accepted: the JSON of plan")
    return found


def draw_roofline(document, where):
    """A figure: attainable FLOP/s by FLOPs a byte, with the plan before and after fusion."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    flops, peak, bandwidth, instances = _roofs(document, where)
    kernels = _kernels(document, where)
    ridge = peak / bandwidth
    at = [flops / k[1] for k in kernels]
    low, high = min(at + [ridge]) / 4, max(at + [ridge]) * 4
    figure = new_figure(6.8, 4.4)
    axes = figure.subplots()
    axes.loglog([low, ridge, high], [low * bandwidth / 1e9, peak / 1e9, peak / 1e9], color="black",
                linewidth=1.8, zorder=2)
    axes.axvline(ridge, color="#999999", linewidth=0.8, linestyle=":")
    for (label, moved, colour, marker), x in zip(kernels, at):
        y = min(peak, x * bandwidth) / 1e9
        axes.plot([x, x], [1e-9, y], color=colour, linewidth=0.9, linestyle="--", zorder=1)
        bound = marker == "D"  # hollow and larger, so that a plan that reaches it is seen within
        axes.plot([x], [y], marker=marker, color=colour, markersize=14 if bound else 9,
                  markerfacecolor="none" if bound else colour, markeredgewidth=1.5 if bound else 1,
                  markeredgecolor=colour if bound else "black", linestyle="none", zorder=3,
                  label=f"{label}: {amount(moved)}, {x:.3g} FLOP/byte")
    axes.set_xlim(low, high)
    axes.set_ylim(min(low * bandwidth, peak) / 4e9, peak * 2.2 / 1e9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.annotate(f"{peak / 1e9:,.0f} GFLOP/s, {document['roofline'].get('dtype', '')}",
                  (high, peak / 1e9), (-4, 9), textcoords="offset points", ha="right", fontsize=8)
    axes.annotate(f"{bandwidth / 1e9:,.0f} GB/s", (low * 1.6, low * bandwidth * 1.6 / 1e9), (12, -6),
                  textcoords="offset points", fontsize=8)
    axes.set_xlabel(f"arithmetic intensity (FLOP per byte over {text(document['roofline'], 'boundary')})")
    axes.set_ylabel("attainable (GFLOP/s)")
    light_grid(axes)
    axes.legend(fontsize=7.5, loc="lower right", markerscale=0.7)
    plan = document.get("plan") if isinstance(document.get("plan"), dict) else {}
    axes.set_title(workload_of(plan, where), fontsize=10)
    each = f" ({instances} instances of {bandwidth / instances / 1e9:,.4g})" if instances > 1 else ""
    put_caption(axes, [
        f"{flops:,.0f} FLOP; roofs from the machine file of {text(plan, 'machine')}{each}: no point was "
        "timed, each lies on the roof at its bytes", "bytes: counted by exact (after), attainable and "
        f"proven bounds; the ridge is at {ridge:.3g} FLOP/byte"], 92)
    return figure
