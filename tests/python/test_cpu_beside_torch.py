"""Do the experiments beside torch on processors draw what they say, and sum up what was recorded?"""
import importlib.machinery
import importlib.util
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def experiment(name):
    loader = importlib.machinery.SourceFileLoader(f"{name}_on_processors", str(ROOT / "experiments" / "cpu" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_contractions_are_seeded_and_of_every_kind():
    module = experiment("contractions")
    drawn = [module.draw(seed) for seed in range(300)]
    assert drawn == [module.draw(seed) for seed in range(300)]
    drawn = [d for d in drawn if d]
    assert len(drawn) > 200
    for (a, b, c), extents in drawn:
        assert 1e6 <= math.prod(extents.values()) <= 4e9
        assert all(sum(name in t for t in (a, b, c)) == (3 if name in a and name in b and name in c else 2) for name in extents)
    assert sum(any(name in a and name in b and name in c for name in e) for (a, b, c), e in drawn) > 50
    text = module.workload(("ca", "cb", "ab"), {"a": 2, "b": 3, "c": 4})
    assert "loops: {a: 2, b: 3, c: 4}" in text and '"C[a,b] += A[c,a] * B[c,b]"' in text


def row(seed, ours, torch, **more):
    return {"seed": seed, "threads": 1, "equation": "ac,cb->ab", "extents": {"a": 2, "b": 3, "c": 4}, "verified": True, "seconds_min": ours,
            "predicted_seconds": ours, "torch": {"seconds_min": torch}, **more}


def test_contractions_are_summed_up():
    module = experiment("contractions")
    said = module.summary([row(1, 1.0, 4.0), row(2, 1.0, 0.25), row(3, 1.0, 1.0, verified=False, reason="no")])
    assert said[0].startswith("1 thread: torch takes 1.00 times ours over 2, least 0.25 (ac,cb->ab, seed 2), 1 below 1")
    assert said[1].startswith("not verified: 3") and said[1].endswith("no")
    assert module.summary([row(3, 1.0, 1.0, verified=False)]) == [f"not verified: {3:<7}{'ac,cb->ab':<28}wrong"]


def test_recordings_of_contractions_say_what_the_docs_say():
    module = experiment("contractions")
    now, before = (json.loads((ROOT / "experiments" / "results" / f"cpu-zen3-contractions{which}.json").read_text(encoding="utf-8"))["rows"]
                   for which in ("", "-before"))
    assert {r["equation"] for r in before} == {r["equation"] for r in now}
    lines = module.summary(now)
    assert lines[0].startswith("1 thread: torch takes 1.80 times ours over 36, least 0.67") and "29 % off" in lines[0]
    assert lines[1].startswith("2 threads: torch takes 1.88 times ours over 36, least 0.70") and "38 % off" in lines[1]
    assert module.summary(before)[0].startswith("1 thread: torch takes 1.01 times ours over 36, least 0.03")


def test_functions_are_summed_up():
    module = experiment("functions")

    def timed(seed, ours, eager, inductor, left=()):
        ways = {way: {"verified": True, "seconds_min": took} for way, took in (("ours", ours), ("eager", eager), ("inductor", inductor))}
        return {"seed": seed, "threads": 2, "name": "f", "predicted_seconds": 2.0, "launches": 1, "in_torch": list(left), **ways}
    said = module.summary([timed(1, 1.0, 8.0, 4.0), timed(2, 1.0, 0.5, 1.0, ["sort: why"]), {"seed": 3, "threads": 2, "reason": "above 300 s"}])
    assert said[0] == ("2 threads: the faster of PyTorch's takes 1.41 times ours over 2, least 0.50 (f 2), 1 below 1; predicted seconds of 1 "
                       "whole ones 100 % off")
    assert said[1] == "not verified: 3: above 300 s"
