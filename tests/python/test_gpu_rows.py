"""Do experiments/gpu/weights and tuned print what their recordings say, and are a row's weights read from its workload?"""
import json
import os
import re

import pytest
from test_gpu_planned import ROOT, script

RESULTS = ROOT / "experiments" / "results"
COMMAND = os.environ.get("TILEWRIGHT", str(ROOT / "build" / "tilewright"))


def recorded(name):
    return json.loads((RESULTS / name).read_text())


def printed(module, monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", [str(module.__spec__.origin), *map(str, words)])
    module.main()
    return capsys.readouterr().out


def test_weights_of_a_row_are_its_workloads():
    weights = script("weights")
    assert weights.weights_of(COMMAND, "flashfuser/G1")[0] == 1
    assert weights.weights_of(COMMAND, "flashfuser/S1") == (2, 3072, 8192, 3072)
    # Gated whatever it is called.
    assert weights.weights_of(COMMAND, "gated-ffn")[0] == 2
    assert weights.weights_of(COMMAND, "gemm-chain")[0] == 1
    with pytest.raises(ValueError, match="softmax: 0 weights over k and l"):
        weights.weights_of(COMMAND, "softmax")


def test_recorded_weights_are_as_many_bytes_as_the_workloads():
    weights = script("weights")
    rows = {r["row"]: r["bytes"] for r in recorded("h200-weights.json")["rows"]}
    for name, size in rows.items():
        firsts, k, l, n = weights.weights_of(COMMAND, name)
        assert size == 2 * (firsts * k * l + l * n), name
    assert len(rows) > 9


def test_weights_prints_the_least_time_of_each_row(monkeypatch, capsys):
    weights = script("weights")
    beside = RESULTS / "h200-flashfuser-behind-clusters.json"
    said = printed(weights, monkeypatch, capsys, "--tilewright", COMMAND, "--from", RESULTS / "h200-weights.json", "--beside", beside)
    rows = recorded("h200-weights.json")["rows"]
    for name in {r["row"] for r in rows}:
        least = min(r["us"] for r in rows if r["row"] == name)
        assert re.search(rf"^{name}: .* {least:.2f} us at least", said, re.M), name
    ours, eager = weights.times_of(beside)["flashfuser/G5"]
    least = min(r["us"] for r in rows if r["row"] == "flashfuser/G5")
    assert f"{eager / ours:.2f} over ours, {eager / least:.2f} over the least time" in said
    # 1.5 over eager would be faster than the weights come.
    assert eager / least < weights.GOAL and re.search(r"1.5 is out of reach on flashfuser/G5$", said, re.M)


def test_operations_of_a_row_are_its_workloads():
    weights = script("weights")
    assert weights.operations_of(COMMAND, "flashfuser/G1") == 2 * 128 * 512 * (32 + 256)
    assert weights.operations_of(COMMAND, "flashfuser/S1") == 2 * 128 * 8192 * 3072 * 3
    assert weights.operations_of(COMMAND, "flashfuser/C5") == 2 * 56 * 56 * 64 * (64 * 9 + 256)
    assert weights.weights_of(COMMAND, "flashfuser/C5") == (1, 64 * 9, 64, 256)

@pytest.mark.parametrize("name", ["h200-tuned.json", "h200-tuned-more.json", "h200-tuned-attention.json"])
def test_tuned_prints_how_much_longer_the_choice_takes(name, monkeypatch, capsys):
    said = printed(script("tuned"), monkeypatch, capsys, "--from", RESULTS / name)
    over = {}
    for row, of in recorded(name)["rows"].items():
        times = [c.get("seconds") for c in of.get("candidates", [])]
        if times and times[0]:
            over[row] = times[0] / min(t for t in times if t)
    for row, ratio in over.items():
        assert re.search(rf"^{re.escape(row)}: .* us, {ratio:.3f} of the fastest", said, re.M), row
    assert f"{max(over.values()):.3f} at most, within 1.05 on {sum(o <= 1.05 for o in over.values())}" in said
    assert f"{len(over)} rows:" in said


def test_tuned_says_why_a_row_has_no_time(capsys):
    tuned = script("tuned")
    tuned.table({"rows": {"a": {"reason": "not within 3 s"}, "b": {"candidates": [{"reason": "wrong"}, {"seconds": 2e-6}]},
                          "c": {"candidates": [{"seconds": 3e-6, "predicted_seconds": 4e-6}, {"seconds": 2e-6}, {}]}}})
    assert capsys.readouterr().out.splitlines() == [
        "a: not within 3 s", "b: the first plan was not timed",
        "c: 3.00 us, 1.500 of the fastest of 2, which is number 1; predicted 4.00",
        "1 rows: 1.500 of the fastest in the geometric mean, 1.500 at most, within 1.05 on 0"]


def test_tuned_draws_chains_gated_layers_and_attention_in_turn():
    tuned = script("tuned")
    names = tuned.drawn(6, 3)
    assert names == tuned.drawn(6, 3) and names != tuned.drawn(6, 4)
    assert [n.split(":")[0] for n in names] == 2 * ["gemm-chain", "gated-ffn", "attention"]
    assert tuned.told({"reason": "why"}) == {"reason": "why"}
    assert tuned.told({"tuned": {"chosen": 1, "candidates": [{"seconds": 1.0, "plan": {}, "reason": None}]}}) == {
        "chosen": 1, "candidates": [{"seconds": 1.0, "plan": {}}]}


def test_tuned_prices_recorded_plans_again(tmp_path, monkeypatch, capsys):
    # By the price of November 29 the fastest of these is chosen; the first was, by the one before.
    document = recorded("h200-tuned-attention.json")
    document["rows"] = {"mcfuser/S1": document["rows"]["mcfuser/S1"]}
    first, fastest = (document["rows"]["mcfuser/S1"]["candidates"][i] for i in (0, 6))
    document["rows"]["mcfuser/S1"]["candidates"] = [first, fastest]
    (tmp_path / "one.json").write_text(json.dumps(document))
    said = printed(script("tuned"), monkeypatch, capsys, "--tilewright", COMMAND, "--from", tmp_path / "one.json")
    assert f"{first['seconds'] / fastest['seconds']:.3f} of the fastest of 2" in said
    again = printed(script("tuned"), monkeypatch, capsys, "--tilewright", COMMAND, "--from", tmp_path / "one.json", "--price")
    assert "1.000 of the fastest of 2, which is number 0" in again
