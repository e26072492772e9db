"""Drawn workloads on this machine's processor beside torch: what the scripts that draw them share.

`tilewright run` plans each, verifies it against the evaluator and times it; then each of torch's ways runs as long, on as many threads. The
least seconds of each side are compared: what else the machine does only adds. The load stands beside every row.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import subprocess
import tempfile
import time
from typing import Callable, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
KEPT = ("verified", "relative_error", "launches", "predicted_seconds", "seconds_min", "seconds_median", "runs", "rewrites")
HEAD = f"{'seed':<7}{'workload, us':<44}{'th':>2}{'ours':>10}{'predicted':>11}{'torch':>10}{'torch/':>8}"


class Case(NamedTuple):
    name: str  # in tables
    subject: str  # of `tilewright run`: a built-in's name, or the text of a file
    ways: Callable  # of torch's name for its module: the functions to time, by name
    about: dict = {}  # what else a row keeps


def seconds_of(function, seconds):
    for _ in range(2):  # the first compiles, the second sees its caches
        function()
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        at = time.perf_counter()
        function()
        times.append(time.perf_counter() - at)
    return {"seconds_min": min(times), "seconds_median": sorted(times)[len(times) // 2], "runs": len(times)}


def seconds_of_torch(case, seconds, threads):
    """Of the fastest way; the others' least seconds beside it."""
    import torch
    torch.set_num_threads(threads)
    with torch.no_grad():
        ways = {name: seconds_of(function, seconds) for name, function in case.ways(torch).items()}
    best = min(ways, key=lambda name: ways[name]["seconds_min"])
    return {"version": torch.__version__, "way": best, **ways[best],
            "others": {name: way["seconds_min"] for name, way in ways.items() if name != best}}


def row(how, seed, threads, case):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        subject = case.subject
        if "\n" in subject:
            file.write(subject)
            file.flush()
            subject = file.name
        words = [how.tilewright, "run", subject, "-m", how.machine, "--target", "cpu", "--threads", str(threads), "--seconds",
                 str(how.seconds), "--json"]
        out = {"seed": seed, "threads": threads, "workload": case.name, **case.about, "load": os.getloadavg()[0]}
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        return {**out, "reason": done.stderr.strip()}
    said = json.loads(done.stdout)
    return {**out, **{key: said[key] for key in KEPT if key in said}, "torch": seconds_of_torch(case, how.seconds, threads)}


def ratio(r):
    return r["torch"]["seconds_min"] / r["seconds_min"]


def line(r):
    name = f"{r['seed']:<7}{r['workload']:<44}"
    if not r.get("verified"):
        return name + r.get("reason", "wrong")
    return (f"{name}{r['threads']:>2}{r['seconds_min'] * 1e6:>10.1f}{r['predicted_seconds'] * 1e6:>11.1f}"
            f"{r['torch']['seconds_min'] * 1e6:>10.1f}{ratio(r):>8.2f}")


def summary(rows, parts=None):
    """`parts`: which rows have a line of their own, by what that says."""
    lines = []
    for threads in sorted({r["threads"] for r in rows}):
        for what, within in {"": lambda r: True, **(parts or {})}.items():
            good = [r for r in rows if r["threads"] == threads and r.get("verified") and within(r)]
            if not good:
                continue
            least = min(good, key=ratio)
            away = [abs(r["predicted_seconds"] / r["seconds_min"] - 1) for r in good]
            mean = math.exp(sum(math.log(ratio(r)) for r in good) / len(good))
            lines.append(f"{threads} thread{'s' * (threads > 1)}{what and ', '}{what}: torch takes {mean:.2f} times ours over {len(good)}, "
                         f"least {ratio(least):.2f} ({least['workload']}, seed {least['seed']}), {sum(ratio(r) < 1 for r in good)} below 1; "
                         f"predicted seconds are {100 * sum(away) / len(away):.0f} % off")
    return lines + [f"not verified: {line(r)}" for r in rows if not r.get("verified")]


def main(script, about, draw, parts=None):
    """`draw`: of a seed, a case, or nothing where it draws none."""
    ask = argparse.ArgumentParser(description=about.split("\n\n")[0])
    ask.add_argument("--tilewright", default=str(HERE.parent.parent / "build" / "tilewright"))
    ask.add_argument("--machine", default="host", help="of `tilewright calibrate -o`")
    ask.add_argument("--threads", type=int, nargs="+", default=[1])
    ask.add_argument("--seeds", default="1:61", help="FIRST:END")
    ask.add_argument("--seconds", type=float, default=0.3, help="of timing, each side")
    ask.add_argument("--said", nargs="+", help="recordings to print, in place of a run")
    ask.add_argument("--out")
    how = ask.parse_args()
    if how.said:
        rows = [r for path in how.said for r in json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["rows"]]
        print("\n".join([HEAD, *map(line, rows), *summary(rows, parts)]))
        return 0
    processor = next((words.split(":")[1].strip() for words in open("/proc/cpuinfo", encoding="utf-8") if words.startswith("model name")), "")
    record = {"date": datetime.date.today().isoformat(), "processor": processor,
              "command": f"experiments/cpu/{script} --threads {' '.join(map(str, how.threads))} --seeds {how.seeds} "
                         f"--seconds {how.seconds:g}", "rows": []}
    print(HEAD)
    for seed in range(*map(int, how.seeds.split(":"))):
        case = draw(seed)
        for threads in how.threads if case else []:
            record["rows"].append(row(how, seed, threads, case))
            print(line(record["rows"][-1]), flush=True)
            if how.out:
                pathlib.Path(how.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n".join(summary(record["rows"], parts)))
    return 0 if all(r.get("verified") for r in record["rows"]) else 1
