"""Does experiments/gpu/contractions print what was recorded, and what the docs say of it?"""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "experiments" / "gpu" / "contractions"


@pytest.mark.parametrize(("name", "count", "einsum", "before"), [("h200-contractions", 27, "1.51 over 27, least 0.66", "2.96 over 22, least 0.91"),
                                                                 ("h200-contractions-second", 23, "1.42 over 23, least 0.58", "3.31 over 20, least 1.03")])
def test_a_recording_is_printed(name, count, einsum, before):
    path = ROOT / "experiments" / "results" / f"{name}.json"
    answer = subprocess.run([sys.executable, SCRIPT, "--from", path], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    for row in rows:
        line = next(line for line in answer.stdout.splitlines() if line.startswith(f"{row['seed']} {row['dtype']} "))
        if row["ours"].get("seconds_median"):
            assert row["ours"]["verified"] and f"{row['ours']['seconds_median'] * 1e6:.1f}" in line
    said = answer.stdout.splitlines()
    assert f"verified: {count} of {len(rows)}" in said
    assert any(line.startswith(f"einsum over ours: geometric mean {einsum}") for line in said)
    assert any("the binary before" in line and before in line for line in said)
