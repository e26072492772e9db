"""Families of onnx_cases with 8-bit weights, products and convolutions."""

import numpy


def quantised(case):
    n, k = case.integer(1, 4), case.integer(1, 4)
    w = case.constant(case.rng.integers(-128, 128, [n, k]).astype(numpy.int8))
    if case.integer(0, 1):
        scale = case.weight([n], 0.01, 0.02)
        zero = case.constant(case.rng.integers(-3, 3, [n]).astype(numpy.int8))
        y = case.node("DequantizeLinear", [w, scale, zero], axis=0)
    else:
        y = case.node("DequantizeLinear", [w, case.constant(numpy.float32(0.02))])
    case.output(case.node("Gemm", [case.input([2, k]), y], transB=1))


def products(case):
    """Activations and weights of 8 bits, signed or not, with zero points or without, a scale a tensor or a channel."""
    def scaled(x, scale, zero):
        q = case.node("QuantizeLinear", [x, scale, zero])
        return case.node("DequantizeLinear", [q, scale, zero])

    def parameters():
        kind = case.pick(numpy.uint8, numpy.int8)
        zero = case.pick(0, case.integer(-9, 9)) + (128 if kind == numpy.uint8 else 0)
        return case.constant(numpy.float32(case.rng.uniform(0.004, 0.03))), case.constant(kind(zero))

    m, n, k = case.integer(2, 40), case.integer(2, 40), case.integer(2, 60)
    x = scaled(case.input([m, k]), *parameters())
    form = case.pick("weights", "transposed", "bytes", "both")
    if form == "both":  # two computed operands, as attention has them
        y = scaled(case.node("Transpose", [case.input([n, k])], perm=[1, 0]), *parameters())
        case.output(case.node("MatMul", [x, y]))
        return
    shape, axis = ([n, k], 0) if form == "transposed" else ([k, n], 1)
    if form == "bytes":
        w = case.constant(case.rng.integers(0, 256, shape).astype(numpy.uint8))
        y = case.node("DequantizeLinear", [w, case.constant(numpy.float32(0.02)), case.constant(numpy.uint8(125))])
    else:
        w = case.constant(case.rng.integers(-128, 128, shape).astype(numpy.int8))
        zero = case.constant(case.rng.integers(-3, 3, [n]).astype(numpy.int8) * case.integer(0, 1))
        y = case.node("DequantizeLinear", [w, case.weight([n], 0.01, 0.02), zero], axis=axis)
    made = case.node("Gemm", [x, y, case.weight([n])], transB=int(form == "transposed"))
    case.output(made)
    # What a quantisation cuts off is gone: negative numbers, where zero is 0.
    case.output(scaled(case.input([m, k]), case.constant(numpy.float32(0.1)), case.constant(numpy.uint8(0))))


def convolutions(case):
    """Images and kernels of 8 bits: what is outside of an image is its zero point."""
    kind = case.pick(numpy.uint8, numpy.int8)
    zero = case.pick(0, case.integer(-9, 9)) + (128 if kind == numpy.uint8 else 0)
    scale = case.constant(numpy.float32(case.rng.uniform(0.004, 0.03))), case.constant(kind(zero))
    group, n, c, m = case.pick(1, 1, 2), case.integer(1, 2), case.integer(1, 9), case.integer(1, 7)
    size, side = [case.integer(1, 3), case.integer(1, 3)], [case.integer(5, 11), case.integer(5, 11)]
    pads = [case.integer(0, size[d % 2] - 1) for d in range(4)]
    q = case.node("QuantizeLinear", [case.input([n, group * c, *side]), *scale])
    w = case.constant(case.rng.integers(-128, 128, [group * m, c, *size]).astype(numpy.int8))
    by_channel = case.integer(0, 1)
    factors = case.weight([group * m], 0.01, 0.02) if by_channel else case.constant(numpy.float32(0.02))
    zeros = case.rng.integers(-3, 3, [group * m] if by_channel else []) * case.pick(0, 0, 1)
    w = case.node("DequantizeLinear", [w, factors, case.constant(numpy.int8(zeros))], axis=0)
    inputs = [case.node("DequantizeLinear", [q, *scale]), w]
    if case.integer(0, 1):
        inputs.append(case.weight([group * m]))
    case.output(case.node("Conv", inputs, group=group, pads=pads, strides=[case.integer(1, 2), case.integer(1, 2)],
                          dilations=[case.integer(1, 2), case.integer(1, 2)]))
