"""The picture of ``reproduce validation/polybench``: misses that hardware counted beside simulated ones.

For each cache level two panels over all kernels: the counts themselves, and the error of each
prediction, whose medians stand in the legend.
"""

import math

from .plot_input import COLOURS, MARKERS, PAGE, BadInput, balanced, new_figure, put_caption, width_of

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


def _key_above(axes):
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.97), fontsize=7, ncols=2, frameon=False, columnspacing=1.2)


def _draw_counts(axes, counters, level):
    places = range(len(counters.names))
    ours = counters.by[0]
    axes.bar([p - 0.2 for p in places], counters.counts(level, "measured"), 0.4, color="#bbbbbb",
             yerr=_interval(counters, level), ecolor="black", capsize=2, error_kw={"linewidth": 0.8},
             label="counted (PAPI), with its interval")
    axes.bar([p + 0.2 for p in places], counters.counts(level, ours), 0.4, color=COLOURS[0],
             label=ours)
    axes.set_yscale("symlog", linthresh=1)
    most = max(counters.counts(level, "measured") + counters.counts(level, ours))
    axes.set_yticks([0] + [10 ** p for p in range(0, 30, 2) if 10 ** p <= max(1, most)])
    axes.set_ylabel(f"{level} misses (number)", fontsize=8)
    _key_above(axes)


def _draw_errors(axes, counters, level):
    for i, name in enumerate(counters.by):
        errors = counters.errors(level, name)
        axes.plot(range(len(errors)), [max(e, FLAT) for e in errors], linestyle="none",
                  marker=MARKERS[i % len(MARKERS)], color=COLOURS[i % len(COLOURS)], markersize=6,
                  fillstyle="full" if i == 0 else "none",
                  label=f"{name}: median {median(errors):.2%}, worst {max(errors):.2%}")
    axes.set_yscale("log")
    axes.set_ylabel(f"{level} error\n(part of the count)", fontsize=8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}" if value > FLAT else
                                   f"{FLAT:g} or less")
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    _key_above(axes)


def draw(counters):
    """A matplotlib figure, at most a page wide: two panels a level, one above the other."""
    count = 2 * len(counters.levels)
    high, between, names = 1.3, 0.35, 0.34 + width_of(counters.names)  # inches: a panel, the key above its second one, the kernels' names
    height = len(counters.levels) * (2 * high + between + names)
    figure = new_figure(min(PAGE - 0.2, max(5, 1 + 0.2 * len(counters.names))), height)
    panels = [figure.add_axes((0.12, 1 - ((i + 1) * high + (i + 1) // 2 * between + i // 2 * names) / height, 0.87, high / height))
              for i in range(count)]
    for i, level in enumerate(counters.levels):
        _draw_counts(panels[2 * i], counters, level)
        _draw_errors(panels[2 * i + 1], counters, level)
    for axes in panels:
        axes.set_xticks(range(len(counters.names)), counters.names, rotation=90, fontsize=7)
        axes.tick_params(axis="y", labelsize=7)
        axes.set_xlim(-0.7, len(counters.names) - 0.3)
    for above in panels[0::2]:  # a level's kernels are named once, below its two panels
        above.tick_params(axis="x", labelbottom=False)
    document = counters.document
    panels[0].set_title(balanced([document.get("title", "")], 80), fontsize=10, pad=34)
    put_caption(panels[-1], [
        f"size {document.get('size', 'not recorded')}, machine {document.get('machine', 'not recorded')}; "
        f"{len(counters.names)} kernels, one above each name; errors are |prediction - count| / count",
        f"command: {document.get('command', 'not recorded')}"], 100, 72 * (names - 0.1))
    return figure
