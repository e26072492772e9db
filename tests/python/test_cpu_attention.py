"""Does experiments/cpu/attention draw what it says, and sum up what was recorded?"""
import importlib.machinery
import importlib.util
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def attention():
    path = str(ROOT / "experiments" / "cpu" / "attention")
    loader = importlib.machinery.SourceFileLoader("attention_on_processors", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_draws_are_seeded_and_within_their_bounds():
    module = attention()
    sizes = [module.draw(seed) for seed in range(200)]
    assert sizes == [module.draw(seed) for seed in range(200)]
    assert all(16 <= s["m"] <= s["l"] <= 2048 and 1 <= s["heads"] <= 16 for s in sizes)
    assert 100 < sum(s["causal"] for s in sizes) < 165
    assert any(s["m"] < s["l"] for s in sizes)


def test_recordings_say_what_the_docs_say():
    module = attention()
    results = ROOT / "experiments" / "results"
    now, before = (json.loads((results / f"cpu-xeon-amx-attention{which}.json").read_text())["rows"] for which in ("", "-before"))
    assert {r["workload"] for r in before} == {r["workload"] for r in now}
    lines = module.summary(now)
    assert lines[0].startswith("1 thread, all: torch takes 2.03 times ours over 16, least 1.23")
    assert lines[1].startswith("1 thread, causal: torch takes 2.13 times ours over 12")
    assert lines[2].startswith("2 threads, all: torch takes 2.22 times ours over 16, least 1.22")
    assert module.summary(before)[0].startswith("1 thread, all: torch takes 1.16 times ours over 16, least 0.53")


def test_what_is_wrong_is_said():
    module = attention()
    row = {"seed": 1, "threads": 1, "workload": "attention:heads=1", "reason": "no"}
    assert module.summary([row]) == ["attention:heads=1: no"]
