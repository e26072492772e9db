"""The picture of ``reproduce validation/polybench``: misses that hardware counted beside simulated ones.

For each cache level two panels over all kernels: the counts themselves, and the error of each
prediction, whose medians stand in the legend.
"""

import math
import textwrap

from .plot_input import BadInput, COLOURS, MARKERS, new_figure

FLAT = 0.001  # errors below this are drawn on the bottom line


def is_counters(document):
    return isinstance(document, dict) and "kernels" in document and "errors" in document


def _number(row, key, where):
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadInput(f"{where}.{key}: {value!r} is not a count; accepted: a number")
    return value


class Counters:
    """What the file says, checked."""

    def __init__(self, document, where):
        self.document = document
        self.rows = document["kernels"]
        self.by = document.get("by")
        self.levels = document["errors"]
        if not isinstance(self.rows, list) or not self.rows:
            raise BadInput(f"{where}: kernels: is not a list; accepted: one row a kernel")
        if not isinstance(self.by, list) or not self.by or not isinstance(self.levels, dict):
            raise BadInput(f"{where}: by: is missing; accepted: the JSON of reproduce")
        self.names = []
        for i, row in enumerate(self.rows):
            at = f"{where}: kernels[{i}]"
            if not isinstance(row, dict) or not isinstance(row.get("kernel"), str):
                raise BadInput(f"{at}: is not a row; accepted: an object with a kernel's name")
            self.names.append(row["kernel"])
            for level in self.levels:
                if not isinstance(row.get(level), dict):
                    raise BadInput(f"{at}.{level}: is missing; accepted: counts of that level")
                for key in ["measured", *self.by]:
                    _number(row[level], key, f"{at}.{level}")

    def counts(self, level, name):
        return [row[level][name] for row in self.rows]

    def errors(self, level, name):
        """Absolute, as fractions of what was counted; nothing counted is an error of 1 or none."""
        pairs = zip(self.counts(level, name), self.counts(level, "measured"))
        return [abs(p - m) / m if m else float(p != 0) for p, m in pairs]


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _interval(counters, level):
    """How far below and above each count its confidence interval reaches; 0 where it has no end."""
    below, above = [], []
    for row in counters.rows:
        m, low, high = (row[level].get(k) for k in ("measured", "ci_low", "ci_high"))
        below.append(max(0, m - low) if isinstance(low, (int, float)) else 0)
        above.append(max(0, high - m) if isinstance(high, (int, float)) else 0)
    return [below, above]


def _draw_counts(axes, counters, level):
    places = range(len(counters.names))
    ours = counters.by[0]
    axes.bar([p - 0.2 for p in places], counters.counts(level, "measured"), 0.4, color="#bbbbbb",
             yerr=_interval(counters, level), ecolor="black", capsize=2, error_kw={"linewidth": 0.8},
             label="counted (PAPI), with its interval")
    axes.bar([p + 0.2 for p in places], counters.counts(level, ours), 0.4, color=COLOURS[0],
             label=ours)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylabel(f"{level} misses")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)


def _draw_errors(axes, counters, level):
    for i, name in enumerate(counters.by):
        errors = counters.errors(level, name)
        axes.plot(range(len(errors)), [max(e, FLAT) for e in errors], linestyle="none",
                  marker=MARKERS[i % len(MARKERS)], color=COLOURS[i % len(COLOURS)], markersize=6,
                  fillstyle="full" if i == 0 else "none",
                  label=f"{name}: median {median(errors):.2%}, worst {max(errors):.2%}")
    axes.set_yscale("log")
    axes.set_ylabel(f"{level}: error, of the count")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}" if value > FLAT else
                                   f"{FLAT:g} or less")
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)


def draw(counters):
    """A matplotlib figure: two panels a level, one above the other."""
    count = 2 * len(counters.levels)
    figure = new_figure(14, 3.1 * count, dpi=110)
    panels = figure.subplots(count, 1, squeeze=False).flatten()
    for i, level in enumerate(counters.levels):
        _draw_counts(panels[2 * i], counters, level)
        _draw_errors(panels[2 * i + 1], counters, level)
    for axes in panels:
        axes.set_xticks(range(len(counters.names)), counters.names, rotation=60, ha="right",
                        fontsize=8)
        axes.set_xlim(-0.7, len(counters.names) - 0.3)
    document = counters.document
    title = (f"{document.get('title', '')}\nsize {document.get('size', 'not recorded')}, machine "
             f"{document.get('machine', 'not recorded')}; {len(counters.names)} kernels; command: "
             f"{document.get('command', 'not recorded')}")
    panels[0].set_title("\n".join(textwrap.fill(t, 130) for t in title.splitlines()), fontsize=10)
    figure.subplots_adjust(hspace=0.75)
    return figure
