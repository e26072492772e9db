"""Do the experiments beside torch on processors draw what they say, and sum up what was recorded?"""
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "experiments" / "cpu"))
import beside_torch  # noqa: E402


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


def rows_of(recording):
    return json.loads((ROOT / "experiments" / "results" / f"{recording}.json").read_text(encoding="utf-8"))["rows"]


def test_recordings_of_contractions_say_what_the_docs_say():
    now, before = rows_of("cpu-zen3-contractions"), rows_of("cpu-zen3-contractions-before")
    assert {r["workload"] for r in before} == {r["workload"] for r in now}
    lines = beside_torch.summary(now)
    assert lines[0].startswith("1 thread: torch takes 1.80 times ours over 36, least 0.67") and "29 % off" in lines[0]
    assert lines[1].startswith("2 threads: torch takes 1.88 times ours over 36, least 0.70") and "38 % off" in lines[1]
    assert beside_torch.summary(before)[0].startswith("1 thread: torch takes 1.01 times ours over 36, least 0.03")


def test_attention_is_seeded_and_within_its_bounds():
    module = experiment("attention")
    sizes = [module.draw(seed) for seed in range(200)]
    assert sizes == [module.draw(seed) for seed in range(200)]
    assert all(16 <= s["m"] <= s["l"] <= 2048 and 1 <= s["heads"] <= 16 for s in sizes)
    assert 100 < sum(s["causal"] for s in sizes) < 165
    assert any(s["m"] < s["l"] for s in sizes)


def test_recordings_of_attention_say_what_the_docs_say():
    parts = experiment("attention").PARTS
    now, before = rows_of("cpu-xeon-amx-attention"), rows_of("cpu-xeon-amx-attention-before")
    assert {r["workload"] for r in before} == {r["workload"] for r in now}
    lines = beside_torch.summary(now, parts)
    assert lines[0].startswith("1 thread: torch takes 2.03 times ours over 16, least 1.23")
    assert lines[1].startswith("1 thread, causal: torch takes 2.13 times ours over 12")
    assert lines[2].startswith("2 threads: torch takes 2.22 times ours over 16, least 1.22")
    assert beside_torch.summary(before, parts)[0].startswith("1 thread: torch takes 1.16 times ours over 16, least 0.53")


def test_layers_are_seeded_and_of_every_kind():
    module = experiment("layers")
    drawn = [module.draw(seed) for seed in range(300)]
    assert drawn == [module.draw(seed) for seed in range(300)]
    rows = [rows for rows, *_ in drawn]
    assert min(rows) == 1 and 16 < max(rows) <= 24 and sum(2 <= r <= 16 for r in rows) > 150
    assert all(16 <= size <= 4096 for _, outputs, features, *_ in drawn for size in (outputs, features))
    assert len({(bias, activation) for *_, bias, activation in drawn}) == 8
    texts = [module.case(seed).subject for seed in range(40)]
    assert any('"t[i,o] = s[i,o] + b[o]"' in t and '"y[i,o] = t[i,o] * sigmoid(t[i,o])"' in t for t in texts)


def test_recordings_of_layers_say_what_the_docs_say():
    parts = experiment("layers").PARTS
    now, before = rows_of("cpu-zen3-layers"), rows_of("cpu-zen3-layers-before")
    assert [r["workload"] for r in before] == [r["workload"] for r in now]
    lines = beside_torch.summary(now, parts)
    assert lines[0].startswith("1 thread: torch takes 3.26 times ours over 28, least 0.82") and "31 % off" in lines[0]
    assert lines[2].startswith("1 thread, 2 to 16 inputs: torch takes 2.80 times ours over 17, least 0.91")
    lines = beside_torch.summary(before, parts)
    assert lines[0].startswith("1 thread: torch takes 2.07 times ours over 28, least 0.38")
    assert lines[2].startswith("1 thread, 2 to 16 inputs: torch takes 1.44 times ours over 17")


def test_expressions_are_seeded_and_of_every_kind():
    module = experiment("expressions")
    drawn = [module.draw(seed) for seed in range(200)]
    assert drawn == [module.draw(seed) for seed in range(200)]
    assert all(2e4 <= rows * columns <= 4e6 for rows, columns, *_ in drawn)
    text = "\n".join(d[4] for d in drawn)
    assert all(f"{name}(" in text for name in ("exp", "log", "tanh", "pow", "gelu", "max", "floor"))
    assert 20 < sum(d[2] for d in drawn) < 80 and 40 < sum(d[6] for d in drawn) < 95
    assert 'operators:\n  - "y[i' in module.workload(drawn[0])


def test_the_recording_of_expressions_says_what_the_docs_say():
    now = rows_of("cpu-zen3-expressions")
    about = experiment("expressions")
    assert all(r["workload"].startswith("{}x{}".format(*about.draw(r["seed"]))) for r in now)
    (said,) = beside_torch.summary(now)
    assert said.startswith("1 thread: torch takes 1.92 times ours over 22, least 0.97") and "22 % off" in said


def row(seed, ours, torch, **more):
    return {"seed": seed, "threads": 1, "workload": "ac,cb->ab", "verified": True, "seconds_min": ours, "predicted_seconds": ours,
            "torch": {"seconds_min": torch}, **more}


def test_rows_are_summed_up():
    said = beside_torch.summary([row(1, 1.0, 4.0), row(2, 1.0, 0.25), row(3, 1.0, 1.0, verified=False, reason="no")])
    assert said[0].startswith("1 thread: torch takes 1.00 times ours over 2, least 0.25 (ac,cb->ab, seed 2), 1 below 1")
    assert said[1].startswith("not verified: 3") and said[1].endswith("no")
    assert beside_torch.summary([row(3, 1.0, 1.0, verified=False)]) == [f"not verified: {3:<7}{'ac,cb->ab':<44}wrong"]


def test_functions_are_summed_up():
    module = experiment("functions")

    def timed(seed, ours, eager, inductor, left=()):
        ways = {way: {"verified": True, "seconds_min": took} for way, took in (("ours", ours), ("eager", eager), ("inductor", inductor))}
        return {"seed": seed, "threads": 2, "name": "f", "predicted_seconds": 2.0, "launches": 1, "in_torch": list(left), **ways}
    said = module.summary([timed(1, 1.0, 8.0, 4.0), timed(2, 1.0, 0.5, 1.0, ["sort: why"]), {"seed": 3, "threads": 2, "reason": "above 300 s"}])
    assert said[0] == ("2 threads: the faster of PyTorch's takes 1.41 times ours over 2, least 0.50 (f 2), 1 below 1; predicted seconds of 1 "
                       "whole ones 100 % off")
    assert said[1] == "not verified: 3: above 300 s"
