"""Networks of the sizes that people run, drawn: convolutional, dense layers, transformers, recurrent; images for images,
detectors, samples of speech from frames and letters from samples, TensorFlow's layout, images as tokens, diffusion, text."""

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


def silu(case, x):
    return case.node("Mul", [x, case.node("Sigmoid", [x])])


def block(case, x, channels, out, size=3, stride=1, groups=1, act=silu):
    y = onnx_networks.convolution(case, x, channels, out, size, stride, groups)
    return act(case, onnx_networks.batch_normalised(case, y, out) if case.integer(0, 1) else y)


def relu(case, x):
    return case.node("Relu", [x])


def line(case, x, channels, out, size, stride=1, dilation=1, groups=1):
    """A convolution along one dimension."""
    bound = 1.5 / math.sqrt(channels // groups * size)
    pad = dilation * (size - 1) // 2
    return case.node("Conv", [x, case.weight([out, channels // groups, size], -bound, bound), case.weight([out])],
                     kernel_shape=[size], strides=[stride], dilations=[dilation], group=groups, pads=[pad, pad])


def larger(case, x, channels, out):
    """An image of twice the rows and columns, of `out` channels."""
    kind = case.pick("taps of 2", "taps of 4", "nearest", "linear")
    if kind.startswith("taps"):
        size = int(kind[-1])
        bound = 1.5 / math.sqrt(channels * size * size / 4)
        return case.node("ConvTranspose", [x, case.weight([channels, out, size, size], -bound, bound), case.weight([out])],
                         kernel_shape=[size, size], strides=[2, 2], pads=[(size - 2) // 2] * 4)
    modes = {"nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
             "linear": {"mode": "linear", "coordinate_transformation_mode": case.pick("half_pixel", "align_corners")}}
    scales = case.constant(numpy.asarray([1, 1, 2, 2], dtype=numpy.float32))
    y = case.node("Resize", [x, "", scales], **modes[kind])
    return onnx_networks.convolution(case, y, channels, out, case.pick(1, 3)) if out != channels else y


def decoder(case):
    """An image for an image: made smaller, then larger, beside what it was."""
    size, channels = 16 * case.integer(4, 9), case.pick(12, 16, 24, 32)
    x, kept = case.input([1, case.pick(1, 3), size, size + 16 * case.integer(0, 3)]), []
    given = int(case.inputs[0].type.tensor_type.shape.dim[1].dim_value)
    x = block(case, x, given, channels, act=relu)
    for _ in range(case.integer(2, 3)):
        kept.append((x, channels))
        x = block(case, x, channels, 2 * channels, 3, 2, act=relu)
        x, channels = block(case, x, 2 * channels, 2 * channels, act=relu), 2 * channels
    joined = case.pick("Concat", "Add")
    for y, beside in reversed(kept):
        x = larger(case, x, channels, beside)
        x = case.node("Concat", [x, y], axis=1) if joined == "Concat" else case.node("Add", [x, y])
        x, channels = block(case, x, 2 * beside if joined == "Concat" else beside, beside, act=relu), beside
    case.output(case.node("Sigmoid", [onnx_networks.convolution(case, x, channels, case.integer(1, 6), 1)]))


def detector(case):
    """Halves of the channels through blocks, joined again; levels joined downwards; boxes of all of them."""
    size, channels = 32 * case.integer(4, 10), case.pick(12, 16, 24)
    x = block(case, case.input([1, 3, size, size]), 3, channels, 3, 2)
    levels = []

    def halves(x, channels, out):
        y = block(case, x, channels, out, 1)
        parts = case.node("Split", [y], outputs=2, axis=1)
        z, last = list(parts), parts[1]
        for _ in range(case.integer(1, 2)):
            y = block(case, block(case, last, out // 2, out // 2), out // 2, out // 2)
            last = case.node("Add", [last, y])
            z.append(last)
        return block(case, case.node("Concat", z, axis=1), out // 2 * len(z), out, 1)

    for _ in range(4):
        x, channels = block(case, x, channels, 2 * channels, 3, 2), 2 * channels
        x = halves(x, channels, channels)
        levels.append((x, channels))
    pools = [x]
    for _ in range(3):
        pools.append(case.node("MaxPool", [pools[-1]], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    x = block(case, case.node("Concat", pools, axis=1), 4 * channels, channels, 1)
    heads, outputs = [(x, channels)], case.integer(5, 24)
    for y, own in reversed(levels[1:-1]):
        scales = case.constant(numpy.asarray([1, 1, 2, 2], dtype=numpy.float32))
        up = case.node("Resize", [x, "", scales], mode="nearest", coordinate_transformation_mode="asymmetric",
                       nearest_mode="floor")
        x = halves(case.node("Concat", [up, y], axis=1), channels + own, own)
        channels = own
        heads.append((x, own))
    flat = case.integers([1, outputs, -1])
    found = [case.node("Reshape", [onnx_networks.convolution(case, block(case, y, c, c), c, outputs, 1), flat])
             for y, c in heads]
    case.output(case.node("Sigmoid", [case.node("Concat", found, axis=2)]))


def vocoder(case):
    """Frames for samples: transposed convolutions along a line, dilated ones after each."""
    channels, frames = case.pick(64, 96, 128), case.integer(12, 48)
    mels = case.pick(40, 80)
    x = line(case, case.input([1, mels, frames]), mels, channels, 7)
    for stride in (case.pick(4, 5, 8), case.pick(2, 4)):
        x = case.node("LeakyRelu", [x], alpha=0.1)
        size, out = 2 * stride, channels // 2
        bound = 1.5 / math.sqrt(channels * 2)
        x = case.node("ConvTranspose", [x, case.weight([channels, out, size], -bound, bound), case.weight([out])],
                      kernel_shape=[size], strides=[stride], pads=[stride // 2, stride - stride // 2])
        channels, sums = out, []
        for size in (3, case.pick(5, 7, 11)):
            y = x
            for dilation in (1, case.pick(3, 5)):
                z = line(case, case.node("LeakyRelu", [y], alpha=0.1), channels, channels, size, dilation=dilation)
                y = case.node("Add", [y, z])
            sums.append(y)
        x = case.node("Mul", [case.node("Add", sums), case.constant(numpy.float32(0.5))])
    case.output(case.node("Tanh", [line(case, case.node("LeakyRelu", [x]), channels, 1, 7)]))


def speech(case):
    """Samples or frames for letters: strided lines, then attention and a depthwise line over time."""
    heads, head = case.pick(2, 4), case.pick(32, 48)
    width, samples = heads * head, 160 * case.integer(20, 60)
    x = case.input([1, 1, samples])
    x = onnx_networks.gelu(case, line(case, x, 1, width, case.pick(10, 11), 5))
    x = onnx_networks.gelu(case, line(case, x, width, width, 3, 4))
    x = onnx_networks.gelu(case, line(case, x, width, width, case.pick(2, 3), 2))
    x = case.node("Transpose", [x], perm=[0, 2, 1])
    split, joined = case.integers([0, 0, heads, head]), case.integers([0, 0, width])
    scale = case.constant(numpy.float32(1 / math.sqrt(head)))
    for _ in range(case.integer(1, 2)):
        y = onnx_networks.normalised(case, x, width)
        q, k, v = (case.node("Transpose", [case.node("Reshape", [onnx_networks.dense(case, y, width, width), split])],
                             perm=order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = case.node("Softmax", [case.node("Mul", [case.node("MatMul", [q, k]), scale])], axis=-1)
        y = case.node("Reshape", [case.node("Transpose", [case.node("MatMul", [scores, v])], perm=[0, 2, 1, 3]), joined])
        x = case.node("Add", [x, onnx_networks.dense(case, y, width, width)])
        y = case.node("Transpose", [onnx_networks.normalised(case, x, width)], perm=[0, 2, 1])
        gate, of = case.node("Split", [line(case, y, width, 2 * width, 1)], outputs=2, axis=1)
        y = case.node("Mul", [of, case.node("Sigmoid", [gate])])
        y = line(case, y, width, width, case.pick(7, 15, 31), groups=width)
        y = line(case, silu(case, onnx_networks.batch_normalised(case, y, width)), width, width, 1)
        x = case.node("Add", [x, case.node("Transpose", [y], perm=[0, 2, 1])])
        y = silu(case, onnx_networks.dense(case, onnx_networks.normalised(case, x, width), width, 4 * width))
        x = case.node("Add", [x, onnx_networks.dense(case, y, 4 * width, width)])
    case.output(case.node("LogSoftmax", [onnx_networks.dense(case, x, width, case.integer(29, 200))], axis=-1))


def channels_last(case):
    """As TensorFlow's exporters write: images with channels last, moved before convolutions and after them."""
    size, channels = case.pick(64, 96, 97, 128), case.pick(16, 24, 32)
    first, last = {"perm": [0, 3, 1, 2]}, {"perm": [0, 2, 3, 1]}

    def clipped(x):
        return case.node("Clip", [x, case.constant(numpy.float32(0)), case.constant(numpy.float32(6))])

    x = case.node("Transpose", [case.input([1, size, size, 3])], **first)
    x = clipped(onnx_networks.convolution(case, x, 3, channels, case.pick(3, 7), 2))
    for _ in range(case.integer(2, 4)):
        out, stride = channels * case.pick(1, 2), case.pick(1, 2)
        y = clipped(onnx_networks.convolution(case, x, channels, channels, 3, stride, channels))
        x, channels = clipped(onnx_networks.convolution(case, y, channels, out, 1)), out
    x = case.node("Transpose", [x], **last)
    x = case.node("Add", [case.node("Mul", [x, case.weight([channels], 0.5, 1.5)]), case.weight([channels])])
    if case.integer(0, 1):
        case.output(onnx_networks.activation(case, onnx_networks.dense(case, x, channels, case.integer(4, 40))))
    else:
        x = case.node("ReduceMean", [x], axes=[1, 2], keepdims=0)
        case.output(case.node("Softmax", [onnx_networks.dense(case, x, channels, case.integer(10, 600))], axis=-1))


def windows_of_tokens(case):
    """Images as tokens: wide depthwise windows with dense layers, or attention within windows of the image."""
    side, cells = case.pick(7, 8), case.integer(2, 4)
    heads, head = case.pick(2, 3), case.pick(16, 32)
    width, size = heads * head, side * cells
    x = case.node("Conv", [case.input([1, 3, 4 * size, 4 * size]), case.weight([width, 3, 4, 4], -0.2, 0.2), case.weight([width])],
                  kernel_shape=[4, 4], strides=[4, 4])
    x = case.node("Transpose", [x], perm=[0, 2, 3, 1])

    def layers(x):
        y = onnx_networks.gelu(case, onnx_networks.dense(case, x, width, 4 * width))
        return onnx_networks.dense(case, y, 4 * width, width)

    for moved in (0, side // 2):
        if case.integer(0, 1):
            y = case.node("Transpose", [x], perm=[0, 3, 1, 2])
            y = onnx_networks.convolution(case, y, width, width, 7, groups=width)
            y = layers(onnx_networks.normalised(case, case.node("Transpose", [y], perm=[0, 2, 3, 1]), width))
            x = case.node("Add", [x, case.node("Mul", [y, case.weight([width], 0.5, 1.5)])])
            continue
        y = onnx_networks.normalised(case, x, width)

        def rolled(y, by):
            for axis in (1, 2):
                at = [case.integers([n]) for n in (0, by, size)]
                ax = case.integers([axis])
                y = case.node("Concat", [case.node("Slice", [y, at[1], at[2], ax]),
                                         case.node("Slice", [y, at[0], at[1], ax])], axis=axis)
            return y

        y = rolled(y, moved) if moved else y
        y = case.node("Reshape", [y, case.integers([cells, side, cells, side, width])])
        y = case.node("Reshape", [case.node("Transpose", [y], perm=[0, 2, 1, 3, 4]),
                                  case.integers([cells * cells, side * side, width])])
        split = case.integers([cells * cells, side * side, 3, heads, head])
        y = case.node("Transpose", [case.node("Reshape", [onnx_networks.dense(case, y, width, 3 * width), split])],
                      perm=[2, 0, 3, 1, 4])
        q, k, v = (case.node("Gather", [y, case.constant(numpy.int64(i))], axis=0) for i in range(3))
        q = case.node("Mul", [q, case.constant(numpy.float32(1 / math.sqrt(head)))])
        scores = case.node("MatMul", [q, case.node("Transpose", [k], perm=[0, 1, 3, 2])])
        scores = case.node("Softmax", [case.node("Add", [scores, case.weight([1, heads, side * side, side * side])])], axis=-1)
        y = case.node("Reshape", [case.node("Transpose", [case.node("MatMul", [scores, v])], perm=[0, 2, 1, 3]),
                                  case.integers([cells, cells, side, side, width])])
        y = case.node("Reshape", [case.node("Transpose", [y], perm=[0, 2, 1, 3, 4]), case.integers([1, size, size, width])])
        y = rolled(onnx_networks.dense(case, y, width, width), size - moved) if moved else onnx_networks.dense(case, y, width, width)
        x = case.node("Add", [x, y])
        x = case.node("Add", [x, layers(onnx_networks.normalised(case, x, width))])
    case.output(x)


def diffusion(case):
    """Blocks of an image with a step's embedding: normalised in groups, with attention over all of its points."""
    channels, size = case.pick(32, 48, 64), case.pick(8, 12, 16)
    x, step = case.input([1, 4, size, size]), case.input([1, 128])
    x = onnx_networks.convolution(case, x, 4, channels, 3)

    def in_groups(x, groups=8):
        flat = case.node("Reshape", [x, case.integers([1, groups, -1])])
        y = case.node("InstanceNormalization", [flat, case.constant(numpy.ones(groups, numpy.float32)),
                                                case.constant(numpy.zeros(groups, numpy.float32))])
        y = case.node("Reshape", [y, case.node("Shape", [x])])
        return case.node("Add", [case.node("Mul", [y, case.weight([1, channels, 1, 1], 0.5, 1.5)]), case.weight([1, channels, 1, 1])])

    def residual(x):
        y = onnx_networks.convolution(case, silu(case, in_groups(x)), channels, channels, 3)
        t = onnx_networks.dense(case, silu(case, step), 128, channels)
        y = case.node("Add", [y, case.node("Reshape", [t, case.integers([1, channels, 1, 1])])])
        return case.node("Add", [x, onnx_networks.convolution(case, silu(case, in_groups(y)), channels, channels, 3)])

    def attended(x):
        flat = case.node("Reshape", [in_groups(x), case.integers([1, channels, -1])])
        y = case.node("Transpose", [flat], perm=[0, 2, 1])
        q, k, v = (onnx_networks.dense(case, y, channels, channels) for _ in range(3))
        q = case.node("Mul", [q, case.constant(numpy.float32(1 / math.sqrt(channels)))])
        scores = case.node("Softmax", [case.node("MatMul", [q, case.node("Transpose", [k], perm=[0, 2, 1])])], axis=-1)
        y = case.node("Transpose", [onnx_networks.dense(case, case.node("MatMul", [scores, v]), channels, channels)], perm=[0, 2, 1])
        return case.node("Add", [x, case.node("Reshape", [y, case.node("Shape", [x])])])

    x = attended(residual(x))
    x = larger(case, residual(x), channels, channels)
    x = residual(x)
    case.output(onnx_networks.convolution(case, silu(case, in_groups(x)), channels, 4, 3))


def writer(case):
    """Tokens looked up, attention that sees no later ones, and a row of a long vocabulary."""
    heads, head, tokens = case.pick(2, 4, 6), case.pick(32, 64), case.integer(9, 130)
    width, words = heads * head, case.integer(1000, 6000)
    at = case.input([1, tokens], 7)
    at = case.node("Clip", [case.node("Cast", [at], to=1), case.constant(numpy.float32(0)), case.constant(numpy.float32(words - 1))])
    at = case.node("Cast", [at], to=7)
    table = case.weight([words, width], -0.5, 0.5)
    x = case.node("Add", [case.node("Gather", [table, at], axis=0), case.weight([tokens, width])])
    split, joined = case.integers([1, tokens, heads, head]), case.integers([1, tokens, width])
    hidden = case.constant(numpy.where(numpy.tri(tokens, dtype=bool), 0, -1e9).astype(numpy.float32)[None, None])
    scale = case.constant(numpy.float32(1 / math.sqrt(head)))
    for _ in range(case.integer(1, 2)):
        y = onnx_networks.normalised(case, x, width)
        parts = case.node("Split", [onnx_networks.dense(case, y, width, 3 * width)], outputs=3, axis=2)
        q, k, v = (case.node("Transpose", [case.node("Reshape", [y, split])], perm=order)
                   for y, order in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
        scores = case.node("Add", [case.node("Mul", [case.node("MatMul", [q, k]), scale]), hidden])
        y = case.node("MatMul", [case.node("Softmax", [scores], axis=-1), v])
        y = case.node("Reshape", [case.node("Transpose", [y], perm=[0, 2, 1, 3]), joined])
        x = case.node("Add", [x, onnx_networks.dense(case, y, width, width)])
        y = onnx_networks.dense(case, onnx_networks.normalised(case, x, width), width, 4 * width)
        x = case.node("Add", [x, onnx_networks.dense(case, onnx_networks.gelu(case, y), 4 * width, width)])
    case.output(case.node("MatMul", [onnx_networks.normalised(case, x, width), case.node("Transpose", [table], perm=[1, 0])]))


FAMILIES = [cnn, mlp, transformer, recurrent, decoder, detector, vocoder, speech, channels_last, windows_of_tokens,
            diffusion, writer]


def make(family, seed):
    """The seed's network of that family, an onnx model with weights."""
    case = Case(numpy.random.default_rng([seed, FAMILIES.index(family), 24]))
    family(case)
    return case.model()
