"""Families of onnx_cases whose results depend on values: indices, orders, places, turns."""

import numpy
from onnx import TensorProto, helper, numpy_helper


def by_index(case):
    """Computed indices from -1 to 1, and known ones."""
    shape = case.shape(case.integer(2, 3), 2, 5)
    x = case.input(shape)
    if case.integer(0, 1):
        axis = case.integer(0, len(shape) - 1)
        to = [case.integer(1, 6) if d == axis else case.integer(1, e) for d, e in enumerate(shape)]
        known = case.rng.integers(-shape[axis], shape[axis], to)
        index = case.integers(known) if case.integer(0, 1) else case.input(to, TensorProto.INT64)
        return case.output(case.node("GatherElements", [x, index], axis=axis))
    deep = case.integer(1, len(shape))
    batches = case.pick(0, 1) if deep < len(shape) else 0
    to = [*shape[:batches], *case.shape(case.integer(1, 2), 1, 4), deep]
    known = numpy.stack([case.rng.integers(-shape[batches + k], shape[batches + k], to[:-1]) for k in range(deep)], -1)
    index = case.integers(known) if case.integer(0, 1) else case.input(to, TensorProto.INT64)
    case.output(case.node("GatherND", [x, index], batch_dims=batches))


def written(case):
    """Elements at known places, or added at computed ones, which may be the same."""
    case.opset = 18
    shape = case.shape(case.integer(1, 3), 2, 5)
    x = case.input(shape)
    known, way = case.integer(0, 1), case.pick("none", "add", "mul", "max", "min")
    way = "add" if not known and way == "none" else way
    if case.integer(0, 1):
        axis = case.integer(0, len(shape) - 1)
        to = [case.integer(1, e) for e in shape]
        rows = numpy.argsort(case.rng.random([shape[axis] if d == axis else e for d, e in enumerate(to)]), axis)
        index = case.integers(numpy.take(rows, range(to[axis]), axis)) if known else case.input(to, TensorProto.INT64)
        return case.output(case.node("ScatterElements", [x, index, case.input(to)], axis=axis, reduction=way))
    deep = case.integer(1, len(shape))
    count = case.integer(1, min(3, int(numpy.prod(shape[:deep]))))
    places = case.rng.choice(int(numpy.prod(shape[:deep])), count, replace=False)
    at = numpy.stack(numpy.unravel_index(places, shape[:deep]), -1)
    index = case.integers(at) if known else case.input([count, deep], TensorProto.INT64)
    case.output(case.node("ScatterND", [x, index, case.input([count, *shape[deep:]])], reduction=way))


def ordered(case):
    shape = case.shape(case.integer(1, 3), 1, 6)
    axis = case.integer(-len(shape), len(shape) - 1)
    if case.integer(0, 3) == 0:  # long rows go another way
        shape[axis] = case.integer(64, 90)
    x, kind = case.input(shape), case.integer(0, 2)
    if kind == 0:
        values, places = case.node("TopK", [x, case.integers([case.integer(1, shape[axis])])], 2, axis=axis,
                                   largest=case.integer(0, 1))
        case.output(values)
        case.output(places, TensorProto.INT64)
    elif kind == 1:
        case.output(case.node("CumSum", [x, case.integers(axis)], exclusive=case.integer(0, 1), reverse=case.integer(0, 1)))
    else:
        case.output(case.node("Hardmax", [x], axis=axis))


def interpolated(case):
    """Where onnxruntime does as the standard's reference does: not where a size is 1, nor where a scale makes a size that is
    rounded and corners are aligned."""
    case.opset = 18
    shape = [1, case.integer(1, 2), *case.shape(2, 2, 6)]
    how = {"mode": case.pick("linear", "cubic"), "coordinate_transformation_mode":
           case.pick("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"), "antialias": case.pick(0, 0, 1)}
    sizes = case.integer(0, 1) or how["coordinate_transformation_mode"] in ("align_corners", "pytorch_half_pixel")
    x = case.input(shape)
    if how["mode"] == "cubic":
        how["cubic_coeff_a"] = case.pick(-0.75, -0.5)
    x = case.node("Relu", [x]) if case.integer(0, 1) else x
    if sizes:
        case.output(case.node("Resize", [x, "", "", case.integers([*shape[:2], *case.shape(2, 2, 9)])], **how))
    else:
        scales = numpy.asarray([1, 1, case.pick(1, 2, 0.5), case.pick(1.5, 2.5)], dtype=numpy.float32)
        case.output(case.node("Resize", [x, "", case.constant(scales)], **how))


def sampled(case):
    case.opset = 16
    images, rows, columns = case.shape(3, 1, 3)
    x, grid = case.input([images, case.integer(1, 2), *case.shape(2, 2, 5)]), case.input([images, rows, columns, 2])
    grid = case.node("Mul", [grid, case.constant(numpy.float32(1.3))])
    case.output(case.node("GridSample", [x, grid], mode=case.pick("bilinear", "nearest"), align_corners=case.integer(0, 1),
                          padding_mode=case.pick("zeros", "border", "reflection")))


def rounded(case):
    shape = case.shape(2)
    x = case.node("Mul", [case.input(shape), case.constant(numpy.float32(4))])
    op = case.pick("Floor", "Ceil", "Round", "Sin", "Cos", "Sinh", "Cosh", "Asinh", "Mod", "Cast", "Div", "IsNaN", "IsInf")
    if op == "Mod":
        case.output(case.node("Mod", [x, case.positive(case.input(shape))], fmod=1))
    elif op == "Cast":
        case.output(case.node("Cast", [x], to=TensorProto.INT64), TensorProto.INT64)
    elif op == "Div":
        whole = case.node("Cast", [x], to=TensorProto.INT64)
        case.output(case.node(case.pick("Div", "Mod"), [whole, case.integers(case.pick(3, -2))]), TensorProto.INT64)
    elif op.startswith("Is"):
        root = case.node("Sqrt" if op == "IsNaN" else "Reciprocal", [case.node("Relu", [x]) if op == "IsInf" else x])
        case.output(case.node(op, [root]), TensorProto.BOOL)
    else:
        case.output(case.node(op, [x]))


def looped(case):
    """A state that turns change, and what each turn leaves."""
    shape = case.shape(2)
    x = case.input(shape)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["state", "factor"], ["twice"]), helper.make_node("Cast", ["turn"], ["number"], to=TensorProto.FLOAT),
         helper.make_node("Add", ["twice", "number"], ["next"]), helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("Identity", ["next"], ["left"])], "turns",
        [info("turn", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("state", TensorProto.FLOAT, shape)],
        [info("on", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, shape), info("left", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(numpy.float32(0.5), "factor")])
    last, all_of = case.node("Loop", [case.integers(case.integer(1, 4)), "", x], 2, body=body)
    case.output(last)
    case.output(all_of)


FAMILIES = [by_index, written, ordered, interpolated, sampled, rounded, looped]
