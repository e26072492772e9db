"""Do the functions that experiments/gpu/graphs compares compute what the reference evaluator computes, and
does the script keep what it was told? No GPU is needed: a stand-in answers for the process that has one.
"""

import json
import math
import pathlib
import shutil
import stat
import subprocess
import sys
import types

import pytest

pytest.importorskip("numpy")
pytest.importorskip("tilewright")

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "experiments" / "gpu"
RECORDING = ROOT / "tests" / "harness" / "recordings" / "h200-graphs-all.json"
sys.path.insert(0, str(GPU))
graph_check = pytest.importorskip("graph_check")
graphs = pytest.importorskip("graph_functions")


@pytest.mark.parametrize("way", list(graph_check.WAYS))
@pytest.mark.parametrize("name", graphs.NAMES)
def test_functions_compute_what_the_evaluator_computes(way, name):
    if graph_check.absent(way):
        pytest.skip(graph_check.absent(way))
    assert graph_check.error(way, name, seed=3) < 1e-12


def test_another_function_is_told(monkeypatch):
    monkeypatch.setattr(graphs, "gelu", lambda o, x, bias: (x + bias,))
    assert graph_check.error("numpy", "gelu") > 1e-2
    monkeypatch.setattr(graphs, "softmax", lambda o, x: (x.sum(),))
    assert math.isinf(graph_check.error("numpy", "softmax"))


@pytest.mark.parametrize("size, least, most", [("small", 3e6, 3.6e6), ("large", 33e6, 34e6), ("middle", 9e6, 11e6)])
def test_sizes_are_alike(size, least, most):
    """Of the largest tensor that is walked whole: elements."""
    for name in graphs.NAMES:
        shapes = graphs.shapes(graphs.subject(name, size))
        table = shapes.pop("table", None)
        elements = max(math.prod(s) for s in shapes.values())
        if table:
            elements = math.prod(shapes["ids"]) * table[1]
        assert least <= elements <= most, (name, elements)


def script(*arguments, **more):
    return subprocess.run([sys.executable, str(GPU / "graphs"), *map(str, arguments)], capture_output=True,
                          text=True, **more)


def test_a_recording_is_printed():
    done = script("--from", RECORDING)
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["layernorm", "large", "10.00", "-", "40.00", "15.00", "-", "50.00", "4.00", "1.50"] in words
    assert "all kernels_over_xla     1.41 over 2 rows" in done.stdout
    assert "softmax small eager: wrong: relative error 5.0e-01" in done.stdout
    assert "ranking layernorm: 3 schedules; the first choice takes 1.00 times the fastest" in done.stdout


@pytest.mark.parametrize("arguments, part", [(["--parts", "x"], "letters of abc"),
                                             (["--workloads", "relu"], "relu is not known")])
def test_bad_arguments(arguments, part):
    done = script(*arguments)
    assert done.returncode == 2 and part in done.stderr


STAND_IN = """#!{python}
import json, sys
contestants = []
for line in sys.stdin:
    asked = json.loads(line)
    said = {{"torch": "none"}}
    if asked["do"] == "prepare":
        if asked["contestant"] == "autotune" and asked["size"] == "small":
            sys.exit("no more")
        contestants.append((asked["size"], asked["contestant"]))
        said = {{"relative_error": 1e-7}}
    here = [c for s, c in contestants if s == asked.get("size")]
    if asked["do"] == "time":
        said = {{"sets": 2, "contestants": {{c: {{"seconds_median": 1e-5}} for c in here}}}}
    if asked["do"] == "kernels":
        said = {{"contestants": {{c: {{"kernel_seconds": 8e-6}} for c in here}}}}
    print(json.dumps(said), flush=True)
"""


def test_what_was_found_survives_the_end_of_a_process(tmp_path):
    """The stand-in ends while it prepares the last contestant: what it said before is kept, and why the
    rest is missing."""
    command = shutil.which("tilewright", path=str(pathlib.Path(sys.executable).parent))
    if not command:
        pytest.skip("the command is not installed beside this Python")
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    out = tmp_path / "graphs.json"
    done = script("--tilewright", command, "--python", stand_in, "--workloads", "softmax", "--parts", "ac",
                  "--out", out, "--budget", "120")
    assert out.exists(), done.stderr
    document = json.loads(out.read_text())
    assert document["source"] == "measured" and document["peers"] == {"torch": "none"}
    large, small = document["rows"]
    assert (large["size"], small["size"]) == ("large", "small")
    assert large["contestants"]["xla"]["relative_error"] == 1e-7
    assert "the process ended" in small["contestants"]["autotune"]["reason"]
    assert "the process ended" in large["time_reason"]
    assert document["ranking"]["softmax"]["points"] == []
    assert not out.with_suffix(".json.part").exists()


def test_without_drawn_schedules_nothing_is_paused():
    import graph_drawn
    ranking = graph_drawn.Ranking(None, types.SimpleNamespace(workloads=[], ranking_sizes=[]), [], print)
    ranking.pause(True)
    ranking.pause(False)


def ranking_of(answer, seconds_left=100):
    """What part (c) says of two schedules, the second of which was not built, when the process answers so."""
    import graph_drawn
    options = types.SimpleNamespace(workloads=["softmax"], ranking_sizes=["middle"], rounds=3, seed=5)
    ranking = graph_drawn.Ranking(None, options, [], print)
    asked = ("softmax", "middle")
    ranking.drawn[asked] = [{"schedule": f"{i} of 2", "rank": i, "tree": "t", "seconds": i * 1e-6,
                             "latency_seconds": 1e-6, "request": {}} for i in (1, 2)]
    ranking.built = {"softmax middle 1 of 2": {"cubin": "k.cubin", "launches": [], "source_fnv64": "f", "notes": []}}
    requests = []

    class Process:
        def ask(self, request, timeout):
            requests.append(request)
            return answer
    return ranking._said(asked, {"softmax": Process()}, lambda: seconds_left), requests


def test_timed_schedules_stand_beside_their_predictions():
    timed = {"relative_error": 0.0, "seconds_median": 2e-6, "seconds_min": 1e-6, "seconds_layouts": [2e-6, 3e-6]}
    said, (request,) = ranking_of({"points": [timed, {"reason": "was not built in time"}]})
    assert request["answers"] == [{"cubin": "k.cubin", "launches": []}, {"reason": "was not built in time"}]
    assert request["size"] == "middle" and request["rounds"] == 3
    (point,), (failed,) = said["points"], said["failed"]
    assert said["size"] == "middle"
    assert point["predicted_seconds"] == 1e-6 and point["seconds_layouts"] == [2e-6, 3e-6]
    assert point["source_fnv64"] == "f"
    assert failed["schedule"] == "2 of 2" and failed["reason"] == "was not built in time"


@pytest.mark.parametrize("answer, seconds_left, reason", [
    ({"reason": "the process ended"}, 100, "the process ended"), ({"points": []}, 5, "out of time"),
    ({}, 100, "the process has timed nothing")])
def test_schedules_that_were_not_timed_say_why(answer, seconds_left, reason):
    said, _ = ranking_of(answer, seconds_left)
    assert said["points"] == [] and [f["reason"] for f in said["failed"]] == [reason] * 2


def test_recorded_attention_is_verified_and_has_others_beside_it():
    recorded = ROOT / "experiments" / "results" / "h200-attention.json"
    document = json.loads(recorded.read_text(encoding="utf-8"))
    table = subprocess.run([sys.executable, ROOT / "experiments" / "gpu" / "attention", "--from", recorded],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(table) == 1 + len(document["ours"])
    for answer in document["ours"]:
        assert answer["verified"] and answer["seconds_median"] > 0
        others = document["others"][answer["name"].rpartition(",")[0]]
        assert others["flash"]["seconds"] > 0 and others["cudnn"]["seconds"] > 0
