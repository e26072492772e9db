"""Is what `run --tune` measured kept, and not measured again? And what does the log survive?"""
import fcntl
import json
import os
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = os.environ.get("TILEWRIGHT", str(ROOT / "build" / "tilewright"))


def command(log, workload, machine="ascend910", tune=3):
    return [COMMAND, "run", workload, "-m", machine, "--target", "npu", "--tune", str(tune), "--tune-log", str(log), "--json"]


def tuned(log, workload, machine="ascend910"):
    done = subprocess.run(command(log, workload, machine), capture_output=True, text=True)
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


CHAIN = "gemm-chain:m=64,n=32,k=32,l=64,dtype=f16"


def test_lines_that_are_no_points_are_passed_over(tmp_path):
    log = tmp_path / "log.jsonl"
    first, _ = tuned(log, CHAIN)
    header, *points = log.read_text().splitlines()
    # What other values stand for, before and between the points, and the end of a run that was killed.
    strange = ["", "garbage", "[1]", "{\"point\": 3}", "\x00\xff", "{\"point\": \"tune|x\", \"value\": null}"]
    log.write_text("\n".join([header, *strange, *points[:1], "}{", *points[1:], points[0][:40]]))
    again, _ = tuned(log, CHAIN)
    assert again["measured"] == 0
    assert [c["seconds"] for c in again["candidates"]] == [c["seconds"] for c in first["candidates"]]
    # Times that are none are measured again.
    for value in ("5", "null", "{}", '{"seconds": null}', '{"seconds": -1}', '{"seconds": "1"}'):
        kept = [json.loads(p) for p in points]
        log.write_text("\n".join([header, *(f'{{"point": {json.dumps(k["point"])}, "value": {value}}}' for k in kept)]) + "\n")
        again, _ = tuned(log, CHAIN)
        assert again["measured"] == first["measured"], value
        assert [c["seconds"] for c in again["candidates"]] == [c["seconds"] for c in first["candidates"]]


def test_a_simulated_time_is_of_its_machine(tmp_path):
    log, other = tmp_path / "log.jsonl", tmp_path / "other.yaml"
    text = json.loads(subprocess.run([COMMAND, "machines", "ascend910", "--json"], capture_output=True, check=True).stdout)["file"]
    faster = re.sub(r"(clock: {value: )([\d.]+)( )", lambda m: f"{m[1]}{2 * float(m[2]):.12g}{m[3]}", text)
    assert faster != text
    other.write_text(faster)
    first, _ = tuned(log, CHAIN)
    second, seconds = tuned(log, CHAIN, str(other))
    assert second["measured"] == len(second["candidates"])
    assert second["candidates"][second["chosen"]]["seconds"] == seconds
    again, _ = tuned(log, CHAIN)
    assert again["measured"] == 0


def test_a_run_that_is_killed_loses_what_it_had_not_measured(tmp_path):
    log = tmp_path / "log.jsonl"
    run = subprocess.Popen(command(log, "gemm-chain:m=512,n=64,k=64,l=512,dtype=f16", tune=8), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while run.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 2):
        time.sleep(.01)
    run.kill()
    run.wait()
    kept = log.read_text().splitlines()[1:]
    done = subprocess.run(command(log, "gemm-chain:m=512,n=64,k=64,l=512,dtype=f16", tune=8), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["tuned"]
    assert 1 <= sum(c["from_log"] for c in answer["candidates"]) == len(kept)


def refused(log):
    done = subprocess.run(command(log, CHAIN), capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and f"--tune-log: {log}" in done.stderr, done.stderr
    return done.stderr


def test_a_log_of_another_run_or_another_kind_stays_as_it_is(tmp_path):
    log = tmp_path / "log.jsonl"
    text = '{"schema":1,"experiment":"chimera/fig8","fingerprint":"x"}\n{"point":"a","value":1}\n'
    log.write_text(text)
    assert "chimera/fig8" in refused(log)
    assert log.read_text() == text
    log.unlink()
    tuned(log, CHAIN)
    text = log.read_text()
    with open(log) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another process" in refused(log)
    assert log.read_text() == text
