"""Plans of recordings whose prices can be asked for again: experiments/gpu/drawn_seconds, experiments/gpu/unit_costs."""
import json
import pathlib

from drawn_plans import call

KEPT = ("verified", "relative_error", "seconds_median", "seconds_min", "reason", "notes")  # of an answer


def priced(a, path):
    """What the planner's time model says of a plan: {"predicted"} or {"unpriced"}."""
    try:
        said = json.loads(call(a.tilewright, "predict", path, "-m", a.machine, "--model", "tilewright", "--json"))
        return {"predicted": said["seconds"]}
    except (ValueError, KeyError) as reason:
        return {"unpriced": str(reason)}


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
