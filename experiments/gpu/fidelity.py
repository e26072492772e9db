"""How near the planner's prices come to recorded times: `fidelity`.

Every plan of a recording that `candidates` asks for again is priced by one model, and held against its time:
the mean and the worst error, the rank correlation within each row, and what choosing by the price would have
lost (the recorded time of the plan with the least price over the best recorded one).
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from candidates import candidates, sizes_of  # noqa: E402
from drawn_plans import plan_text, row_of  # noqa: E402


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
                pathlib.Path(plan).write_text(plan_text(asked["workload"], "h200", [{k: v for k, v in kernel.items() if v}]))
            answer = json.loads(call("predict", plan, "-m", "h200", "--model", model, "--json"))
            return answer["seconds"], answer
        except (ValueError, KeyError) as reason:
            return None, str(reason)


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
