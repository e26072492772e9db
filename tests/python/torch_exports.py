"""Modules that a seed draws, exported by PyTorch's own exporters to ONNX files, imported and evaluated, beside onnxruntime
and eager on the same inputs. Prints what is refused and what differs, then counts.

    PYTHONPATH=tests/python python3 tests/python/torch_exports.py [--exporter dynamo,script] [--seeds 0:20] [--library]
        [--only NAME,...] [--run]

--library: architectures of torchvision and transformers, instead of drawn layers. --run: the file is also planned,
compiled and verified (tilewright run)."""

import argparse
import collections
import contextlib
import io
import json
import logging
import os
import tempfile
import warnings

import numpy
import torch

import library_modules
import tilewright
import torch_modules
from tilewright import _tilewright, reference


def flat(y):
    return [y] if isinstance(y, torch.Tensor) else [z for part in y for z in flat(part)]


def drawn(seeds):
    for seed in seeds:
        module = torch_modules.Drawn(seed).eval()
        try:
            with torch.no_grad():
                module(*module.inputs)
        except RuntimeError:
            continue  # the drawn layers do not fit together
        yield f"drawn {seed}", module, module.inputs


def library(seeds, only):
    for name in sorted(library_modules.families()):
        for seed in seeds:
            if not only or name in only:
                module, inputs = library_modules.drawn(name, seed)
                yield f"{name} {seed}", module.eval(), inputs


def exported(module, inputs, path, exporter):
    """"" or why the exporter makes no file."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(module, inputs, path, dynamo=exporter == "dynamo", opset_version=18)
        except Exception as error:  # the exporter's own limits
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:100]}"
    return ""


def off(got, want):
    """Of the largest element."""
    got, want = numpy.asarray(got, float).reshape(-1), numpy.asarray(want, float).reshape(-1)
    if got.size != want.size:
        return float("inf")
    finite = numpy.isfinite(want)
    if not (numpy.isfinite(got) == finite).all():
        return float("inf")
    return float(numpy.abs(got - want)[finite].max(initial=0) / max(numpy.abs(want[finite]).max(initial=0), 1e-3))


def answer(path, inputs, module, run):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), flat(inputs))}
    theirs = session.run(None, feed)
    try:
        with open(path, "rb") as file:
            made = json.loads(_tilewright.import_onnx(file.read(), path, False))
    except tilewright.InputError as error:
        return "refused", " | ".join(str(error).splitlines()[1:4]) or str(error)
    names, workload = made["names"], made["workload"]
    for tensor in workload["tensors"]:
        for name, x in feed.items():
            if names.get(name) == tensor["name"]:
                tensor["values"] = x.astype(float).reshape(-1).tolist()
    values = reference.evaluate(workload)
    with torch.no_grad():
        eager = [y.numpy() for y in flat(module(*inputs))]
    for output, want, right in zip(session.get_outputs(), theirs, eager):
        got = values[names[output.name]]
        if min(off(got, want), off(got, right)) > 1e-3:
            return "differs", f"{output.name}: {off(got, want):.2g} from onnxruntime, {off(got, right):.2g} from eager"
    if run:
        done = tilewright.run(path, machine="host", seconds=0.01)
        if not done.get("verified"):
            return "differs", "as a program"
    return "right", ""


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--exporter", default="dynamo,script")
    ask.add_argument("--seeds", default="0:20")
    ask.add_argument("--library", action="store_true")
    ask.add_argument("--only")
    ask.add_argument("--run", action="store_true")
    how = ask.parse_args()
    logging.disable(logging.CRITICAL)
    first, last = map(int, how.seeds.split(":"))
    only = set(how.only.split(",")) if how.only else None
    counts = {e: collections.Counter() for e in how.exporter.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        for name, module, inputs in library(range(first, last), only) if how.library else drawn(range(first, last)):
            for exporter, count in counts.items():
                path = os.path.join(folder, "model.onnx")
                why = exported(module, inputs, path, exporter)
                what = "not exported" if why else ""
                if not why:
                    try:
                        what, why = answer(path, inputs, module, how.run)
                    except Exception as error:
                        what, why = "failed", f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                count[what] += 1
                if what != "right":
                    print(f"{name}, {exporter}: {what}: {why}", flush=True)
    for exporter, count in counts.items():
        print(f"{exporter}: " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())))


if __name__ == "__main__":
    main()
