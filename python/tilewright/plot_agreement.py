"""Predicted against true bytes, from validate and reproduce; and where the errors are, by tensor.

One panel for each validation in the file: a point for each tiling, the line y = x, and the tiling
that the model predicts the fewest bytes for. Below each panel stand the figures of merit, where the
numbers come from, and the machine.
"""

import math

from .plot_input import (BLUE, BadInput, COLOURS, GREY, MARKERS, PAGE, VERMILLION, amount, balanced, light_grid,
                         new_figure, put_caption, unit_for)

LOG_FROM = 30  # spread of the values (largest over least) from which both axes are logarithmic


class Panel:
    """What one validation says, checked."""

    def __init__(self, document, where, defaults):
        self.where = where
        self.title = document.get("title") or document.get("id") or defaults.get("title") or ""
        found = document.get("validation", document)
        if not isinstance(found, dict) or "points" not in found:
            raise BadInput(f"{where}: points: is missing; accepted: the JSON of validate, or of "
                           "reproduce for a figure of predicted against true bytes")
        self.data = {**{k: v for k, v in defaults.items() if k == "command"}, **found}
        if "command" in document:
            self.data["command"] = document["command"]
        self.paper = document.get("paper_numbers") or {}
        self.points = _points(found, "points", where)
        beyond = found.get("beyond")
        self.beyond = _points(beyond, "beyond.points", where) if isinstance(beyond, dict) else []
        extra = [_point(found[k], f"{where}: {k}") for k in ("optimum", "optimum_half_capacity")
                 if isinstance(found.get(k), dict)]
        candidates = self.points + self.beyond + extra
        if not self.points:
            raise BadInput(f"{where}: points: is empty; accepted: at least one point")
        self.optimum = min(candidates, key=lambda p: p["predicted_bytes"])

    def text(self, key, missing="not recorded"):
        value = self.data.get(key)
        return missing if value is None else str(value)

    def figure(self, key):
        """A figure of merit: the file's own, else by validate's definitions from the points; None where
        the points do not define it."""
        value = self.data.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return agreement(self.points)[key]

    def all_points(self):
        return self.points + self.beyond + [self.optimum]


def _point(p, where):
    if not isinstance(p, dict):
        raise BadInput(f"{where}: is not an object; accepted: one with predicted_bytes and true_bytes")
    for key in ("predicted_bytes", "true_bytes"):
        value = p.get(key)
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or value < 0:
            raise BadInput(f"{where}.{key}: {value!r} is not a number of bytes; accepted: 0 or more")
    return p


def _points(block, key, where):
    points = block.get("points")
    if not isinstance(points, list):
        raise BadInput(f"{where}: {key}: is not a list; accepted: a list of points")
    return [_point(p, f"{where}: {key}[{i}]") for i, p in enumerate(points)]


def agreement(points):
    """validate's figures of merit: errors are fractions of the true value; R² is about y = x, and
    None where the true values do not differ."""
    pairs = [(p["predicted_bytes"], p["true_bytes"]) for p in points]
    mean = sum(y for _, y in pairs) / len(pairs)
    residual = sum((y - x) ** 2 for x, y in pairs)
    spread = sum((y - mean) ** 2 for _, y in pairs)
    errors = [(x - y) / y if y else float(x != 0) for x, y in pairs]
    return {
        "r2_identity": 1 - residual / spread if spread else None,
        "mape": sum(map(abs, errors)) / len(errors),
        "worst": max(map(abs, errors)),
        "bias": sum(errors) / len(errors),
    }


def panels_of(document, where):
    """Every validation that a document holds, in order. Raises BadInput."""
    if not isinstance(document, dict):
        raise BadInput(f"{where}: is not an object; accepted: the JSON of validate or reproduce")
    parts = document.get("panels")
    if parts is None:
        return [Panel(document, where, document)]
    if not isinstance(parts, list) or not parts:
        raise BadInput(f"{where}: panels: is not a list of panels; accepted: the JSON of reproduce")
    panels = []
    for i, part in enumerate(parts):
        if not isinstance(part, dict):
            raise BadInput(f"{where}: panels[{i}]: is not an object; accepted: a validation")
        panels.append(Panel(part, f"{where}: panels[{i}]", {"command": document.get("command")}))
    return panels


def tiles_text(point):
    tiles = point.get("tiles")
    if not isinstance(tiles, dict):
        return ""
    return " ".join(f"{name}={size}" for name, size in tiles.items())


def caption(panel, predicted="x: predicted", true="y: "):
    """What stands below a panel. `predicted` and `true` say where the two are in the picture."""
    count = len(panel.points)
    r2 = panel.figure("r2_identity")
    r2 = "not defined (the true values do not differ)" if r2 is None else f"{r2:.4f}"
    lines = [f"{count} tilings: R² about y = x {r2}, mean error {panel.figure('mape'):.2%}, "
             f"worst {panel.figure('worst'):.2%}, bias {panel.figure('bias'):+.2%}"]
    paper = panel.paper.get("r2")
    if paper is not None:
        lines.append(f"paper's R²: {paper} (source: paper, on its own machine)")
    best = panel.optimum
    lines.append(f"least predicted: {tiles_text(best)}, {amount(best['predicted_bytes'])} "
                 f"predicted, {amount(best['true_bytes'])} true")
    if panel.beyond:
        figures = panel.data["beyond"]
        r2_beyond = figures.get("r2_identity")
        lines.append(f"{len(panel.beyond)} tilings past half the capacity, not in the figures above"
                     + (f" (R² {r2_beyond:.4f})" if isinstance(r2_beyond, (int, float)) else ""))
    options = panel.data.get("options")
    edges = options.get("edges") if isinstance(options, dict) else None
    truth = panel.text("truth")
    truth = "simulated" if truth == "simulator" else f"by {truth}"
    lines.append(f"{predicted} by {panel.text('model')}" + (f", {edges} edges" if edges else "")
                 + f"; {true}{truth}, bytes towards the inner level at {panel.text('boundary')}"
                 + (f", layout {panel.data['layout']}" if "layout" in panel.data else "")
                 + (f", seed {panel.data['seed']}" if "seed" in panel.data else ""))
    lines.append(f"machine: {panel.text('machine')}; command: {panel.text('command')}")
    return lines


def _log_axes(axes):
    """Both logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _label_panel(axes, panel, lines, alone):
    """Title and caption: of one picture, or of one of two that share a page's width, where letters are no smaller
    than six points."""
    heading = [t for t in (panel.title, panel.text("workload", "")) if t]
    axes.set_title(balanced(heading, 60 if alone else 44) or panel.where, fontsize=10 if alone else 8)
    if alone:
        put_caption(axes, lines, 76)
        return
    axes.xaxis.label.set_size(8)
    axes.yaxis.label.set_size(8)
    axes.tick_params(labelsize=7)
    put_caption(axes, lines, 60, below=36, size=6.5, right=-34)


def _figure(panels, draw_one, height, alone_size):
    """A figure of the panels, two abreast on the width of a printed page; `height` of a line of them, inches."""
    columns = min(2, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(*alone_size) if len(panels) == 1 else new_figure(PAGE, height * lines)
    axes = figure.subplots(lines, columns, squeeze=False).flatten()
    for spare in axes[len(panels):]:
        spare.set_visible(False)
    for panel, ax in zip(panels, axes):
        draw_one(ax, panel, len(panels) == 1)
    if len(panels) > 1:
        figure.subplots_adjust(left=0.08, right=0.99, hspace=0.9, wspace=0.28)
    return figure


def draw_panel(axes, panel, scale, alone=True):
    values = [p[k] for p in panel.all_points() for k in ("predicted_bytes", "true_bytes")]
    size, unit = unit_for(values)
    positive = [v for v in values if v > 0]
    spread = max(positive) / min(positive) if positive else 1
    log = scale == "log" or (scale == "auto" and spread >= LOG_FROM)
    if log and len(positive) < len(values):
        raise BadInput(f"{panel.where}: points: hold a zero; accepted with --scale log: above zero")

    def put(points, **style):
        axes.scatter([p["predicted_bytes"] / size for p in points],
                     [p["true_bytes"] / size for p in points], **style)

    low, high = min(values) / size, max(values) / size
    if log:
        _log_axes(axes)
        low, high = low / 1.15, high * 1.15
    else:
        margin = 0.05 * (high - low or high or 1)
        low, high = max(0.0, low - margin), high + margin
    axes.plot([low, high], [low, high], color="black", linestyle="--", linewidth=1, label="y = x",
              zorder=1)
    put(panel.points, s=26, color=BLUE, alpha=0.75, edgecolors="white", linewidths=0.4,
        label="tilings", zorder=2)
    if panel.beyond:
        put(panel.beyond, s=26, marker="^", facecolors="none", edgecolors=GREY,
            label="past half the capacity", zorder=2)
    put([panel.optimum], s=190, marker="*", color=VERMILLION, edgecolors="black", linewidths=0.8,
        label="optimum: least predicted", zorder=3)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_xlabel(f"predicted bytes ({unit})")
    axes.set_ylabel(f"true bytes ({unit})")
    light_grid(axes)
    axes.legend(loc="best", fontsize=8 if alone else 6.5, framealpha=0.9)
    _label_panel(axes, panel, caption(panel), alone)


def draw(panels, scale="auto"):
    """A matplotlib figure of the panels, two abreast."""
    return _figure(panels, lambda ax, panel, alone: draw_panel(ax, panel, scale, alone), 5.2, (5.4, 6.6))


def _residuals(panel):
    """{tensor: [(true bytes of the tiling, predicted - true bytes of the tensor)]}. Raises BadInput."""
    found = {}
    for i, p in enumerate(panel.points):
        by = p.get("tensors")
        if not isinstance(by, dict) or not by:
            raise BadInput(f"{panel.where}: points[{i}].tensors: is missing; accepted: the JSON of "
                           "validate against the simulator")
        for tensor, moved in by.items():
            _point(moved, f"{panel.where}: points[{i}].tensors.{tensor}")
            found.setdefault(tensor, []).append(
                (p["true_bytes"], moved["predicted_bytes"] - moved["true_bytes"]))
    return found


def _draw_residual_panel(axes, panel, alone):
    found = _residuals(panel)
    size, unit = unit_for([t for points in found.values() for t, _ in points])
    lines = []
    for i, (tensor, points) in enumerate(found.items()):
        shares = [100 * r / t if t else 0.0 for t, r in points]
        axes.scatter([t / size for t, _ in points], shares, s=26, marker=MARKERS[i % len(MARKERS)],
                     facecolors="none" if i % 2 else COLOURS[i % len(COLOURS)],
                     edgecolors=COLOURS[i % len(COLOURS)], label=tensor, zorder=2)
        mean = sum(r for _, r in points) / sum(t for t, _ in points) if any(t for t, _ in points) else 0
        lines.append(f"{tensor} {mean:+.2%}")
    axes.axhline(0, color="black", linewidth=1, linestyle="--")
    axes.set_xlabel(f"true bytes of the tiling ({unit})")
    axes.set_ylabel("predicted − true, of one tensor\n(% of the tiling's true bytes)")
    light_grid(axes)
    letters = 8 if alone else 6.5
    axes.legend(fontsize=letters, title="tensor", title_fontsize=letters)
    _label_panel(axes, panel, ["all tilings together, of the true bytes: " + ", ".join(lines)]
                 + caption(panel, "predicted", "true bytes: ")[-2:], alone)


def draw_residuals(panels):
    """A matplotlib figure: for each validation the error of each tensor over the bytes truly moved."""
    return _figure(panels, _draw_residual_panel, 4.4, (5.6, 5.4))
