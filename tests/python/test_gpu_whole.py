"""Does experiments/gpu/whole print what was recorded, and name rows that there are not?"""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "experiments" / "gpu" / "whole"


def said(*words):
    return subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["h100-whole-networks-third", "h100-whole-night", "h200-whole-f16-afternoon", "h200-whole-tf32-merged",
                                  "h200-whole-f32-defaults"])
def test_a_recording_is_printed(name):
    path = ROOT / "experiments" / "results" / f"{name}.json"
    answer = said("--from", path)
    assert answer.returncode == 0, answer.stderr
    for row, has in json.loads(path.read_text())["rows"].items():
        line = next(line for line in answer.stdout.splitlines() if line.startswith(row))
        if "seconds_median" in has["ours"]:
            assert has["ours"]["verified"]
            assert f"{has['ours']['seconds_median'] * 1e6:.1f}" in line


def test_what_rounds_to_tf32_is_in_no_ratio():
    """It stands in a column of its own: ours computes more exactly."""
    path = ROOT / "experiments" / "results" / "h200-whole-f32-defaults.json"
    row = json.loads(path.read_text())["rows"]["resnet50-f32"]
    line = next(line for line in said("--from", path).stdout.splitlines() if line.startswith("resnet50-f32"))
    seconds = {who: answer["seconds"] for who, answer in row["torch"].items()}
    assert seconds["compile tf32"] < row["ours"]["seconds_median"] < seconds["compile"]
    assert line.split()[-2:] == [f"{seconds['compile tf32'] * 1e6:.1f}", f"{seconds['compile'] / row['ours']['seconds_median']:.2f}"]


def test_a_row_that_there_is_not_is_named():
    answer = said("--rows", "bert-f16,nothing")
    assert answer.returncode == 2
    assert "nothing" in answer.stderr and "resnet50-f32" in answer.stderr


def test_without_a_gpu_each_row_says_why(tmp_path):
    """The command is a stand-in that refuses; PyTorch is out of time."""
    refuses = tmp_path / "refuses"
    refuses.write_text("#!/bin/sh\necho no device >&2\nexit 2\n")
    refuses.chmod(0o755)
    out = tmp_path / "out.json"
    answer = said("--tilewright", refuses, "--rows", "lstm-f32", "--budget", 8, "--ours", 1, "--no-compile", "--out", out)
    assert answer.returncode == 0, answer.stderr
    row = json.loads(out.read_text())["rows"]["lstm-f32"]
    assert row["ours"]["reason"] == "no device"
    assert "reason" in row["torch"]["eager"]
