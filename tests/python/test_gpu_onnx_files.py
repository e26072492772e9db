"""Does experiments/gpu/onnx_files print what was recorded, and say why a file did not run?"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "experiments" / "gpu" / "onnx_files"


def said(*words):
    return subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False)


def test_a_recording_is_printed():
    path = ROOT / "experiments" / "results" / "h100-onnx-files.json"
    answer = said("--from", path)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(path.read_text())["rows"]
    for name, row in rows.items():
        line = next(line for line in answer.stdout.splitlines() if line.startswith(name))
        if row["verified"]:
            assert f"{row['seconds_median'] * 1e6:.1f}" in line
        else:
            assert row["reason"][:100] in answer.stdout
    assert f"verified: {sum(r['verified'] for r in rows.values())} of {len(rows)}" in answer.stdout


def test_a_file_that_does_not_run_says_why(tmp_path):
    refuses = tmp_path / "refuses"
    refuses.write_text("#!/bin/sh\necho no device >&2\nexit 2\n")
    refuses.chmod(0o755)
    out = tmp_path / "out.json"
    answer = said(tmp_path / "a.onnx:batch=1", "--tilewright", refuses, "--out", out)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(out.read_text())["rows"] == {"a.onnx:batch=1": {"reason": "no device"}}
    assert "no device" in answer.stdout and "verified: 0 of 1" in answer.stdout
    assert said().returncode == 2


def test_emulated_files_ask_for_no_seconds_and_are_not_called_measured(tmp_path):
    asked = tmp_path / "asked"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$@" >>{asked}\necho \'{{"verified": true, "launches": 3, "relative_error": 1e-7}}\'\n')
    program.chmod(0o755)
    out = tmp_path / "out.json"
    answer = said("a.onnx", "--tilewright", program, "--emulated", "--out", out)
    assert answer.returncode == 0, answer.stderr
    assert asked.read_text().splitlines() == ["run a.onnx --target cuda-emulated -m h200 --json --seconds 0"]
    document = json.loads(out.read_text())
    assert document["source"] == "emulated"
    assert document["rows"] == {"a.onnx": {"launches": 3, "verified": True, "relative_error": 1e-7, "slowest": []}}
