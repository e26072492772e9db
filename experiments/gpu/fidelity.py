"""How near the planner's prices come to recorded times: `fidelity`.

Every plan of a recording that `candidates` asks for again is priced by one model, and held against its time:
the mean and the worst error, the rank correlation within each row, and what choosing by the price would have
lost (the recorded time of the plan with the least price over the best recorded one).
"""
import concurrent.futures
import json
import math
import pathlib
import re
import statistics
import subprocess
import tempfile

from candidates import candidates, sizes_of


def call(tilewright, *words):
    done = subprocess.run([tilewright, *words], capture_output=True, text=True)
    if done.returncode:
        raise ValueError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
    return done.stdout


STEP = re.compile(r"(?<=/)\d+")
TILE = re.compile(r"(?<=: )\d+")


def other_steps(rng, text):
    """The plan with other steps: of one loop in three, a half to four times as many, or any number."""
    def other(match):
        step = int(match[0])
        if rng.random() > .4:
            return match[0]
        by = rng.choice((.125, .25, .5, .5, 2, 2, 4, 8))
        drawn = max(1, round(step * by))
        if drawn > 8 and rng.random() < .7:
            drawn = (drawn + 4) // 8 * 8
        return str(drawn)
    lines = text.splitlines(keepends=True)
    return "".join(STEP.sub(other, line) if line.lstrip().startswith(("tree:", "- tree:")) else
                   TILE.sub(other, line) if line.lstrip().startswith("tiles:") else line for line in lines)


NO_STEP = re.compile(r"loop (\w+): (\d+) is no step of this loop; accepted: 1\.\.(\d+)")


def legal(a, text):
    """The plan with steps no longer than their loops; the reason where it is refused all the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "plan.yaml")
        for _ in range(8):
            path.write_text(text)
            try:
                call(a.tilewright, "predict", path, "-m", a.machine, "--model", "tilewright", "--json")
                return text
            except ValueError as reason:
                long = NO_STEP.search(str(reason))
                if not long:
                    return None
                text = re.sub(rf"\b{long[1]}/{long[2]}\b", f"{long[1]}/{long[3]}", text)
    return None


def predict(tilewright, asked, model):
    """Seconds, or the reason why there are none."""
    def call(*arguments):
        done = subprocess.run([tilewright, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip())
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        try:
            plan = asked.get("plan")
            if plan is None:
                kernel = {"tree": asked.get("tree")}
                kernel["pins"] = dict(pin.split("=") for pin in asked.get("pins", []))
                if kernel["tree"] is None:
                    words = [x for option in ("model", "expression", "tiles") if option in asked
                             for x in (f"--{option}", asked[option])]
                    resolved = json.loads(call("explain", asked["workload"], "-m", "h200", *words, "--resolved",
                                               "--json"))["resolved"]["kernels"]
                    kernel = {key: resolved[0][key] for key in ("tree", "pins") if key in resolved[0]}
                elif "tiles" in asked:
                    kernel["tiles"] = {k: int(v) for k, v in (t.split("=") for t in asked["tiles"].split(","))}
                # What are options of the target there, a plan says of its kernels.
                kernel["launch"] = {k: asked[k] for k in ("warps", "stages") if k in asked}
                plan = str(pathlib.Path(folder, "plan.yaml"))
                pathlib.Path(plan).write_text(f'workload: "{asked["workload"]}"\nmachine: h200\nkernels:\n  - '
                                              + json.dumps({k: v for k, v in kernel.items() if v}) + "\n")
            answer = json.loads(call("predict", plan, "-m", "h200", "--model", model, "--json"))
            return answer["seconds"], answer
        except (ValueError, KeyError) as reason:
            return None, str(reason)


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in order[at:end + 1]:
            out[i] = (at + end) / 2
        at = end + 1
    return out


def correlation(a, b):
    """Spearman's; none of fewer than three points or where all are equal."""
    if len(a) < 3:
        return None
    x, y = ranks(a), ranks(b)
    mx, my = statistics.mean(x), statistics.mean(y)
    spread = math.sqrt(sum((v - mx) ** 2 for v in x) * sum((v - my) ** 2 for v in y))
    return sum((p - mx) * (q - my) for p, q in zip(x, y)) / spread if spread else None


def row_of(name, pairs):
    """pairs: (name, predicted, measured)."""
    predicted, measured = [p[1] for p in pairs], [p[2] for p in pairs]
    chosen = min(pairs, key=lambda p: p[1])
    worst = max(pairs, key=lambda p: abs(math.log(p[1] / p[2])))
    return {"row": name, "plans": len(pairs), "rank_correlation": correlation(predicted, measured),
            "mean_error": statistics.mean(abs(p[1] / p[2] - 1) for p in pairs),
            "geometric_mean": math.exp(statistics.mean(math.log(p[1] / p[2]) for p in pairs)),
            "worst": {"name": worst[0], "predicted": worst[1], "measured": worst[2]},
            "chosen": chosen[0], "regret": chosen[2] / min(measured)}


def print_row(row, width=14):
    """A line; returns the row."""
    rank = "-" if row["rank_correlation"] is None else f"{row['rank_correlation']:.2f}"
    print(f"{row['row']:{width}} {row['plans']:3} plans, rank {rank:>5}, mean error {row['mean_error']:5.0%}, "
          f"predicted/measured {row['geometric_mean']:5.2f}, regret {row['regret']:5.2f}", flush=True)
    return row


def print_all(rows):
    """What holds over rows."""
    if not rows:
        return print("no row has two plans with a price and a time")
    ranks_found = [r["rank_correlation"] for r in rows if r["rank_correlation"] is not None]
    plans = sum(r["plans"] for r in rows)
    worst = max(rows, key=lambda r: max(r["worst"]["predicted"] / r["worst"]["measured"],
                                        r["worst"]["measured"] / r["worst"]["predicted"]))["worst"]
    ranked = (f"median {statistics.median(ranks_found):.2f}, least {min(ranks_found):.2f}, 0.85 or more in "
              f"{sum(r >= 0.85 for r in ranks_found)} of {len(ranks_found)}") if ranks_found else "none"
    print(f"\n{plans} plans of {len(rows)} rows: mean error "
          f"{sum(r['mean_error'] * r['plans'] for r in rows) / plans:.0%}; rank correlation in a row: {ranked}; regret: median "
          f"{statistics.median(r['regret'] for r in rows):.2f}, most {max(r['regret'] for r in rows):.2f}, "
          f"1.05 or less in {sum(r['regret'] <= 1.05 for r in rows)} of {len(rows)}")
    return print(f"worst: {worst['name']}: predicted {1e6 * worst['predicted']:.2f} us, measured "
                 f"{1e6 * worst['measured']:.2f} us")


def rows_of(tilewright, recording, model, most=32):
    recorded = {r["row"]: {t["name"]: t["seconds_median"] for t in r["tried"] if t.get("seconds_median")}
                for r in json.loads(pathlib.Path(recording).read_text())["rows"]}
    sizes = sizes_of(tilewright, recorded)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for row, times in recorded.items():
            asked = [a for a in candidates(row, sizes[row], most, pathlib.Path(folder)) if a["name"] in times]
            answers = list(pool.map(lambda a: predict(tilewright, a, model), asked))
            pairs = [(a["name"], s, times[a["name"]]) for a, (s, _) in zip(asked, answers) if s is not None]
            refused = {a["name"]: why for a, (s, why) in zip(asked, answers) if s is None}
            detail = {a["name"]: x for a, (s, x) in zip(asked, answers) if s is not None}
            if pairs:
                yield row_of(row, pairs), pairs, refused, len(times) - len(asked), detail
