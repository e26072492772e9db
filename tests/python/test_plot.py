"""Does the picture say what the file says, and is a bad file refused in one line?"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import validation

plot = pytest.importorskip("tilewright.plot")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'tilewright[plot]'")


def test_says_figures_sources_and_units(result, words):
    text = words(result(validation(command="tilewright validate gemm-chain")))
    for part in ("12 tilings", "R² about y = x 0.9876", "mean error 1.23%", "worst 4.56%",
                 "bias -0.78%", "machine: cache:32K/8", "command: tilewright validate gemm-chain",
                 "predicted by chimera, exact edges", "y: simulated", "DRAM/L1", "seed 1",
                 "layout tiled", "predicted bytes (MiB)", "true bytes (MiB)", "y = x"):
        assert part in text, (part, text)


def test_the_optimum_is_the_least_predicted(result, words):
    assert "m=99 l=98, 390.6 KiB predicted" in words(result(validation()))
    document = validation()
    del document["optimum"]
    assert "m=12 l=24, 813.8 KiB predicted" in words(result(document))


def test_figures_that_the_file_lacks_come_from_the_points(result, words):
    document = validation()
    for key in ("r2_identity", "mape", "worst", "bias"):
        del document[key]
    document["points"] = [{"predicted_bytes": x, "true_bytes": y}
                          for x, y in ((90, 100), (210, 200), (400, 400))]
    # residual 200; mean 700/3; spread 46666.67
    wanted = "R² about y = x 0.9957, mean error 5.00%, worst 10.00%, bias -1.67%"
    assert wanted in words(result(document))


def test_panels_and_points_past_half_the_capacity(result, words):
    beyond = {"points": [{"predicted_bytes": 5e6, "true_bytes": 9e6}], "r2_identity": -3.5}
    one = {"id": "chimera/fig8d", "validation": validation(), "paper_numbers": {"r2": 0.97}}
    two = {"id": "chimera/fig8e", "validation": validation(beyond=beyond)}
    text = words(result({"schema": 1, "id": "chimera/fig8", "panels": [one, two],
                         "command": "tilewright reproduce chimera/fig8"}))
    assert "chimera/fig8d" in text and "chimera/fig8e" in text
    assert text.count("command: tilewright reproduce chimera/fig8") == 2
    assert "paper's R²: 0.97" in text and "1 tilings past half the capacity" in text


def test_one_validation_of_reproduce(result, words):
    assert "chimera/fig8d" in words(result({"id": "chimera/fig8d", "validation": validation()}))


def test_wide_spreads_are_logarithmic_with_plain_numbers(result, words):
    points = [{"predicted_bytes": n << 20, "true_bytes": n << 20} for n in (1, 7, 90)]
    text = words(result(change(points=points, optimum=None)))
    for tick in ("1", "2", "5", "10", "20", "50"):
        assert re.search(rf"\b{tick}\b", text.split("predicted bytes")[0]), text


@pytest.mark.parametrize("name", ["p.png", "p.svg", "p.pdf"])
def test_formats(result, tmp_path, name):
    out = tmp_path / name
    assert plot.main([result(validation()), "-o", str(out)]) == 0
    assert out.read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")
    assert sorted(os.listdir(tmp_path)) == sorted([name, "result.json"])  # nothing half-written


def test_default_name(result):
    path = result(validation())
    assert plot.main([path]) == 0
    assert os.path.exists(path[:-len("json")] + "png")


def change(**more):
    return {**validation(), **more}


@pytest.mark.parametrize("document, part", [
    ("{", "is not JSON"),
    ("[" * 100000, "is not JSON"),
    ([1], "is not an object"),
    ({"schema": 1}, "points: is missing"),
    (change(points=[]), "points: is empty"),
    (change(points={}), "points: is not a list"),
    (change(points=[3]), "points[0]: is not an object"),
    (change(points=[{"predicted_bytes": 1}]), "points[0].true_bytes"),
    (change(points=[{"predicted_bytes": -1, "true_bytes": 1}]), "points[0].predicted_bytes"),
    (change(points=[{"predicted_bytes": "x\ny", "true_bytes": 1}]), "points[0].predicted_bytes"),
    (change(points=[{"predicted_bytes": True, "true_bytes": 1}]), "points[0].predicted_bytes"),
    ({"panels": []}, "panels"),
    ({"panels": [{"id": "x"}]}, "panels[0]: points: is missing"),
])
def test_bad_files_are_refused_in_one_line(result, refused, document, part):
    assert part in refused(result(document))


@pytest.mark.parametrize("arguments, part", [
    ([], "RESULT.json"), (["/no/such.json"], "cannot be read"),
    (["x.json", "-o", "x.doc"], "x.doc"),
    (["x.json", "--bogus"], "--bogus"), (["x.json", "--scale", "cubic"], "cubic"),
])
def test_bad_options(capsys, arguments, part):
    assert plot.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and part in error, error


def test_zero_on_a_logarithmic_scale(result, capsys, tmp_path):
    path = result(change(points=[{"predicted_bytes": 0, "true_bytes": 1}]))
    assert plot.main([path, "--scale", "log", "-o", str(tmp_path / "p.png")]) == 2
    assert "zero" in capsys.readouterr().err
    assert plot.main([path, "--scale", "linear", "-o", str(tmp_path / "p.png")]) == 0


def test_console_script_is_found_as_a_verb(result, tmp_path):
    beside = os.path.dirname(sys.executable)
    command = shutil.which("tilewright", path=beside)
    if command is None or shutil.which("tilewright-plot", path=beside) is None:
        pytest.skip("tilewright is not installed beside this Python")
    out = tmp_path / "p.png"
    environment = {**os.environ, "PATH": beside + os.pathsep + os.environ["PATH"]}
    done = subprocess.run([command, "plot", result(validation()), "-o", str(out)], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert out.exists()
    done = subprocess.run([command, "plot", str(tmp_path)], env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def counters(**more):
    """What reproduce validation/polybench answers, in small."""
    def level(measured, ours, dinero):
        return {"measured": measured, "ci_low": measured - 1, "ci_high": None, "simulated": ours,
                "dinero": dinero}
    rows = [{"kernel": "gemm", "accesses": 9, "L1": level(1000, 1010, 900), "L2": level(10, 10, 11)},
            {"kernel": "mvt", "accesses": 9, "L1": level(200, 204, 300), "L2": level(0, 3, 0)},
            {"kernel": "lu", "accesses": 9, "L1": level(5000, 5200, 5000), "L2": level(9, 9, 9)}]
    return {"schema": 1, "id": "validation/polybench", "title": "Simulated against counted",
            "size": "medium", "machine": "core-i9-10980xe", "by": ["simulated", "dinero"],
            "command": "tilewright reproduce validation/polybench", "kernels": rows,
            "errors": {"L1": {}, "L2": {}}, **more}


def test_counted_misses_beside_simulated_ones(result, words):
    text = words(result(counters()))
    for part in ("gemm", "mvt", "lu", "L1 misses", "L2 misses", "counted (PAPI)", "size medium",
                 "machine core-i9-10980xe", "3 kernels", "reproduce validation/polybench",
                 "simulated: median 2.00%, worst 4.00%", "dinero: median 10.00%, worst 50.00%",
                 "simulated: median 0.00%, worst 100.00%"):
        assert part in text, (part, text)


def test_counters_of_thirty_kernels_fit_a_page():
    document = counters()
    document["kernels"] = [{**document["kernels"][i % 3], "kernel": f"kernel-number-{i}"} for i in range(30)]
    figure = plot.figure_of(document, "a file")
    box = figure.get_tightbbox(figure.canvas.get_renderer())  # inches
    assert box.width < 7.3 and box.height < 9.5
    shown = [axes for axes in figure.axes if axes.xaxis.get_tick_params()["labelbottom"]]
    assert len(shown) == 2
    names = [label.get_window_extent() for label in shown[0].get_xticklabels()]
    assert all(not a.overlaps(b) for a, b in zip(names, names[1:]))
    key = figure.axes[2].get_legend().get_window_extent()
    assert not any(name.overlaps(key) for name in names)


@pytest.mark.parametrize("spoil, named", [
    (lambda d: d.update(kernels=[]), "kernels"),
    (lambda d: d.update(by=None), "by"),
    (lambda d: d["kernels"][1].pop("kernel"), "kernels[1]"),
    (lambda d: d["kernels"][2].pop("L2"), "kernels[2].L2"),
    (lambda d: d["kernels"][0]["L1"].update(simulated="many"), "kernels[0].L1.simulated"),
    (lambda d: d["kernels"][0]["L1"].update(measured=True), "kernels[0].L1.measured"),
])
def test_counted_misses_that_are_none(result, refused, spoil, named):
    document = counters()
    spoil(document)
    assert named in refused(result(document))


def occupancy(**more):
    """What simulate --occupancy writes, in small."""
    def at(time, level, a, b):
        return {"name": level, "ph": "C", "pid": 1, "ts": time, "args": {"A": a, "B": b}}
    return {"schema": 1, "kind": "occupancy", "workload": "worked-chain", "machine": "cache:1K,4K",
            "accesses": 20, "stride_accesses": 10, "tensors": ["A", "B"],
            "levels": [{"level": "L1", "lines": 16, "line_bytes": 64},
                       {"level": "L2", "lines": 64, "line_bytes": 64}],
            "traceEvents": [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "x"}},
                            at(1, "L1", 1, 0), at(1, "L2", 1, 0), at(10, "L1", 4, 5),
                            at(10, "L2", 4, 6), at(20, "L1", 8, 8), at(20, "L2", 9, 9)], **more}


def test_who_holds_the_caches_over_time(result, words):
    text = words(result(occupancy()))
    for part in ("A", "B", "lines held in L1, of 16", "lines held in L2, of 64", "sampled every 10",
                 "worked-chain on cache:1K,4K, simulated"):
        assert part in text, (part, text)


@pytest.mark.parametrize("spoil, named", [
    (lambda d: d.update(tensors=[]), "tensors"),
    (lambda d: d.update(levels=None), "levels"),
    (lambda d: d["levels"][1].update(lines=-1), "levels[1]"),
    (lambda d: d["traceEvents"][2]["args"].pop("B"), "traceEvents[2]"),
    (lambda d: d["traceEvents"][1]["args"].update(A=True), "traceEvents[1]: A"),
    (lambda d: d["traceEvents"][1].update(ts="soon"), "traceEvents[1]: ts"),
    (lambda d: d.update(traceEvents=d["traceEvents"][:2]), "has no sample of L2"),
])
def test_occupancy_that_is_none(result, refused, spoil, named):
    document = occupancy()
    spoil(document)
    assert named in refused(result(document))


def growth(**more):
    """What reproduce fusionstitching/overhead writes, in small."""
    return {"schema": 1, "title": "What the explorer takes",
            "command": "tilewright reproduce fusionstitching/overhead",
            "growth": [{"vertices": n, "edges": 2 * n, "seconds": 3e-6 * n} for n in (10, 20, 40)],
            **more}


def test_search_time_by_the_size_of_the_graph(result, words):
    text = words(result(growth()))
    assert "1.00 us a vertex and edge, R² 1.000" in text
    assert "vertices + edges" in text and "reproduce fusionstitching/overhead" in text


@pytest.mark.parametrize("rows, named", [
    ([], "growth: is not a list"),
    ([1, 2], "growth[0]: is not a row"),
    ([{"vertices": 1, "edges": "x", "seconds": 1}] * 2, "growth[0].edges"),
    ([{"vertices": 0, "edges": 0, "seconds": 1}] * 2, "every graph is empty"),
])
def test_growth_that_is_none(result, refused, rows, named):
    assert named in refused(result(growth(growth=rows)))
