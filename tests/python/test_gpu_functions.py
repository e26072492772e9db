"""Does experiments/gpu/functions print what was recorded, and say why a function did not run?"""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "experiments" / "gpu" / "functions"


def said(*words):
    return subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["h200-functions", "h200-functions-before", "h200-functions-after"])
def test_a_recording_is_printed(name):
    path = ROOT / "experiments" / "results" / f"{name}.json"
    answer = said("--from", path)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(path.read_text())["rows"]
    for name, row in rows.items():
        line = next(line for line in answer.stdout.splitlines() if line.startswith(name))
        if row["ours"].get("seconds_median"):
            assert row["ours"]["verified"], name
            assert f"{row['ours']['seconds_median'] * 1e6:.1f}" in line
    assert f"verified: {sum(bool(r['ours'].get('verified')) for r in rows.values())} of {len(rows)}" in answer.stdout


def test_two_recordings_are_compared():
    before, after = (ROOT / "experiments" / "results" / f"h200-functions-{when}.json" for when in ("before", "after"))
    line = said("--from", after, "--before", before).stdout.splitlines()[-1]
    took = [json.loads(path.read_text())["rows"]["1009 norm f16"]["ours"]["seconds_median"] for path in (before, after)]
    assert "over 56" in line and took[0] > 2 * took[1]
    assert "no function is in both" in said("--from", after, "--before", after.with_name("h200-functions.json")).stdout


def test_what_is_not_asked_is_named():
    answer = said("--seeds", "1:2")
    assert answer.returncode == 2
    assert "--export FOLDER" in answer.stderr


def test_a_seed_draws_the_same_function():
    torch = pytest.importorskip("torch")
    sys.path.insert(0, str(SCRIPT.parent))
    import drawn_functions
    for seed in (*range(40), *range(10000, 10020), *range(20000, 20060)):
        name, run, inputs, dtype = drawn_functions.drawn(seed)
        again = drawn_functions.drawn(seed)
        assert (name, inputs, dtype) == (again[0], again[2], again[3])
        if sum(torch.Size(shape).numel() for shape, _ in inputs) > 1 << 20:
            continue
        tensors = drawn_functions.tensors(inputs, "f32", "cpu")
        results = [run(*tensors), again[1](*tensors)]
        for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in results], strict=True):
            assert torch.equal(a, b), name
            assert torch.isfinite(a).all(), name


def test_newer_families_leave_older_seeds_alone():
    pytest.importorskip("torch")
    sys.path.insert(0, str(SCRIPT.parent))
    import drawn_functions
    for recorded in ("fresh", "more-families"):
        rows = json.loads((ROOT / "experiments" / "results" / f"h200-functions-{recorded}.json").read_text())["rows"]
        for row in rows:
            name, _, inputs, dtype = drawn_functions.drawn(int(row.split()[0]))
            assert row == f"{row.split()[0]} {name} {dtype}"
            assert rows[row]["shapes"] == " ".join("x".join(map(str, shape)) for shape, _ in inputs), row
    drawn = [drawn_functions.FAMILIES[drawn_functions.drawn(seed)[0]].__module__ for seed in range(20000, 20040)]
    assert "drawn_functions_layers" in drawn
