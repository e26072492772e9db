"""Small models of what onnxruntime's optimiser and quantiser make (domain com.microsoft), an operator each."""

import numpy
from onnx import TensorProto

MICROSOFT = "com.microsoft"


def bytes_of(case, shape, signed=None):
    """An input or a constant of whole numbers of 8 bits, and its type."""
    signed = case.integer(0, 1) if signed is None else signed
    kind = numpy.int8 if signed else numpy.uint8
    if case.integer(0, 1):
        return case.input(shape, TensorProto.INT8 if signed else TensorProto.UINT8), kind
    info = numpy.iinfo(kind)
    return case.constant(case.rng.integers(info.min, info.max + 1, shape).astype(kind)), kind


def zero_of(case, kind, shape=()):
    info = numpy.iinfo(kind)
    return case.constant(case.rng.integers(info.min // 2, info.max // 2, shape).astype(kind))


def scale_of(case, shape=(), low=0.01, high=0.05):
    return case.constant(case.rng.uniform(low, high, shape).astype(numpy.float32))


def quantised_input(case, shape, signed=None):
    """Whole numbers that are computed, their scale and zero point."""
    kind = numpy.int8 if (case.integer(0, 1) if signed is None else signed) else numpy.uint8
    scale, zero = scale_of(case), zero_of(case, kind)
    return [case.node("QuantizeLinear", [case.input(shape), scale, zero]), scale, zero], kind


def weights_of_bytes(case, kind, shape):
    """Of all their bits: the tests ask onnxruntime for sums that do not saturate."""
    least, most = (-128, 128) if kind == numpy.int8 else (0, 256)
    return case.constant(case.rng.integers(least, most, shape).astype(kind))


def real(case, parts):
    """So that one that rounds to the next number is off by a scale, not by one."""
    case.output(case.node("DequantizeLinear", parts))


def dynamic(case):
    """A product or a convolution as quantize_dynamic makes it."""
    depth, wide = case.integer(1, 40), case.integer(1, 20)
    x = case.input([*case.shape(case.integer(0, 2), 1, 3), case.integer(1, 6), depth])
    q, scale, zero = case.node("DynamicQuantizeLinear", [x], 3)
    info = case.pick(numpy.int8, numpy.uint8)
    w = weights_of_bytes(case, info, [depth, wide])
    if case.integer(0, 1):
        by_column = case.integer(0, 1)
        inputs = [q, w, zero, zero_of(case, info, [wide] if by_column else [])]
        whole = case.node("MatMulInteger", inputs if case.integer(0, 3) else inputs[:2])
        y = case.node("Mul", [case.node("Cast", [whole], to=TensorProto.FLOAT), scale])
    else:
        inputs = [q, w, scale, scale_of(case, [wide] if case.integer(0, 1) else []), zero, zero_of(case, info)]
        if case.integer(0, 1):
            inputs.append(case.weight([wide]))
        y = case.node("MatMulIntegerToFloat", inputs, domain=MICROSOFT)
    case.output(y)
    case.output(zero, TensorProto.UINT8)


def dynamic_matmul(case):
    depth, wide = case.integer(1, 40), case.integer(1, 20)
    kind = case.pick(numpy.int8, numpy.uint8)
    w = weights_of_bytes(case, kind, [depth, wide])
    inputs = [case.input([*case.shape(case.integer(0, 1), 1, 3), case.integer(1, 6), depth]), w,
              scale_of(case, [wide] if case.integer(0, 1) else [])]
    inputs.append(zero_of(case, kind))
    if case.integer(0, 1):
        inputs.append(case.weight([wide]))
    case.output(case.node("DynamicQuantizeMatMul", inputs, domain=MICROSOFT))


def conv_integer(case):
    group, per, out = case.integer(1, 2), case.integer(1, 3), case.integer(1, 4)
    image = [case.integer(1, 2), group * per, *case.shape(2, 3, 7)]
    if case.integer(0, 1):
        x, scale, zero = case.node("DynamicQuantizeLinear", [case.input(image)], 3)
    else:
        x, zero = case.input(image, TensorProto.UINT8), zero_of(case, numpy.uint8)
    w = case.constant(case.rng.integers(0, 255, [group * out, per, *case.shape(2, 1, 3)]).astype(numpy.uint8))
    inputs = [x, w, zero, zero_of(case, numpy.uint8)]
    case.output(case.node("ConvInteger", inputs if case.integer(0, 2) else inputs[:2], group=group,
                          pads=case.pick([0] * 4, [1, 0, 1, 1]), strides=[case.integer(1, 2), case.integer(1, 2)]), TensorProto.INT32)


def qlinear_matmul(case):
    depth, wide, batch = case.integer(1, 30), case.integer(1, 12), case.shape(case.integer(0, 2), 1, 3)
    signed = case.integer(0, 1)
    a, _ = quantised_input(case, [*batch, case.integer(1, 5), depth], signed)
    b = case.constant(case.rng.integers(-90 if signed else 10, 90, [depth, wide]).astype(numpy.int8 if signed else numpy.uint8))
    by_column = case.integer(0, 1)
    kind = numpy.int8 if signed else numpy.uint8
    zero = case.constant(numpy.zeros([wide], kind)) if by_column else zero_of(case, kind)
    to = [scale_of(case, (), 0.2, 0.4), zero_of(case, kind)]
    y = case.node("QLinearMatMul", [*a, b, scale_of(case, [wide] if by_column else []), zero, *to])
    real(case, [y, *to])


def qlinear_conv(case):
    group, per, out = case.integer(1, 2), case.integer(1, 3), case.integer(1, 4)
    x, _ = quantised_input(case, [case.integer(1, 2), group * per, *case.shape(2, 3, 7)], 0)
    w = case.constant(case.rng.integers(-90, 90, [group * out, per, *case.shape(2, 1, 3)]).astype(numpy.int8))
    by_channel = case.integer(0, 1)
    to = [scale_of(case, (), 0.2, 0.4), zero_of(case, numpy.uint8)]
    inputs = [*x, w, scale_of(case, [group * out] if by_channel else []),
              case.constant(numpy.zeros([group * out] if by_channel else [], numpy.int8)), *to]
    if case.integer(0, 1):
        inputs.append(case.constant(case.rng.integers(-3000, 3000, [group * out]).astype(numpy.int32)))
    y = case.node("QLinearConv", inputs, group=group, pads=case.pick([0] * 4, [1, 1, 1, 0]),
                  strides=[case.integer(1, 2), case.integer(1, 2)])
    real(case, [y, *to])


def qgemm(case):
    m, n, k = case.integer(1, 5), case.integer(1, 9), case.integer(1, 30)
    ta, tb = case.integer(0, 1), case.integer(0, 1)
    a, _ = quantised_input(case, [k, m] if ta else [m, k], 0)
    b = case.constant(case.rng.integers(-90, 90, [n, k] if tb else [k, n]).astype(numpy.int8))
    by_column = case.integer(0, 1)
    inputs = [*a, b, scale_of(case, [n] if by_column else []), case.constant(numpy.zeros([n] if by_column else [], numpy.int8))]
    bias = case.constant(case.rng.integers(-2000, 2000, [n]).astype(numpy.int32)) if case.integer(0, 1) else ""
    to = [scale_of(case, (), 0.2, 0.4), zero_of(case, numpy.uint8)]
    rounds = case.integer(0, 1)
    y = case.node("QGemm", [*inputs, bias, *(to if rounds else [])], domain=MICROSOFT, transA=ta, transB=tb, alpha=case.pick(1.0, 0.5))
    if rounds:
        real(case, [y, *to])
    else:
        case.output(y)


def qlinear_elements(case):
    op = case.pick("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearSoftmax", "QLinearWhere")
    shape = case.shape(case.integer(2, 4), 1, 6)
    signed = case.integer(0, 1)
    a, kind = quantised_input(case, shape, signed)
    to = [scale_of(case), zero_of(case, kind)]
    if op in ("QLinearAdd", "QLinearMul"):
        b, _ = quantised_input(case, shape if case.integer(0, 1) else shape[1:], signed)
        y = case.node(op, [*a, *b, *to], domain=MICROSOFT)
    elif op == "QLinearConcat":
        b, _ = quantised_input(case, shape, signed)
        y = case.node(op, [*to, *a, *b], domain=MICROSOFT, axis=case.integer(0, len(shape) - 1))
    elif op == "QLinearWhere":
        b, _ = quantised_input(case, shape, signed)
        y = case.node(op, [case.node("Less", [case.input(shape), case.constant(numpy.float32(0.1))]), *a, *b, *to], domain=MICROSOFT)
    elif op == "QLinearSoftmax":
        to = [case.constant(numpy.float32(1 / 256)), case.constant(kind(-128 if signed else 0))]
        y = case.node(op, [*a, *to], domain=MICROSOFT, axis=-1, opset=13)
    else:
        y = case.node(op, [*a, *to], domain=MICROSOFT, **({"alpha": 0.2} if op == "QLinearLeakyRelu" else {}))
    real(case, [y, *to])


def qlinear_pool(case):
    a, kind = quantised_input(case, [case.integer(1, 2), case.integer(1, 3), *case.shape(2, 3, 7)], 0)
    to = [scale_of(case), zero_of(case, kind)]
    if case.integer(0, 1):
        y = case.node("QLinearGlobalAveragePool", [*a, *to], domain=MICROSOFT, channels_last=0)
    else:
        y = case.node("QLinearAveragePool", [*a, *to], domain=MICROSOFT, kernel_shape=[2, 3], pads=case.pick([0] * 4, [1, 1, 0, 1]),
                      count_include_pad=case.integer(0, 1))
    real(case, [y, *to])


def weights_of_bits(case):
    block = case.pick(16, 32)
    n, k = case.integer(1, 12), block * case.integer(1, 3)
    blocks = k // block
    inputs = [case.input([*case.shape(case.integer(0, 1), 1, 3), case.integer(1, 5), k]),
              case.constant(case.rng.integers(0, 256, [n, blocks, block // 2]).astype(numpy.uint8)), scale_of(case, [n * blocks])]
    if case.integer(0, 1):
        inputs.append(case.constant(case.rng.integers(0, 256, [n * ((blocks + 1) // 2)]).astype(numpy.uint8)))
    case.output(case.node("MatMulNBits", inputs, domain=MICROSOFT, K=k, N=n, bits=4, block_size=block))


def skip_norm(case):
    shape = [case.integer(1, 3), case.integer(1, 4), case.integer(1, 9)]
    width, simple = shape[-1], case.integer(0, 1)
    inputs = [case.input(shape), case.input(shape if case.integer(0, 1) else shape[1:]), case.weight([width])]
    if not simple:
        inputs.append(case.weight([width]) if case.integer(0, 1) else "")
    if case.integer(0, 1):
        inputs.append(case.weight([width]))
    op = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    y, _, _, total = case.node(op, inputs, 4, domain=MICROSOFT, epsilon=1e-3)
    case.nodes[-1].output[1] = case.nodes[-1].output[2] = ""
    case.output(y)
    case.output(total)


def embeddings(case):
    batch, rows, width = case.integer(1, 3), case.integer(1, 5), case.integer(2, 8)
    words, places, segments = case.integer(2, 9), rows + case.integer(0, 3), 2
    ids = case.constant(case.rng.integers(0, words, [batch, rows]).astype(numpy.int32))
    two = case.integer(0, 1)
    kinds = case.constant(case.rng.integers(0, segments, [batch, rows]).astype(numpy.int32)) if two else ""
    mask = case.constant(case.rng.integers(0, 2, [batch, rows]).astype(numpy.int32))
    inputs = [ids, kinds, case.input([words, width]), case.weight([places, width]), case.weight([segments, width]) if two else "",
              case.weight([width]), case.weight([width])]
    if case.integer(0, 1):
        inputs.append(mask)
    y, at = case.node("EmbedLayerNormalization", inputs, 2, domain=MICROSOFT, epsilon=1e-3)
    case.output(y)


def packed_attention(case):
    batch, rows, heads, width = case.integer(1, 2), case.integer(1, 5), case.integer(1, 3), case.integer(1, 4)
    hidden, past = case.integer(1, 6), case.integer(0, 1) * case.integer(1, 3)
    keys = rows + past
    inputs = [case.input([batch, rows, hidden]), case.weight([hidden, 3 * heads * width]), case.weight([3 * heads * width])]
    mask = case.integer(0, 3)
    if mask == 0:
        inputs.append(case.constant(case.rng.integers(1, keys + 1, [batch]).astype(numpy.int32)))
    elif mask == 1:
        inputs.append(case.constant(case.rng.integers(0, 2, [batch, keys]).astype(numpy.int32)))
    elif mask == 2:
        inputs.append(case.constant(case.rng.integers(0, 2, [batch, rows, keys]).astype(numpy.int32)))
    else:
        inputs.append("")
    inputs.append(case.input([2, batch, heads, past, width]) if past else "")
    if case.integer(0, 1) and not past:
        inputs.append(case.weight([case.pick(1, batch), heads, rows, keys]))
    y, present = case.node("Attention", inputs, 2, domain=MICROSOFT, num_heads=heads, unidirectional=case.integer(0, 1) if mask == 3 else 0)
    case.output(y)
    case.output(present)


def heads(case):
    batch, rows, n, width = case.integer(1, 2), case.integer(1, 5), case.integer(1, 3), case.integer(1, 4)
    past = case.integer(0, 1) * case.integer(1, 3)
    keys = case.integer(1, 5) if case.integer(0, 1) else rows
    q, k, v = case.input([batch, rows, n * width]), case.input([batch, keys, n * width]), case.input([batch, keys, n * width])
    bias = case.weight([3 * n * width]) if case.integer(0, 1) else ""
    total = keys + past
    mask = case.pick("", case.constant(case.rng.integers(0, 2, [batch, total]).astype(numpy.int32)))
    scores = case.weight([case.pick(1, batch), case.pick(1, n), rows, total]) if case.integer(0, 1) else ""
    inputs = [q, k, v, bias, mask, scores]
    if past:
        inputs += [case.input([batch, n, past, width]), case.input([batch, n, past, width])]
    names = case.node("MultiHeadAttention", inputs, 3 if past else 1, domain=MICROSOFT, num_heads=n)
    for y in names if past else [names]:
        case.output(y)


def grouped(case):
    batch, shared, group, width = case.integer(1, 2), case.integer(1, 2), case.integer(1, 3), 16 * case.integer(1, 2)
    past = case.integer(0, 1) * case.integer(1, 4)
    rows = 1 if past else case.integer(1, 5)
    n, total = shared * group, past + rows
    inputs = [case.input([batch, rows, n * width]), case.input([batch, rows, shared * width]), case.input([batch, rows, shared * width])]
    if case.integer(0, 1):
        inputs = [case.input([batch, rows, (n + 2 * shared) * width]), "", ""]
        case.inputs = case.inputs[-1:]
        case.inputs[0].name = inputs[0] = "in_a"
    inputs += [case.input([batch, shared, past, width]), case.input([batch, shared, past, width])] if past else ["", ""]
    inputs += [case.constant(numpy.full([batch], total - 1, numpy.int32)), case.constant(numpy.int32(total))]
    turned = case.integer(0, 1)
    if turned:
        inputs += [case.weight([total + 2, width // 2]), case.weight([total + 2, width // 2])]
    more = {}
    if case.integer(0, 1):
        more["softcap"] = 2.0
    if case.integer(0, 1):
        more["local_window_size"] = case.integer(1, 4)
    y, k, v = case.node("GroupQueryAttention", inputs, 3, domain=MICROSOFT, num_heads=n, kv_num_heads=shared, do_rotary=turned,
                        rotary_interleaved=case.integer(0, 1) if turned else 0, **more)
    for each in (y, k, v):
        case.output(each)


def with_activation(case):
    name, more = case.pick(("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.3, 0.4]), ("HardSigmoid", [0.2, 0.4]))
    if case.integer(0, 1):
        channels, out = case.integer(1, 3), case.integer(1, 4)
        image = [1, channels, *case.shape(2, 3, 7)]
        inputs = [case.input(image), case.weight([out, channels, 3, 3]), case.weight([out])]
        if case.integer(0, 1):
            inputs.append(case.input([1, out, *image[2:]]))
        attributes = {"activation_params": more} if more else {}
        case.output(case.node("FusedConv", inputs, domain=MICROSOFT, activation=name, pads=[1, 1, 1, 1], **attributes))
    else:
        m, n, k = case.shape(3, 1, 6)
        attributes = dict(zip(("activation_alpha", "activation_beta"), more))
        inputs = [case.input([m, k]), case.weight([n, k]), case.weight([n])]
        case.output(case.node("FusedGemm", inputs, domain=MICROSOFT, activation="Relu" if name == "Clip" else name, transB=1, alpha=0.7,
                              **({} if name == "Clip" else attributes)))


def dynamic_lstm(case):
    """Of one sequence: of several, onnxruntime rounds those that one thread has together, so that its result depends on threads."""
    steps, batch, inputs, hidden = case.integer(1, 4), 1, case.integer(1, 9), case.integer(1, 8)
    way = case.pick("forward", "reverse", "bidirectional")
    d = 2 if way == "bidirectional" else 1
    by_column = case.integer(0, 1)
    shape = [d, 4 * hidden] if by_column else [d]

    def weights(rows):
        return weights_of_bytes(case, numpy.int8, [d, rows, 4 * hidden])

    def quantised():
        return [scale_of(case, shape, 0.001, 0.01), case.constant(numpy.zeros(shape, numpy.int8))]

    args = [case.input([steps, batch, inputs]), weights(inputs), weights(hidden), case.weight([d, 8 * hidden]), "",
            case.input([d, batch, hidden]) if case.integer(0, 1) else "", "", "", *quantised(), *quantised()]
    for y in case.node("DynamicQuantizeLSTM", args, 3, domain=MICROSOFT, direction=way, hidden_size=hidden):
        case.output(y)


def transposed_batches(case):
    a, b, i, j, k = case.shape(5, 1, 4)
    left, right = case.integer(0, 1), case.integer(0, 1)
    ta, tb = case.integer(0, 1), case.integer(0, 1)

    def shape(rows, columns, turned, first):
        whole = [a, b, *([columns, rows] if turned else [rows, columns])]
        return [whole[2], a, b, whole[3]] if first else whole

    case.output(case.node("FusedMatMul", [case.input(shape(i, k, ta, left)), case.input(shape(k, j, tb, right))], domain=MICROSOFT,
                          transA=ta, transB=tb, transBatchA=left, transBatchB=right, alpha=case.pick(1.0, 0.3)))


def gelus(case):
    shape = case.shape(3)
    op = case.pick("BiasGelu", "FastGelu", "QuickGelu", "Gelu")
    inputs = [case.input(shape)]
    if op == "BiasGelu" or (op == "FastGelu" and case.integer(0, 1)):
        inputs.append(case.weight([shape[-1]]))
    case.output(case.node(op, inputs, domain=MICROSOFT))


FAMILIES = [dynamic, dynamic_matmul, conv_integer, qlinear_matmul, qlinear_conv, qgemm, qlinear_elements, qlinear_pool, weights_of_bits,
            skip_norm, embeddings, packed_attention, heads, grouped, with_activation, transposed_batches,
            gelus, dynamic_lstm]
