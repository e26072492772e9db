"""The onnx package's own tests of nodes, held against the import and the reference evaluator: prints what is
refused and what differs, by operator, then how many are refused by reason.

    PYTHONPATH=tests/python python3 tests/python/onnx_node_tests.py [--only Attention,LSTM] [--all] [--run 0.1 --seed 1]

Inputs keep the values that a test gives them. Where a node needs values before the run (a shape, axes, scales), whole
numbers are constants, and then all inputs but the first. --all also prints operators of which every test is taken.
--run: that share of the tests that are taken, drawn by the seed, is also run as `tilewright run` runs a file: planned,
compiled, verified, and compared with onnxruntime, on drawn inputs."""

import argparse
import collections
import json
import os
import random
import re
import sys
import tempfile
import warnings

import numpy
import onnx
from onnx import numpy_helper

import tilewright
from tilewright import _tilewright, reference


# What no workload of fixed shapes over numbers says, by operator.
OUTSIDE = {
    "random numbers": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike Dropout",
    "optimisers": "Adagrad Adam Gradient Momentum",
    "as many elements as values say": "NonZero NonMaxSuppression Unique Compress Range",
    "strings, sequences and maps": "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer LabelEncoder "
                                   "TreeEnsemble ArrayFeatureExtractor Binarizer ImageDecoder SplitToSequence "
                                   "SequenceInsert SequenceMap Optional OptionalGetElement OptionalHasElement",
    "bits of computed whole numbers": "BitwiseAnd BitwiseOr BitwiseXor BitCast",
}


def reason_of(op, why):
    """The kind of a refusal."""
    for reason, ops in OUTSIDE.items():
        if op in ops.split():
            return reason
    if re.search(r"elements, where|has no elements|without elements", why):
        return "tensors without elements"
    return f"{op}: {why.split(': ', 2)[-1]}"[:110]


def by_design(name):
    """docs/onnx.md says so: values are not quantised to floats of 8 or whole numbers of 4 bits, nor rounded to 16 bits between operators; an index that is computed
    counts from 0."""
    return re.search(r"quantizelinear|bf16|bfloat16|gather_negative", name)



def cases(only=None):
    """(name, operator, model, inputs, outputs) of tests whose values are arrays of numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        collected = collect_testcases(None)
    for case in collected:
        if case.model is None:
            continue
        ops = {n.op_type for n in case.model.graph.node}
        op = ops.pop() if len(ops) == 1 else "several"
        if only and op not in only:
            continue
        arrays = [[numpy.asarray(x) if not isinstance(x, (list, type(None))) else None for x in part] for part in case.data_sets[0]]
        if all(x is not None and x.dtype.kind in "fiub" for part in arrays for x in part):
            yield case.name, op, case.model, *arrays


def with_constants(model, inputs, all_but_first=False):
    """Whole numbers and truth values as initialisers, or all inputs but the first, and the inputs that are left."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    kept, values = [], []
    for i, (info, x) in enumerate(zip(model.graph.input, inputs)):
        if i > 0 if all_but_first else x.dtype.kind in "iub":
            out.graph.initializer.append(numpy_helper.from_array(x, info.name))
        else:
            kept.append(info)
            values.append(x)
    del out.graph.input[:]
    out.graph.input.extend(kept)
    return out, values


def held(model, inputs, outputs, folder):
    """"" where the import computes the outputs; else how it differs. Throws InputError where it is refused."""
    path = os.path.join(folder, "node.onnx")
    data = model.SerializeToString()
    with open(path, "wb") as file:
        file.write(data)
    made = json.loads(_tilewright.import_onnx(data, path, False))
    workload, names = made["workload"], made["names"]
    given = {names.get(i.name): (n, x) for n, (i, x) in enumerate(zip(model.graph.input, inputs))}
    for tensor in workload["tensors"]:
        if tensor["name"] in given:  # by a file: JSON has no infinities
            n, x = given[tensor["name"]]
            path = os.path.join(folder, f"input{n}")
            x.astype("<f8").tofile(path)
            tensor["values"] = f"f64 at 0 of {path}"
    values = reference.evaluate(workload)
    for info, want in zip(model.graph.output, outputs):
        if want.size == 0:
            continue
        got = values[names[info.name]]
        if got.size != want.size:
            return f"{info.name} has {got.size} elements, not {want.size}"
        if not numpy.allclose(got.reshape(want.shape), want.astype(float), rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"{info.name} is off by {numpy.abs(got.reshape(want.shape) - want.astype(float)).max():.3g}"
    return ""


def answer(model, inputs, outputs, ran=None):
    """("taken" | "differs" | "refused", why). `ran` counts what the model does as a program."""
    why = ""
    with tempfile.TemporaryDirectory() as folder:
        for attempt in (lambda: (model, inputs), lambda: with_constants(model, inputs),
                        lambda: with_constants(model, inputs, True)):
            try:
                off = held(*attempt(), outputs, folder)
            except tilewright.InputError as error:
                why = str(error).splitlines()[-1]
                continue
            if not off and ran is not None:  # drawn whole numbers are no indices, lengths or classes: those of the test are kept
                path = os.path.join(folder, "node.onnx")
                onnx.save(with_constants(*attempt())[0], path)
                off = program(path, ran)
            return ("differs", off) if off else ("taken", "")
    return "refused", why


def program(path, counts):
    """"" where the file runs as a program and onnxruntime agrees; else how it differs."""
    try:
        done = tilewright.run(path, machine="host", seconds=0, beside=sys.executable)
    except tilewright.InputError as error:
        counts["nothing to run"] += 1  # all outputs are constants, or have no elements
        return "" if "outputs" in str(error) else f"run: {str(error).splitlines()[-1]}"
    if not done.get("verified"):
        why = done.get("reason", "")
        if "cannot be verified" in why or "no finite values" in why:
            counts["no numbers on drawn inputs"] += 1
            return ""
        counts["wrong"] += 1
        return f"run: {why}"
    beside = done.get("onnxruntime") or {}
    counts["right, as in onnxruntime" if beside.get("agrees") else "right, onnxruntime does not run it"] += 1
    return ""


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--only")
    ask.add_argument("--all", action="store_true")
    ask.add_argument("--run", type=float, default=0)
    ask.add_argument("--seed", type=int, default=1)
    how = ask.parse_args()
    draw, programs = random.Random(how.seed), collections.Counter()
    by_op, counts, reasons = collections.defaultdict(collections.Counter), collections.Counter(), collections.Counter()
    for name, op, model, inputs, outputs in cases(set(how.only.split(",")) if how.only else None):
        what, why = answer(model, inputs, outputs, programs if draw.random() < how.run else None)
        if what == "differs" and by_design(name):
            what = "differs as documented"
        if what == "refused":
            reasons[reason_of(op, why)] += 1
        by_op[op][what] += 1
        counts[what] += 1
        if what != "taken":
            print(f"{name}: {what}: {why[:160]}")
    for op, its in sorted(by_op.items()):
        if how.all or set(its) != {"taken"}:
            print(f"{op}: {', '.join(f'{n} {what}' for what, n in sorted(its.items()))}")
    for reason, n in reasons.most_common():
        print(f"refused {n}: {reason}")
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    if how.run:
        print("as programs: " + ", ".join(f"{n} {what}" for what, n in sorted(programs.items())))


if __name__ == "__main__":
    main()
