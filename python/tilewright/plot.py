"""``tilewright plot RESULT.json``: predicted against true bytes, from validate or reproduce; the least
bytes by buffer size, from explain --curve or reproduce (drawn by slope.py); counted misses beside
simulated ones, from reproduce validation/polybench (see plot_counters); who holds the caches over
time, from simulate --occupancy (see plot_occupancy); seconds of a search by the size of its graph, from
reproduce fusionstitching/overhead (see plot_growth).

One panel for each validation in the file: a point for each tiling, the line y = x, and the tiling
that the model predicts the fewest bytes for. Below each panel stand the figures of merit, where the
numbers come from, and the machine.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import textwrap

from . import plot_counters, plot_growth, plot_occupancy
from .plot_input import BadInput

# Okabe and Ito's colours: told apart by the colour-blind, and apart in grey by shape and filling.
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#6e6e6e"
UNITS = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")]
FORMATS = (".png", ".svg", ".pdf")
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
        """A figure of merit: the file's own, else by validate's definitions from the points."""
        value = self.data.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return agreement(self.points)[key]

    def all_points(self):
        return self.points + self.beyond + [self.optimum]


def _point(p, where):
    if not isinstance(p, dict):
        raise BadInput(f"{where}: is no object; accepted: one with predicted_bytes and true_bytes")
    for key in ("predicted_bytes", "true_bytes"):
        value = p.get(key)
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or value < 0:
            raise BadInput(f"{where}.{key}: {value!r} is no number of bytes; accepted: 0 or more")
    return p


def _points(block, key, where):
    points = block.get("points")
    if not isinstance(points, list):
        raise BadInput(f"{where}: {key}: is no list; accepted: a list of points")
    return [_point(p, f"{where}: {key}[{i}]") for i, p in enumerate(points)]


def agreement(points):
    """validate's figures of merit: errors are fractions of the true value; R² is about y = x."""
    pairs = [(p["predicted_bytes"], p["true_bytes"]) for p in points]
    mean = sum(y for _, y in pairs) / len(pairs)
    residual = sum((y - x) ** 2 for x, y in pairs)
    spread = sum((y - mean) ** 2 for _, y in pairs)
    errors = [(x - y) / y if y else float(x != 0) for x, y in pairs]
    return {
        "r2_identity": 1 - residual / spread if spread else float(residual == 0),
        "mape": sum(map(abs, errors)) / len(errors),
        "worst": max(map(abs, errors)),
        "bias": sum(errors) / len(errors),
    }


def panels_of(document, where):
    """Every validation that a document holds, in order. Raises BadInput."""
    if not isinstance(document, dict):
        raise BadInput(f"{where}: is no object; accepted: the JSON of validate or reproduce")
    parts = document.get("panels")
    if parts is None:
        return [Panel(document, where, document)]
    if not isinstance(parts, list) or not parts:
        raise BadInput(f"{where}: panels: is no list of panels; accepted: the JSON of reproduce")
    panels = []
    for i, part in enumerate(parts):
        if not isinstance(part, dict):
            raise BadInput(f"{where}: panels[{i}]: is no object; accepted: a validation")
        panels.append(Panel(part, f"{where}: panels[{i}]", {"command": document.get("command")}))
    return panels


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except OSError as e:
        raise BadInput(f"{path}: cannot be read: {e.strerror}") from None
    except (ValueError, RecursionError) as e:
        raise BadInput(f"{path}: is no JSON: {e}".splitlines()[0]) from None


def unit_for(values):
    """The largest unit in which the largest value is at least 1."""
    largest = max(values, default=0)
    return next(((size, name) for size, name in UNITS if largest >= size), UNITS[-1])


def tiles_text(point):
    tiles = point.get("tiles")
    if not isinstance(tiles, dict):
        return ""
    return " ".join(f"{name}={size}" for name, size in tiles.items())


def amount(value):
    size, name = unit_for([value])
    return f"{value:.0f} bytes" if size == 1 else f"{value / size:.4g} {name}"


def caption(panel):
    count = len(panel.points)
    r2 = panel.figure("r2_identity")
    lines = [f"{count} tilings: R² about y = x {r2:.4f}, mean error {panel.figure('mape'):.2%}, "
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
    lines.append(f"x: predicted by {panel.text('model')}" + (f", {edges} edges" if edges else "")
                 + f"; y: {truth}, bytes towards the inner level at {panel.text('boundary')}"
                 + (f", layout {panel.data['layout']}" if "layout" in panel.data else "")
                 + (f", seed {panel.data['seed']}" if "seed" in panel.data else ""))
    lines.append(f"machine: {panel.text('machine')}; command: {panel.text('command')}")
    return lines


def _filled(lines, width, indent=""):
    return "\n".join(textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)
                     for line in lines)


def _log_axes(axes):
    """Both logarithmic, with plain numbers at 1, 2 and 5 times the powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def draw_panel(axes, panel, scale):
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
    axes.grid(True, color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.legend(loc="best", fontsize=8, framealpha=0.9)
    workload = panel.text("workload", "")
    heading = [t for t in (panel.title, workload) if t]
    axes.set_title(_filled(heading, 60) or panel.where, fontsize=10)
    text = _filled(caption(panel), 76, "  ")
    axes.annotate(text, (0, 0), (0, -42), xycoords="axes fraction", textcoords="offset points",
                  va="top", fontsize=7.5)


def draw(panels, scale="auto"):
    """A matplotlib figure of the panels, at most three abreast."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5.4 * columns, 6.6 * rows), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for spare in axes[len(panels):]:
        spare.set_visible(False)
    for panel, ax in zip(panels, axes):
        draw_panel(ax, panel, scale)
    figure.subplots_adjust(hspace=0.75, wspace=0.3)
    return figure


def save(figure, path):
    """Writes all of it or nothing: to a file beside `path`, then renamed over it."""
    suffix = os.path.splitext(path)[1].lower()
    folder = os.path.dirname(os.path.abspath(path))
    try:
        handle, partial = tempfile.mkstemp(suffix=suffix, prefix=".tilewright-plot-", dir=folder)
        os.close(handle)
    except OSError as e:
        raise BadInput(f"-o: {path}: cannot be written: {e.strerror}") from None
    try:
        figure.savefig(partial, bbox_inches="tight", facecolor="white")
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(partial, 0o666 & ~umask)
        os.replace(partial, path)
    except OSError as e:
        raise BadInput(f"-o: {path}: cannot be written: {e.strerror}") from None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise BadInput(message)


def _parse(arguments):
    parser = _Parser(prog="tilewright plot", description="Predicted against true bytes, the bounds by buffer "
                     "size, or who holds the caches over time.")
    parser.add_argument("result", metavar="RESULT.json",
                        help="what validate --json, explain --curve --json, simulate --occupancy or "
                        "reproduce wrote")
    parser.add_argument("-o", "--out", metavar="FILE",
                        help="the picture, .png, .svg or .pdf (default: RESULT.png)")
    parser.add_argument("--scale", choices=("auto", "linear", "log"), default="auto",
                        help="of both axes of predicted against true; auto is log from a spread of %d on" % LOG_FROM)
    options = parser.parse_args(arguments)
    if options.out is None:
        options.out = os.path.splitext(options.result)[0] + ".png"
    if os.path.splitext(options.out)[1].lower() not in FORMATS:
        raise BadInput(f"-o: {options.out}: is no picture; accepted: a name that ends in "
                       + ", ".join(FORMATS))
    return options


def main(arguments=None):
    """The console script. Returns the exit status: 0 done, 2 bad input, 3 matplotlib is missing."""
    try:
        options = _parse(arguments)
        document = read(options.result)
        slope = isinstance(document, dict) and "curve" in document
        counted = plot_counters.is_counters(document)
        if counted:
            counters = plot_counters.Counters(document, options.result)
        elif plot_occupancy.is_occupancy(document):
            occupancy = plot_occupancy.Occupancy(document, options.result)
        elif plot_growth.is_growth(document):
            growth = plot_growth.Growth(document, options.result)
        elif not slope:
            panels = panels_of(document, options.result)
        try:
            import matplotlib
        except ImportError:
            print("tilewright plot: matplotlib is not installed; pip install 'tilewright[plot]'",
                  file=sys.stderr)
            return 3
        matplotlib.rcParams["svg.hashsalt"] = "tilewright"  # the same file each time
        if slope:
            from tilewright.slope import draw_slope
            figure = draw_slope(document, options.result)
        elif counted:
            figure = plot_counters.draw(counters)
        elif plot_occupancy.is_occupancy(document):
            figure = plot_occupancy.draw(occupancy)
        elif plot_growth.is_growth(document):
            figure = plot_growth.draw(growth)
        else:
            figure = draw(panels, options.scale)
        save(figure, options.out)
    except BadInput as e:
        print(f"tilewright plot: {' '.join(str(e).split())}", file=sys.stderr)
        return 2
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
