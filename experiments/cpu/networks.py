#!/usr/bin/env python3
"""Networks, drawn networks and drawn layers on this machine's processor beside onnxruntime, and predicted seconds by kernel.

    experiments/cpu/networks.py --tilewright build/tilewright --machine host.yaml --out networks.json [FILE.onnx ...]

Files: those given, else the light models in the onnx package's wheel; --no-files: none. Drawn networks (--networks N
of each family in drawn_networks.py): convolutional, dense layers, transformers, recurrent. Drawn layers by seed
(--drawn N), each a file of its own: plain, strided, dilated, grouped, depthwise with multipliers, 1 x 1, odd
sizes, batches of one to eight, poolings, with or without a bias and an activation. Drawn convolutions
(--convolutions N): wider ranges of sizes, channels and images. Drawn windows (--windows N):
depthwise convolutions and poolings whose taps, strides, dilations, paddings and sides all differ by dimension. Each file runs --rounds times
as `tilewright run FILE --profile` with --beside this Python, in which ours and onnxruntime's runs take turns, on
one and on two threads. The least seconds of each side are compared: what else the machine does only adds. Load averages before and after stand beside every row. `--machine`: of `tilewright calibrate -o`.
Needs onnx, onnxruntime and numpy.
"""

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import drawn_networks
import quantised_networks

KERNEL = ("kernel", "operators", "compiled", "predicted_seconds", "seconds", "flops", "exact_bytes")
NAMES = ("squeezenet", "shufflenet", "resnet50", "inception_v1", "inception_v2", "densenet121", "vgg19", "bvlc_alexnet",
         "zfnet512")


def layer(seed):
    """A drawn layer as a model."""
    rng = numpy.random.default_rng([seed, 24])

    def pick(*values):
        return values[int(rng.integers(len(values)))]

    form = pick("plain", "plain", "strided", "dilated", "grouped", "depthwise", "depthwise", "point", "point", "pool")
    batch = pick(1, 1, 1, 2, 4, 8)
    side = int(rng.integers(7, 57 if batch < 4 else 29))
    channels, out = int(rng.integers(3, 257)), int(rng.integers(8, 257))
    size, stride, dilation, groups = pick(3, 3, 5, 7), 1, 1, 1
    if form == "strided":
        stride = 2
    if form == "dilated":
        dilation, size = pick(2, 3), 3
    if form == "grouped":
        groups = pick(2, 4, 8)
        channels, out = groups * int(rng.integers(4, 33)), groups * int(rng.integers(4, 33))
    if form == "depthwise":
        groups, stride, size = channels, pick(1, 2), pick(3, 5)
        out = channels * pick(1, 1, 1, 2)
    if form == "point":
        size, stride = 1, pick(1, 1, 2)
    pad = dilation * (size - 1) // 2
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, side, side])
    weights = []
    shape = dict(kernel_shape=[size, size], strides=[stride] * 2, pads=[pad] * 4)
    if form == "pool":
        size = pick(2, 3)
        pad = pick(0, size // 2)
        nodes = [helper.make_node(pick("MaxPool", "AveragePool"), ["x"], ["y"], kernel_shape=[size, size],
                                  strides=[pick(1, 2)] * 2, pads=[pad] * 4)]
    else:
        drawn = rng.uniform(-1, 1, [out, channels // groups, size, size]) / math.sqrt(channels // groups * size * size)
        weights.append(numpy_helper.from_array(drawn.astype("f4"), "w"))
        inputs = ["x", "w"]
        if pick(0, 1):
            weights.append(numpy_helper.from_array(rng.uniform(-1, 1, [out]).astype("f4"), "b"))
            inputs.append("b")
        relu = pick(0, 1)
        nodes = [helper.make_node("Conv", inputs, ["c" if relu else "y"], group=groups,
                                  dilations=[dilation] * 2, **shape)]
        if relu:
            nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, f"{form}_{seed}", [x], [y], weights)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def convolution(seed):
    """A drawn convolution as a model, over wider ranges than a layer: kernels of one to seven, not always square, three to
    512 channels, images of 7 to 224, at most 1.5 thousand million multiply-adds."""
    rng = numpy.random.default_rng([seed, 26])

    def pick(*values):
        return values[int(rng.integers(len(values)))]

    def about(low, high):  # small ones as often as large ones
        return round(math.exp(rng.uniform(math.log(low), math.log(high))))

    while True:
        size = [pick(1, 1, 2, 3, 3, 3, 4, 5, 6, 7)] * 2
        if pick(False, False, False, True):
            size[pick(0, 1)] = pick(1, 3, 5, 7)
        stride, batch = pick(1, 1, 2), pick(1, 1, 1, 2, 4)
        dilation = pick(1, 1, 1, 1, 1, 1, 2, 3) if stride == 1 and max(size) > 1 else 1
        groups = pick(1, 1, 1, 1, 1, 2, 4)
        channels, out = (groups * max(3 // groups, about(3, 512) // groups), groups * max(1, about(8, 512) // groups))
        side = [about(7, 224)] * 2
        if pick(False, False, True):
            side[1] = about(7, 224)
        pads = [pick(0, dilation * (s - 1) // 2, dilation * (s - 1) // 2) for s in size]
        points = [(side[d] + 2 * pads[d] - dilation * (size[d] - 1) - 1) // stride + 1 for d in (0, 1)]
        if min(points) > 0 and batch * out * channels // groups * size[0] * size[1] * points[0] * points[1] <= 1.5e9:
            break
    drawn = rng.uniform(-1, 1, [out, channels // groups, *size]) / math.sqrt(channels // groups * size[0] * size[1])
    weights = [numpy_helper.from_array(drawn.astype("f4"), "w"),
               numpy_helper.from_array(rng.uniform(-1, 1, [out]).astype("f4"), "b")]
    relu = pick(False, True)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c" if relu else "y"], group=groups, kernel_shape=size,
                              strides=[stride] * 2, dilations=[dilation] * 2, pads=pads * 2)]
    if relu:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    name = (f"convolution_{seed}_{size[0]}x{size[1]}_s{stride}_d{dilation}_p{pads[0]}x{pads[1]}_g{groups}"
            f"_{batch}x{channels}x{side[0]}x{side[1]}_to_{out}")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, *side])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return onnx.shape_inference.infer_shapes(helper.make_model(
        helper.make_graph(nodes, name, [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def window(seed):
    """A drawn window that slides over each channel alone, as a model: nothing of it is square."""
    rng = numpy.random.default_rng([seed, 25])

    def pick(*values):
        return values[int(rng.integers(len(values)))]

    form = pick("Conv", "Conv", "MaxPool", "AveragePool")
    batch, channels = pick(1, 1, 2, 4), int(rng.integers(3, 200))
    size = [pick(2, 3, 3, 5, 7), pick(2, 3, 3, 5, 7)]
    dilation = [pick(1, 1, 1, 2), pick(1, 1, 1, 2)] if form != "AveragePool" else [1, 1]
    pads = [int(rng.integers(0, size[d % 2])) for d in range(4)]
    sides = [int(rng.integers(14, 80)) for _ in range(2)]
    shape = dict(kernel_shape=size, strides=[pick(1, 1, 2, 2, 3), pick(1, 1, 2, 2, 3)], pads=pads)
    if dilation != [1, 1]:
        shape["dilations"] = dilation
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, *sides])
    weights = []
    if form == "Conv":
        drawn = rng.uniform(-1, 1, [channels, 1, *size]) / math.sqrt(size[0] * size[1])
        weights = [numpy_helper.from_array(drawn.astype("f4"), "w"),
                   numpy_helper.from_array(rng.uniform(-1, 1, [channels]).astype("f4"), "b")]
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], group=channels, **shape),
                 helper.make_node("Relu", ["c"], ["y"])]
    elif form == "MaxPool":
        nodes = [helper.make_node(form, ["x"], ["y"], **shape)]
    else:
        nodes = [helper.make_node(form, ["x"], ["y"], count_include_pad=pick(0, 1), **shape)]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, f"window_{form}_{seed}", [x], [y], weights)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8))


def run(a, path, threads):
    command = [a.tilewright, "run", path, "--machine", a.machine, "--profile", "--json", "--threads", str(threads),
               "--seconds", str(a.seconds), "--beside", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"reason": done.stderr.strip() or f"exit {done.returncode}"}


def row(a, path, name, threads):
    """One file on so many threads: the least seconds of each side, and the prediction of the quietest round."""
    load = os.getloadavg()[0]
    rounds = [run(a, path, threads) for _ in range(a.rounds)]
    wrong = [r for r in rounds if not r.get("verified") or not r.get("onnxruntime", {}).get("available")]
    if wrong:
        return {"name": name, "threads": threads, "reason": str(wrong[0].get("reason") or wrong[0]["onnxruntime"])}
    quiet = min(rounds, key=lambda r: r["seconds_min"])
    ours, theirs = quiet["seconds_min"], min(r["onnxruntime"]["seconds_min"] for r in rounds)
    return {"name": name, "threads": threads, "seconds": ours, "onnxruntime_seconds": theirs, "ratio": ours / theirs,
            "ratios_of_medians": [r["onnxruntime"]["ratio"] for r in rounds],
            "whole_prediction": quiet["predicted_seconds"] and quiet["predicted_seconds"] / ours,
            "plan_seconds": quiet["plan_seconds"], "build_seconds": quiet["build_seconds"],
            "gflops": quiet["flops"] / ours * 1e-9, "kernels": quiet["compiled"],
            "packed_once_bytes": sum(k.get("packed_once_bytes", 0) for k in quiet["profile"]),
            "prediction": quiet["prediction"], "load": [load, os.getloadavg()[0]],
            **({"profile": [{q: k[q] for q in KERNEL} for k in quiet["profile"] if k["seconds"]]} if a.kernels else {})}


def rounds_of_one(rows):
    """Rows of one file on equally many threads are rounds of it: the least seconds of each side."""
    found = {}
    for r in rows:
        key = (r["kind"], r["name"], r["threads"])
        known = found.get(key)
        if known is None or "ratio" not in known:
            found[key] = dict(r)
        elif "ratio" in r:
            theirs = min(known["onnxruntime_seconds"], r["onnxruntime_seconds"])
            quiet = dict(min(known, r, key=lambda x: x["seconds"]))
            found[key] = {**quiet, "onnxruntime_seconds": theirs, "ratio": quiet["seconds"] / theirs,
                          "rounds": known.get("rounds", 1) + r.get("rounds", 1)}
    return list(found.values())


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(rows, kind, threads):
    all_rows = [r for r in rows if r["kind"] == kind and r["threads"] == threads]
    good = [r for r in all_rows if "ratio" in r]
    if not good:
        return None
    worst = max(good, key=lambda r: r["ratio"])
    predicted = [r for r in good if r["prediction"]]
    kernels = sum(r["prediction"]["kernels"] for r in predicted)
    return {"kind": kind, "threads": threads, "files": len(all_rows), "failed": len(all_rows) - len(good),
            "geomean_ratio": geomean([r["ratio"] for r in good]),
            "worst_ratio": worst["ratio"], "worst": worst["name"],
            "mean_error_of_kernels": sum(r["prediction"]["mean_error"] * r["prediction"]["kernels"]
                                         for r in predicted) / kernels if kernels else None,
            "mean_error_by_seconds": sum(r["prediction"]["mean_error_by_seconds"] for r in predicted)
            / len(predicted) if predicted else None}


def summaries(a, rows):
    return [s for kind in ("network", "drawn network", "drawn layer", "drawn convolution", "drawn window") for t in a.threads if (s := summary(rows, kind, t))]


def write(a, rows, commands):
    processor = next((x.split(":")[1].strip() for x in open("/proc/cpuinfo") if "model name" in x), "")
    with open(a.out, "w") as f:
        json.dump({"what": "seconds of ours over onnxruntime's, least of the rounds", "commands": commands,
                   "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "processor": processor,
                   "onnxruntime": onnxruntime.__version__, "cores": os.cpu_count(),
                   "machine": a.machine if not os.path.exists(a.machine) else "calibrated", "rounds": a.rounds,
                   "seed": a.seed, "summary": summaries(a, rows), "rows": rows}, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="*")
    p.add_argument("--tilewright", default="build/tilewright")
    p.add_argument("--machine", default="host")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--rounds", type=int, default=1, help="each plans, builds and verifies again")
    p.add_argument("--seconds", type=float, default=1, help="of timing, each side and round")
    p.add_argument("--no-files", action="store_true")
    p.add_argument("--networks", type=int, default=0, help="drawn networks of each family")
    p.add_argument("--drawn", type=int, default=24, help="layers")
    p.add_argument("--quantised", action="store_true", help="drawn files as onnxruntime quantises them to 8 bits")
    p.add_argument("--convolutions", type=int, default=0, help="convolutions over wider ranges than layers")
    p.add_argument("--windows", type=int, default=0, help="windows that slide over each channel alone")
    p.add_argument("--seed", type=int, default=1, help="of the first drawn layer")
    p.add_argument("--kernels", action="store_true", help="keep each kernel's predicted and measured seconds")
    p.add_argument("--rows", nargs="*", default=[], help="recordings whose rows this one begins with; those of one file are rounds of it")
    p.add_argument("--out")
    a = p.parse_args()
    light = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    files = a.files or ([] if a.no_files else [os.path.join(light, f"light_{name}.onnx") for name in NAMES])
    with tempfile.TemporaryDirectory() as folder:
        work = [("network", f, os.path.basename(f)) for f in files]
        for family in drawn_networks.FAMILIES:
            for seed in range(a.seed, a.seed + a.networks):
                path = os.path.join(folder, f"{family.__name__}_{seed}.onnx")
                onnx.save(drawn_networks.make(family, seed), path)
                work.append(("drawn network", path, f"{family.__name__}_{seed}"))
        drawn = [("drawn layer", layer, a.drawn), ("drawn convolution", convolution, a.convolutions),
                 ("drawn window", window, a.windows)]
        for kind, make, count in drawn:
            for seed in range(a.seed, a.seed + count):
                model = make(seed)
                path = os.path.join(folder, model.graph.name + ".onnx")
                onnx.save(model, path)
                work.append((kind, path, model.graph.name))
        if a.quantised:
            for i, (kind, path, name) in enumerate(work):
                if kind != "network":
                    quantised_networks.quantise(path, a.seed + i)
                    work[i] = (kind, path, name + "_quantised")
        rows, commands = [], [" ".join(sys.argv)]
        for recording in a.rows:
            with open(recording) as f:
                earlier = json.load(f)
            rows += earlier["rows"]
            commands = earlier["commands"] + commands
        rows = rounds_of_one(rows)
        for kind, path, name in work:
            for threads in a.threads:
                r = row(a, path, name, threads)
                rows.append({"kind": kind, **r})
                said = (f"{r['ratio']:6.2f} of onnxruntime's  {r['seconds'] * 1e6:10.1f} us  {r['gflops']:6.1f} GFLOP/s  "
                        f"plan {r['plan_seconds']:.1f} s, build {r['build_seconds']:.1f} s"
                        if "ratio" in r else r["reason"])
                print(f"{name:26} {threads} thread(s)  {said}", flush=True)
                if a.out:  # what is there so far: later ones may take long
                    write(a, rows, commands)
    if a.out:
        write(a, rows, commands)
    for s in summaries(a, rows):
        print(f"{s['kind']}s, {s['threads']} thread(s): geomean {s['geomean_ratio']:.2f}, worst "
              f"{s['worst_ratio']:.2f} ({s['worst']}), {s['failed']} of {s['files']} failed; predicted seconds off by "
              f"{100 * (s['mean_error_by_seconds'] or 0):.0f} % weighted by seconds, "
              f"{100 * (s['mean_error_of_kernels'] or 0):.0f} % a kernel")


if __name__ == "__main__":
    main()
