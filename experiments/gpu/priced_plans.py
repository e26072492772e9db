"""Plans of recordings whose prices can be asked for again: experiments/gpu/drawn_seconds, experiments/gpu/unit_costs."""
import json
import pathlib
import re

from drawn_plans import call

KEPT = ("verified", "relative_error", "seconds_median", "seconds_min", "reason", "notes")  # of an answer


def priced(a, path):
    """What the planner's time model says of a plan: {"predicted", "form"} or {"unpriced"}."""
    try:
        said = json.loads(call(a.tilewright, "predict", path, "-m", a.machine, "--model", "tilewright", "--json"))
        return {"predicted": said["seconds"], "form": "+".join(sorted({form_of(k) for k in said["kernels_predicted"]}))}
    except (ValueError, KeyError) as reason:
        return {"unpriced": str(reason)}


def form_of(kernel):
    """Of a kernel's prediction: whose time it is."""
    if "phases" not in kernel:
        return "units"
    return "matrix" if any(p["busy_tensor_us"] > 0 for p in kernel["phases"]) else "blocks"


def bits_of(row):
    said = row["workload"] + row.get("text", "")
    return next((b for t, b in (("f16", 16), ("f64", 64)) if re.search(rf"dtype[=:] ?b?{t}", said)), 32)


def family_of(row, plan):
    """The workload's family, the bits of its type, and the forms of the plan's kernels: priced by threads' programs (units), by
    blocks, or by blocks with matrix units."""
    return f"{row['workload'].split(':')[0]}, {bits_of(row)} bits, {plan.get('form', 'any form')}"


def class_of(row, plan):
    """What emits the plan, the bits of its type, and what else it has."""
    bits = bits_of(row)
    text = plan["plan"]
    units = re.search("@(warp|lane|thread)", text)
    more = [name for name, has in (("several kernels", text.count("tree:") > 1), ("a pack", " | " in text), ("additions in memory",
            "!atomic" in text)) if has]
    return f"{'with' if units else 'without'} units, {bits} bits" + "".join(f", {m}" for m in more)


def written(folder, rows):
    """Files of the recorded plans: [(plan, path)], a plan of every workload, then the next of every one: what is cut short
    has all workloads."""
    found = []
    for number, row in enumerate(rows):
        if "text" in row:
            pathlib.Path(folder, f"w{number}.yaml").write_text(row["text"])
        for i, plan in enumerate(row["plans"]):
            path = pathlib.Path(folder, f"{number}-{i}.yaml")
            path.write_text(plan["plan"].replace("WORKLOAD.yaml", str(pathlib.Path(folder, f"w{number}.yaml"))))
            found.append((i, plan, path))
    return [(plan, path) for _, plan, path in sorted(found, key=lambda x: x[0])]
