"""Does experiments/cpu/trials draw what it says, and tell outcomes apart? The command is asked by a stand-in."""
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

CPU = pathlib.Path(__file__).resolve().parents[2] / "experiments" / "cpu"
sys.path.insert(0, str(CPU))
import drawn_einsums  # noqa: E402


def trials():
    loader = importlib.machinery.SourceFileLoader("trials_of_workloads", str(CPU / "trials"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_draws_are_seeded_and_name_their_loops():
    assert drawn_einsums.drawn(3, 1e4) == drawn_einsums.drawn(3, 1e4)
    draws = [drawn_einsums.drawn(seed, 1e4) for seed in range(200)]
    assert {name for name, _ in draws} == set(drawn_einsums.FAMILIES)
    draws += [drawn_einsums.drawn(seed, 1e4, list(drawn_einsums.LATER)) for seed in range(200)]
    for _, text in draws:
        loops = set(re.findall(r'"(\w+)": \d+', text.split("tensors:")[0]))
        tensors = set(re.findall(r"(\w+)\[", text))
        for index in re.findall(r"\w\[([^\[\]]*)\]", text.split("operators:")[1]):
            assert drawn_einsums.token(index) - {t for t in drawn_einsums.token(index) if t.isdigit()} <= loops | tensors, text


def test_outcomes_are_told_apart(monkeypatch):
    t = trials()
    options = type("Options", (), dict(tilewright="tilewright", emulated=False, model=None, limit=9))

    def says(document, status):
        monkeypatch.setattr(t, "bounded", lambda words, limit: (json.dumps(document), "", status))
        return t.run(options, "w.yaml", "1")[0]

    assert says({"verified": True}, 0) == t.RIGHT
    assert says({"reason": "no room"}, 3) == t.REFUSED
    assert says({"reason": "off by 1", "seed": 1}, 3) == t.WRONG
    assert says({"reason": "5 elements cannot be verified"}, 3) == t.HIDDEN
    assert says({}, -11) == t.FAILED

    def late(words, limit):
        raise subprocess.TimeoutExpired(words, limit)

    monkeypatch.setattr(t, "bounded", late)
    assert t.run(options, "w.yaml", "1")[0] == t.LATE
