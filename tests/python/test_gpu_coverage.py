"""Does experiments/gpu/coverage draw what it says, and tell outcomes apart? The command is asked by a stand-in."""
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "experiments" / "gpu"
sys.path.insert(0, str(GPU))
import drawn_workloads  # noqa: E402


def coverage():
    loader = importlib.machinery.SourceFileLoader("coverage_of_plans", str(GPU / "coverage"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_draws_are_seeded_and_of_every_group():
    draws = drawn_workloads.drawn(5, 120)
    assert [d.name for d in draws] == [d.name for d in drawn_workloads.drawn(5, 120)]
    assert [d.name for d in draws] != [d.name for d in drawn_workloads.drawn(6, 120)]
    for group in drawn_workloads.FAMILIES.values():
        assert any(d.family in group for d in draws)


@pytest.mark.parametrize("seed", range(3))
def test_reduced_workloads_are_small_and_still_of_their_kind(seed):
    for d in drawn_workloads.drawn(seed, 100):
        small = d.reduced(1e6)
        assert small.work <= 1e6 or all(small.parameters[n] <= 2 for n in d.family.sizes), small.name
        kept = set(d.parameters) - set(d.family.sizes)
        assert {n: small.parameters[n] for n in kept} == {n: d.parameters[n] for n in kept}
        if d.work <= 1e6:
            assert small.parameters == d.parameters
        if d.family.text:  # every loop that is indexed is a loop
            loops = set(re.findall(r'"(\w+)": \d+', d.yaml()))
            for index in re.findall(r"\w\[([^\[\]]+)\]", d.yaml().split("operators:")[1].split("outputs:")[0]):
                assert set(re.findall(r"[a-z]\w*", index)) <= loops, d.yaml()


def test_outcomes_are_told_apart(tmp_path, monkeypatch, capsys):
    c = coverage()
    (drawn,) = drawn_workloads.drawn(1, 1)
    options = type("Options", (), dict(tilewright="tilewright", machine="h200", timeout=9, points=1e9,
                                       reduced_room="48K", on="cuda-emulated", budget=1e9))
    asker = c.Asker(options, tmp_path)

    def says(document, status, errors=""):
        monkeypatch.setattr(c, "bounded", lambda words, timeout: (json.dumps(document), errors, status))
        return asker.plan(drawn, "m")["outcome"]

    assert says({"plan": {}}, 0) == c.PLANNED
    assert says({"replaced": [{"refused": "why"}]}, 0) == c.REPLACED
    assert says({"asked_again": {"room_bytes": 5, "refused": [{"refused": "why"}]}}, 0) == c.AGAIN
    assert says({"reason": "no product"}, 3) == c.NOT_APPLICABLE
    assert says({"reason": "no room", "target": "cuda"}, 3) == c.REFUSED
    assert says({}, 2, "wrong") == c.FAILED

    monkeypatch.setattr(c, "bounded", lambda words, timeout: (json.dumps(
        {"reason": "verification failed: relative error 1", "seed": 1, "target": "cuda-emulated"}), "", 3))
    assert asker.verify(drawn, "m")["outcome"] == c.WRONG
    rows = [{"workload": "softmax:rows=3,cols=8", "model": "m", "plan": {"outcome": c.PLANNED},
             "verify": {"outcome": c.WRONG, "reduced": False, "reason": "off by 3"}}]
    assert not c.table(rows)
    assert "verify  graphs           1 wrong" in capsys.readouterr().out
    rows[0]["verify"] = {"outcome": "verified", "reduced": False}
    assert c.table(rows)


def test_reasons_are_counted_without_names_and_numbers():
    c = coverage()
    assert c.normalised("stitch1: its tiles need 5 bytes") == c.normalised("fused: its tiles need 77 bytes")
