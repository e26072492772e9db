"""Operators of ONNX as files of versions 7 to 22 have them, in f32, f64, f16 and bf16, and each file in other forms: weights that are inputs,
too, constants as nodes, data in files of their own, symbolic dimensions, a node within a function, a branch or a loop. The import,
evaluated, is held against onnxruntime, and the other forms against the first one. Prints what differs, what is refused, counts.

    PYTHONPATH=tests/python python3 tests/python/onnx_versions.py [--seeds 0:300] [--run 0.05] [--keep FOLDER] [--only Pad,TopK]
        [--types bf16]

--run: that share is also run as `tilewright run` runs a file, beside onnxruntime."""

import argparse
import collections
import json
import os
import sys
import tempfile

import ml_dtypes
import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilewright
from onnx_version_cases import FAMILIES, Net
from tilewright import _tilewright, reference

# Of bf16 the import is held against the same numbers in f32: neither rounds what is between.
TOLERANCE = {"f32": 2e-4, "f64": 1e-8, "f16": 2e-2, "bf16": 2e-4}
TYPES = ("f32", "f32", "f32", "f64", "f16", "bf16")
VERSIONS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)


# ---- A file and its other forms -------------------------------------------------------------------------------------

def copied(model):
    out = onnx.ModelProto()
    out.CopyFrom(model)
    return out


def in_bf16(model):
    """Its floats as bf16, or None where an operator of it takes none."""
    out = copied(model)

    def changed(graph):
        for v in (*graph.input, *graph.output):
            if v.type.tensor_type.elem_type == TensorProto.FLOAT:
                v.type.tensor_type.elem_type = TensorProto.BFLOAT16
        for t in (*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR)):
            if t.data_type == TensorProto.FLOAT:
                t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(ml_dtypes.bfloat16), t.name))
        for n in graph.node:
            for a in n.attribute:
                if a.name in ("to", "dtype") and a.i == TensorProto.FLOAT:
                    a.i = TensorProto.BFLOAT16
                if a.type == onnx.AttributeProto.GRAPH:
                    changed(a.g)

    changed(out.graph)
    try:
        onnx.shape_inference.infer_shapes(out, check_type=True, strict_mode=True)
    except Exception:  # noqa: BLE001: the types that its operator does not take
        return None
    return out


def weights_are_inputs(model, _):
    out = copied(model)
    for t in out.graph.initializer:
        out.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    out.ir_version = 3
    return out


def weights_are_nodes(model, _):
    out = copied(model)
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in out.graph.initializer]
    nodes += list(out.graph.node)
    del out.graph.node[:], out.graph.initializer[:]
    out.graph.node.extend(nodes)
    return out


def data_in_fields(model, _):
    """Values as lists, not as bytes."""
    out = copied(model)
    for t in out.graph.initializer:
        values = numpy_helper.to_array(t)
        if values.dtype in (numpy.float32, numpy.float64, numpy.int64, numpy.int32):
            t.CopyFrom(helper.make_tensor(t.name, t.data_type, values.shape, values.flatten().tolist()))
    return out


def data_beside(model, folder):
    path = os.path.join(folder, "beside.onnx")
    onnx.save_model(copied(model), path, save_as_external_data=True, all_tensors_to_one_file=True, location="beside.bin", size_threshold=0)
    return path


def in_a_function(model, _):
    """The last node is the body of a function of the file."""
    out = copied(model)
    node = out.graph.node[-1]
    around = {t.name for t in (*out.graph.initializer, *out.graph.input)} | {o for n in out.graph.node for o in n.output}
    names = {}  # that it and graphs within it read of the graph around: those that they have in the function

    def inside(n):
        n.input[:] = [names.setdefault(i, f"in_{len(names)}") if i in around else i for i in n.input]
        for a in n.attribute:
            for m in a.g.node if a.type == onnx.AttributeProto.GRAPH else ():
                inside(m)

    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    inside(inner)
    inner.output[:] = [f"out_{i}" for i in range(len(node.output))]
    function = helper.make_function("own", "Wrapped", list(names.values()), list(inner.output), [inner],
                                    [helper.make_opsetid("", out.opset_import[0].version)])
    call = helper.make_node("Wrapped", list(names), list(node.output), domain="own")
    out.graph.node.pop()
    out.graph.node.append(call)
    out.functions.append(function)
    out.opset_import.append(helper.make_opsetid("own", 1))
    return out


FORMS = [weights_are_inputs, weights_are_nodes, data_in_fields, data_beside, in_a_function]


def asked_of(model, path=None, folder="", values=None):
    """{output: array} of the import, evaluated. Throws InputError."""
    if path is None:
        path = os.path.join(folder, "file.onnx")
        onnx.save(model, path)
    with open(path, "rb") as file:
        made = json.loads(_tilewright.import_onnx(file.read(), path, False))
    names = {tensor: name for name, tensor in made["names"].items() if name in values}
    for tensor in made["workload"]["tensors"]:
        if tensor["name"] in names:
            beside = os.path.join(folder, "input-" + names[tensor["name"]])
            values[names[tensor["name"]]].astype("<f8").tofile(beside)
            tensor["values"] = f"f64 at 0 of {beside}"
    got = reference.evaluate(made["workload"])
    return {o.name: got[made["names"][o.name]] for o in model.graph.output if o.name in made["names"] and made["names"][o.name] in got}


def off(got, want, tolerance):
    want = want.astype(float)
    if got.size != want.size:
        return f"{got.size} elements, not {want.size}"
    got = got.reshape(want.shape)
    same = (got == want) | (numpy.isnan(got) & numpy.isnan(want))
    scale = max(float(numpy.abs(want[numpy.isfinite(want)]).max(initial=0)), .05)
    error = numpy.where(same, 0, numpy.abs(got - want)) if want.size else numpy.zeros(1)
    worst = float(numpy.nan_to_num(error, nan=numpy.inf).max(initial=0))
    return f"off by {worst:.3g} of {scale:.3g}" if worst > tolerance * scale else ""


def drawn(seed, only=None, types=TYPES, families=FAMILIES):
    """(Net, model, onnxruntime's results), or None where onnxruntime does not take what is drawn."""
    rng = numpy.random.default_rng([seed, 77])
    for _ in range(40):
        n = Net(rng, int(rng.choice(VERSIONS)), str(rng.choice(types)))
        made = families[n.integer(0, len(families) - 1)](n)
        if made is None or (only and n.nodes[-1].op_type not in only):
            continue
        n.ends_in(made if isinstance(made, list) else [made])
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        model = n.model()
        try:
            want = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, n.values)
        except Exception:  # noqa: BLE001: types that it has no kernel of, and what is drawn wrongly
            continue
        if n.kind == "bf16":
            model = in_bf16(model)
        if model is not None and all(isinstance(w, numpy.ndarray) for w in want):
            return n, model, want
    return None


def symbolic(n, model, folder):
    """"" where the file with names for its dimensions, bound, is the file with numbers."""
    out, bound = copied(model), {}
    for v in out.graph.input:
        for i, d in enumerate(v.type.tensor_type.shape.dim):
            if d.dim_value > 0 and n.integer(0, 1):
                name = f"d{d.dim_value}_{i}"
                bound[name] = d.dim_value
                d.Clear()
                d.dim_param = name
    if not bound:
        return ""
    texts = []
    for m, more in ((model, {}), (out, {"bind": ",".join(f"{k}={v}" for k, v in bound.items())})):
        path = os.path.join(folder, "file.onnx")
        onnx.save(m, path)
        texts.append(tilewright.import_(path, **more)["workload"])
    return "" if texts[0] == texts[1] else "bound by name it is another workload"


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seeds", default="0:300")
    ask.add_argument("--run", type=float, default=0)
    ask.add_argument("--keep")
    ask.add_argument("--only")
    ask.add_argument("--types", default=",".join(TYPES))
    how = ask.parse_args()
    begin, end = map(int, how.seeds.split(":"))
    counts, reasons = collections.Counter(), collections.Counter()
    for seed in range(begin, end):
        made = drawn(seed, how.only and how.only.split(","), how.types.split(","))
        if made is None:
            continue
        n, model, want = made
        what = f"seed {seed}: {n.nodes[-1].op_type} of version {n.opset}, {n.kind}"

        def wrong(why, kind="wrong"):
            counts[kind] += 1
            print(f"{what}: {why}", flush=True)
            if how.keep:
                os.makedirs(how.keep, exist_ok=True)
                onnx.save(model, os.path.join(how.keep, f"{seed}.onnx"))
        with tempfile.TemporaryDirectory() as folder:
            try:
                got = asked_of(model, None, folder, n.values)
            except tilewright.InputError as error:
                counts["refused"] += 1
                try:
                    tilewright.import_(os.path.join(folder, "file.onnx"), skip=True)
                    counts["refused, the rest taken"] += 1
                except tilewright.InputError:  # nothing is left
                    pass
                reasons[f"{n.nodes[-1].op_type}: " + str(error).splitlines()[-1].split(": ", 2)[-1]] += 1
                continue
            bad = [f"{o}: {why}" for o, w in zip((o.name for o in n.outputs), want) if w.size and (
                why := off(got[o], w, TOLERANCE[n.kind]) if o in got else "is not there")]
            if bad:
                wrong("; ".join(bad) + "\n    " + str(model.graph.node[-1])[:400].replace("\n", " "))
                continue
            counts["right"] += 1
            for form in FORMS:
                try:
                    other = form(model, folder)
                    if other is None:
                        continue
                    if isinstance(other, str):
                        again = asked_of(model, other, folder, n.values)
                    else:
                        again = asked_of(other, None, folder, n.values)
                    if bad := [o for o in got if o not in again or not numpy.array_equal(got[o], again[o], equal_nan=True)]:
                        wrong(f"{form.__name__}: {bad[0]} differs", "wrong in another form")
                    else:
                        counts["right in another form"] += 1
                except tilewright.InputError as error:
                    wrong(f"{form.__name__}: {str(error)[:300]}", "refused in another form")
            try:
                if why := symbolic(n, model, folder):
                    wrong(why, "wrong in another form")
            except tilewright.InputError as error:
                wrong(f"symbolic dimensions: {str(error)[:300]}", "refused in another form")
            if n.rng.random() < how.run:
                path = os.path.join(folder, "file.onnx")
                onnx.save(model, path)
                try:
                    done = tilewright.run(path, machine="host", seconds=0, beside=sys.executable)
                except tilewright.InputError as error:
                    counts["nothing to run"] += 1
                    reasons["run: " + str(error).splitlines()[-1][:150]] += 1
                    continue
                if done.get("verified"):
                    counts["right as a program"] += 1
                elif "cannot be verified" in done.get("reason", "") or "no finite values" in done.get("reason", ""):
                    counts["cannot be verified"] += 1
                else:
                    wrong("run: " + done.get("reason", ""), "wrong as a program")
    for reason, count in reasons.most_common():
        print(f"refused {count}: {reason[:200]}")
    print(", ".join(f"{k} {v}" for k, v in counts.items()))
    raise SystemExit(1 if any("wrong" in k for k in counts) else 0)


if __name__ == "__main__":
    main()
