"""The loop tree of a plan as a picture, from explain --resolved: loops as nested boxes with their steps
and trips, loads and stores with their tiles, and the bars of which buffer lives where."""

from .plot_input import (BadInput, BLUE, COLOURS, GREEN, HATCHES, PAGE, VERMILLION, amount, filled,
                         new_figure, number, put_caption, rows, text, width_of, workload_of)

INDENT, WIDTH, PITCH = 0.35, 10.5, 1.5
LEAVES = {"load": (BLUE, "load"), "compute": (GREEN, "compute"), "store": (VERMILLION, "store"),
          "sync": ("#6e6e6e", "barrier")}
MOST_ROWS, MOST_DEPTH = 120, 40


def is_tree(document):
    kernels = document.get("kernels")
    return isinstance(kernels, list) and bool(kernels) and isinstance(kernels[0], dict) \
        and "nodes" in kernels[0]


def _words(node, where):
    """What a leaf's row says."""
    name = node.get("name")
    if not isinstance(name, str):
        raise BadInput(f"{where}: has no name; accepted: the JSON of explain --resolved")
    if node["kind"] not in ("load", "store"):
        return name
    words = f"{name} {'to' if node['kind'] == 'store' else 'into'} {node.get('level', '')}"
    tile = node.get("tile")
    if isinstance(tile, list) and all(isinstance(n, int) for n in tile):
        words += f": {' × '.join(map(str, tile)) or 'scalar'}, " \
                 f"{amount(number(node, 'bytes', where))}"
    return words


def _layout(node, depth, out, where):
    """Rows of a node, top to bottom: (kind, words, depth, rows it holds, loop's name)."""
    kind = node.get("kind") if isinstance(node, dict) else None
    children = node.get("children", []) if isinstance(node, dict) else None
    if not isinstance(kind, str) or not isinstance(children, list):
        raise BadInput(f"{where}: is not a node; accepted: the JSON of explain --resolved")
    if len(out) > MOST_ROWS or depth > MOST_DEPTH:
        raise BadInput(f"{where}: is more than a picture holds; accepted: {MOST_ROWS} nodes, "
                       f"{MOST_DEPTH} deep")
    if kind in LEAVES:
        out.append((kind, _words(node, where), depth, 0, None))
        return
    if kind == "loop":
        place = len(out)
        step, trips = number(node, "step", where, 1), number(node, "trips", where)
        binding = node.get("binding", "seq")
        bound = "" if binding == "seq" else f", bound to {binding}"
        out.append(None)
        for i, child in enumerate(children):
            _layout(child, depth + 1, out, f"{where}.children[{i}]")
        words = f"for {node.get('name')} in steps of {step}, {trips} {'trip' if trips == 1 else 'trips'}"
        out[place] = ("loop", words + bound, depth, len(out) - place - 1, node.get("name"))
        return
    for i, child in enumerate(children):
        _layout(child, depth, out, f"{where}.children[{i}]")


def _residencies(kernel, laid, where):
    """[(label, colour index, first row, last row)]: a buffer lives in the body that fixes its tile."""
    found = []
    for i, b in enumerate(kernel.get("buffers") or []):
        at = f"{where}.buffers[{i}]"
        if not isinstance(b, dict) or not isinstance(b.get("tensor"), str):
            raise BadInput(f"{at}: is not a buffer; accepted: the JSON of explain --resolved")
        bytes_ = number(b, "bytes", at, missing=True)
        label = f"{b['tensor']}\nin {b.get('level', '')}" + ("" if bytes_ is None else f"\n{amount(bytes_)}")
        first, last = 0, len(laid) - 1
        loop = b.get("fixed_at")
        uses = [r for r, (kind, words, *_rest) in enumerate(laid)
                if kind in ("load", "store") and words.split(" ")[0] == b["tensor"]]
        if loop:
            inside = [(r, row) for r, row in enumerate(laid) if row[0] == "loop" and row[4] == loop]
            if inside:
                at = number(b, "fixed_at_loop", at, missing=True)  # which of them; older files do not say
                row, loop_row = inside[-1 if at is None else min(int(at), len(inside) - 1)]
                first, last = row + 1, row + loop_row[3]
        elif b.get("role") == "input" and uses:
            first, last = _body_of(laid, uses[0])
        found.append((label, i, first, max(first, last)))
    return found


def _body_of(laid, row):
    """The rows of the innermost loop body around a row."""
    for r in range(row - 1, -1, -1):
        if laid[r][0] == "loop" and laid[r][3] and r < row <= r + laid[r][3]:
            return r + 1, r + laid[r][3]
    return 0, len(laid) - 1


def _draw_rows(axes, laid):
    from matplotlib.patches import Rectangle
    for r, (kind, words, depth, holds, _) in enumerate(laid):
        left = depth * INDENT
        if kind == "loop":
            axes.add_patch(Rectangle((left, r), WIDTH - 2 * left * 0.5, holds + 1, facecolor="#f4f4f4"
                                     if depth % 2 else "white", edgecolor="#444444", linewidth=0.9,
                                     zorder=1 + depth))
            axes.text(left + 0.12, r + 0.55, words, va="center", fontsize=8.5, weight="bold",
                      zorder=100)
            continue
        colour, verb = LEAVES[kind]
        axes.add_patch(Rectangle((left + 0.12, r + 0.16), 0.3, 0.68, facecolor=colour,
                                 edgecolor="black", linewidth=0.5, zorder=99))
        axes.text(left + 0.55, r + 0.52, f"{verb} {words}", va="center", fontsize=8.5, zorder=100)


def _pitch(found):
    """What a bar and its label take: more where a tensor's name is long."""
    longest = max((len(line) for label, *_ in found for line in label.split("\n")), default=0)
    return max(PITCH, 0.165 * longest)


def _turned(found):
    """The labels in two lines, to be read from below: of a picture that would be wider than a page."""
    return [(label.replace("\nin ", " in ", 1), *rest) for label, *rest in found]


def _draw_residencies(axes, found, offset, pitch, rotation):
    from matplotlib.patches import Rectangle
    for i, (label, colour, first, last) in enumerate(found):
        x = offset + i * pitch
        axes.add_patch(Rectangle((x, first + 0.06), 0.42, last - first + 0.88,
                                 facecolor=COLOURS[colour % len(COLOURS)],
                                 hatch=HATCHES[colour % len(HATCHES)], edgecolor="black",
                                 linewidth=0.6))
        axes.text(x + 0.21, -0.15, label, ha="center", va="bottom", fontsize=7, rotation=rotation)


def draw_tree(document, where):
    """A figure: a panel a kernel."""
    kernels = rows(document, "kernels", where)
    laid_out = []
    for i, kernel in enumerate(kernels):
        laid = []
        _layout(kernel.get("nodes"), 0, laid, f"{where}: kernels[{i}].nodes")
        if not laid:
            raise BadInput(f"{where}: kernels[{i}].nodes: is empty; accepted: at least one node")
        laid_out.append((laid, _residencies(kernel, laid, f"{where}: kernels[{i}]")))
    above, rotation, unit = 2.3, 0, 0.5  # rows of labels above the tree; inches
    width = WIDTH + 0.7 + max(max(len(found), 1) * _pitch(found) for _, found in laid_out)
    if 0.5 * width > PAGE:
        laid_out = [(laid, _turned(found)) for laid, found in laid_out]
        above, rotation = width_of([label for _, found in laid_out for label, *_ in found]) / 0.27 + 0.5, 90
        width, unit = WIDTH + 0.7 + 0.66 * max(len(found) for _, found in laid_out), 0.42
    heights = [len(laid) + above + 0.6 for laid, _ in laid_out]
    figure = new_figure(unit * width, 0.27 * sum(heights) + 0.9)
    panels = figure.subplots(len(kernels), 1, squeeze=False,
                             gridspec_kw={"height_ratios": heights}).flatten()
    for axes, (laid, found), kernel in zip(panels, laid_out, kernels):
        _draw_rows(axes, laid)
        _draw_residencies(axes, found, WIDTH + 0.7, 0.66 if rotation else _pitch(found), rotation)
        axes.set_xlim(-0.05, width)
        axes.set_ylim(len(laid) + 0.1, -above)
        axes.axis("off")
        blocks = kernel.get("blocks", 1)
        axes.text(0, -0.35, f"kernel {kernel.get('name') or ''}".strip()
                  + (f", {blocks} blocks" if blocks != 1 else ""), fontsize=8.5, va="bottom")
    panels[0].set_title(filled([workload_of(document, where)], 80), fontsize=10, loc="left")
    memory = document.get("memory")
    held = "; ".join(f"{level}: {amount(b)} held at most" for level, b in memory.items()
                     if isinstance(b, (int, float))) if isinstance(memory, dict) else ""
    put_caption(panels[-1], [
        "bars: where a buffer's content lives, with all its copies; tiles as on every loop's first trip",
        f"machine: {text(document, 'machine')}; {held}" + (
            f"; does not fit: {document['fits_reason']}" if document.get("fits_reason") else "")],
        100, 4)
    return figure
