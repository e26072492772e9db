"""Is what `run --tune` measured kept, and not measured again?"""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = os.environ.get("TILEWRIGHT", str(ROOT / "build" / "tilewright"))


def tuned(log, workload):
    done = subprocess.run([COMMAND, "run", workload, "-m", "ascend910", "--target", "npu", "--tune", "3", "--tune-log", str(log),
                           "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["tuned"], answer["simulated_seconds"]


def test_a_log_is_reused_for_the_same_code_alone(tmp_path):
    log = tmp_path / "log.jsonl"
    chain = "gemm-chain:m=64,n=32,k=32,l=64,dtype=f16"
    first, seconds = tuned(log, chain)
    assert first["measured"] == len(first["candidates"]) >= 1
    assert first["gain"] >= 1 and first["candidates"][first["chosen"]]["seconds"] == seconds
    assert first["candidates"][0]["predicted_seconds"] > 0
    again, seconds_again = tuned(log, chain)
    assert again["measured"] == 0 and all(c["from_log"] for c in again["candidates"])
    assert [c["seconds"] for c in again["candidates"]] == [c["seconds"] for c in first["candidates"]]
    assert seconds_again == seconds  # the emulator's, of the kernel that was run again to be verified
    other, _ = tuned(log, chain.replace("m=64", "m=80"))
    assert other["measured"] == len(other["candidates"])
    kept = [json.loads(line) for line in log.read_text().splitlines()][1:]
    assert len(kept) == first["measured"] + other["measured"]
    assert {k["value"]["workload"] for k in kept} == {chain, chain.replace("m=64", "m=80")}


def test_a_log_that_cannot_be_written_is_bad_input(tmp_path):
    done = subprocess.run([COMMAND, "run", "gemm:m=64,n=64,k=64,dtype=f16", "-m", "ascend910", "--target", "npu", "--tune", "2",
                           "--tune-log", str(tmp_path / "none" / "log")], capture_output=True, text=True)
    assert done.returncode == 2 and "--tune-log" in done.stderr
