"""Plans of recordings whose prices can be asked for again: experiments/gpu/drawn_seconds, experiments/gpu/unit_costs."""
import json
import pathlib
import re

from drawn_plans import call

KEPT = ("verified", "relative_error", "seconds_median", "seconds_min", "reason", "notes")  # of an answer


def priced(a, path):
    """What the planner's time model says of a plan: {"predicted"} or {"unpriced"}."""
    try:
        said = json.loads(call(a.tilewright, "predict", path, "-m", a.machine, "--model", "tilewright", "--json"))
        return {"predicted": said["seconds"]}
    except (ValueError, KeyError) as reason:
        return {"unpriced": str(reason)}


def class_of(row, plan):
    """What emits the plan, the bits of its type, and what else it has."""
    said = row["workload"] + row.get("text", "")
    bits = next((b for t, b in (("f16", 16), ("f64", 64)) if re.search(rf"dtype[=:] ?b?{t}", said)), 32)
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
