"""Small ONNX graphs of random operators, each on values that others have made, imported and evaluated beside onnxruntime.
Prints what differs, what is refused and why, then counts.

    PYTHONPATH=tests/python python3 tests/python/onnx_graphs.py [--seeds 0:200] [--nodes 12] [--run 0.1] [--emulate 0.02]
        [--keep FOLDER]

--run: that share of the graphs is also run as `tilewright run` runs a file: planned, compiled, verified, and compared with
onnxruntime. --emulate: the same as CUDA kernels, on this processor. --keep: files that are not right are written there.
"""

import argparse
import collections
import json
import os
import random
import sys
import tempfile
import warnings

import numpy
import onnx

import tilewright
from onnx_graph_cases import drawn
from onnx_more_graph_cases import DrawnOfMore
from tilewright import _tilewright, reference


def compared(model, case, path):
    """("right" | "differs" | "refused", why)"""
    onnx.save(model, path)
    try:
        made = tilewright.import_(path)
        names = {e["name"]: e["tensor"] for e in made["inputs"] + made["outputs"]}
        given = {names[i.name]: case.values[i.name].astype(float) for i in model.graph.input if i.name in names}
        values = evaluate(path, given)
    except tilewright.InputError as error:
        lines = str(error).splitlines()
        return "refused", " | ".join(line.strip().split(": ", 1)[-1] for line in lines[1:]) or lines[0].split(": ", 1)[-1]
    for output in model.graph.output:
        want = case.values[output.name]
        got = values[names[output.name]]
        if got.size != want.size:
            return "differs", f"{output.name} has {got.size} elements, not {want.size}"
        scale = max(float(numpy.abs(want).max()), 0.05)
        off = float(numpy.abs(got.reshape(want.shape) - want).max()) / scale
        if not off < 2e-3:
            at = [n.op_type for n in model.graph.node if output.name in n.output]
            return "differs", f"{output.name} of {at[0]} is off by {off:.2g}"
    return "right", ""


def evaluate(path, given):
    with open(path, "rb") as file:
        made = json.loads(_tilewright.import_onnx(file.read(), path, False))
    for tensor in made["workload"]["tensors"]:
        if tensor["name"] in given:
            tensor["values"] = given[tensor["name"]].reshape(-1).tolist()
    return reference.evaluate(made["workload"])


def program(path, **how):
    """("right" | "wrong" | "cannot be verified" | ..., why)"""
    try:
        done = tilewright.run(path, seconds=0, **how)
    except tilewright.InputError as error:
        return "refused", str(error).splitlines()[-1]
    if done.get("verified"):
        return "right", ""
    why = done.get("reason", "")
    return ("cannot be verified" if "cannot be verified" in why or "no finite values" in why else "wrong"), why


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seeds", default="0:200")
    ask.add_argument("--nodes", type=int, default=12)
    ask.add_argument("--run", type=float, default=0)
    ask.add_argument("--emulate", type=float, default=0)
    ask.add_argument("--keep")
    how = ask.parse_args()
    warnings.simplefilter("ignore")
    first, last = map(int, how.seeds.split(":"))
    counts, ops, reasons, programs = (collections.Counter() for _ in range(4))
    if how.keep:
        os.makedirs(how.keep, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            model, case = drawn(seed, how.nodes, DrawnOfMore)
            if not model.graph.output:
                continue
            path = os.path.join(how.keep or folder, f"graph_{seed}.onnx")
            lot = random.Random(seed)
            try:
                what, why = compared(model, case, path)
            except Exception as error:
                what, why = "failed", f"{type(error).__name__}: {error}"
            counts[what] += 1
            ops.update(n.op_type for n in model.graph.node)
            if what == "refused":
                reasons[why[:100]] += 1
            bad = what in ("differs", "failed")
            if bad:
                print(f"seed {seed}: {what}: {why} ({' '.join(n.op_type for n in model.graph.node)})", flush=True)
            for kind, share, more in (("as a program", how.run, {"machine": "host", "isa": "generic", "beside": sys.executable}),
                                      ("as CUDA", how.emulate, {"machine": "h200", "target": "cuda-emulated"})):
                if what != "right" or lot.random() >= share:
                    continue
                done, reason = program(path, **more)
                programs[f"{kind} {done}"] += 1
                if done != "right":
                    bad = True
                    print(f"seed {seed}: {kind}: {done}: {reason}", flush=True)
            if not bad:
                os.remove(path)
    for why, n in reasons.most_common(30):
        print(f"refused {n}: {why}")
    print(f"{sum(ops.values())} nodes of {len(ops)} operators: " + ", ".join(f"{op} {n}" for op, n in ops.most_common()))
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    if programs:
        print(", ".join(f"{what}: {n}" for what, n in sorted(programs.items())))


if __name__ == "__main__":
    main()
