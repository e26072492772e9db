"""What fusion is worth in a network, layer by layer, from explain of an ONNX file or with --split."""

from .plot_input import (BLUE, BadInput, COLOURS, GREY, MARKERS, amount, light_grid, new_figure, number, put_caption,
                         rows, text, unit_for)

MOST = 40  # layers that can still be read; the others are counted in the caption


def is_layers(document):
    layers = document.get("layers")
    return (isinstance(layers, list) and bool(layers) and isinstance(layers[0], dict)
            and isinstance(layers[0].get("plans"), dict) and "unfused" in layers[0])


class _Layer:
    """A layer with all its copies: bytes and seconds, unfused and by each model that planned it."""

    def __init__(self, row, where):
        self.name, self.count = text(row, "layer", "a layer"), int(number(row, "count", where, least=1))
        self.label = self.name if self.count == 1 else f"{self.name} x {self.count}"
        self.bound = self._all(row, "bound_bytes", where)
        plans = row.get("plans")
        if not isinstance(plans, dict):
            raise BadInput(f"{where}.plans: is not a table of models; accepted: the JSON of explain")
        self.values = {}
        for key in ("bytes", "seconds"):
            self.values[key] = {model: self._all(plan, key, f"{where}.plans.{model}") for model, plan in plans.items()
                                if isinstance(plan, dict) and key in plan}
            unfused = row.get("unfused")
            self.values[key]["unfused"] = self._all(unfused if isinstance(unfused, dict) else {}, key, f"{where}.unfused")

    def _all(self, row, key, where):
        value = number(row, key, where, missing=True)
        return None if value is None else value * self.count


def _panel(axes, layers, key, scale, models, ours):
    """The bars and marks of one unit; how many marks lie beyond the axis, which ends by the bars."""
    ends = [v for layer in layers for v in (layer.values[key].get("unfused"), layer.values[key].get(ours),
                                            layer.bound if key == "bytes" else None) if v is not None]
    most = 1.12 * max(ends, default=1) / scale or 1
    beyond = 0
    for place, layer in enumerate(layers):
        its = layer.values[key]
        if its.get("unfused") is not None:
            axes.barh(place - 0.19, its["unfused"] / scale, 0.36, color=GREY, alpha=0.45)
        if its.get(ours) is not None:
            axes.barh(place + 0.19, its[ours] / scale, 0.36, color=BLUE)
        if key == "bytes" and layer.bound is not None:
            axes.plot([layer.bound / scale] * 2, [place - 0.4, place + 0.4], color="black", linewidth=1.2)
        for at, model in enumerate(models):
            if its.get(model) is None:
                continue
            if its[model] / scale > most:
                beyond += 1
            else:
                axes.plot([its[model] / scale], [place + 0.19], marker=MARKERS[at % len(MARKERS)], linestyle="none",
                          color=COLOURS[1 + at % (len(COLOURS) - 1)], markeredgecolor="black", markeredgewidth=0.4, markersize=4)
    axes.set_xlim(0, most)
    axes.tick_params(axis="x", labelsize=8)
    light_grid(axes, "x")
    return beyond


def draw_layers(document, where):
    """A figure: for each layer its bytes and seconds without fusion and by the planner, the bound, and each other model's plan."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    layers = [_Layer(row, f"{where}: layers[{i}]") for i, row in enumerate(rows(document, "layers", where))]
    names = list(dict.fromkeys(m for layer in layers for m in layer.values["bytes"]))
    planned = [m for m in names if any(layer.values["bytes"].get(m) is not None for layer in layers)]
    others = [m for m in planned if m not in ("unfused", "tilewright")]
    shown = layers
    if len(layers) > MOST:
        heaviest = sorted(range(len(layers)), key=lambda i: -(layers[i].values["bytes"]["unfused"] or 0))[:MOST]
        shown = [layers[i] for i in sorted(heaviest)]
    timed = any(v is not None for layer in shown for v in layer.values["seconds"].values())
    figure = new_figure(8.4 if timed else 7.2, 1.5 + 0.3 * len(shown))
    panels = figure.subplots(1, 2, sharey=True) if timed else [figure.subplots()]
    scale, unit = unit_for([v for layer in shown for v in layer.values["bytes"].values() if v is not None])
    beyond = _panel(panels[0], shown, "bytes", scale, others, "tilewright")
    # Where it is said how bytes are counted, they are not all of one level.
    into = "" if document.get("counted") is not None else f" into {text(document, 'level', 'the level')}"
    panels[0].set_xlabel(f"bytes{into} ({unit})")
    if timed:
        beyond += _panel(panels[1], shown, "seconds", 1e-6, others, "tilewright")
        panels[1].set_xlabel("predicted time (µs)")
    panels[0].set_yticks(range(len(shown)), [layer.label for layer in shown], fontsize=8, family="monospace")
    panels[0].set_ylim(len(shown) - 0.4, -0.6)
    marks = [Patch(facecolor=GREY, alpha=0.45, label="a kernel for each operator"),
             Patch(facecolor=BLUE, label="tilewright"),
             Line2D([], [], color="black", label="bound")]
    marks += [Line2D([], [], marker=MARKERS[i % len(MARKERS)], linestyle="none", color=COLOURS[1 + i % (len(COLOURS) - 1)],
                     markeredgecolor="black", markeredgewidth=0.4, markersize=5, label=model) for i, model in enumerate(others)]
    panels[0].legend(handles=marks, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=min(5, len(marks)),
                     frameon=False)
    panels[0].set_title(text(document, "workload", where).rsplit("/", 1)[-1], fontsize=10, loc="left",
                        pad=22 + 12 * ((len(marks) - 1) // 5))
    copies = sum(layer.count for layer in layers)
    lines = [f"{copies} layers, of which {len(layers)} differ (x: how many are equal, drawn as their sum); "
             f"machine: {text(document, 'machine')}; bytes and seconds are predicted"]
    total = {m: sum(layer.values["bytes"].get(m) or 0 for layer in layers) for m in ("unfused", "tilewright")}
    if all(total.values()):
        lines.append(f"all layers: {amount(total['unfused'])} with a kernel for each operator, {amount(total['tilewright'])} "
                     "by tilewright's plan of each layer")
    if len(layers) > MOST:
        lines.append(f"the {MOST} that move most of {len(layers)} are drawn")
    if document.get("counted") is not None:
        lines.append(f"counted: {text(document, 'counted')}")
    if beyond:
        lines.append(f"{beyond} marks of other models lie beyond the axes")
    put_caption(panels[0], lines, 110 if timed else 96, 36)
    return figure
