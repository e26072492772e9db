"""Networks of the sizes that people run, drawn: convolutional, dense layers, transformers, recurrent."""

import math
import pathlib
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "python"))
import onnx_networks  # noqa: E402
from onnx_builder import Case  # noqa: E402


def cnn(case):
    """Residual, grouped, depthwise (with squeeze and excitation) and branching blocks."""
    size, channels = case.pick(56, 64, 80, 97, 112), case.pick(16, 24, 32, 40)
    x = case.input([1, 3, size, size])
    x = onnx_networks.activation(case, onnx_networks.convolution(case, x, 3, channels, 3, 2))
    for stage in range(case.integer(2, 4)):
        if stage:
            out = channels * 2
            x = case.node("Relu", [onnx_networks.convolution(case, x, channels, out, 3, 2)])
            channels = out
        for _ in range(case.integer(1, 3)):
            kind = case.pick("residual", "bottleneck", "grouped", "depthwise", "branches")
            if kind == "residual":
                y = onnx_networks.convolution(case, x, channels, channels, 3)
                y = case.node("Relu", [onnx_networks.batch_normalised(case, y, channels)])
                y = onnx_networks.convolution(case, y, channels, channels, 3)
            elif kind == "bottleneck":
                y = case.node("Relu", [onnx_networks.convolution(case, x, channels, channels // 2, 1)])
                y = case.node("Relu", [onnx_networks.convolution(case, y, channels // 2, channels // 2, 3)])
                y = onnx_networks.convolution(case, y, channels // 2, channels, 1)
            elif kind == "grouped":
                y = onnx_networks.convolution(case, x, channels, channels, 3, groups=case.pick(2, 4, 8))
            elif kind == "depthwise":
                y = case.node("Relu", [onnx_networks.convolution(case, x, channels, 2 * channels, 1)])
                y = onnx_networks.convolution(case, y, 2 * channels, 2 * channels, case.pick(3, 5),
                                              groups=2 * channels)
                y = case.node("HardSwish", [y])
                s = case.node("Relu", [onnx_networks.convolution(
                    case, case.node("GlobalAveragePool", [y]), 2 * channels, channels // 2, 1)])
                s = case.node("Sigmoid", [onnx_networks.convolution(case, s, channels // 2, 2 * channels, 1)])
                y = onnx_networks.convolution(case, case.node("Mul", [y, s]), 2 * channels, channels, 1)
            else:
                a = onnx_networks.convolution(case, x, channels, channels // 2, 1)
                b = case.node("MaxPool", [x], kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
                b = onnx_networks.convolution(case, b, channels, channels - channels // 2, 1)
                y = case.node("Concat", [a, b], axis=1)
            x = case.node("Relu", [case.node("Add", [x, y])])
    x = case.node("Flatten", [case.node("GlobalAveragePool", [x])])
    case.output(case.node("Softmax", [onnx_networks.dense(case, x, channels, case.integer(10, 1000))], axis=-1))


def mlp(case):
    rows, width = case.pick(1, 1, 4, 17, 64, 128), case.integer(64, 1024)
    x = case.input([rows, width])
    for _ in range(case.integer(2, 5)):
        out = case.integer(64, 1024)
        x = onnx_networks.activation(case, onnx_networks.dense(case, x, width, out, bool(case.integer(0, 1))))
        width = out
        if case.integer(0, 1):
            x = onnx_networks.normalised(case, x, width)
    case.output(x)


def transformer(case):
    heads, head, tokens = case.pick(2, 4, 6, 8), case.pick(32, 48, 64), case.integer(16, 200)
    width, inner = heads * head, heads * head * case.pick(2, 4)
    x = case.input([1, tokens, width])
    split = case.integers([1, tokens, heads, head])
    joined = case.integers([1, tokens, width])
    for _ in range(case.integer(1, 2)):
        def part(order, x=x):
            y = case.node("Reshape", [onnx_networks.dense(case, x, width, width), split])
            return case.node("Transpose", [y], perm=order)

        q, k, v = part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])
        scale = case.constant(numpy.float32(1 / math.sqrt(head)))
        scores = case.node("Mul", [case.node("MatMul", [q, k]), scale])
        mixed = case.node("MatMul", [case.node("Softmax", [scores], axis=-1), v])
        mixed = case.node("Reshape", [case.node("Transpose", [mixed], perm=[0, 2, 1, 3]), joined])
        y = onnx_networks.dense(case, mixed, width, width)
        x = onnx_networks.normalised(case, case.node("Add", [x, y]), width)
        y = onnx_networks.gelu(case, onnx_networks.dense(case, x, width, inner))
        y = onnx_networks.dense(case, y, inner, width)
        x = onnx_networks.normalised(case, case.node("Add", [x, y]), width)
    case.output(x)


def recurrent(case):
    steps, width, hidden = case.integer(4, 24), case.integer(32, 200), case.integer(32, 200)
    kind = case.pick("LSTM", "GRU")
    gates = 4 if kind == "LSTM" else 3
    bound = 1 / math.sqrt(hidden)
    x = case.input([steps, 1, width])
    inputs = [x, case.weight([1, gates * hidden, width], -bound, bound),
              case.weight([1, gates * hidden, hidden], -bound, bound), case.weight([1, 2 * gates * hidden])]
    y = case.node(kind, inputs, outputs=2, hidden_size=hidden)[0]
    y = case.node("Reshape", [y, case.integers([steps, hidden])])
    case.output(case.node("Softmax", [onnx_networks.dense(case, y, hidden, case.integer(5, 100))], axis=-1))


FAMILIES = [cnn, mlp, transformer, recurrent]


def make(family, seed):
    """The seed's network of that family, an onnx model with weights."""
    case = Case(numpy.random.default_rng([seed, FAMILIES.index(family), 24]))
    family(case)
    return case.model()
