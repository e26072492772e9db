"""Do fidelity's statistics agree with a count by hand, and are planned's shapes and ratios what they say?"""
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "experiments" / "gpu"
sys.path.insert(0, str(ROOT / "experiments"))
import drawn_plans  # noqa: E402


def planned():
    return script("planned")


def script(name):
    loader = importlib.machinery.SourceFileLoader(f"{name}_script", str(GPU / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_rank_correlation_by_hand():
    assert drawn_plans.correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert drawn_plans.correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # Ranks 0 1 2 3 and 0 2 1 3: 1 - 6 * 2 / (4 * 15).
    assert drawn_plans.correlation([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert drawn_plans.correlation([1, 1, 1], [1, 2, 3]) is None
    assert drawn_plans.correlation([1, 2], [1, 2]) is None
    assert drawn_plans.ranks([5, 5, 1]) == [1.5, 1.5, 0]


def test_a_row_says_what_choosing_by_price_loses():
    row = drawn_plans.row_of("r", [("a", 2.0, 4.0), ("b", 1.0, 5.0), ("c", 3.0, 3.0)])
    assert row["chosen"] == "b" and row["regret"] == pytest.approx(5 / 3)
    assert row["mean_error"] == pytest.approx((0.5 + 0.8 + 0) / 3)
    assert row["worst"]["name"] == "b"


def test_tiles_are_drawn_again_in_the_tree_and_beside_it():
    kernels = [{"tree": "m/16@grid ( L.A k ( C.g ) )", "tiles": {"k": 8}, "pins": {"A": "L1"}}]
    again = drawn_plans.redrawn(kernels, lambda loop, tile: {"m": 3 * tile, "k": tile + 1}[loop])
    assert again == [{"tree": "m/48@grid ( L.A k ( C.g ) )", "tiles": {"k": 9}, "pins": {"A": "L1"}}]
    assert kernels[0]["tiles"] == {"k": 8}
    assert drawn_plans.plan_text("w:m=1", "a100", again).endswith('kernels:\n  - ' + json.dumps(again[0]) + "\n")
    assert drawn_plans.kernels_of({"plan": {"workload": "other", "kernels": []}}, "w") is None


def test_shapes_are_seeded_and_ratios_are_over_the_first_model():
    module = planned()
    rows = module.drawn(12, 3)
    assert rows == module.drawn(12, 3) and rows != module.drawn(12, 4)
    assert sum(name.startswith("attention") for name in rows) == 4
    document = {"models": ["us", "them"], "rows": {
        "x": {"ours": {"us": {"verified": True, "seconds_median": 2.0, "predicted_seconds": 1.0},
                       "them": {"seconds_median": 8.0}},
              "peers": {"eager": {"seconds": 1.0}, "flash": {"reason": "no"}}},
        "wrong": {"ours": {"us": {"verified": False, "seconds_median": 1.0}, "them": {"seconds_median": 1.0}},
                  "peers": {"eager": {"seconds": 1.0}}}}}
    means = module.means(document)
    assert means["them/us"]["geometric_mean"] == pytest.approx(4) and means["them/us"]["rows"] == 1
    assert means["best peer/us"]["geometric_mean"] == pytest.approx(0.5)
    assert means["predicted/us"]["geometric_mean"] == pytest.approx(0.5)


def test_seconds_of_drawn_plans_are_printed():
    """Every workload with two times is a row; what is summed up is a count by hand."""
    path = ROOT / "experiments" / "results" / "h100-drawn-seconds.json"
    said = subprocess.run([sys.executable, ROOT / "experiments" / "gpu" / "drawn_seconds", "--from", path], capture_output=True,
                          text=True, check=True).stdout
    plans = [p for row in json.loads(path.read_text())["rows"] for p in row["plans"]]
    timed = [p for p in plans if p.get("verified")]
    assert f"{len(plans)} plans drawn: 0 without a price, 0 wrong" in said
    own = [p["predicted"] / p["seconds_median"] for p in timed if p["by"] == "tilewright"]
    mean = math.exp(sum(map(math.log, own)) / len(own))
    assert f"{len(own)} plans of tilewright: predicted/measured {mean:.2f}" in said


def test_plans_whose_kernels_are_emitted_otherwise_go_by_the_emitters_changes():
    otherwise = script("drawn_seconds").emitted_otherwise
    floats, halves = {"workload": "gemm:m=8,n=8,k=8,dtype=f32"}, {"workload": "gemm:m=8,n=8,k=8,dtype=f16"}
    matrix, blocks, units = ({"form": form, "plan": "tree: m/8@grid"} for form in ("matrix", "blocks+units", "units"))
    assert otherwise(halves, units, "2026-11-28T06:00") and not otherwise(halves, units, "2026-11-28T08:00")
    assert otherwise(floats, matrix, "2026-11-28T08:00") and not otherwise(floats, matrix, "2026-11-28T17:00")
    assert not otherwise(halves, matrix, "2026-11-28T08:00")
    shifted = matrix | {"notes": ["rows of A do not begin at multiples of 16 bytes: they are copied through registers"]}
    assert otherwise(halves, shifted, "2026-11-28T19:00") and not otherwise(halves, shifted, "2026-11-28T20:00")
    edge = {"plan": "  - conv: C[h] += I[h+2*r-1] * W[r]"}
    assert otherwise(halves, blocks | edge, "2026-11-28T19:30") and not otherwise(halves, units | edge, "2026-11-28T19:30")


def test_families_are_printed_by_their_share_of_all_errors(capsys):
    def plan(form, predicted):
        return {"form": form, "plan": "tree: m/8@grid", "predicted": predicted, "seconds_median": 1.0, "verified": True, "by": "x"}
    script("drawn_seconds").classes({"rows": [{"workload": "gemm:m=8,dtype=f16", "plans": [plan("matrix", 1.1), plan("units", 1.3)]},
                                              {"workload": "softmax:rows=8,dtype=f64", "plans": [plan("units", 1.6)]}]})
    lines = [x.strip() for x in capsys.readouterr().out.splitlines() if "of all errors" in x]
    assert lines == ["1 plans softmax, 64 bits, units: predicted/measured 1.60, mean error 60%, 60.0% of all errors",
                     "1 plans gemm, 16 bits, units: predicted/measured 1.30, mean error 30%, 30.0% of all errors",
                     "1 plans gemm, 16 bits, matrix: predicted/measured 1.10, mean error 10%, 10.0% of all errors"]


def test_pairs_that_measuring_does_not_tell_apart_are_counted_by_themselves():
    def plan(predicted, least, median, again):
        return {"predicted": predicted, "seconds_min": least, "seconds_median": median, "seconds_again": again, "verified": True}
    # The second is slower than the first in one run and faster in the other; the third is slower than both.
    rows = [{"plans": [plan(2, .99, 1.00, 1.02), plan(1, 1.00, 1.01, 1.00), plan(1.5, 1.20, 1.21, 1.21)]},
            {"plans": [plan(1, 1, 1, 1), plan(2, 2, 2, 2), plan(9, 9, 9, 9) | {"verified": False}]}]
    said = script("drawn_seconds").order({"rows": rows})
    assert "2 of 4 pairs are predicted in the wrong order, 1 of 3 that measuring tells apart; none of these in 1 of 2 workloads" in said
    assert said.endswith("a plan takes 0.6% more or less, 2.0% at most (5 plans)")


def test_what_single_steps_take_is_a_difference_of_two_rows():
    path = ROOT / "experiments" / "results" / "h100-unit-costs.json"
    said = subprocess.run([sys.executable, ROOT / "experiments" / "gpu" / "unit_costs", "--from", path], capture_output=True,
                          text=True, check=True).stdout
    times = {row["workload"]: row["plans"][0].get("seconds_median") for row in json.loads(path.read_text())["rows"]}
    line = next(x for x in said.splitlines() if x.startswith("kernels of 132 blocks: 2 "))
    assert float(line.split()[-2]) == pytest.approx(1e9 * (times["kernels of 132 blocks: 2"] - times["kernels of 132 blocks: 1"]), abs=1e-3)


def test_attention_of_any_shape_fits_a_gpu_and_is_not_all_alike():
    rows = planned().any_attention(200, 5, .5, None)
    assert rows == planned().any_attention(200, 5, .5, None) != planned().any_attention(200, 6, .5, None)
    for name, size in rows.items():
        scores = size["batch"] * size["m"] * size["l"]
        assert scores <= 2 ** 27 and 2 ** 22 < scores * size["k"] < 2 ** 33, name
        assert size["batch"] % size["groups"] == 0 and (size["l"] >= size["m"] or not size["causal"]), name
        assert f"m={size['m']},l={size['l']},k={size['k']}," in name and f"dtype={size['dtype']}" in name
    assert len({s["k"] for s in rows.values()}) > 10 and {s["causal"] for s in rows.values()} == {0, 1}
    assert any(s["m"] % 2 for s in rows.values()) and any(1 < s["m"] != s["l"] for s in rows.values())


def test_a_table_of_binaries_has_the_best_peer_over_each(tmp_path):
    def row(**times):
        return {"size": {}, "plans": {}, "times": {n: {"seconds": t * 1e-6} for n, t in times.items()}}
    recorded = tmp_path / "recorded.json"
    wrong = {"size": {}, "plans": {}, "times": {"old": {"reason": "wrong values"}, "new": {"seconds": 1e-6}}}
    recorded.write_text(json.dumps({"binaries": ["old", "new"], "rows": {
        "attention:a": row(old=8, new=2, flash=4, cudnn=5), "attention:b": row(old=2, new=1, efficient=2),
        "attention:c": wrong}}))
    said = subprocess.run([sys.executable, str(GPU / "attention_plans"), "--from", str(recorded)], check=True,
                          capture_output=True, text=True).stdout
    assert "best peer/old: 0.707 over 2, least 0.500 (a)" in said
    assert "best peer/new: 2.000 over 2, least 2.000" in said
    assert "old: wrong values" in said
