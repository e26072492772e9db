"""Small drawn networks with weights: convolutional, of dense layers, transformer blocks, recurrent."""

import math

import numpy
from onnx_builder import Case


def dense(case, x, rows, columns, bias=True):
    w = case.weight([rows, columns], -1 / math.sqrt(rows), 1 / math.sqrt(rows))
    y = case.node("MatMul", [x, w])
    return case.node("Add", [y, case.weight([columns])]) if bias else y


def activation(case, x):
    kind = case.pick("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Clip")
    if kind == "Clip":
        return case.node("Clip", [x, case.constant(numpy.float32(-0.5)), case.constant(numpy.float32(0.75))])
    return case.node(kind, [x])


def gelu(case, x):
    scaled = case.node("Div", [x, case.constant(numpy.float32(math.sqrt(2)))])
    grown = case.node("Add", [case.node("Erf", [scaled]), case.constant(numpy.float32(1))])
    return case.node("Mul", [case.node("Mul", [x, grown]), case.constant(numpy.float32(0.5))])


def normalised(case, x, width):
    return case.node("LayerNormalization", [x, case.weight([width], 0.5, 1.5), case.weight([width])], axis=-1)


def batch_normalised(case, x, channels):
    return case.node("BatchNormalization",
                     [x, case.weight([channels], 0.5, 1.5), case.weight([channels]),
                      case.weight([channels], -0.3, 0.3), case.weight([channels], 0.5, 1.5)])


def convolution(case, x, channels, out, size, stride=1, groups=1):
    window = channels // groups * size * size
    w = case.weight([out, channels // groups, size, size], -1.5 / math.sqrt(window), 1.5 / math.sqrt(window))
    inputs = [x, w, case.weight([out])] if case.integer(0, 1) else [x, w]
    return case.node("Conv", inputs, kernel_shape=[size, size], strides=[stride, stride],
                     pads=[size // 2] * 4, group=groups)


def cnn(case):
    channels, size = case.pick(4, 6, 8), case.integer(9, 14)
    x = activation(case, convolution(case, case.input([1, 3, size, size]), 3, channels, 3, case.pick(1, 2)))
    for _ in range(case.integer(1, 2)):
        kind = case.pick("residual", "branches", "depthwise")
        if kind == "residual":
            y = case.node("Relu", [batch_normalised(case, convolution(case, x, channels, channels, 3), channels)])
            x = case.node("Relu", [case.node("Add", [x, convolution(case, y, channels, channels, 1)])])
        elif kind == "branches":
            half = channels // 2
            a = convolution(case, x, channels, half, 1)
            b = activation(case, convolution(case, x, channels, channels - half, 3))
            x = case.node("Concat", [a, b], axis=1)
        else:
            y = convolution(case, x, channels, channels, 3, groups=channels)
            x = activation(case, convolution(case, y, channels, channels, 1))
    if case.integer(0, 1):
        x = case.node(case.pick("MaxPool", "AveragePool"), [x], kernel_shape=[2, 2], strides=[2, 2])
    x = case.node("Flatten", [case.node("GlobalAveragePool", [x])])
    w = case.weight([7, channels])
    x = case.node("Gemm", [x, w, case.weight([7])], transB=1)
    case.output(case.node("Softmax", [x], axis=-1))


def mlp(case):
    rows, width = case.integer(1, 5), case.integer(5, 40)
    x = case.input([rows, width])
    for _ in range(case.integer(1, 3)):
        out = case.integer(5, 40)
        x = activation(case, dense(case, x, width, out, bool(case.integer(0, 1))))
        width = out
        if case.integer(0, 1):
            x = normalised(case, x, width)
    case.output(x)


def transformer(case):
    heads, head, tokens = case.integer(1, 3), case.pick(4, 6, 8), case.integer(3, 9)
    width = heads * head
    x = case.input([1, tokens, width])
    split = case.integers([1, tokens, heads, head])

    def part(transposed):
        y = case.node("Reshape", [dense(case, x, width, width), split])
        return case.node("Transpose", [y], perm=transposed)

    q, k, v = part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])
    scores = case.node("Mul", [case.node("MatMul", [q, k]), case.constant(numpy.float32(1 / math.sqrt(head)))])
    mixed = case.node("Transpose", [case.node("MatMul", [case.node("Softmax", [scores], axis=-1), v])],
                      perm=[0, 2, 1, 3])
    y = dense(case, case.node("Reshape", [mixed, case.integers([1, tokens, width])]), width, width)
    x = normalised(case, case.node("Add", [x, y]), width)
    inner = case.integer(10, 40)
    y = dense(case, gelu(case, dense(case, x, width, inner)), inner, width)
    case.output(normalised(case, case.node("Add", [x, y]), width))


def recurrent(case):
    steps, width, hidden = case.integer(2, 4), case.integer(3, 8), case.integer(3, 8)
    kind = case.pick("LSTM", "GRU")
    gates, directions = (4, 1) if kind == "LSTM" else (3, 1)
    x = case.input([steps, 1, width])
    w, r = case.weight([directions, gates * hidden, width]), case.weight([directions, gates * hidden, hidden])
    b = case.weight([directions, 2 * gates * hidden])
    y = case.node(kind, [x, w, r, b], outputs=2, hidden_size=hidden)[0]
    y = case.node("Reshape", [y, case.integers([steps, hidden])])
    case.output(case.node("Softmax", [dense(case, y, hidden, 5)], axis=-1))


FAMILIES = [cnn, mlp, transformer, recurrent]


def make(family, seed):
    case = Case(numpy.random.default_rng([seed, FAMILIES.index(family)]))
    family(case)
    return case.model()
