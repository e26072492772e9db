"""Models of every family with what they say changed: attributes, shapes, inputs, types, names of operators, values of
constants, and how the parts fit: names twice, cycles, orders, ranks, dims that are not their data's. Each must be taken, or
refused by an InputError; prints how many were, and what else came.

    PYTHONPATH=tests/python python3 tests/python/onnx_mutations.py [--count 300] [--seed 1] [--keep FOLDER]
        [--tilewright build/tilewright [--verb import] [--processor 10] [--memory 1.0]]

With --keep every model is written there, too (with --tilewright those that are not right): build/tilewright or
out/fuzz/tests/fuzz/fuzz_onnx reads them. With --tilewright each file is given to that command in a process of its own, a fifth of them cut off or with other bytes too. It has --processor
seconds and --memory GiB (0: as much as there is, as sanitizers need), and must end with status 0, with 2 and one line (of `import`, a
line for each node), or with 3 where there is no plan, but never with kernels that no compiler takes."""

import argparse
import collections
import os
import pathlib
import random
import resource
import subprocess
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
    kind = draw.randrange(9 + len(STRUCTURE))
    node = draw.choice(graph.node)
    if kind >= 9:
        return STRUCTURE[kind - 9](graph, node, draw)
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


def names_of(graph):
    return [v.name for v in graph.input] + [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output]


def name_twice(graph, node, draw):
    if node.output:
        node.output[draw.randrange(len(node.output))] = draw.choice(names_of(graph))


def node_twice(graph, node, draw):
    graph.node.append(node)


def cycle(graph, node, draw):
    if node.input and node.output:
        node.input[draw.randrange(len(node.input))] = draw.choice(list(node.output) + list(draw.choice(graph.node).output))


def order(graph, node, draw):
    nodes = list(graph.node)
    draw.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def rank(graph, node, draw):
    if not graph.input:
        return
    tensor = draw.choice(graph.input).type.tensor_type
    for _ in range(draw.randint(1, 3)):
        dims = tensor.shape.dim
        how = draw.randrange(4)
        if how == 0 and dims:
            del dims[draw.randrange(len(dims))]
        elif how == 1:
            dims.add().dim_value = draw.choice([0, 1, 2, 1 << 20, -1])
        elif how == 2:
            dims.add().dim_param = draw.choice(["n", "", "batch", "n"])
        else:
            tensor.ClearField("shape")


def long_dims(graph, node, draw):
    """Sizes that an image or a sequence has by mistake."""
    for value in graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if draw.random() < .4:
                dim.dim_value = draw.choice([1 << 14, 1 << 18, 1 << 21, 1 << 24, 1 << 27, 1 << 31, 1 << 36])


def long_constants(graph, node, draw):
    """All whole numbers of a constant, which may be a shape, pads or repeats."""
    whole = [t for t in graph.initializer if t.data_type in (6, 7)]
    if whole:
        tensor = draw.choice(whole)
        values = numpy_helper.to_array(tensor)
        large = [1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, (1 << 31) - 1]
        new = numpy.asarray([draw.choice([v, draw.choice(large)]) for v in values.reshape(-1).tolist()], values.dtype)
        tensor.CopyFrom(numpy_helper.from_array(new.reshape(values.shape), tensor.name))


def dims_of_constant(graph, node, draw):
    if graph.initializer:
        dims = draw.choice(graph.initializer).dims
        if dims and draw.random() < .6:
            dims[draw.randrange(len(dims))] = draw.choice(NUMBERS)
        else:
            dims.append(draw.choice(NUMBERS))


def type_of_constant(graph, node, draw):
    if graph.initializer:
        draw.choice(graph.initializer).data_type = draw.randrange(0, 26)


def empty_constant(graph, node, draw):
    if graph.initializer:
        tensor = draw.choice(graph.initializer)
        kind = tensor.data_type if tensor.data_type in (1, 6, 7, 9) else 1
        shape = draw.choice([[0], [], [0, 3], [1], [2, 0]])
        tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, kind, shape, [1] * int(numpy.prod(shape))))


def data_of_constant(graph, node, draw):
    if graph.initializer:
        tensor = draw.choice(graph.initializer)
        tensor.raw_data = draw.choice([tensor.raw_data[:-1], tensor.raw_data + b"\0\0\0\0", b"", b"\xff" * len(tensor.raw_data)])


def outside(graph, node, draw):
    if graph.initializer:
        tensor = draw.choice(graph.initializer)
        tensor.data_location = 1
        for key, value in (("location", draw.choice(["../../etc/passwd", "/etc/passwd", "none.bin", "", "."])),
                           ("offset", draw.choice(["0", "-1", "x", str(1 << 62)])), ("length", draw.choice(["4", "-4", "1e9", str(1 << 63)]))):
            if draw.random() < .8:
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value


def outputs(graph, node, draw):
    how = draw.randrange(4)
    if how == 0:
        graph.output.add().name = draw.choice(["nowhere", "", *names_of(graph)])
    elif how == 1 and graph.output:
        graph.output.extend([graph.output[0]])
    elif how == 2 and graph.output:
        dims = draw.choice(graph.output).type.tensor_type.shape.dim
        dims.add().dim_value = draw.choice(NUMBERS)
    else:
        del graph.output[:]


def length_of_attribute(graph, node, draw):
    lists = [a for a in node.attribute if a.ints]
    if lists:
        a = draw.choice(lists)
        if draw.random() < .5:
            a.ints.extend([draw.choice(NUMBERS)] * draw.choice([1, 1, 40]))
        else:
            del a.ints[draw.randrange(len(a.ints)):]


def type_of_attribute(graph, node, draw):
    if node.attribute:
        i = draw.randrange(len(node.attribute))
        name = node.attribute[i].name
        node.attribute[i].CopyFrom(onnx.helper.make_attribute(name, draw.choice([1, 1.5, "x", [1, 2], [0.5], ["a"], onnx.helper.make_tensor(
            "t", 1, [2], [1, 2])])))


def more_attributes(graph, node, draw):
    name = draw.choice(["axis", "group", "strides", "pads", "dilations", "kernel_shape", "auto_pad", "keepdims", "axes", "mode", "to",
                        "alpha", "epsilon", "num_heads", "hidden_size", "direction", "ceil_mode", "output_shape", "noop_with_empty_axes"])
    value = draw.choice([*NUMBERS, *FLOATS[:4], "SAME_UPPER", [0, 0], [-1, 1], [2, 2], [1 << 20] * 2, [1 << 40] * 2])
    node.attribute.append(onnx.helper.make_attribute(name, value))


def domain(graph, node, draw):
    node.domain = draw.choice(["", "ai.onnx", "com.microsoft", "ai.onnx.ml", "nobody's"])


def number_of_outputs(graph, node, draw):
    if draw.random() < .5:
        node.output.append(draw.choice(["more", ""]))
    elif node.output:
        del node.output[draw.randrange(len(node.output)):]


def more_inputs(graph, node, draw):
    node.input.extend([draw.choice(names_of(graph) + [""])] * draw.choice([1, 1, 2, 30]))


STRUCTURE = [name_twice, node_twice, cycle, order, rank, long_dims, long_dims, long_constants, long_constants, dims_of_constant,
             type_of_constant, empty_constant, data_of_constant, outside, outputs, length_of_attribute, type_of_attribute,
             more_attributes, domain, number_of_outputs, more_inputs]


def other_bytes(data, draw):
    """The file cut off, or with other bytes."""
    data = bytearray(data)
    if draw.random() < .4:
        return bytes(data[:draw.randrange(len(data) + 1)])
    for _ in range(draw.choice([1, 2, 8])):
        at = draw.randrange(len(data))
        how = draw.randrange(3)
        if how == 0:
            data[at] = draw.randrange(256)
        elif how == 1:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 4)))
        else:
            del data[at:at + draw.randint(1, 4)]
    return bytes(data)


def command(how, path):
    """(kind of the answer, what is wrong with it or "")"""
    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (how.processor, how.processor + 1))
        if how.memory:
            # What is mapped is more than what is used.
            resource.setrlimit(resource.RLIMIT_AS, (int((how.memory + 2) * 2**30),) * 2)
    words = how.verb.split()
    with subprocess.Popen([how.tilewright, words[0], path, *words[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          preexec_fn=limits) as process:
        said = process.stderr.read().decode(errors="replace")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    lines, seconds, gib = said.strip().splitlines(), used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    last = lines[-1][:300] if lines else ""
    if process.returncode not in (0, 2, 3) or "cannot be built" in said:
        return "failed", f"status {process.returncode}: {last}"
    if "ERROR: AddressSanitizer" in said or "runtime error" in said or "internal" in said or "more memory than there is" in said:
        return "failed", last
    if how.memory and gib > how.memory:
        return "failed", f"{gib:.2f} GiB: {last}"
    if seconds > how.processor:
        return "failed", f"{seconds:.0f} s: {last}"
    if process.returncode == 0:
        return "taken", ""
    if process.returncode == 3:
        return "no answer", ""
    named = bool(lines) and "cannot be imported" in lines[0]
    if len(lines) != 1 and not named:
        return "more lines", f"{len(lines)} lines: {' / '.join(lines)[:300]}"
    return "nodes named" if named else "one line", ""


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--count", type=int, default=300)
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--keep", type=pathlib.Path, help="a folder for the models")
    ask.add_argument("--tilewright", help="the command that each file is given to")
    ask.add_argument("--verb", default="import", help="of the command, with its options")
    ask.add_argument("--processor", type=int, default=10, help="seconds of a process")
    ask.add_argument("--memory", type=float, default=1, help="GiB of a process")
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
                try:
                    changed(model, draw, ops)
                except (IndexError, KeyError, OSError, TypeError, ValueError, onnx.checker.ValidationError):
                    pass  # what an earlier change has broken
        if how.keep and not how.tilewright:
            (how.keep / f"{how.seed}-{i}.onnx").write_bytes(model.SerializeToString())
        data = model.SerializeToString()
        if how.tilewright:
            path.write_bytes(other_bytes(data, draw) if draw.random() < .2 else data)
            kind, why = command(how, str(path))
            counts[kind] += 1
            if why:
                print(f"seed {how.seed}, case {i} ({', '.join(n.op_type for n in model.graph.node)}): {why}", flush=True)
                if how.keep:
                    (how.keep / f"{how.seed}-{i}.onnx").write_bytes(path.read_bytes())
            continue
        try:
            path.write_bytes(data)
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
