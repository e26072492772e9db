"""Is every kind of result drawn with what it says, by its units and sources, and bad ones refused?"""

import json
import re

import pytest

tilewright = pytest.importorskip("tilewright")
plot = pytest.importorskip("tilewright.plot")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'tilewright[plot]'")

CHAIN = "gemm-chain:m=96,n=64,k=48,l=80"
IN_PLACE = dict(tree="m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", tiles={"m": 16, "l": 16, "k": 8, "n": 8})


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    import matplotlib
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")

    def make(answer, kind=None):
        path, out = tmp_path / "r.json", tmp_path / "p.svg"
        path.write_text(json.dumps(answer))
        assert plot.main([str(path), "-o", str(out)] + (["--kind", kind] if kind else [])) == 0
        written = out.read_text(encoding="utf-8")
        found = re.findall(r"<text[^>]*>([^<]*)</text>", written)
        # On a page of 7.2 inches; the least that can be read is six points.
        wide = float(re.search(r'width="([\d.]+)pt"', written).group(1))
        sizes = [float(n) for n in re.findall(r"<text[^>]*?font(?:-size)?: ?([\d.]+)px", written)]
        assert sizes and min(sizes) * min(1, 7.2 * 72 / wide) > 5.9, (min(sizes, default=0), wide)
        return re.sub(r"\s+", " ", " ".join(found))
    return make


def expect(text, *parts):
    for part in parts:
        assert part in text, (part, text)


def test_traffic(drawn):
    answer = tilewright.simulate(CHAIN, "cache:16K/4,64K/8", **IN_PLACE)
    read = sum(t["read_bytes"] for t in answer["traffic"] if t["boundary"] == "L2/L1")
    expect(drawn(answer), "DRAM/L2", "L2/L1", "read", "written", "bytes moved (KiB)", CHAIN,
           f"{read / 1024:.3g}", "simulated by cache", "machine: cache:16K/4,64K/8",
           "write-allocate counted as read")


def test_compared(drawn):
    answer = tilewright.compare(CHAIN, "scratchpad:8K", models="chimera,bounds")
    expect(drawn(answer), "chimera's plan", "bounds's plan", "exact (truth)", "priced by chimera",
           "bound, proven", "bytes moved (KiB)", "machine: scratchpad:8K, level L1")


def test_compared_marks_overlap_in_no_row_and_a_plan_that_does_not_fit_is_named():
    models = ["one", "two", "three", "four", "five", "six", "seven"]
    plans = [{"model": m, "exact_bytes": 100, "fits": m != "two", "level": "L1", "gap": 1.0,
              "prices": [{"by": by, "volume_bytes": 100} for by in models]} for m in models]
    plans += [{"model": m, "exact_bytes": None, "reason": "it needs a GPU"} for m in ("eight", "nine")]
    figure = plot.figure_of({"workload": "gemm", "machine": "a machine", "level": "L1", "bound": "proven", "bound_is": "a bound",
                             "bound_bytes": 90, "plans": plans}, "a file")
    axes = figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert any("not drawn: eight, nine (it needs a GPU)" in " ".join(t.get_text().split()) for t in axes.texts)
    assert names[0] == "one's plan" and names[1] == "two's plan\n(too large)"
    marks = [line for line in axes.lines if line.get_label().startswith("priced by")]
    places = sorted(axes.transData.transform((100, y))[1] for line in marks for y in line.get_ydata())
    assert len(places) == 49
    mark = marks[0].get_markersize() * figure.dpi / 72  # pixels
    assert min(b - a for a, b in zip(places, places[1:])) > mark
    assert figure.get_figwidth() * 1.4 < 7.5 and figure.get_figheight() < 9


@pytest.mark.parametrize("rows", [3, 32, 60])
def test_beside_is_at_most_a_page_high(rows):
    document = {"title": "Both", "paper": "Somebody", "command": "reproduce x",
                "compared": [{"what": f"row {i}", "unit": "", "ours": 2 + i, "paper": 3 + i, "ours_source": "counted"}
                             for i in range(rows)]}
    figure = plot.figure_of(document, "a file")
    assert figure.get_figheight() <= 8
    figure.canvas.draw()
    names = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert all(not a.overlaps(b) for a, b in zip(names, names[1:]))
    assert "without a unit" in figure.axes[0].get_xlabel()


def test_edges(drawn):
    answer = tilewright.explain("gemm-chain:m=1024,n=1024,k=1024,l=1024,dtype=f16", "h100", model="tilewright")
    edge = answer["edges"][0]
    assert not edge["fused"] and edge["seconds_apart"] < edge["seconds_fused"]
    expect(drawn(answer, "edges"), "gemm1 &gt; C &gt; gemm2", f"{edge['seconds_fused'] * 1e6:.3g}", f"{edge['seconds_apart'] * 1e6:.3g}",
           "kernels of their own", "0 of 1 tensors between operators stay in a kernel", "machine: h100")


def test_layers(drawn):
    answer = tilewright.explain("bert:layers=2,hidden=64,heads=2,seq=16", "scratchpad:16K", split="followed")
    folded = next(layer for layer in answer["layers"] if layer["count"] > 1)
    copies = sum(layer["count"] for layer in answer["layers"])
    expect(drawn(answer, "layers"), f"{folded['layer']} x {folded['count']}", "a kernel for each operator", "bound",
           f"{copies} layers, of which {len(answer['layers'])} differ", "machine: scratchpad:16K")


def test_layers_without_a_number_are_refused(tmp_path, capsys):
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"layers": [{"layer": "a", "count": 1, "bound_bytes": 4, "unfused": {"bytes": "x"}, "plans": {}}]}))
    assert plot.main([str(bad), "-o", str(tmp_path / "p.svg")]) == 2
    assert "layers[0].unfused.bytes: 'x' is not accepted" in capsys.readouterr().err
    assert not (tmp_path / "p.svg").exists()


SIDE = {"title": "Several models", "machine": "h200", "seconds_by": "a model", "side_by_side": [
    {"workload": "softmax", "compulsory_bytes": 10, "plans": [
        {"model": "one", "kernels": 1, "bytes": 10, "seconds": 1e-6,
         "measured": {"seconds": 2e-6, "device": "A GPU"}},
        {"model": "two", "reason": "it has none"}],
     "others": {"xla": {"seconds": 3e-6}}}]}
TABLE = {"title": "A table", "command": "reproduce x", "columns": ["what", "kernels", "GB", "why"],
         "table": [["first", "1", "2.5", "-"], ["second", "-", "1,000", "text"]]}


def test_side_by_side(drawn):
    expect(drawn(SIDE), "Several models", "softmax", "one", "two of 1", "XLA", "bytes moved / compulsory bytes",
           "time (us) predicted by a model", "time (us) measured", "measured on: A GPU", "Machine planned for: h200")


def test_table(drawn):
    text = drawn(TABLE)
    expect(text, "A table", "first", "second", "kernels", "GB", "command: reproduce x", "–: no value")
    alike = drawn({**TABLE, "columns": ["K", "us", "bound"], "table": [["1024", "2", "yes"], ["512", "3", "yes"]]})
    expect(alike, "K = 1024", "K = 512")  # what all rows say does not name them
    assert "yes" not in alike
    shares = drawn({**TABLE, "columns": ["what", "error"], "table": [["first", "1.5%"], ["second", "20%"]]})
    expect(shares, "error, %")
    assert "no value" not in shares
    counted = drawn({**TABLE, "columns": ["graph", "rank"], "table": [["first", "0.843"], ["second", "0.649 (90)"]]})
    assert "rank" in counted and "first, 0.843" not in counted  # a number is no part of a row's name


def test_rows_of_a_long_table_share_a_row_of_marks(drawn):
    rows_of = [[f"graph {i}", who, str(i + 1)] for i in range(31) for who in ("one", "other")]
    document = {**TABLE, "columns": ["graph", "model", "kernels"], "table": rows_of}
    from tilewright.plot_table import draw_table
    figure = draw_table(document, "t")
    assert figure.get_figheight() < 9 and [len(l.get_xdata()) for l in figure.axes[0].lines if l.get_label() in ("one", "other")] == [31, 31]
    expect(drawn(document), "graph 0", "graph 30", "one", "other")
    assert len(draw_table({**document, "table": rows_of[:30]}, "t").axes[0].patches) == 30  # bars
    unlike = draw_table({**document, "table": [*rows_of, rows_of[0]]}, "t")  # two rows of one name
    assert len(unlike.axes[0].patches) == 63


def test_a_table_of_texts_is_written_out(drawn):
    document = {"title": "A table", "command": "reproduce x", "columns": ["name", "kind (paper)", "here"],
                "table": [["first", "by hand", "-"], ["second", "template-based search of everything", "yes"]]}
    expect(drawn(document), "A table", "kind", "by hand", "template-based search of everything", "–", "as the paper has it: kind",
           "command: reproduce x")


def test_beside(drawn):
    pair = {"what": "kernels of a net", "unit": "kernels", "ours": 12, "paper": 15, "ours_source": "counted"}
    document = {"title": "Both", "paper": "Somebody, 2020, table 3", "command": "reproduce x", "needs": "a TPU",
                "compared": [pair, {**pair, "what": "bytes", "unit": "MB", "ours": 2500, "paper": 2600},
                             {**pair, "what": "no number", "paper": None}]}
    text = drawn(document)
    expect(text, "Both", "kernels of a net", "MB", "paper's", "ours: counted", "paper: Somebody, 2020, table 3",
           "not here: a TPU", "2.5k")
    assert "no number" not in text
    assert "every row" not in text
    same = drawn({**document, "compared": [{**pair, "what": f"{what}, gemm-chain:m=8 (k=2 l=4)"} for what in ("loads", "stores")]})
    expect(same, "every row: gemm-chain:m=8 (k=2 l=4)", "loads", "stores")
    assert same.count("gemm-chain") == 1
    many = {**document, "compared": [{**pair, "what": f"row {i}."} for i in range(70)]}
    expect(drawn(many), "row 59.", "the first 60 of 70 numbers")
    assert "row 60." not in drawn(many)


def test_reuse(drawn):
    document = {"title": "Reuse", "paper": "Somebody", "command": "reproduce y",
                "rows": [{"order": "mlkn", "reused_along": {"A": ["n"], "B": []}}]}
    expect(drawn(document), "Reuse", "mlkn", "A", "B", "n", "–", "loop order, outermost loop first")


def test_orders(drawn):
    answer = tilewright.explain(CHAIN, "scratchpad:8K", model="chimera")
    best = answer["orders"][0]
    expect(drawn(answer), best["order"], f"{best['volume_elements']:,}", "data movement (elements)",
           "predicted by chimera, reading observed", "capacity 2048 elements of L1",
           "machine: scratchpad:8K", "not legal with several trips")
    ties = sum(o["volume_elements"] == best["volume_elements"] for o in answer["orders"])
    if ties > 1:
        expect(drawn(answer), f"{ties} orders tie")


def test_tree(drawn):
    answer = tilewright.explain(CHAIN, "scratchpad:16K", resolved=True, **IN_PLACE)
    expect(drawn(answer), "for m in steps of 16, 6 trips", "for k in steps of 8, 6 trips",
           "load A into L1: 16 × 8, 512 bytes", "compute gemm2", "C in L1", "1 KiB",
           "machine: scratchpad:16K", f"L1: {answer['memory']['L1'] / 1024:.4g} KiB held at most")


def test_tree_of_blocks_and_several_kernels(drawn):
    answer = tilewright.explain("attention:m=64,l=64,heads=2", "a100", model="mcfuser", resolved=True)
    expect(drawn(answer), "bound to grid", "blocks", "compute exp", "store E to DRAM")


TWICE = {"name": "twice", "dtype": "f32", "loops": {"m": 64},
         "operators": ["T[m] = x[m] + 1", "U[m] = T[m] * 2", "V[m] = U[m] + 3", "W[m] = V[m] * 4"]}


def test_a_bar_stands_in_its_own_loop_of_two_with_a_name():
    answer = tilewright.explain(TWICE, "scratchpad:16K", resolved=True, tree="m ( C.T C.U ) m ( C.V C.W )", tiles={"m": 8})
    kernel, laid = answer["kernels"][0], []
    plot_tree = plot.plot_tree
    plot_tree._layout(kernel["nodes"], 0, laid, "")
    rows = {label.split("\n")[0]: (first, last) for label, _, first, last in plot_tree._residencies(kernel, laid, "")}
    first, second = [(r + 1, r + row[3]) for r, row in enumerate(laid) if row[0] == "loop"]
    assert rows["T"] == first and rows["V"] == second


def test_a_workload_from_a_file_is_titled_by_its_name(drawn):
    text = drawn(tilewright.plan(TWICE, "xeon-gold-6240"), "roofline")
    expect(text, "twice")
    assert "operators" not in text


def test_roofline(drawn):
    answer = tilewright.plan("chimera/G2", "xeon-gold-6240", model="chimera")
    text = drawn(answer, "roofline")
    intensity = answer["roofline"]["flops"] / answer["exact_bytes"]
    expect(text, "2,995 GFLOP/s, f32", "before fusion", "after: chimera's plan",
           f"{intensity:.3g} FLOP/byte", "no point was", "18 instances of 100.7", "L2/L1")


def test_convergence(drawn):
    answer = tilewright.plan("mcfuser/G1", "a100", model="mcfuser", search="evolutionary",
                             population=64, seed=5)
    rounds = answer["candidates"]["rounds"]
    assert len(rounds) == answer["candidates"]["generations"]
    assert [r["best_seconds"] for r in rounds] == sorted((r["best_seconds"] for r in rounds), reverse=True)
    assert rounds[-1]["evaluated"] == answer["candidates"]["evaluated"]
    assert rounds[-1]["best_seconds"] == pytest.approx(answer["seconds"])
    expect(drawn(answer, "convergence"), "candidates priced", "predicted time (µs)", "seed 5",
           f"{len(rounds)} rounds", "machine: a100")


def test_residuals(drawn):
    answer = tilewright.validate(CHAIN, "cache:4K/8", orders=["mlkn"], samples=8)
    true = sum(p["true_bytes"] for p in answer["points"])
    error = sum(p["tensors"]["A"]["predicted_bytes"] - p["tensors"]["A"]["true_bytes"]
                for p in answer["points"])
    expect(drawn(answer, "residuals"), f"A {error / true:+.2%}", "% of the tiling's true bytes",
           "true bytes of the tiling", "machine: cache:4K/8")
    expect(drawn(answer), "predicted bytes", "y = x")  # the default


def test_curve_says_where_fusion_pays(drawn):
    answer = tilewright.explain(CHAIN, "scratchpad:8K", curve=True)
    assert answer["crossover_bytes"]
    expect(drawn(answer), "fusion pays from", "unfused, proven", "L1 8 KiB")


def test_occupancy(drawn, tmp_path):
    tilewright.simulate(CHAIN, "cache:1K/4", occupancy=tmp_path / "o.json", **IN_PLACE)
    expect(drawn(json.loads((tmp_path / "o.json").read_text())), "lines held in L1, of 16", "accesses",
           "lines of 64 bytes in L1", "simulated")


def test_every_kind_is_found_and_the_wrong_one_refused(tmp_path, capsys):
    answer = tilewright.plan(CHAIN, "scratchpad:8K")
    assert plot.kinds_of(answer) == ["roofline"]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(answer))
    assert plot.main([str(path), "--kind", "tree"]) == 2
    assert "accepted: roofline" in capsys.readouterr().err
    assert plot.main([str(path)]) == 2  # the machine names no rates
    assert "peak_flops_per_second" in capsys.readouterr().err
    path.write_text(json.dumps({"schema": 1, "reason": "nothing fits"}))
    assert plot.main([str(path)]) == 2
    assert "nothing fits" in capsys.readouterr().err


def spoilt():
    traffic = {"schema": 1, "traffic": [{"tensor": "A", "boundary": "DRAM/L1", "read_bytes": 1,
                                         "written_bytes": 0}]}
    node = {"kind": "loop", "name": "m", "step": 4, "trips": 2, "children": []}
    tree = {"kernels": [{"name": "x", "nodes": node, "buffers": []}]}
    orders = {"orders": [{"order": "mk", "volume_elements": 4}]}
    rounds = {"candidates": {"rounds": [{"evaluated": 1, "best_seconds": 1e-6}]}}
    plans = {"bound_bytes": 3, "plans": [{"model": "a", "exact_bytes": 4, "prices": []}]}
    def change(document, *path, value):
        document = json.loads(json.dumps(document))
        at = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return document
    yield change(traffic, "traffic", value=[]), "traffic"
    yield change(traffic, "traffic", 0, "read_bytes", value=-1), "traffic[0].read_bytes"
    yield change(traffic, "traffic", 0, "tensor", value=3), "traffic[0]"
    yield change(tree, "kernels", 0, "nodes", "kind", value=3), "nodes"
    yield change(tree, "kernels", 0, "nodes", "step", value="many"), "nodes.step"
    yield change(tree, "kernels", 0, "buffers", value=[3]), "buffers[0]"
    yield change(tree, "kernels", 0, "nodes", "children", value=[{"kind": "compute", "children": []}]), \
        "children[0]"
    deep = node
    for _ in range(60):
        deep = {**node, "children": [deep]}
    yield change(tree, "kernels", 0, "nodes", value=deep), "deep"
    yield change(orders, "orders", 0, "order", value=None), "orders[0].order"
    yield change(orders, "orders", 0, "volume_elements", value="x"), "orders[0].volume_elements"
    yield change(orders, "orders", 0, "volume_elements", value=None), "orders"
    yield change(rounds, "candidates", "rounds", value=[{"evaluated": 1}]), "rounds"
    yield change(rounds, "candidates", "rounds", 0, "evaluated", value=True), "rounds[0].evaluated"
    yield change(plans, "plans", 0, "exact_bytes", value=None), "plans"
    yield change(plans, "bound_bytes", value=-3), "bound_bytes"
    yield change(SIDE, "side_by_side", 0, "plans", 0, "measured", "seconds", value="x"), "measured.seconds"
    yield change(SIDE, "side_by_side", 0, "compulsory_bytes", value=-1), "compulsory_bytes"
    yield change(SIDE, "side_by_side", value=[]), "side_by_side"
    yield change(TABLE, "table", value=[["a"]]), "table"
    yield {"roofline": {"flops": 1, "peak_flops_per_second": 0, "bandwidth_bytes_per_second": 1,
                        "instances": 1}}, "peak_flops_per_second"
    yield {"points": [{"predicted_bytes": 1, "true_bytes": 1, "tensors": {"A": {"true_bytes": 1}}}],
           "kind": "residuals"}, "tensors.A"


@pytest.mark.parametrize("document, named", list(spoilt()))
def test_bad_files_are_refused_in_one_line(result, refused, document, named):
    kind = ["--kind", document.pop("kind")] if "kind" in document else []
    assert named in refused(result(document), *kind)


def test_a_table_is_drawn_by_the_columns_that_it_names_and_by_its_table_where_its_points_are_others():
    from tilewright import plot

    document = {"title": "t", "columns": ["network", *"abcdefg"], "table": [["x", *"1234567"], ["y", *"2345678"]],
                "points": [{"n": 1024, "dram_read_bytes": 5}]}
    assert plot.kinds_of(document) == ["table"]
    titles = lambda: [axes.get_title() for axes in plot.figure_of(document, "d").axes]  # noqa: E731
    assert titles() == list("abcdef")
    document["drawn"] = ["g", "a"]
    assert titles() == ["g", "a"]


def test_rows_of_one_text_share_a_row_by_what_comes_before_the_last_blank():
    names = [(f"gemm m={m} {tile}",) for m in range(40) for tile in ("64x64", "128x64")]
    first, second, places = plot.plot_table._shared_rows(names)
    assert len(first) == 40 and second == ["64x64", "128x64"] and places[3] == (1, 1)
