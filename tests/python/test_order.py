"""Is a plan's price the same whatever names a workload has, and whichever of its loops, tensors and operators is declared first?

The bound is the same to the byte, and so are a plan's bytes where they alone decide. Predicted seconds may differ by 5 %: a search of more than seven
operators does not see every partition and begins with the declared order, and stages of one kernel stand in that order.

TILEWRIGHT_CASES=N: so many workloads are drawn (6), from seed TILEWRIGHT_SEED on (1)."""
import json
import math
import os
import pathlib
import random
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "experiments" / "cpu")]
import drawn_einsums  # noqa: E402
import drawn_relations  # noqa: E402

COMMAND = os.environ.get("TILEWRIGHT", str(ROOT / "build" / "tilewright"))
FIRST, CASES = int(os.environ.get("TILEWRIGHT_SEED", "1")), int(os.environ.get("TILEWRIGHT_CASES", "6"))
MACHINES = ["epyc-zen5", "xeon-gold-6240", "h200", "a100", "ascend910", "scratchpad:16K", "scratchpad:4K,64K", "cache:48K/12,1M/16"]


def asked(*words):
    done = subprocess.run([COMMAND, *words, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"refused": True}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
def test_other_names_and_another_order_have_the_same_price(seed, tmp_path):
    rng = random.Random(f"{seed} order")
    _, text = drawn_einsums.drawn(seed, 2e4, ["mixed_chain"] if rng.random() < .4 else None)
    plain, other = tmp_path / "plain.yaml", tmp_path / "other.yaml"
    plain.write_text(text)
    content = asked("workloads", str(plain))["content"]
    what = rng.choice(["names", "loops", "operators", "names, loops and operators"])
    other.write_text(drawn_relations.changed(rng, content, what))
    for on in rng.sample(MACHINES, 3):
        a, b = (asked("plan", str(w), "-m", on) for w in (plain, other))
        assert a.get("refused") == b.get("refused")
        keys = {"bound_bytes": 1e-9, "seconds": .05} if a.get("seconds") else {"bound_bytes": 1e-9, "exact_bytes": 1e-9}
        for key, tolerance in keys.items():
            x, y = a.get(key), b.get(key)
            assert x == y or math.isclose(x, y, rel_tol=tolerance), f"{key} on {on}, {what} changed: {x} and {y}"
