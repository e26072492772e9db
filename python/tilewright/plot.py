"""``tilewright plot RESULT.json``: any result file as a picture.

What a file is drawn as depends on what it holds; where that is several pictures, ``--kind`` chooses:

- ``agreement``: predicted against true bytes with y = x, from validate or reproduce; ``residuals``: the
  error of each tensor;
- ``slope``: the least bytes by buffer size, with the bounds and where fusion starts to pay, from
  explain --curve or reproduce;
- ``orders``: the ranking of loop orders, from explain; ``tree``: a plan's loops, tiles and residencies,
  from explain --resolved; ``edges``: what shares a kernel and what the other choice would cost, from
  explain or plan --why; ``layers``: what fusion is worth in each layer of a network, from explain;
- ``roofline``: a plan before and after fusion, and ``convergence``: an evolutionary search, from plan;
- ``traffic``: bytes by level and tensor, from predict, simulate and measure; ``compared``: every model's
  plan and price, from compare;
- ``occupancy``: who holds the caches over time, from simulate --occupancy; ``counters``: counted misses
  beside simulated ones, and ``growth``: seconds of a search by the size of its graph, from reproduce;
- ``side-by-side``: several models' plans of many workloads, from reproduce powerfusion/side-by-side;
- ``beside``: our numbers beside the paper's, ``reuse``: the loops along which each tensor is reused, and
  ``table``: the columns of numbers of any other result, from reproduce.
"""

import argparse
import json
import os
import sys

from . import (plot_agreement, plot_counters, plot_edges, plot_growth, plot_layers, plot_occupancy,
               plot_orders, plot_report, plot_table, plot_traffic, plot_tree, slope)
from ._output import write_whole
from .plot_agreement import LOG_FROM
from .plot_input import BadInput

FORMATS = (".png", ".svg", ".pdf")


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except OSError as e:
        raise BadInput(f"{path}: cannot be read: {e.strerror}") from None
    except (ValueError, RecursionError) as e:
        raise BadInput(f"{path}: is not JSON: {e}".splitlines()[0]) from None


def _draw_agreement(document, where, scale):
    return plot_agreement.draw(plot_agreement.panels_of(document, where), scale)


def _draw_residuals(document, where, _):
    return plot_agreement.draw_residuals(plot_agreement.panels_of(document, where))


def _plain(draw):
    return lambda document, where, _: draw(document, where)


def _has_points(document):
    """Points that a prediction and a truth belong to; a result whose points are others is drawn as its table."""
    points = document.get("points")
    others = (plot_table.is_table(document) and isinstance(points, list) and points
              and all(isinstance(p, dict) and "true_bytes" not in p for p in points))
    return not others and any(key in document for key in ("points", "validation", "panels"))


# (kind, whether a document can be drawn as it, how), the most specific first.
KINDS = [
    ("slope", lambda d: "curve" in d and "traffic" not in d, _plain(slope.draw_slope)),
    ("counters", plot_counters.is_counters,
     lambda d, where, _: plot_counters.draw(plot_counters.Counters(d, where))),
    ("occupancy", plot_occupancy.is_occupancy,
     lambda d, where, _: plot_occupancy.draw(plot_occupancy.Occupancy(d, where))),
    ("growth", plot_growth.is_growth,
     lambda d, where, _: plot_growth.draw(plot_growth.Growth(d, where))),
    ("agreement", _has_points, _draw_agreement),
    ("residuals", _has_points, _draw_residuals),
    ("compared", plot_traffic.is_compared, _plain(plot_traffic.draw_compared)),
    ("layers", plot_layers.is_layers, _plain(plot_layers.draw_layers)),
    ("edges", plot_edges.is_edges, _plain(plot_edges.draw_edges)),
    ("tree", plot_tree.is_tree, _plain(plot_tree.draw_tree)),
    ("orders", plot_orders.is_orders, _plain(plot_orders.draw_orders)),
    ("traffic", plot_traffic.is_traffic, _plain(plot_traffic.draw_traffic)),
    ("convergence", plot_orders.is_convergence, _plain(plot_orders.draw_convergence)),
    ("roofline", plot_orders.is_roofline, _plain(plot_orders.draw_roofline)),
    ("side-by-side", plot_table.is_side_by_side, _plain(plot_table.draw_side_by_side)),
    ("reuse", plot_report.is_reuse, _plain(plot_report.draw_reuse)),
    ("beside", plot_report.is_beside, _plain(plot_report.draw_beside)),
    ("table", plot_table.is_table, _plain(plot_table.draw_table)),
]


def kinds_of(document):
    """What a document can be drawn as, the first by default."""
    if not isinstance(document, dict):
        return []
    return [name for name, fits, _ in KINDS if fits(document)]


def _chosen(document, where, kind):
    """The function that draws it. Raises BadInput."""
    there = kinds_of(document)
    if not there:
        if isinstance(document, dict) and isinstance(document.get("reason"), str):
            raise BadInput(f"{where}: has no numbers, but a reason: {document['reason']}")
        if isinstance(document, dict) and "paper" in document:
            raise BadInput(f"{where}: {document.get('id', 'the result')} has no numbers to draw; its report has the table")
        # The message of what is asked for most: a validation.
        plot_agreement.panels_of(document, where)
        raise BadInput(f"{where}: is nothing that is drawn")
    if kind is not None and kind not in there:
        raise BadInput(f"--kind: {kind}: is not what {where} holds; accepted: {', '.join(there)}")
    return next(draw for name, _, draw in KINDS if name == (kind or there[0]))


def figure_of(document, where, kind=None, scale="auto"):
    """The document as a matplotlib figure. Raises BadInput naming what is wrong with it."""
    import matplotlib
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"  # the same file each time
    return _chosen(document, where, kind)(document, where, scale)


def _suffix(path):
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise BadInput(f"-o: {path}: is not a picture; accepted: a name that ends in "
                       + ", ".join(FORMATS))
    return suffix


def save(figure, path):
    """Writes all of it or nothing. Raises BadInput where it cannot be written."""
    suffix = _suffix(path)
    try:
        write_whole(path, lambda name: figure.savefig(name, bbox_inches="tight", facecolor="white"),
                    suffix)
    except OSError as e:
        raise BadInput(f"-o: {path}: cannot be written: {e.strerror}") from None


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise BadInput(message)


def _parse(arguments):
    parser = _Parser(prog="tilewright plot", description="A result file as a picture.")
    parser.add_argument("result", metavar="RESULT.json",
                        help="what a verb's --json, simulate --occupancy or reproduce wrote")
    parser.add_argument("-o", "--out", metavar="FILE",
                        help="the picture, .png, .svg or .pdf (default: RESULT.png)")
    parser.add_argument("--kind", choices=[name for name, _, _ in KINDS],
                        help="where a file can be drawn as several (default: the first that it holds)")
    parser.add_argument("--scale", choices=("auto", "linear", "log"), default="auto",
                        help="of both axes of predicted against true; auto is log from a spread of %d on"
                        % LOG_FROM)
    options = parser.parse_args(arguments)
    if options.out is None:
        options.out = os.path.splitext(options.result)[0] + ".png"
    _suffix(options.out)
    return options


def main(arguments=None):
    """The console script. Returns the exit status: 0 done, 2 bad input, 3 matplotlib is missing."""
    try:
        options = _parse(arguments)
        document = read(options.result)
        _chosen(document, options.result, options.kind)
        try:
            figure = figure_of(document, options.result, options.kind, options.scale)
        except ModuleNotFoundError as e:
            if e.name != "matplotlib":
                raise
            print("tilewright plot: matplotlib is not installed; pip install 'tilewright[plot]'",
                  file=sys.stderr)
            return 3
        save(figure, options.out)
    except BadInput as e:
        print(f"tilewright plot: {' '.join(str(e).split())}", file=sys.stderr)
        return 2
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
