"""Models of every family with what they say changed: attributes, shapes, inputs, types, names of operators, values of
constants. Each must be taken, or refused by an InputError; prints how many were, and what else came.

    PYTHONPATH=tests/python python3 tests/python/onnx_mutations.py [--count 300] [--seed 1] [--keep FOLDER]

With --keep every model is written there, too: build/tilewright or out/fuzz/tests/fuzz/fuzz_onnx reads them."""

import argparse
import collections
import pathlib
import random
import tempfile

import numpy
import onnx
from onnx import numpy_helper

import onnx_cases
import onnx_networks
import onnx_version_cases
import tilewright
from tilewright import _tilewright

NUMBERS = (0, 1, -1, 2, 3, 5, 7, -2, 64, 1 << 20, -(1 << 31), 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))


def graphs(graph):
    """It, and those within its nodes; each has nodes."""
    inner = (a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)
    return [graph] + [g for i in inner if i.node for g in graphs(i)]


def changed(model, draw, ops):
    """One thing in it."""
    graph = draw.choice(graphs(model.graph))
    kind = draw.randrange(9)
    node = draw.choice(graph.node)
    if kind == 0 and node.attribute:
        a = draw.choice(node.attribute)
        if a.ints:
            a.ints[draw.randrange(len(a.ints))] = draw.choice(NUMBERS)
        elif a.type == onnx.AttributeProto.INT:
            a.i = draw.choice(NUMBERS)
        elif a.type == onnx.AttributeProto.FLOAT:
            a.f = draw.choice(FLOATS)
        elif a.type == onnx.AttributeProto.STRING:
            a.s = draw.choice([b"", b"linear", b"nearest", b"cubic", b"add", b"none", b"reflect", b"\xff"])
    elif kind == 1 and node.attribute:
        del node.attribute[draw.randrange(len(node.attribute))]
    elif kind == 2 and node.input:
        i = draw.randrange(len(node.input))
        names = [v.name for v in graph.input] + [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output]
        node.input[i] = draw.choice(names + [""])
    elif kind == 3 and node.input:
        del node.input[draw.randrange(len(node.input))]
    elif kind == 4 and graph.input:
        shape = draw.choice(graph.input).type.tensor_type.shape
        if shape.dim:
            shape.dim[draw.randrange(len(shape.dim))].dim_value = draw.choice([0, 1, 2, 3, 5, 7, 1 << 20, 1 << 40])
    elif kind == 5 and graph.input:
        draw.choice(graph.input).type.tensor_type.elem_type = draw.choice([1, 2, 3, 6, 7, 8, 9, 10, 11, 16, 99])
    elif kind == 6:
        node.op_type = draw.choice(ops)
    elif kind == 7:
        model.opset_import[0].version = draw.choice([1, 6, 7, 9, 10, 11, 13, 18, 20, 23, 24, 99])
    elif graph.initializer:
        tensor = draw.choice(graph.initializer)
        values = numpy_helper.to_array(tensor).copy()
        if values.size and values.dtype.kind in "if":
            flat = values.reshape(-1)
            flat[draw.randrange(flat.size)] = draw.choice(NUMBERS[:9] if values.dtype.kind == "i" else FLOATS)
            tensor.CopyFrom(numpy_helper.from_array(values.reshape(draw.choice([values.shape, (-1,)])), tensor.name))


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--count", type=int, default=300)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--keep", type=pathlib.Path, help="a folder for the models")
    how = ask.parse_args()
    if how.keep:
        how.keep.mkdir(parents=True, exist_ok=True)
    draw, counts = random.Random(how.seed), collections.Counter()
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name) / "mutated.onnx"  # where values of constants are read from
    bases = [onnx_cases.make(f, s) for f in onnx_cases.FAMILIES for s in range(4)]
    bases += [onnx_networks.make(f, 1) for f in onnx_networks.FAMILIES]
    bases += [onnx_version_cases.make(onnx_version_cases.turns, s, 17) for s in range(12)]
    ops = sorted({n.op_type for m in bases for n in m.graph.node})
    for i in range(how.count):
        model = onnx.ModelProto()
        model.CopyFrom(draw.choice(bases))
        with numpy.errstate(all="ignore"):
            for _ in range(draw.randint(1, 3)):
                changed(model, draw, ops)
        if how.keep:
            (how.keep / f"{how.seed}-{i}.onnx").write_bytes(model.SerializeToString())
        try:
            path.write_bytes(model.SerializeToString())
            _tilewright.import_onnx(path.read_bytes(), str(path), i % 4 == 0)
            counts["taken"] += 1
        except tilewright.InputError as error:
            lines = str(error).splitlines()
            named = "cannot be imported" in lines[0]
            counts["nodes named" if named else "one line" if len(lines) == 1 else "more lines"] += 1
            if not named and len(lines) > 1:
                print(f"seed {how.seed}, case {i}: {lines}")
        except Exception as error:
            counts["failed"] += 1
            ops_of = ", ".join(n.op_type for n in model.graph.node)
            print(f"seed {how.seed}, case {i} ({ops_of}): {type(error).__name__}: {error}")
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
