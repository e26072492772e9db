"""Plans whose tiles are drawn again, and how well predictions rank them.

For the scripts that hold a prediction against a truth: `experiments/cpu/fidelity` and `experiments/gpu/fidelity`
(measured times), `scripts/npu-fidelity` (emulated times), `scripts/cached-fidelity` (simulated traffic).
"""
import json
import math
import pathlib
import re
import statistics
import subprocess
import tempfile


def ask(binary, *words, limit=120):
    """The answer of a verb, or the reason why there is none."""
    try:
        done = subprocess.run([binary, *words, "--json"], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, "takes too long"
    if done.returncode:
        return None, (done.stderr.strip() or done.stdout.strip())[:300]
    return json.loads(done.stdout), None


def kernels_of(answer, workload):
    """What a plan's text needs of its kernels; none where the plan is of another workload, as a rewritten one."""
    if not answer or answer.get("plan", {}).get("workload") != workload:
        return None
    return [{k: x for k, x in kernel.items() if k in ("tree", "tiles", "pins", "level")} for kernel in answer["plan"]["kernels"]]


def redrawn(kernels, size):
    """The kernels with other tiles: size(loop, tile) for each, in the tree and beside it."""
    out = []
    for kernel in kernels:
        kernel = dict(kernel)
        kernel["tree"] = re.sub(r"\b(\w+)/(\d+)", lambda at: f"{at[1]}/{size(at[1], int(at[2]))}", kernel["tree"])
        if "tiles" in kernel:
            kernel["tiles"] = {x: size(x, t) for x, t in kernel["tiles"].items()}
        out.append(kernel)
    return out


def plan_text(workload, machine, kernels):
    return f'workload: "{workload}"\nmachine: {machine}\nkernels:\n' + "".join(f"  - {json.dumps(k)}\n" for k in kernels)


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
