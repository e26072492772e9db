"""experiments/gpu/regressions holds recordings against each other."""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "experiments" / "gpu" / "regressions"
RESULTS = ROOT / "experiments" / "results"


def held(old, new, *more):
    run = subprocess.run([sys.executable, str(SCRIPT), str(old), str(new), *more], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def changed(tmp_path, name, change):
    document = json.loads((RESULTS / name).read_text())
    change(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return path


def test_recorded_rows_are_not_slower():
    status, said = held(RESULTS / "h200-chains.json", RESULTS / "h200-chains-third.json")
    assert status == 0, said
    assert "over 33 rows" in said
    status, said = held(RESULTS / "h200-graphs.json", RESULTS / "h200-graphs-again.json", "--peers", "compile")
    assert status == 0, said
    assert "over 24 rows" in said


def test_a_slower_row_is_found(tmp_path):
    def slower(document):
        document["rows"][3]["ours_seconds"] *= 1.05
    path = changed(tmp_path, "h200-chains.json", slower)
    status, said = held(RESULTS / "h200-chains.json", path)
    assert status == 1
    assert "chimera/G4: 1.050 of the recorded time" in said
    assert held(RESULTS / "h200-chains.json", path, "--most", "1.06")[0] == 0


def test_a_faster_peer_a_wrong_row_and_a_missing_one_are_found(tmp_path):
    def worse(document):
        document["rows"][0]["contestants"]["compile"]["seconds_median"] *= 0.9
        document["rows"][1]["run"]["verified"] = False
        del document["rows"][2]
    path = changed(tmp_path, "h200-graphs-again.json", worse)
    status, said = held(RESULTS / "h200-graphs-again.json", path, "--peers", "compile")
    assert status == 1
    assert "layernorm large: compile takes 0.9" in said
    assert "layernorm-backward large: not verified" in said
    assert "softmax large: not in both recordings" in said


def test_other_devices_are_refused(tmp_path):
    def other(document):
        document["device"]["name"] = "NVIDIA H100"
    status, said = held(RESULTS / "h200-chains.json", changed(tmp_path, "h200-chains.json", other))
    assert status == 2
    assert "NVIDIA H100" in said
