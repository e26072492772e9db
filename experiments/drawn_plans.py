"""Plans whose tiles are drawn again, and how well predictions rank them.

For the scripts that hold a prediction against a truth: `experiments/cpu/fidelity` and `experiments/gpu/fidelity`
(measured times), `scripts/npu-fidelity` (emulated times), `scripts/cached-fidelity` (simulated traffic).
"""
import json
import math
import re
import statistics
import subprocess


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
    return [{k: x for k, x in kernel.items() if k in ("tree", "tiles", "pins")} for kernel in answer["plan"]["kernels"]]


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
