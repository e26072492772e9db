"""Small ONNX models, an operator each, of random shapes and attributes: what the import is held against."""

import numpy
from onnx import TensorProto, helper

import onnx_fused_cases
import onnx_quantised_cases
import onnx_region_cases
import onnx_value_cases
from onnx_builder import Case


def broadcast(case, shape):
    """A shape that broadcasts to it."""
    out = [1 if case.integer(0, 3) == 0 else d for d in shape]
    return out[case.integer(0, len(out)):]


def unary(case):
    op = case.pick("Relu", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Erf",
                   "Softplus", "Softsign", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Celu", "Mish",
                   "ThresholdedRelu", "Sign", "Identity", "Dropout", "Asin", "Acos", "Atan")
    case.opset = 18 if op == "Mish" else case.opset
    x = case.input(case.shape(case.integer(0, 4)))
    if op in ("Log", "Sqrt", "Reciprocal"):
        x = case.positive(x)
    attributes = {}
    if op in ("LeakyRelu", "Elu", "Celu", "HardSigmoid", "ThresholdedRelu") and case.integer(0, 1):
        attributes["alpha"] = float(case.rng.uniform(0.1, 0.8))
    case.output(case.node(op, [x], **attributes))


def gelu(case):
    case.opset = 20
    case.output(case.node("Gelu", [case.input(case.shape(2))], approximate=case.pick("none", "tanh")))


def binary(case):
    op = case.pick("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mean", "Sum", "PRelu")
    shape = case.shape(case.integer(1, 4))
    small = broadcast(case, shape)
    x, y = case.input(shape), case.input(small) if case.integer(0, 1) else case.weight(small)
    if op in ("Div", "Pow"):
        x, y = case.positive(x), case.positive(y)
    if op not in ("PRelu",) and case.integer(0, 1):
        x, y = y, x
    case.output(case.node(op, [x, y]))


def power(case):
    exponent = case.constant(numpy.float32(case.pick(2, 3, 0.5, -0.5, -1, 1.7)))
    case.output(case.node("Pow", [case.positive(case.input(case.shape(2))), exponent]))


def compared(case):
    shape = case.shape(3)
    x, y = case.input(shape), case.input(broadcast(case, shape))
    c = case.node(case.pick("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"), [x, y])
    if case.integer(0, 1):
        c = case.node(case.pick("And", "Or", "Xor"), [c, case.node("Less", [y, x])])
    if case.integer(0, 1):
        c = case.node("Not", [c])
    case.output(case.node("Where", [c, x, y]))
    case.output(c, TensorProto.BOOL)


def clip(case):
    x = case.input(case.shape(3))
    bounds = [case.constant(numpy.float32(-0.4)), case.constant(numpy.float32(0.3))]
    case.output(case.node("Clip", [x, *case.pick(bounds, bounds[:1], ["", bounds[1]])]))


def matmul(case):
    m, n, k = case.shape(3, 1, 6)
    kind = case.integer(0, 3)
    batch = case.shape(case.integer(0, 2), 1, 3)
    a, b = [*batch, m, k], [*broadcast(case, batch), k, n] if batch else [k, n]
    if kind == 1:
        a = [k]
    if kind == 2:
        b = [k]
    if kind == 3:
        a = [*broadcast(case, batch), m, k] if batch else a
        b = [*batch, k, n]
    x = case.input(a)
    case.output(case.node("MatMul", [x, case.weight(b) if case.integer(0, 1) else case.input(b)]))


def gemm(case):
    m, n, k = case.shape(3, 1, 6)
    ta, tb = case.integer(0, 1), case.integer(0, 1)
    inputs = [case.input([k, m] if ta else [m, k]), case.weight([n, k] if tb else [k, n])]
    if case.integer(0, 3):
        inputs.append(case.weight(case.pick([n], [m, n], [m, 1], [1], [])))
    case.output(case.node("Gemm", inputs, transA=ta, transB=tb, alpha=case.pick(1.0, 0.7), beta=case.pick(1.0, 1.3)))


def einsum(case):
    equation = case.pick("bij,bjk->bik", "bhid,bhjd->bhij", "ij,jk", "bij->bji", "bi,bi->b", "ij->", "i,j->ij", "iij->ij", "bii->b", "iib,bj->ij")
    extents = {c: case.integer(1, 4) for c in "bhijkd"}
    left = equation.split("->")[0].split(",")
    case.output(case.node("Einsum", [case.input([extents[c] for c in part]) for part in left], equation=equation))


def windows(case, rank, size):
    """Attributes of windows of those dimensions, that fit, and their kernel."""
    kernel = [case.integer(1, min(3, s)) for s in size]
    strides, dilations = case.shape(rank, 1, 3), [case.integer(1, 2) if k * 2 <= s else 1 for k, s in zip(kernel, size)]
    a = {"strides": strides, "dilations": dilations}
    way = case.integer(0, 3)
    if way == 0:
        a["auto_pad"] = case.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        a["dilations"] = dilations = [1] * rank
    elif way < 3:
        a["pads"] = [case.integer(0, k - 1) for k in kernel] + [case.integer(0, k - 1) for k in kernel]
    return a, kernel


def conv(case):
    rank = case.integer(1, 2) if case.integer(0, 4) else 3
    size = case.shape(rank, 1, 8)
    attributes, kernel = windows(case, rank, size)
    group = case.pick(1, 1, 2, 3)
    channels = group * (1 if case.integer(0, 2) == 0 else case.integer(1, 3))
    out = group * case.integer(1, 3)
    inputs = [case.input([case.integer(1, 2), channels, *size]), case.weight([out, channels // group, *kernel])]
    if case.integer(0, 1):
        inputs.append(case.weight([out]))
    case.output(case.node("Conv", inputs, group=group, **attributes))


def conv_transpose(case):
    rank = case.integer(1, 2)
    kernel, strides = case.shape(rank, 1, 4), case.shape(rank, 1, 3)
    pads = [case.integer(0, (k - 1) // 2) for k in kernel] * 2
    attributes = {"strides": strides, "pads": pads}
    if case.integer(0, 2) == 0:
        attributes["output_padding"] = [case.integer(0, s - 1) for s in strides]
    if max(strides) == 1:
        attributes["dilations"] = case.shape(rank, 1, 2)
    group = case.pick(1, 1, 2)
    channels = group * case.integer(1, 3)
    inputs = [case.input([case.integer(1, 2), channels, *case.shape(rank, 1, 5)]),
              case.weight([channels, case.integer(1, 3), *kernel])]
    if case.integer(0, 1):
        inputs.append(case.weight([inputs and group * case.weights[0].dims[1]]))
    case.output(case.node("ConvTranspose", inputs, group=group, **attributes))


def pool(case):
    rank = case.integer(1, 2)
    size = case.shape(rank, 3, 9)
    attributes, kernel = windows(case, rank, size)
    op = case.pick("MaxPool", "AveragePool")
    if op == "AveragePool":
        case.opset = 19
        attributes["count_include_pad"] = case.integer(0, 1)
    if "auto_pad" not in attributes and case.integer(0, 1):
        attributes["ceil_mode"] = 1
        if op == "AveragePool":
            attributes["count_include_pad"] = 0
    x = case.input([case.integer(1, 2), case.integer(1, 3), *size])
    if case.integer(0, 2) == 0:
        x = case.node("Relu", [x])
    case.output(case.node(op, [x], kernel_shape=kernel, **attributes))


def global_pool(case):
    x = case.input([case.integer(1, 2), case.integer(1, 3), *case.shape(case.integer(1, 3))])
    case.output(case.node(case.pick("GlobalAveragePool", "GlobalMaxPool"), [x]))


def normalised(case):
    channels = case.integer(1, 3) * 2
    shape = [case.integer(1, 3), channels, *case.shape(case.integer(1, 2), 2, 4)]
    x = case.input(shape)
    kind = case.integer(0, 5)
    if kind == 0:
        case.output(case.node("BatchNormalization", [x, *[case.weight([channels]) for _ in range(3)],
                                                     case.weight([channels], 0.5, 2)], epsilon=1e-3))
    elif kind == 1:
        axis = case.integer(-len(shape), -1)
        case.opset = 17
        case.output(case.node("LayerNormalization", [x, case.weight(shape[axis:]), case.weight(shape[axis:])][:case.integer(2, 3)],
                              axis=axis, epsilon=1e-3))
    elif kind == 2:
        case.output(case.node("InstanceNormalization", [x, case.weight([channels]), case.weight([channels])]))
    elif kind == 3:
        case.opset = 21
        groups = case.pick(1, 2, channels)
        case.output(case.node("GroupNormalization", [x, case.weight([channels]), case.weight([channels])], num_groups=groups))
    elif kind == 4:
        case.output(case.node("LRN", [x], size=case.pick(1, 2, 3), alpha=0.3, beta=0.6, bias=1.5))
    else:
        square = case.node("Mul", [x, x])
        mean = case.node("ReduceMean", [square], axes=[-1])
        root = case.node("Sqrt", [case.node("Add", [mean, case.constant(numpy.float32(1e-3))])])
        case.output(case.node("Mul", [case.node("Div", [x, root]), case.weight([shape[-1]])]))


def softmax(case):
    case.opset = case.pick(11, 13)
    rank = case.integer(1, 4)
    case.output(case.node(case.pick("Softmax", "LogSoftmax"), [case.input(case.shape(rank))],
                          axis=case.integer(-rank, rank - 1) if case.opset > 11 else case.integer(0, rank - 1)))


def reduced(case):
    case.opset = case.pick(13, 18)
    rank = case.integer(1, 4)
    op = case.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                   "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum")
    x = case.input(case.shape(rank))
    if op == "ReduceLogSum":
        x = case.positive(x)
    axes = sorted(case.rng.choice(rank, case.integer(1, rank), replace=False).tolist())
    keep = case.integer(0, 1)
    if case.opset == 18 or op == "ReduceSum":
        case.output(case.node(op, [x, case.integers(axes)], keepdims=keep))
    else:
        case.output(case.node(op, [x], axes=axes, keepdims=keep))


def reshaped(case):
    """Reshapes and transposes in chains, elements and products between."""
    shape = case.shape(case.integer(1, 3), 1, 6)
    x = case.input(shape)
    if case.integer(0, 1):
        x = case.node("Relu", [x])
    for _ in range(case.integer(1, 3)):
        total = int(numpy.prod(shape))
        kind = case.integer(0, 3)
        if kind < 2:
            to, rest = [], total
            for _ in range(case.integer(1, 3)):
                divisors = [d for d in range(1, rest + 1) if rest % d == 0]
                to.append(divisors[case.integer(0, len(divisors) - 1)])
                rest //= to[-1]
            to.append(rest)
            x, shape = case.node("Reshape", [x, case.integers(to)]), to
        elif kind == 2:
            order = case.rng.permutation(len(shape)).tolist()
            x, shape = case.node("Transpose", [x], perm=order), [shape[d] for d in order]
        else:
            x = case.node("Add", [x, case.weight(broadcast(case, shape))])
    kind = case.integer(0, 3)
    if kind == 0:
        x = case.node("MatMul", [x, case.weight([shape[-1], 3])])
    elif kind == 1:
        x = case.node("Softmax", [x], axis=-1)
    elif kind == 2:
        x = case.node("Flatten", [x], axis=case.integer(0, len(shape)))
    case.output(x)


def squeezed(case):
    x = case.input([1, case.integer(1, 4), 1, case.integer(1, 4)])
    x = case.node("Squeeze", [x, case.integers([0, 2])] if case.integer(0, 1) else [x, case.integers([-2])])
    case.output(case.node("Unsqueeze", [x, case.integers(case.pick([0], [-1], [1, 3]))]))


def sliced(case):
    shape = case.shape(3, 2, 8)
    x = case.input(shape)
    if case.integer(0, 1):
        x = case.node("Relu", [x])
    axes = case.rng.choice(3, case.integer(1, 3), replace=False).tolist()
    starts, ends, steps = [], [], []
    for a in axes:
        n, step = shape[a], case.pick(1, 1, 2, -1, -2)
        low, high = sorted(case.rng.choice(n, 2, replace=False).tolist())
        starts.append(low if step > 0 else high)
        ends.append(case.pick(high, 2**63 - 1, high - n) if step > 0 else case.pick(low, -2**63 + 1))
        steps.append(step)
    x = case.node("Slice", [x, *map(case.integers, (starts, ends, axes, steps))])
    if case.integer(0, 1):
        x = case.node("Concat", [x, x], axis=case.integer(0, 2))
    case.output(x)


def split(case):
    shape = case.shape(3, 2, 6)
    axis = case.integer(-3, 2)
    first = case.integer(1, shape[axis] - 1)
    x = case.input(shape)
    a, b = case.node("Split", [x, case.integers([first, shape[axis] - first])], 2, axis=axis)
    case.output(a)
    case.output(case.node("Concat", [b, case.node("Neg", [a])], axis=axis))


def concatenated(case):
    shape = case.shape(case.integer(1, 4), 1, 4)
    axis = case.integer(-len(shape), len(shape) - 1)
    parts = []
    for i in range(case.integer(2, 4)):
        own = list(shape)
        own[axis] = case.integer(1, 3)
        part = case.input(own) if i < 3 and case.integer(0, 3) else case.weight(own)
        parts.append(case.node("Relu", [part]) if case.integer(0, 1) else part)
    parts[0] = case.node("Concat", [parts[0], parts[0]], axis=axis) if case.integer(0, 3) == 0 else parts[0]
    case.output(case.node("Concat", parts, axis=axis))


def expanded(case):
    shape = case.shape(3, 1, 4)
    shape[case.integer(0, 2)] = 1
    to = [case.integer(2, 3) if d == 1 else d for d in shape]
    x = case.node("Expand", [case.input(shape), case.integers([2, *to])])
    x = case.pick(x, case.node("ReduceSum", [x, case.integers([0, 2])]),
                  case.node("MatMul", [x, case.weight([to[-1], 2])]))
    case.output(x)


def tiled(case):
    shape = case.shape(case.integer(1, 3), 1, 4)
    x = case.node("Tile", [case.input(shape), case.integers(case.shape(len(shape), 1, 3))])
    case.output(case.node("Exp", [x]) if case.integer(0, 1) else x)


def padded(case):
    shape = [case.integer(1, 2), *case.shape(2, 3, 6)]
    mode = case.pick("constant", "constant", "reflect", "edge")
    low = 0 if mode != "constant" else -1
    pads = [0] + [case.integer(low, 2) for _ in range(2)] + [case.integer(0, 1) if mode != "reflect" else 0] \
        + [case.integer(low, 2) for _ in range(2)]
    inputs = [case.input(shape), case.integers(pads)]
    if mode == "constant" and case.integer(0, 1):
        inputs.append(case.constant(numpy.float32(1.5)))
    x = case.node("Pad", inputs, mode=mode)
    case.output(case.node("Tanh", [x]) if case.integer(0, 1) else x)


def gathered(case):
    shape = case.shape(3, 2, 5)
    axis = case.integer(-3, 2)
    n = shape[axis]
    x = case.input(shape) if case.integer(0, 1) else case.weight(shape)
    kind = case.integer(0, 3)
    if kind == 0:
        index = case.integers(case.integer(-n, n - 1))
    elif kind == 1:
        index = case.integers(case.rng.integers(-n, n, case.shape(case.integer(1, 2))))
    elif kind == 2:
        index = case.input(case.shape(case.integer(1, 2)), TensorProto.INT64)
    else:
        index = case.integers(list(range(n - 1, -1, -2)))
    y = case.node("Gather", [x, index], axis=axis)
    if x.startswith("w") and index.startswith("w"):
        y = case.node("Add", [y, case.input([1])])
    case.output(y)


def resized(case):
    shape = [1, case.integer(1, 3), *case.shape(2, 2, 5)]
    way = case.pick("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
    attributes = {"mode": "nearest", "coordinate_transformation_mode": way,
                  "nearest_mode": case.pick("floor", "round_prefer_floor", "ceil", "round_prefer_ceil")}
    x = case.input(shape)
    if case.integer(0, 1):
        sizes = [*shape[:2], *case.shape(2, 2, 9)]
        x = case.node("Resize", [x, "", "", case.integers(sizes)], **attributes)
    else:
        scales = numpy.asarray([1, 1, case.pick(1, 2, 3), case.pick(2, 2.5)], dtype=numpy.float32)
        x = case.node("Resize", [x, "", case.constant(scales)], **attributes)
    case.output(case.node("Conv", [x, case.weight([2, shape[1], 2, 2])]) if case.integer(0, 1) else x)


def shuffled(case):
    s = case.integer(1, 3)
    h, w, c = case.shape(3, 1, 3)
    if case.integer(0, 1):
        x = case.node("DepthToSpace", [case.input([1, c * s * s, h, w])], blocksize=s, mode=case.pick("DCR", "CRD"))
        if case.integer(0, 1):
            x = case.node("Conv", [x, case.weight([2, c, 1, 1])])
    else:
        x = case.node("SpaceToDepth", [case.input([2, c, h * s, w * s])], blocksize=s)
    case.output(x)


def masked(case):
    n = case.integer(2, 5)
    x = case.input([2, n, n])
    x = case.node("Trilu", [x, case.integers(case.integer(-1, 1))], upper=case.integer(0, 1))
    shape = case.node("Shape", [x])
    length = case.node("Gather", [shape, case.integers(1)])
    rows = case.node("Range", [case.integers(0), length, case.integers(1)])
    mask = case.node("Less", [case.node("Unsqueeze", [rows, case.integers([1])]), rows])
    case.output(case.node("Where", [mask, case.constant(numpy.float32(-9)), x]))


def recurrent(case):
    op, gates = case.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch, inputs, hidden = case.integer(1, 4), case.integer(1, 2), case.integer(1, 4), case.integer(1, 4)
    way = case.pick("forward", "reverse", "bidirectional")
    d = 2 if way == "bidirectional" else 1
    args = [case.input([steps, batch, inputs]), case.weight([d, gates * hidden, inputs]),
            case.weight([d, gates * hidden, hidden])]
    attributes = {"direction": way, "hidden_size": hidden}
    if case.integer(0, 2):
        args.append(case.weight([d, 2 * gates * hidden]))
        if case.integer(0, 1):
            args += ["", case.input([d, batch, hidden])]
            if op == "LSTM":
                args += [case.input([d, batch, hidden])]
                if case.integer(0, 1):
                    args += [case.weight([d, 3 * hidden])]
    if op == "GRU":
        attributes["linear_before_reset"] = case.integer(0, 1)
    for y in case.node(op, args, 3 if op == "LSTM" else 2, **attributes):
        case.output(y)


def attention(case):
    """A layer of a transformer: heads by reshapes and transposes, a mask, a softmax."""
    b, s, h, d = case.integer(1, 2), case.integer(1, 5), case.integer(1, 3), case.integer(1, 4)
    x = case.input([b, s, h * d])

    def heads(perm):
        y = case.node("Add", [case.node("MatMul", [x, case.weight([h * d, h * d])]), case.weight([h * d])])
        return case.node("Transpose", [case.node("Reshape", [y, case.integers([0, 0, h, d])])], perm=perm)

    scores = case.node("MatMul", [heads([0, 2, 1, 3]), heads([0, 2, 3, 1])])
    scores = case.node("Div", [scores, case.constant(numpy.float32(numpy.sqrt(d)))])
    mask = case.input([b, s])
    mask = case.node("Unsqueeze", [mask, case.integers([1, 2])])
    p = case.node("Softmax", [case.node("Add", [scores, mask])], axis=-1)
    y = case.node("Transpose", [case.node("MatMul", [p, heads([0, 2, 1, 3])])], perm=[0, 2, 1, 3])
    y = case.node("Reshape", [y, case.integers([b, s, -1])])
    y = case.node("Add", [case.node("MatMul", [y, case.weight([h * d, h * d])]), x])
    case.output(case.node("LayerNormalization", [y, case.weight([h * d]), case.weight([h * d])], axis=-1))


def attention_operator(case):
    case.opset = 23
    b, hk, group, s, t, d = case.integer(1, 2), case.integer(1, 2), case.pick(1, 2), case.integer(1, 4), case.integer(1, 4), case.integer(1, 3)
    if case.integer(0, 1):
        args = [case.input([b, hk * group, s, d]), case.input([b, hk, t, d]), case.input([b, hk, t, d])]
        attributes = {}
    else:
        args = [case.input([b, s, hk * group * d]), case.input([b, t, hk * d]), case.input([b, t, hk * d])]
        attributes = {"q_num_heads": hk * group, "kv_num_heads": hk}
    if case.integer(0, 1):
        args.append(case.input([s, t]))
    elif s <= t:
        attributes["is_causal"] = case.integer(0, 1)
    case.output(case.node("Attention", args, **attributes))


def placed(case):
    """Where the largest is, of computed values, and what constants of an order become."""
    shape = case.shape(3, 1, 5)
    axis = case.integer(-3, 2)
    x = case.input(shape)
    case.output(case.node(case.pick("ArgMax", "ArgMin"), [x], axis=axis, keepdims=case.integer(0, 1)), TensorProto.INT64)
    for y, kind in zip(case.node("TopK", [x, case.integers([1])], 2, axis=axis, largest=case.integer(0, 1)),
                       (TensorProto.FLOAT, TensorProto.INT64)):
        case.output(y, kind)
    n, d = case.integer(1, 5), case.integer(1, 4)
    angles = case.node("Einsum", [case.weight([n]), case.weight([d])], equation="i,j->ij")
    order = case.node("TopK", [case.weight([n]), case.integers([n])], 2)[1]
    inverse = case.node("ScatterElements", [case.integers([0] * n), order, case.integers(range(n))])
    table = case.node("Gather", [case.node("Sin", [angles]), inverse])
    case.output(case.node("Add", [case.input([n, d]), table]))


def lengths(case):
    """Sequences of different lengths."""
    op, gates = case.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch, inputs, hidden = case.integer(1, 4), case.integer(1, 3), case.integer(1, 3), case.integer(1, 4)
    way = case.pick("forward", "reverse", "bidirectional")
    d = 2 if way == "bidirectional" else 1
    long = case.constant(case.rng.integers(1, steps + 1, [batch]).astype(numpy.int32))
    args = [case.input([steps, batch, inputs]), case.weight([d, gates * hidden, inputs]),
            case.weight([d, gates * hidden, hidden]), case.weight([d, 2 * gates * hidden]), long]
    if case.integer(0, 1):
        args.append(case.input([d, batch, hidden]))
    for y in case.node(op, args, 3 if op == "LSTM" else 2, direction=way, hidden_size=hidden):
        case.output(y)


def norms(case):
    p = case.integer(1, 2)
    case.output(case.node("LpNormalization", [case.input(case.shape(3))], axis=case.integer(-3, 2), p=p))
    x = case.input([1, 2, *case.shape(2, 4, 7)])
    case.output(case.node("LpPool", [x], kernel_shape=[2, 3], strides=[1, 2], pads=case.pick([0] * 4, [1, 1, 0, 1]), p=case.pick(1, 2, 3)))
    case.output(case.node("Shrink", [case.input(case.shape(2))], lambd=0.3, bias=case.pick(0.0, 0.2)))


def dotted(case):
    batch = case.shape(case.integer(0, 2), 1, 3)
    i, j, k = case.shape(3, 1, 4)
    case.output(case.node("Einsum", [case.input([*batch, i, j]), case.input([*broadcast(case, batch), j, k])],
                          equation="...ij,...jk->...ik"))


def typed(case):
    """Inputs of whole numbers and truth values, signed or not."""
    kind = case.pick(TensorProto.UINT8, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
    shape = case.shape(2)
    x = case.input(shape, kind)
    if kind == TensorProto.BOOL:
        y = case.input(shape)
        case.output(case.node("Where", [case.node("Not", [x]), y, case.node("Neg", [y])]))
    elif kind == TensorProto.UINT8 and case.integer(0, 1):
        zero = case.constant(numpy.uint8(case.integer(0, 255)))
        case.output(case.node("DequantizeLinear", [x, case.constant(numpy.float32(0.02)), zero]))
    else:
        y = case.node("Cast", [x], to=TensorProto.FLOAT)
        case.output(case.node("Div", [y, case.constant(numpy.float32(255))]))


def pyramid(case):
    """Images made larger by two, again and again, each added to what stands there: the rows are cut ever finer."""
    levels, channels = case.integer(3, 5), case.integer(1, 3)
    sides = [2 ** levels * case.integer(1, 2) for _ in range(2)]
    maps = [case.input([1, channels, *sides])]
    for _ in range(levels):
        maps.append(case.node("MaxPool", [maps[-1]], kernel_shape=[2, 2], strides=[2, 2]))

    def larger(x, times):
        scales = case.constant(numpy.array([1, 1, times, times], numpy.float32))
        return case.node("Resize", [x, "", scales], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    x, all_ = maps[-1], []
    for level in reversed(range(levels)):
        x = case.node("Add", [maps[level], larger(x, 2)])
        all_.append(larger(x, 2 ** level) if level else x)
    case.output(case.node("Concat", all_, axis=1))
    case.output(case.node("Relu", [x]))


def chosen(case):
    """A branch that is chosen while running, within one that is, perhaps."""
    shape = case.shape(2, 2, 5)
    x, w = case.input(shape), case.weight([shape[-1]])

    def graph(name, nodes):
        out = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)]
        return helper.make_graph(nodes, name, [], out)

    def sign(of):
        total = case.node("ReduceSum", [of], keepdims=case.integer(0, 1))
        return case.node("Greater", [total, case.constant(numpy.float32(0))])

    inner = helper.make_node("If", [sign(w)], ["i_0v"], then_branch=graph("c", [helper.make_node("Tanh", [x], ["c_0v"])]),
                             else_branch=graph("d", [helper.make_node("Neg", [x], ["d_0v"])]))
    condition = sign(x)
    case.nodes.append(helper.make_node(
        "If", [condition], ["y_0v"], then_branch=graph("a", [helper.make_node("Mul", [x, w], ["a_0v"]), helper.make_node("Relu", ["a_0v"], ["a_1v"])]),
        else_branch=graph("b", [inner, helper.make_node("Softmax", ["i_0v"], ["b_0v"])])))
    case.output("y_0v")


FAMILIES = [unary, gelu, binary, power, compared, clip, matmul, gemm, einsum, conv, conv_transpose, pool, global_pool,
            normalised, softmax, reduced, reshaped, squeezed, sliced, split, concatenated, expanded, tiled, padded,
            gathered, resized, shuffled, masked, recurrent, attention, attention_operator, onnx_quantised_cases.quantised, placed,
            lengths, norms, dotted, *onnx_value_cases.FAMILIES, onnx_quantised_cases.products,
            onnx_quantised_cases.convolutions, typed, pyramid, chosen, *onnx_fused_cases.FAMILIES,
            *onnx_region_cases.FAMILIES]


def make(family, seed):
    """The model of that family and seed."""
    case = Case(numpy.random.default_rng([seed, FAMILIES.index(family)]))
    family(case)
    return case.model()
