"""Families of onnx_cases that read parts of images and places that are found while running, weights of 4 bits, sequences."""

import numpy
from onnx import TensorProto, helper

MICROSOFT = "com.microsoft"


def places_of_largest(case):
    """MaxPool's indices, and MaxUnpool of them."""
    spatial = case.shape(case.integer(1, 3), 2, 6)
    x = case.input([case.integer(1, 2), case.integer(1, 3), *spatial])
    rank, apart = len(spatial), case.integer(0, 2) > 0
    kernel = [case.integer(1, min(3, d)) for d in spatial]
    strides = list(kernel) if apart else [case.integer(1, 2) for _ in spatial]
    how = {"kernel_shape": kernel, "strides": strides}
    if not apart:
        how["pads"] = [case.integer(0, k - 1) for k in kernel] * 2
    more = {} if apart else {"ceil_mode": case.integer(0, 1), "storage_order": case.integer(0, 1) if rank == 2 else 0,
                             "dilations": [case.integer(1, 2) if d > 4 else 1 for d in spatial]}
    y, at = case.node("MaxPool", [x], 2, **how, **more)
    case.output(at, TensorProto.INT64)
    if apart and all(d % k == 0 for d, k in zip(spatial, kernel)):
        y = case.node("Mul", [y, case.constant(numpy.float32(1.5))])
        case.output(case.node("MaxUnpool", [y, at], **how))
    else:
        case.output(y)


def regions(case):
    image = [case.integer(1, 2), case.integer(1, 3), case.integer(2, 7), case.integer(2, 7)]
    x, count = case.input(image), case.integer(1, 4)
    corner = case.node("Mul", [case.input([count, 2]), case.constant(numpy.float32(2))])
    size = case.node("Mul", [case.positive(case.input([count, 2])), case.constant(numpy.float32(3))])
    rois = case.node("Concat", [corner, case.node("Add", [corner, size])], axis=1)
    case.opset = case.pick(16, 22)
    batch = case.integers(case.rng.integers(0, image[0], count))
    case.output(case.node("RoiAlign", [x, rois, batch], output_height=case.integer(1, 3), output_width=case.integer(1, 4),
                          sampling_ratio=case.integer(1, 3), spatial_scale=case.pick(1.0, 0.5), mode=case.pick("avg", "max"),
                          coordinate_transformation_mode=case.pick("half_pixel", "output_half_pixel")))


def deformed(case):
    case.opset = 22
    g, own, batch, og = case.integer(1, 2), case.integer(1, 2), case.integer(1, 2), case.integer(1, 2)
    c, k = g * own * og, [case.integer(1, 3), case.integer(1, 3)]
    size, pad, stride = [case.integer(4, 6), case.integer(4, 6)], case.integer(0, 1), case.integer(1, 2)
    out = [(s + 2 * pad - e) // stride + 1 for s, e in zip(size, k)]
    taps = k[0] * k[1]
    inputs = [case.input([batch, c, *size]), case.weight([g * case.integer(1, 2), c // g, *k]),
              case.node("Mul", [case.input([batch, og * taps * 2, *out]), case.constant(numpy.float32(1.7))])]
    more = case.integer(0, 2)
    inputs += [case.weight([case.weights[0].dims[0]]) if more else ""] + (
        [case.input([batch, og * taps, *out])] if more == 2 else [])
    case.output(case.node("DeformConv", inputs if more else inputs[:3], group=g, offset_group=og, kernel_shape=k,
                          pads=[pad] * 4, strides=[stride] * 2))


def volumes(case):
    """GridSample of cubes, and by cubics."""
    case.opset = 20
    deep = case.integer(2, 3)
    x = case.input([case.integer(1, 2), case.integer(1, 3), *case.shape(deep, 1, 5)])
    batch = case.inputs[0].type.tensor_type.shape.dim[0].dim_value
    grid = case.node("Mul", [case.input([batch, *case.shape(deep, 1, 3), deep]), case.constant(numpy.float32(1.3))])
    mode = case.pick("linear", "nearest") if deep == 3 else "cubic"
    case.output(case.node("GridSample", [x, grid], mode=mode, align_corners=case.integer(0, 1),
                          padding_mode=case.pick("zeros", "border", "reflection")))


def four_bits(case, low, high, shape):
    """Whole numbers of 4 bits as a weight."""
    name = f"b_{len(case.weights)}w"
    kind = TensorProto.INT4 if low < 0 else TensorProto.UINT4
    flat = [int(v) & 15 for v in case.rng.integers(low, high + 1, int(numpy.prod(shape)))]
    flat += [0] if len(flat) % 2 else []
    case.weights.append(helper.make_tensor(name, kind, shape, bytes(
        a | b << 4 for a, b in zip(flat[::2], flat[1::2])), raw=True))
    return name


def weights_of_bits(case):
    """Dequantised by blocks, by channels or at once, and multiplied."""
    case.opset = 21
    m, k, n = case.integer(1, 4), case.integer(1, 9), case.integer(1, 5)
    bounds = case.pick((-8, 7), (0, 15))
    w = four_bits(case, *bounds, [k, n])
    way = case.pick("blocks", "blocks", "channels", "one")
    block, axis = case.integer(1, 4), case.integer(0, 1)
    if way == "blocks":
        shape = [-(-k // block), n] if axis == 0 else [k, -(-n // block)]
        how = {"axis": axis, "block_size": block}
    else:
        shape, how = ([n], {"axis": 1}) if way == "channels" else ([], {})
    inputs = [w, case.weight(shape, 0.1, 0.5)] + ([four_bits(case, *bounds, shape)] if case.integer(0, 1) else [])
    case.output(case.node("MatMul", [case.input([m, k]), case.node("DequantizeLinear", inputs, **how)]))


def rows_of_blocks(case):
    words, width, block = case.integer(2, 9), 16 * case.integer(1, 3), 16
    blocks = width // block
    bits = case.pick(4, 8)
    table = case.constant(case.rng.integers(0, 256, [words, width * bits // 8]).astype(numpy.uint8))
    at = case.constant(case.rng.integers(0, words, case.shape(case.integer(1, 2), 1, 4)))
    inputs = [table, at, case.weight([words, blocks], 0.1, 0.5)]
    if case.integer(0, 1):
        inputs.append(case.constant(case.rng.integers(0, 256, [words, -(-blocks * bits // 8)]).astype(numpy.uint8)))
    case.output(case.node("GatherBlockQuantized", inputs, domain=MICROSOFT, bits=bits, block_size=block, gather_axis=0,
                          quantize_axis=1))


def sequences(case):
    shape = case.shape(case.integer(2, 3), 2, 5)
    axis = case.integer(0, len(shape) - 1)
    x = case.input(shape)
    if case.integer(0, 1):
        parts = case.node("SplitToSequence", [x], axis=axis, keepdims=case.integer(0, 1))
    else:
        first = case.integer(1, shape[axis] - 1)
        parts = case.node("SplitToSequence", [x, case.integers(case.pick([first, shape[axis] - first], 1))], axis=axis)
    one = case.node("SequenceAt", [parts, case.integers(case.pick(0, -1))])
    other = case.node("Mul", [one, case.constant(numpy.float32(0.5))])
    made = case.node("SequenceConstruct", [one, other])
    made = case.node("SequenceInsert", [made, case.node("Neg", [one]), case.integers(case.pick(0, 1, -1))])
    if case.integer(0, 1):
        made = case.node("SequenceErase", [made, case.integers(1)])
    stacked = case.integer(0, 1)
    y = case.node("ConcatFromSequence", [made], axis=0, **({"new_axis": 1} if stacked else {}))
    count = case.node("Cast", [case.node("SequenceLength", [made])], to=TensorProto.FLOAT)
    case.output(case.node("Mul", [y, count]))


def repeated(case):
    """Sums over what is repeated: an expanded image, and an expanded kernel."""
    def expanded(shape):
        return case.node("Expand", [case.input([1 if case.integer(0, 2) else d for d in shape]), case.integers(shape)])

    c, size, kernel = case.pick(2, 4), case.shape(2, 3, 5), case.shape(2, 1, 3)
    x = expanded([case.integer(1, 2), c, *size])
    how = {"strides": [case.integer(1, 2)] * 2, "pads": [case.integer(0, min(1, k - 1)) for k in kernel] * 2}
    op, g = case.pick("AveragePool", "LpPool", "Conv", "ConvTranspose"), case.integer(1, 2)
    if op == "Conv":
        return case.output(case.node(op, [x, expanded([2 * g, c // g, *kernel])], group=g, **how))
    if op == "ConvTranspose":
        return case.output(case.node(op, [x, expanded([c, 2, *kernel])], group=g, **how))
    case.output(case.node(op, [x], kernel_shape=kernel, **how))


FAMILIES = [places_of_largest, regions, deformed, volumes, weights_of_bits, rows_of_blocks, sequences, repeated]
