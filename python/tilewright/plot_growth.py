"""The picture of ``reproduce fusionstitching/overhead``: seconds of a search by the size of its graph,
with the line through the origin that fits best. A search is linear where the points lie on it.
"""

import math
import textwrap

from .plot_input import BadInput


def is_growth(document):
    return "growth" in document


class Growth:
    """What the file says, checked."""

    def __init__(self, document, where):
        rows = document["growth"]
        if not isinstance(rows, list) or len(rows) < 2:
            raise BadInput(f"{where}: growth: is not a list of two rows or more; accepted: the JSON of "
                           "reproduce fusionstitching/overhead")
        self.sizes, self.seconds = [], []
        for i, row in enumerate(rows):
            at = f"{where}: growth[{i}]"
            if not isinstance(row, dict):
                raise BadInput(f"{at}: is not a row; accepted: vertices, edges, seconds")
            values = []
            for key in ("vertices", "edges", "seconds"):
                value = row.get(key)
                good = isinstance(value, (int, float)) and not isinstance(value, bool)
                if not good or not math.isfinite(value) or value < 0:
                    raise BadInput(f"{at}.{key}: {value!r} is not a size or time; accepted: a number "
                                   "from 0 on")
                values.append(value)
            self.sizes.append(values[0] + values[1])
            self.seconds.append(values[2])
        if not any(self.sizes):
            raise BadInput(f"{where}: growth: every graph is empty; accepted: vertices and edges")
        self.title = document.get("title", "")
        self.command = document.get("command", "")

    def slope(self):
        """Seconds a vertex and edge, by least squares through the origin."""
        return (sum(x * y for x, y in zip(self.sizes, self.seconds))
                / sum(x * x for x in self.sizes))

    def r2(self):
        """About that line."""
        mean = sum(self.seconds) / len(self.seconds)
        spread = sum((y - mean) ** 2 for y in self.seconds)
        error = sum((y - self.slope() * x) ** 2 for x, y in zip(self.sizes, self.seconds))
        return 1 - error / spread if spread else 1.0


def draw(growth):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.6), dpi=150)
    axes = figure.add_subplot()
    axes.plot(growth.sizes, growth.seconds, "o", color="#0072B2", label="explorer (measured)")
    end = max(growth.sizes)
    axes.plot([0, end], [0, end * growth.slope()], color="#6e6e6e",
              label=f"{1e6 * growth.slope():.2f} us a vertex and edge, R² {growth.r2():.3f}")
    axes.set_xlabel("vertices + edges")
    axes.set_ylabel("seconds")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.set_title(growth.title, fontsize=10)
    figure.text(0.02, 0.01, "\n".join(textwrap.wrap(f"{growth.command}; one core, least of three "
                                                    "runs", 100)), fontsize=7)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    return figure
