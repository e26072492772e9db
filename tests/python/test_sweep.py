"""Do sweeps ask every point once, whatever kills them, here and on a cluster, and do rows load as one table?"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

tilewright = pytest.importorskip("tilewright")
pandas = pytest.importorskip("pandas")

CHAIN = "gemm-chain:m=96,n=64,k=48,l=80"
SPEC = f"""
name: tiles
workloads: ["{CHAIN}"]
machines: [scratchpad:32K]
models: [chimera, exact]
orders: [mlkn, mlnk]
tiles: {{m: [16, 32, 48, 200], l: {{from: 8, to: 32, plus: 8}}, k: 16, n: [16, 32]}}
"""
COMMAND = os.path.join(os.path.dirname(sys.executable), "tilewright-sweep")
# Simulated points of some milliseconds each: slow enough to be killed among.
SLOW = """
name: slow
verb: simulate
workloads: ["gemm-chain:m=192,n=64,k=64,l=192"]
machines: ["cache:16K/8"]
orders: [mlkn, mlnk]
options: {layout: [tiled, row-major]}
tiles: {m: {from: 8, to: 48, plus: 8}, l: {from: 8, to: 48, plus: 8}, k: 16, n: 16}
"""
SLOW_POINTS = 2 * 2 * 6 * 6


def names_in(path):
    text = open(path, "rb").read() if os.path.exists(path) else b""
    return [json.loads(line)["point"] for line in text[:text.rfind(b"\n") + 1].splitlines()]


def write(tmp_path, text):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return str(path)


def test_rows_are_what_the_verbs_answer(tmp_path):
    out = tmp_path / "rows.jsonl"
    seen = []
    said = tilewright.sweep(write(tmp_path, SPEC), out, threads=2, progress=lambda n, of: seen.append((n, of)))
    points = 2 * 2 * 4 * 4 * 2
    assert said["points"] == points == sum(said["rows"].values()) and said["already_there"] == 0
    assert seen[-1] == (points, points) and seen == sorted(seen)
    rows = tilewright.read_rows(out)
    assert len(rows) == points and rows["point"].is_unique
    # Any reader of JSON lines has the same table.
    assert pandas.read_json(out, lines=True).equals(rows)
    wrong = rows[rows["tile_m"] == 200]
    assert (wrong["status"] == "bad input").all() and wrong["reason"].str.contains("200").all()
    done = rows[rows["status"] == "done"]
    assert len(done) > points / 3 and set(done["model"]) == {"chimera", "exact"}
    for row in done.sample(6, random_state=1).itertuples():
        tiles = {loop: int(getattr(row, "tile_" + loop)) for loop in "mlkn"}
        answer = tilewright.predict(CHAIN, "scratchpad:32K", model=row.model, order=row.order, tiles=tiles)
        assert row.read_bytes == sum(t["read_bytes"] for t in answer["traffic"])
        assert row.source == "predicted"


def test_asked_again_it_asks_what_is_left(tmp_path):
    out = tmp_path / "rows.jsonl"
    tilewright.sweep(SPEC, out)
    again = tilewright.sweep(SPEC, out)
    assert again["already_there"] == again["points"] and again["rows"] == {}
    more = tilewright.sweep(SPEC.replace("[16, 32]", "[16, 32, 64]"), out)
    assert more["already_there"] == again["points"] and sum(more["rows"].values()) == again["points"] / 2
    with open(out, "ab") as f:
        f.write(b'{"point": "p0123')  # torn by a crash
    assert tilewright.sweep(SPEC, out)["already_there"] == again["points"]
    names = names_in(out)
    assert len(names) == len(set(names)) == more["points"]


def started(spec, out, *more):
    return subprocess.Popen([COMMAND, spec, "-o", str(out), *more],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_until(condition, process, seconds=120):
    limit = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)


def test_killed_at_any_point_it_goes_on(tmp_path):
    spec, out = write(tmp_path, SLOW), tmp_path / "rows.jsonl"
    before = []
    for more in (1, 10, 40):
        process = started(spec, out, "--threads", "2")
        wait_until(lambda: len(names_in(out)) >= len(before) + more, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = names_in(out)
        assert now[:len(before)] == before and len(now) > len(before)  # nothing lost
        before = now
    said = tilewright.sweep(spec, out)
    assert said["already_there"] == len(before) < SLOW_POINTS == said["points"]
    now = names_in(out)
    assert now[:len(before)] == before and len(now) == len(set(now)) == SLOW_POINTS  # nothing repeated
    whole = tmp_path / "whole.jsonl"
    tilewright.sweep(spec, whole)
    one, other = (tilewright.read_rows(p).sort_values("point", ignore_index=True) for p in (out, whole))
    assert one.equals(other[list(one.columns)])


@pytest.fixture
def cluster(tmp_path):
    """A Dask scheduler and two workers, each a process of its own: (address, workers)."""
    pytest.importorskip("distributed")
    address_file = tmp_path / "scheduler.json"
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s"}
    processes = []

    def start(module, *arguments):
        processes.append(subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return processes[-1]

    try:
        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                          "--scheduler-file", str(address_file))
        wait_until(lambda: address_file.exists() and address_file.stat().st_size > 0, scheduler)
        address = json.loads(address_file.read_text())["address"]
        workers = [start("dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                         "--local-directory", str(tmp_path / f"worker{i}")) for i in range(2)]
        from distributed import Client
        with Client(address, timeout="60s", set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield address, workers
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_cluster_that_loses_a_worker(tmp_path, cluster):
    address, workers = cluster
    spec, out = write(tmp_path, SLOW), tmp_path / "rows.jsonl"
    killed = []

    def progress(have, of):
        if have >= of // 3 and not killed:
            killed.append(have)
            workers[0].kill()

    said = tilewright.sweep(spec, out, dask=address, progress=progress)
    assert killed and killed[0] < SLOW_POINTS  # half-way
    assert workers[0].wait(10) == -signal.SIGKILL and workers[1].poll() is None
    assert said["by"] == "dask" and said["lanes"] == 2 and said["rows"] == {"done": SLOW_POINTS}
    names = names_in(out)
    assert len(names) == len(set(names)) == SLOW_POINTS
    here = tmp_path / "here.jsonl"
    tilewright.sweep(spec, here)
    one, other = (tilewright.read_rows(p).sort_values("point", ignore_index=True) for p in (out, here))
    assert one.equals(other[list(one.columns)])


def test_bad_input_is_one_line_and_writes_nothing(tmp_path):
    out = tmp_path / "rows.jsonl"
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"a": 1}\n')
    spec = write(tmp_path, SPEC)
    wrong = str(tmp_path / "wrong.yaml")
    (tmp_path / "wrong.yaml").write_text(SPEC.replace("tiles:", "tile:"))
    for arguments, says in [([wrong], "tiles"), ([str(tmp_path / "none.yaml")], "none.yaml"),
                            ([spec, "--thread", "x"], "thread"), ([spec, "--threads", "0"], "threads"),
                            ([spec, "-o", str(foreign)], "foreign.jsonl:1"),
                            ([spec, "-o", str(tmp_path / "no" / "x")], "--out"),
                            ([spec, "--dask", "tcp://127.0.0.1:9", "--threads", "2"], "--threads"), ([], "SPEC")]:
        done = subprocess.run([COMMAND, *arguments, *([] if "-o" in arguments else ["-o", str(out)])], capture_output=True, text=True)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, (arguments, done.stderr)
        assert says in done.stderr, done.stderr
        assert not out.exists() and foreign.read_text() == '{"a": 1}\n'
    with pytest.raises(tilewright.InputError, match="host is another one"):
        tilewright.sweep(SPEC.replace("scratchpad:32K", "host"), out, dask="tcp://127.0.0.1:9")


def test_a_file_is_written_by_one_sweep_and_one_build(tmp_path):
    out = tmp_path / "rows.jsonl"
    tilewright.sweep(SPEC, out)
    lines = out.read_text().splitlines()
    row = json.loads(lines[0])
    out.write_text("\n".join([json.dumps({**row, "build": "0" * 16}), *lines[1:]]) + "\n")
    with pytest.raises(tilewright.InputError, match="another build"):
        tilewright.sweep(SPEC, out)
    with open(out, "ab") as held:
        import fcntl
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(tilewright.InputError, match="another process"):
            tilewright.sweep(SPEC, out)


@pytest.mark.parametrize("row", ['{"point": ["a"], "build": "b"}', "[" * 100000, "3", '{"point": "a"}'])
def test_rows_of_another_shape_are_named(tmp_path, row):
    out = tmp_path / "rows.jsonl"
    out.write_text(row + "\n")
    with pytest.raises(tilewright.InputError, match="rows.jsonl:1: (is not a row of a sweep|was written by)"):
        tilewright.sweep(SPEC, out)


def test_rows_go_into_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(tilewright.InputError, match="regular file"):
        tilewright.sweep(SPEC, tmp_path / "pipe")


def test_models_written_in_python_take_part(tmp_path):
    class Compulsory(tilewright.Model):
        """Every input once."""
        name = "compulsory"

        def predict(self, question):
            w = question.workload
            return tilewright.Price(read_bytes={t: w.tensors[t].bytes for t in w.inputs})

    tilewright.register(Compulsory())
    try:
        out = tmp_path / "rows.jsonl"
        said = tilewright.sweep(SPEC.replace("chimera, exact", "compulsory"), out, threads=2)
        rows = tilewright.read_rows(out)
        assert said["rows"]["done"] == (rows["status"] == "done").sum() > 0
        assert (rows.loc[rows["status"] == "done", "read_bytes"] == 4 * (96 * 48 + 48 * 80 + 80 * 64)).all()
    finally:
        tilewright.unregister("compulsory")


def test_the_command_finds_it_and_says_how_fast(tmp_path):
    done = subprocess.run(["tilewright", "sweep", write(tmp_path, SPEC), "-o", str(tmp_path / "r.jsonl")],
                          capture_output=True, text=True,
                          env={**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    assert "128 points" in done.stdout and "/s on" in done.stdout


@pytest.mark.parametrize("name, points", [("ten-thousand", 10_000), ("buffer-sizes", 72)])
def test_the_sweeps_of_the_documentation(tmp_path, name, points):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = os.path.join(root, "experiments", "sweeps", name + ".yaml")
    said = tilewright.sweep(spec, tmp_path / "rows.jsonl")
    assert said["points"] == points == said["rows"]["done"]
    print(f"{points} points in {said['seconds']:.2f} s")
