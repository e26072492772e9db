"""What every picture shares: checked numbers, units, colours, captions."""

import math
import textwrap

# Okabe and Ito's colours: told apart by the colour-blind, and apart in grey by hatching or shape.
BLUE, ORANGE, GREEN, VERMILLION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#6e6e6e"
COLOURS = [BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", VERMILLION, "#F0E442", GREY, "#7fb8d8", "#f2ce7f",
           "#7fceb9", "#e5bcd3"]
HATCHES = ["", "///", "...", "\\\\\\", "xxx", "---", "ooo", "|||", "++", "**", "//", "\\\\"]
MARKERS = "osD^vPX<>*"
PAGE = 7.2  # inches: the width of a printed page's text
PAGE_HEIGHT = 8  # inches: what rows of numbers may take of its height, so that a caption fits below
UNITS = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")]


class BadInput(Exception):
    """A file or option that the picture cannot be made from; one line."""


def number(row, key, where, least=0, missing=False):
    """The number at that key. Raises BadInput; None where `missing` is good and it is absent."""
    value = row.get(key) if isinstance(row, dict) else None
    if value is None and missing:
        return None
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value < least:
        raise BadInput(f"{where}.{key}: {value!r} is not accepted; accepted: a number, {least} or more")
    return value


def rows(document, key, where):
    """The list of objects at that key, not empty. Raises BadInput."""
    found = document.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(r, dict) for r in found):
        raise BadInput(f"{where}: {key}: is not a list of objects; accepted: at least one")
    return found


def text(document, key, missing="not recorded"):
    value = document.get(key)
    return missing if value is None else str(value)


def workload_of(document, missing="not recorded"):
    """The workload's name: a document has it, or the whole of a workload that came from a file."""
    value = document.get("workload")
    return text(value, "name", "a workload without a name") if isinstance(value, dict) else text(document, "workload", missing)


def unit_for(values):
    """The largest unit in which the largest value is at least 1."""
    largest = max(values, default=0)
    return next(((size, name) for size, name in UNITS if largest >= size), UNITS[-1])


def amount(value):
    size, name = unit_for([value])
    return f"{value:.0f} bytes" if size == 1 else f"{value / size:.4g} {name}"


def filled(lines, width, indent=""):
    return "\n".join(textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)
                     for line in lines)


def balanced(lines, width):
    """Titles in as few lines as fit the width, these about equally long."""
    def one(line):
        fewest = filled([line], width).count("\n")
        return next(text for w in range(1, width + 1) if (text := filled([line], w)).count("\n") <= fewest
                    and max(map(len, text.split("\n"))) <= width)
    return "\n".join(one(line) for line in lines if line)


def new_figure(width, height, dpi=150):
    """A figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), dpi=dpi)
    FigureCanvasAgg(figure)
    return figure


def light_grid(axes, axis="both"):
    axes.grid(True, axis=axis, color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)


def put_caption(axes, lines, width=96, below=42, size=7.5, whole_page=False, right=0):
    """Below the axes, out of the way of their labels, `right` points from their left edge; of a whole page from the
    figure's left edge to its right."""
    left = "figure fraction" if whole_page else "axes fraction"
    axes.annotate(filled(lines, 118 if whole_page else width, "  "), (0, 0), (6 if whole_page else right, -below), xycoords=(left, "axes fraction"),
                  textcoords="offset points", va="top", fontsize=size)


def width_of(lines, size=7):
    """Inches that texts take, about."""
    return 0.0083 * size * max(len(line) for text in lines for line in text.split("\n"))


def report_lines(document):
    """What the caption of a picture of ``reproduce`` ends with: what is shown, of which paper, and the command."""
    lines = [("", "about"), ("paper: ", "paper"), ("not here: ", "needs")]
    return [*(name + str(document[key]).replace("`", "") for name, key in lines if document.get(key)),
            f"command: {text(document, 'command')}"]


def source_line(document):
    """Where a document's numbers come from."""
    said = document.get("source")
    by = document.get("by")
    line = f"{said} by {by}" if said and by else text(document, "source", "")
    machine = f"machine: {text(document, 'machine', 'none')}"
    command = f"command: {document['command']}" if document.get("command") else ""
    return "; ".join(part for part in (line, machine, command) if part)
