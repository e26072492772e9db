"""Families of onnx_versions: operators as files of the versions have them, of several types."""

import ml_dtypes
import numpy
from onnx import TensorProto, helper, numpy_helper

from onnx_builder import Case

# bf16: numbers of f32 that bf16 has. A file of them becomes one of bf16 by onnx_versions.in_bf16.
FLOATS = {"f32": numpy.float32, "f64": numpy.float64, "f16": numpy.float16, "bf16": numpy.float32}


class Net(Case):
    """One operator, what it reads and in which version."""

    def __init__(self, rng, opset, kind):
        super().__init__(rng, opset)
        self.kind, self.dtype = kind, FLOATS[kind]
        self.values = {}  # of the inputs

    def input(self, shape, low=-1.0, high=1.0, dtype=None):
        dtype = numpy.dtype(dtype or self.dtype)
        values = self.rng.uniform(low, high, shape) if dtype.kind == "f" else self.rng.integers(int(low), int(high) + 1, shape)
        name = super().input(shape, helper.np_dtype_to_tensor_dtype(dtype))
        self.values[name] = self.rounded(numpy.asarray(values).astype(dtype))
        return name

    def constant(self, values, dtype=None):
        return super().constant(self.rounded(numpy.asarray(values, dtype=dtype or self.dtype)))

    def rounded(self, values):
        """To what bf16 has, where the file becomes one of bf16."""
        if self.kind != "bf16" or values.dtype != numpy.float32:
            return values
        return values.astype(ml_dtypes.bfloat16).astype(numpy.float32)

    def integers(self, values):
        return self.constant(values, numpy.int64)

    def axis(self, rank, since=11):
        """Negative where the version takes that."""
        return self.integer(-rank if self.opset >= since else 0, rank - 1)

    def some(self, n):
        """A subset of dimensions, one at least."""
        return sorted(self.rng.permutation(n)[:self.integer(1, n)].tolist())

    def ends_in(self, names):
        self.outputs = [helper.make_empty_tensor_value_info(name) for name in names]


def clip(n):
    x = n.input(n.shape(n.integer(0, 3)), -2, 2)
    low, high = n.pick((-0.5, 0.75), (None, 0.5), (-0.25, None), (None, None))
    if n.opset < 11:
        return n.node("Clip", [x], **{k: v for k, v in (("min", low), ("max", high)) if v is not None})
    return n.node("Clip", [x, *("" if v is None else n.constant(v) for v in (low, high))])


def batch_norm(n):
    c = n.integer(1, 4)
    x = n.input([n.integer(1, 3), c, *n.shape(n.integer(0, 2))])
    given = [x, n.weight([c], .5, 1.5), n.weight([c]), n.weight([c], -.3, .3), n.weight([c], .5, 1.5)]
    more = {"epsilon": n.pick(1e-5, 1e-2)} if n.integer(0, 1) else {}
    if n.opset < 9 and n.integer(0, 1):
        more["spatial"] = 1
    return n.node("BatchNormalization", given, **more, momentum=0.9)


def squeezes(n):
    rank = n.integer(1, 4)
    shape = [n.pick(1, 1, 3) for _ in range(rank)]
    ones = [i for i, d in enumerate(shape) if d == 1]
    x = n.input(shape)
    if n.integer(0, 1) and ones:
        axes = [a - rank if n.opset >= 11 and n.integer(0, 1) else a for a in ones[:n.integer(1, len(ones))]]
        return n.node("Squeeze", [x], axes=axes) if n.opset < 13 else n.node("Squeeze", [x, *([n.integers(axes)] if n.integer(0, 3) else [])])
    axes = sorted(n.rng.permutation(rank + 2)[:2].tolist())
    return n.node("Unsqueeze", [x], axes=axes) if n.opset < 13 else n.node("Unsqueeze", [x, n.integers(axes)])


def reduces(n):
    op = n.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
                "ReduceSumSquare")
    rank = n.integer(0 if n.opset >= 13 else 1, 4)
    x = n.input(n.shape(rank), .25, 1.5)
    axes = [] if rank == 0 else [a - rank if n.opset >= 11 and n.integer(0, 1) else a for a in n.some(rank)]
    more = {"keepdims": n.integer(0, 1)} if n.integer(0, 2) else {}
    if n.opset < (13 if op == "ReduceSum" else 18):
        return n.node(op, [x], **({"axes": axes} if axes and n.integer(0, 3) else {}), **more)
    if n.integer(0, 3) == 0:
        return n.node(op, [x, *([n.integers([])] if n.integer(0, 1) else [])], noop_with_empty_axes=n.integer(0, 1), **more)
    return n.node(op, [x, n.integers(axes)], **more)


def softmaxes(n):
    rank = n.integer(1, 4)
    more = {"axis": n.axis(rank)} if n.integer(0, 2) or (rank < 2 and n.opset < 13) else {}
    if more.get("axis") == 0 and rank == 0:
        more = {}
    return n.node(n.pick("Softmax", "LogSoftmax", "Hardmax"), [n.input(n.shape(rank), -3, 3)], **more)


def splits(n):
    rank = n.integer(1, 3)
    a = n.axis(rank)
    shape = n.shape(rank)
    parts = n.pick([2, 3], [1, 1, 2], [4], [3, 3], [1, 2, 0] if n.opset >= 11 else [1, 2])
    shape[a] = sum(parts)
    x, equal = n.input(shape), len(set(parts)) == 1
    if equal and n.integer(0, 1):
        y = n.node("Split", [x], len(parts), axis=a, **({"num_outputs": len(parts)} if n.opset >= 18 else {}))
    elif n.opset < 13:
        y = n.node("Split", [x], len(parts), axis=a, split=parts)
    else:
        y = n.node("Split", [x, n.integers(parts)], len(parts), axis=a)
    return y


def slices(n):
    rank = n.integer(1, 4)
    shape = n.shape(rank, 1, 7)
    axes = n.some(rank)
    starts = [n.pick(0, 1, -2, -shape[a], shape[a] - 1) for a in axes]
    ends = [n.pick(shape[a], 2 ** 31 - 1, -1, shape[a] - 1, 1) for a in axes]
    x = n.input(shape)
    if n.opset < 10:
        return n.node("Slice", [x], starts=starts, ends=ends, **({"axes": axes} if axes != list(range(len(axes))) or n.integer(0, 1) else {}))
    steps = [n.pick(1, 1, 2, -1, 3, -2) for _ in axes]
    ends = [e if s > 0 else n.pick(-shape[a] - 1, 0, -2 ** 31) for a, e, s in zip(axes, ends, steps)]
    starts = [s if t > 0 else n.pick(-1, shape[a] - 1, 2 ** 31 - 1) for a, s, t in zip(axes, starts, steps)]
    if n.integer(0, 1):
        axes = [a - rank for a in axes]
    kind = n.pick(numpy.int64, numpy.int32)
    return n.node("Slice", [x, *(n.constant(v, kind) for v in (starts, ends, axes)), *([n.constant(steps, kind)] if steps != [1] * len(steps) else [])])


def pads(n):
    rank = n.integer(1, 4)
    shape = n.shape(rank, 2, 5)
    mode = n.pick("constant", "constant", "reflect", "edge", *(["wrap"] if n.opset >= 19 else []))
    low = -1 if mode == "constant" else 0
    most = [1 if mode != "constant" else 2 for _ in shape]
    x, value = n.input(shape), n.pick(0.0, 1.5, -0.5)
    if n.opset < 11:
        return n.node("Pad", [x], mode=mode, value=value, pads=[n.integer(max(low, 0), m) for m in most * 2])
    axes = n.some(rank) if n.opset >= 18 and n.integer(0, 1) else None
    count = len(axes) if axes else rank
    given = [x, n.integers([n.integer(low, m) for m in [most[0]] * count * 2]), n.constant(value) if n.integer(0, 1) else ""]
    if axes:
        given.append(n.integers([a - rank if n.integer(0, 1) else a for a in axes]))
    return n.node("Pad", given, mode=mode)


def top_k(n):
    rank = n.integer(1, 3)
    shape, a = n.shape(rank, 2, 6), n.axis(rank)
    k = n.integer(1, shape[a])
    x = n.input(shape)
    if n.opset < 10:
        values, _ = n.node("TopK", [x], 2, axis=a, k=k)
    else:
        values, _ = n.node("TopK", [x, n.integers([k])], 2, axis=a, **({"largest": n.integer(0, 1)} if n.opset >= 11 else {}))
    return [values, _]


def resizes(n):
    rank = n.pick(3, 4)
    shape = n.shape(rank, 2, 5)
    scales = [1.0, 1.0] + [n.pick(1.0, 2.0, 3.0, 1.5, 0.5) for _ in shape[2:]]
    if n.opset < 11:
        scales = [max(1.0, s) for s in scales]
    x, mode = n.input(shape), n.pick("nearest", "linear")
    if n.opset < 9:
        return n.node("Upsample", [x], mode=mode, scales=scales)
    if n.opset < 10:
        return n.node("Upsample", [x, n.constant(scales, numpy.float32)], mode=mode)
    if n.opset < 11:
        return n.node("Resize", [x, n.constant(scales, numpy.float32)], mode=mode)
    more = {"coordinate_transformation_mode": n.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")} if n.integer(0, 2) else {}
    if mode == "nearest" and n.integer(0, 1):
        more["nearest_mode"] = n.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if rank == 4 and n.integer(0, 2) == 0:
        mode, more = "cubic", {k: v for k, v in more.items() if k != "nearest_mode"}
        more |= {"cubic_coeff_a": n.pick(-0.75, -0.5), "exclude_outside": n.integer(0, 1)}
    roi = n.constant([], numpy.float32) if n.opset < 13 or n.integer(0, 1) else ""
    if n.integer(0, 1):
        sizes = [int(d * s) or 1 for d, s in zip(shape, scales)]
        return n.node("Resize", [x, roi, n.constant([], numpy.float32) if n.opset < 13 else "", n.integers(sizes)], mode=mode, **more)
    if n.opset >= 18 and n.integer(0, 1):
        more["axes"] = list(range(2, rank))
        scales = scales[2:]
    return n.node("Resize", [x, roi, n.constant(scales, numpy.float32)], mode=mode, **more)


def gemm(n):
    m, k, o = n.shape(3, 1, 6)
    ta, tb = n.integer(0, 1), n.integer(0, 1)
    c = n.pick([o], [m, o], [m, 1], [1], [1, o], [])
    given = [n.input([k, m] if ta else [m, k]), n.weight([o, k] if tb else [k, o])]
    if n.opset < 11 or n.integer(0, 3):
        given.append(n.weight(c))
    return n.node("Gemm", given, transA=ta, transB=tb, alpha=n.pick(1.0, 0.5), beta=n.pick(1.0, 2.0, 0.0))


def scatters(n):
    rank = n.integer(1, 3)
    shape = n.shape(rank, 2, 5)
    a = n.axis(rank)
    where = [n.integer(1, d) for d in shape]
    rows = numpy.stack([n.rng.permutation(shape[a])[:where[a]] for _ in range(int(numpy.prod(where)) // where[a])])
    index = numpy.moveaxis(rows.reshape([d for i, d in enumerate(where) if i != a % rank] + [where[a]]), -1, a % rank)
    if n.opset >= 11 and n.integer(0, 1):
        index = index - shape[a]
    op = "Scatter" if n.opset < 11 else "ScatterElements"
    return n.node(op, [n.input(shape), n.integers(index), n.input(where)], axis=a, **(
        {"reduction": n.pick("add", "mul")} if n.opset >= 16 and n.integer(0, 1) else {}))


def gathers(n):
    rank = n.integer(1, 3)
    shape = n.shape(rank, 2, 5)
    a = n.axis(rank)
    index = n.rng.integers(-shape[a] if n.opset >= 11 else 0, shape[a], n.shape(n.integer(0, 2), 1, 3))
    kind = n.pick(numpy.int64, numpy.int32)
    if n.opset >= 11 and n.integer(0, 1):
        where = [n.integer(1, d) for d in shape]
        return n.node("GatherElements", [n.input(shape), n.constant(n.rng.integers(-shape[a], shape[a], where), kind)], axis=a)
    return n.node("Gather", [n.input(shape), n.constant(index, kind)], axis=a)


def gather_nd(n):
    shape = n.shape(3, 2, 4)
    batch = n.integer(0, 1) if n.opset >= 12 else 0
    depth = n.integer(1, 3 - batch)
    index = numpy.stack([n.rng.integers(0, shape[batch + i], [shape[0] if batch else 2, 2]) for i in range(depth)], -1)
    if batch:
        index = index[:, 0] if n.integer(0, 1) else index
    return n.node("GatherND", [n.input(shape), n.integers(index)], **({"batch_dims": batch} if n.opset >= 12 else {}))


def windows(n):
    d = n.integer(1, 3)
    op = n.pick("MaxPool", "AveragePool", "LpPool", "Conv", "Conv", "ConvTranspose", "ConvTranspose")
    size = [n.integer(4, 8) for _ in range(d)]
    kernel = [n.integer(1, 3) for _ in range(d)]
    strides = [n.integer(1, 2) for _ in range(d)]
    auto = n.pick("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    more = {"strides": strides} if n.integer(0, 2) else {}
    if auto == "NOTSET":
        more["pads"] = [n.integer(0, k // 2) for k in kernel * 2]
    else:
        more["auto_pad"] = auto
    dilated = n.integer(0, 2) == 0
    if op in ("Conv", "ConvTranspose"):
        groups = n.pick(1, 1, 2)
        ci, co = 2 * n.integer(1, 2), 2 * n.integer(1, 2)
        if dilated:
            more["dilations"] = [n.integer(1, 2) for _ in range(d)]
        if n.integer(0, 1):
            more["kernel_shape"] = kernel
        if groups > 1:
            more["group"] = groups
        w = n.weight([co, ci // groups, *kernel] if op == "Conv" else [ci, co // groups, *kernel])
        if op == "ConvTranspose" and n.integer(0, 2) == 0:
            if auto == "NOTSET" and n.integer(0, 1):
                more["output_padding"] = [n.integer(0, s - 1) for s in more.get("strides", [1] * d)]
            elif "dilations" not in more:
                more.pop("pads", None)
                more["output_shape"] = [s * t + n.integer(0, 1) for s, t in zip(size, more.get("strides", [1] * d))]
        return n.node(op, [n.input([n.integer(1, 2), ci, *size]), w, *([n.weight([co])] if n.integer(0, 1) else [])], **more)
    if op == "MaxPool" and n.opset >= 10 or op == "AveragePool" and n.opset >= 19 or op == "LpPool" and n.opset >= 18:
        if dilated and auto == "NOTSET":  # onnxruntime pads for a window that is not dilated
            more["dilations"] = [n.integer(1, 2) for _ in range(d)]
    if (op in ("MaxPool", "AveragePool") and n.opset >= 10 or op == "LpPool" and n.opset >= 18) and auto == "NOTSET" and n.integer(0, 1):
        more["ceil_mode"] = 1
    if op == "AveragePool" and n.integer(0, 1):
        more["count_include_pad"] = 1
    if op == "LpPool":
        more["p"] = n.pick(1, 2, 3)
    return n.node(op, [n.input([n.integer(1, 2), n.integer(1, 3), *size])], kernel_shape=kernel, **more)


def globals_(n):
    op = n.pick("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    return n.node(op, [n.input([n.integer(1, 2), n.integer(1, 3), *n.shape(n.integer(1, 3))])], **({"p": n.pick(1, 2)} if "Lp" in op else {}))


def norms(n):
    op = n.pick("LRN", "InstanceNormalization", "LpNormalization", "MeanVarianceNormalization", "LayerNormalization", "GroupNormalization")
    c = 2 * n.integer(1, 3)
    shape = [n.integer(1, 3), c, *n.shape(2, 2, 4)]
    x = n.input(shape)
    if op == "LRN":
        return n.node(op, [x], size=n.pick(1, 3, 5), **({"alpha": 0.2, "beta": 0.5, "bias": 2.0} if n.integer(0, 1) else {}))
    if op == "InstanceNormalization":
        return n.node(op, [x, n.weight([c]), n.weight([c])], epsilon=n.pick(1e-5, 1e-2))
    if op == "LpNormalization":
        return n.node(op, [x], axis=n.axis(4), p=n.pick(1, 2))
    if op == "MeanVarianceNormalization" and n.opset >= 9:
        return n.node(op, [x], **({"axes": [0, 2, 3]} if n.integer(0, 1) else {"axes": [1]}))
    if op == "GroupNormalization" and n.opset >= 18:
        w = 2 if n.opset < 21 else c
        return n.node(op, [x, n.weight([w]), n.weight([w])], num_groups=2)
    if n.opset < 17:
        return None
    a = n.axis(4)
    return n.node("LayerNormalization", [x, n.weight(shape[a:]), *([n.weight(shape[a:])] if n.integer(0, 1) else [])], axis=a, epsilon=n.pick(1e-5, 1e-3))


def elements(n):
    ops = {"Relu": 6, "LeakyRelu": 6, "Elu": 6, "Selu": 6, "HardSigmoid": 6, "Sigmoid": 6, "Tanh": 6, "Softplus": 1, "Softsign": 1, "Exp": 6, "Neg": 6,
           "Abs": 6, "Reciprocal": 6, "Sqrt": 6, "Log": 6, "Floor": 6, "Ceil": 6, "Sin": 7, "Cos": 7, "Tan": 7, "Asin": 7, "Acos": 7, "Atan": 7,
           "Sinh": 9, "Cosh": 9, "Asinh": 9, "Acosh": 9, "Atanh": 9, "Erf": 9, "Sign": 9, "Round": 11, "ThresholdedRelu": 10, "Celu": 12,
           "HardSwish": 14, "Mish": 18, "Gelu": 20, "Shrink": 9, "Identity": 1}
    op = n.pick(*(o for o, since in ops.items() if since <= n.opset))
    low, high = {"Sqrt": (.1, 2), "Log": (.1, 2), "Reciprocal": (.5, 2), "Acosh": (1.1, 3), "Atanh": (-.8, .8), "Asin": (-1, 1), "Acos": (-1, 1)}.get(op, (-2, 2))
    more = {}
    if op in ("LeakyRelu", "Elu", "Selu", "HardSigmoid", "ThresholdedRelu", "Celu") and n.integer(0, 1):
        more["alpha"] = n.pick(0.3, 1.2)
    if op in ("Selu",) and n.integer(0, 1):
        more["gamma"] = 1.1
    if op == "HardSigmoid" and n.integer(0, 1):
        more["beta"] = 0.4
    if op == "Shrink":
        more = {"lambd": 0.3, "bias": n.pick(0.0, 0.2)}
    if op == "Gelu" and n.integer(0, 1):
        more["approximate"] = "tanh"
    return n.node(op, [n.input(n.shape(n.integer(0, 4)), low, high)], **more)


def binaries(n):
    op = n.pick("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mean", "Sum", "PRelu", *(["Mod"] if n.opset >= 10 else []))
    shape = n.shape(n.integer(0, 4))
    small = [1 if n.integer(0, 2) == 0 else d for d in shape][n.integer(0, len(shape)):]
    whole = n.pick(numpy.int32, numpy.int64) if op in ("Add", "Sub", "Mul", "Div", "Mod") and n.integer(0, 3) == 0 else None
    low, high = (1, 5) if whole else (.5, 2) if op in ("Div", "Pow", "Mod") else (-2, 2)
    x, y = n.input(shape, low, high, whole), n.input(small, low, high, whole)
    if n.integer(0, 1) and op != "PRelu":
        x, y = y, x
    if op in ("Min", "Max", "Mean", "Sum") and n.opset >= 8:
        return n.node(op, [x, y, n.input(shape)][:n.integer(1, 3)])
    return n.node(op, [x, y], **({"fmod": 1} if op == "Mod" and not whole else {}))


def compares(n):
    shape = n.shape(n.integer(1, 3))
    ops = ["Less", "Greater", *(["Equal"] if n.opset >= 11 else []), *(["LessOrEqual", "GreaterOrEqual"] if n.opset >= 12 else [])]
    c = n.node(n.pick(*ops), [n.input(shape), n.input([1 if n.integer(0, 1) else d for d in shape])])
    if n.integer(0, 1):
        c = n.node(n.pick("And", "Or", "Xor"), [c, n.node("Not", [c])])
    if n.opset >= 9 and n.integer(0, 1):
        return n.node("Where", [c, n.input(shape), n.constant(0.25)])
    return n.node("Cast", [c], to=helper.np_dtype_to_tensor_dtype(numpy.dtype(n.dtype)))


def moves(n):
    op = n.pick("Transpose", "Flatten", "Reshape", "Tile", "Concat", "DepthToSpace", "SpaceToDepth", "Expand", "Trilu", "ReverseSequence", "Dropout",
                "CenterCropPad", "Col2Im")
    rank = n.integer(1, 4)
    shape = n.shape(rank)
    if op == "Flatten":
        return n.node(op, [n.input(shape)], axis=n.integer(-rank if n.opset >= 11 else 0, rank))
    if op == "Reshape":
        if n.opset >= 14 and n.integer(0, 3) == 0:
            return n.node(op, [n.input([2, 3]), n.integers([3, 2])], allowzero=1)
        return n.node(op, [n.input(shape), n.integers(n.pick([-1], [0, -1], [1, -1], [*shape, 1], [0] * rank))])
    if op == "Tile":
        return n.node(op, [n.input(shape), n.integers([n.integer(1, 3) for _ in shape])])
    if op == "Concat":
        a = n.axis(rank)
        return n.node(op, [n.input([n.integer(1, 3) if i == a % rank else d for i, d in enumerate(shape)]) for _ in range(n.integer(1, 3))], axis=a)
    if op == "DepthToSpace":
        return n.node(op, [n.input([n.integer(1, 2), 8, *n.shape(2)])], blocksize=2, **({"mode": n.pick("DCR", "CRD")} if n.opset >= 11 else {}))
    if op == "SpaceToDepth":
        return n.node(op, [n.input([1, 2, 4, 6])], blocksize=2)
    if op == "Expand" and n.opset >= 8:
        small = [n.pick(1, d) for d in shape][n.integer(0, rank - 1):]
        return n.node(op, [n.input(small), n.integers([n.pick(d, 1) if s == d else d for d, s in zip(shape, [1] * (rank - len(small)) + small)])])
    if op == "Trilu" and n.opset >= 14:
        return n.node(op, [n.input(n.shape(n.integer(2, 3))), *([n.integers(n.integer(-2, 2))] if n.integer(0, 1) else [])], upper=n.integer(0, 1))
    if op == "ReverseSequence" and n.opset >= 10:
        return n.node(op, [n.input([4, 3, 2]), n.integers([2, 4, 1])], time_axis=0, batch_axis=1)
    if op == "Dropout":
        if n.opset < 12:
            return n.node(op, [n.input(shape)], ratio=0.3)
        return n.node(op, [n.input(shape), n.constant(0.3, numpy.float32) if n.integer(0, 1) else "", n.constant(False, numpy.bool_) if n.integer(0, 1) else ""])
    if op == "CenterCropPad" and n.opset >= 18:
        return n.node(op, [n.input([4, 5, 3]), n.integers([6, 2])], axes=n.pick([0, 1], [-1, 0]))
    if op == "Col2Im" and n.opset >= 18:
        return n.node(op, [n.input([1, 4, 6]), n.integers([3, 4]), n.integers([2, 2])])
    return n.node("Transpose", [n.input(shape)], **({"perm": n.rng.permutation(rank).tolist()} if n.integer(0, 2) else {}))


def ranked(n):
    op = n.pick("ArgMax", "ArgMin", "OneHot", "CumSum", "Einsum", "Det", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "IsNaN", "IsInf",
                "EyeLike", "Range", "ConstantOfShape", "Size")
    rank = n.integer(1, 3)
    shape = n.shape(rank, 2, 5)
    a = n.axis(rank)
    if op in ("ArgMax", "ArgMin"):
        return n.node(op, [n.input(shape)], axis=a, keepdims=n.integer(0, 1), **({"select_last_index": n.integer(0, 1)} if n.opset >= 12 else {}))
    if op == "OneHot" and n.opset >= 9:
        low = -4 if n.opset >= 11 else 0
        return n.node(op, [n.input(shape, low, 3, numpy.int64), n.constant(4, n.pick(numpy.int64, numpy.int32)), n.constant([-0.5, 2.0])],
                      **({"axis": n.integer(-rank - 1, rank)} if n.integer(0, 1) else {}))
    if op == "CumSum" and n.opset >= 11:
        return n.node(op, [n.input(shape), n.constant(a, n.pick(numpy.int64, numpy.int32))], exclusive=n.integer(0, 1), reverse=n.integer(0, 1))
    if op == "Einsum" and n.opset >= 12:
        b, i, j, k = n.shape(4, 2, 4)
        text, *shapes = n.pick(("bij,bjk->bik", [b, i, j], [b, j, k]), ("ij->ji", [i, j]), ("ii->i", [i, i]), ("...ij,jk", [b, i, j], [j, k]),
                               ("i,j->ij", [i], [j]), ("ijk->", [i, j, k]), ("bij, bij -> b", [b, i, j], [b, i, j]))
        return n.node(op, [n.input(s) for s in shapes], equation=text)
    if op == "Det" and n.opset >= 11:
        return n.node(op, [n.input([2, 3, 3])])
    if op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss") and n.opset >= 12:
        b, c = n.shape(2, 2, 4)
        more = n.shape(n.integer(0, 2), 1, 3)
        given = [n.input([b, c, *more]), n.input([b, *more], 0, c - 1, numpy.int64)]
        if n.integer(0, 1):
            given.append(n.weight([c], .5, 1))
        return n.node(op, given, reduction=n.pick("mean", "sum", "none"), **({"ignore_index": 1} if n.integer(0, 1) else {}))
    if op == "IsNaN" and n.opset >= 9 or op == "IsInf" and n.opset >= 10:
        x = n.node("Log", [n.input(shape)])
        return n.node("Cast", [n.node(op, [x])], to=TensorProto.FLOAT)
    if op == "EyeLike" and n.opset >= 9:
        return n.node("Add", [n.input([3, 4]), n.node(op, [n.input([3, 4])], k=n.integer(-1, 1), dtype=helper.np_dtype_to_tensor_dtype(numpy.dtype(n.dtype)))])
    if op == "ConstantOfShape" and n.opset >= 9:
        x = n.input(shape)
        value = numpy_helper.from_array(numpy.asarray([0.5], dtype=n.dtype), "value")
        return n.node("Add", [x, n.node(op, [n.node("Shape", [x])], **({"value": value} if n.integer(0, 1) or n.dtype != numpy.float32 else {}))])
    return n.node("Cast", [n.node("Size" if op == "Size" else "Shape", [n.input(shape)], **(
        {"start": n.integer(-2, 1), "end": 3} if n.opset >= 15 and op != "Size" else {}))], to=TensorProto.FLOAT)


def recurrent(n):
    op = n.pick("LSTM", "GRU", "RNN")
    t, b, i, h = n.integer(1, 4), n.integer(1, 3), n.integer(1, 4), n.integer(1, 3)
    gates, d = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], n.pick(("forward", 1), ("reverse", 1), ("bidirectional", 2))
    batch_first = n.opset >= 14 and n.integer(0, 2) == 0
    given = [n.input([b, t, i] if batch_first else [t, b, i]), n.weight([d[1], gates * h, i]), n.weight([d[1], gates * h, h])]
    given.append(n.weight([d[1], 2 * gates * h]) if n.integer(0, 1) else "")
    given.append(n.constant([n.integer(1, t) for _ in range(b)], numpy.int32) if n.integer(0, 1) else "")
    state = [b, d[1], h] if batch_first else [d[1], b, h]
    given.append(n.input(state) if n.integer(0, 1) else "")
    more = {"layout": 1} if batch_first else {}
    if op == "LSTM":
        given += [n.input(state) if n.integer(0, 1) else "", n.weight([d[1], 3 * h]) if n.integer(0, 1) else ""]
        if n.integer(0, 2) == 0:
            more["input_forget"] = 1
    if op == "GRU" and n.integer(0, 1):
        more["linear_before_reset"] = 1
    if n.integer(0, 2) == 0:
        more["clip"] = 0.4
    if n.integer(0, 2) == 0:
        one = {"LSTM": ["Sigmoid", "Softsign", "Relu"], "GRU": ["HardSigmoid", "Tanh"], "RNN": ["Relu"]}[op]
        more |= {"activations": one * d[1]}
        if "HardSigmoid" in one:
            more |= {"activation_alpha": [0.3] * d[1], "activation_beta": [0.4] * d[1]}
    return n.node(op, given, 3 if op == "LSTM" else 2, direction=d[0], hidden_size=h, **more)


def quantised(n):
    if n.opset < 10:
        return None
    n.kind = "f32"  # whatever is drawn
    kind = n.pick(numpy.uint8, numpy.int8)
    shape = n.shape(3, 2, 4)
    more = {}
    if n.opset >= 13 and n.integer(0, 1):
        a = n.axis(3)
        more["axis"] = a
        scale = n.constant(n.rng.uniform(.02, .1, shape[a]), numpy.float32)
        zero = n.constant(n.rng.integers(0, 5, shape[a]), kind)
    else:
        scale, zero = n.constant(0.05, numpy.float32), n.constant(3, kind)
    x = n.input(shape, dtype=numpy.float32)
    y = n.node("QuantizeLinear", [x, scale, zero], **more)
    return n.node("DequantizeLinear", [y, scale, zero], **more)


def controls(n):
    """If, Loop, Scan with names of the graph around."""
    shape = n.shape(2)
    x, w = n.input(shape), n.weight(shape)
    out = helper.make_empty_tensor_value_info
    what = n.pick("If", "If", "Loop", "Scan")
    if what == "If":
        def branch(name, op):
            return helper.make_graph([helper.make_node(op, [x, w], [name])], name + "_graph", [], [out(name)])
        condition = n.constant(bool(n.integer(0, 1)), numpy.bool_) if n.integer(0, 1) else n.node(
            "Greater", [n.node("ReduceSum", [x], keepdims=0), n.constant(0.0)])
        return n.node("If", [condition], then_branch=branch("t", "Add"), else_branch=branch("e", "Mul"))
    if what == "Loop":
        if n.opset < 11:
            return None
        info = helper.make_tensor_value_info
        kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(n.dtype))
        body = helper.make_graph(
            [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Mul", ["s", w], ["m"]), helper.make_node("Add", ["m", x], ["s2"]),
             helper.make_node("Identity", ["m"], ["scan"])], "body",
            [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("s", kind, shape)], [out("c2"), out("s2"), out("scan")])
        return n.node("Loop", [n.integers(n.integer(1, 4)), n.constant(True, numpy.bool_) if n.integer(0, 1) else "", x], 2, body=body)
    if n.opset < 9:
        return None
    kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(n.dtype))
    info = helper.make_tensor_value_info
    body = helper.make_graph([helper.make_node("Add", ["s", "e"], ["s2"]), helper.make_node("Mul", ["s2", "e"], ["o"])], "body",
                             [info("s", kind, shape[1:]), info("e", kind, shape[1:])], [out("s2"), out("o")])
    return n.node("Scan", [n.constant(numpy.zeros(shape[1:])), x], 2, body=body, num_scan_inputs=1, **(
        {"scan_input_directions": [1]} if n.integer(0, 1) else {}))


def turns(n):
    """Loops, scans and branches within one another, of what is known while importing and of what is not."""
    if n.opset < 13:
        return None
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(numpy.dtype(n.dtype))
    shape = n.shape(2, 1, 4)
    x, w = n.input(shape), n.weight(shape)

    def above_zero(v):
        return n.node("Greater", [n.node("ReduceSum", [v], keepdims=0), n.constant(0.0)])

    def step(v, depth, turn=None):
        """The same shape: an element-wise operator, or a graph of its own."""
        what = n.pick("Mul", "Add", "Tanh", "If", "If", "Loop", "Loop", "Scan") if depth < 3 else n.pick("Mul", "Add", "Tanh")
        if what == "If":
            condition = n.node("Equal", [n.node("Mod", [turn, n.integers(2)]), n.integers(n.integer(0, 1))]) if turn and n.integer(0, 1) else (
                above_zero(v) if n.integer(0, 2) else n.constant(bool(n.integer(0, 1)), numpy.bool_))
            then, other = (n.graph(name, [], lambda: [step(v, depth + 1, turn)]) for name in ("then", "otherwise"))
            return n.node("If", [condition], then_branch=then, else_branch=other)
        if what == "Loop":
            return loop(v, depth, 0)
        if what == "Scan":
            at = n.numbered
            e, s = f"e{at}", f"s{at}"
            body = n.graph("rows", [info(s, kind, shape[1:]), info(e, kind, shape[1:])],
                           lambda: (lambda y: [y, n.node("Sub", [y, e])])(n.node(n.pick("Mul", "Add"), [s, e])))
            more = {"scan_input_directions": [n.integer(0, 1)], "scan_output_directions": [n.integer(0, 1)]} if n.integer(0, 1) else {}
            first = n.node("ReduceMean", [v], **({"axes": [0], "keepdims": 0})) if n.opset < 18 else n.node("ReduceMean", [v, n.integers([0])], keepdims=0)
            return n.node("Scan", [first, v], 2, body=body, num_scan_inputs=1, **more)[1]
        return n.node(what, [v] if what == "Tanh" else [v, w])

    def loop(v, depth, collected):
        at, most = n.numbered, n.integer(1, 3)
        i, c, s = f"i{at}", f"c{at}", f"t{at}"
        ends = n.pick("turns", "turns", "turn", "value")

        def make():
            y = step(s, depth + 1, i)
            on = {"turns": lambda: n.node("Identity", [c]), "turn": lambda: n.node("Less", [i, n.integers(most)]),
                  "value": lambda: above_zero(y)}[ends]()
            return [on, y, *([y] if collected else [])]

        body = n.graph("turn", [info(i, TensorProto.INT64, []), info(c, TensorProto.BOOL, []), info(s, kind, shape)], make)
        limit = "" if ends == "turn" and n.integer(0, 1) else n.integers(most)
        start = n.constant(True, numpy.bool_) if limit == "" or n.integer(0, 1) else ""
        return n.node("Loop", [limit, start, v], 1 + collected, body=body)

    made = loop(step(x, 1), 0, n.integer(0, 1)) if n.integer(0, 1) else step(step(x, 0), 0)
    return made


FAMILIES = [clip, batch_norm, squeezes, reduces, softmaxes, splits, slices, pads, top_k, resizes, gemm, scatters, gathers, gather_nd, windows, windows,
            globals_, norms, elements, binaries, compares, moves, moves, ranked, recurrent, quantised, controls, turns]


def make(family, seed, opset, kind="f32"):
    """The model of that family, seed and version."""
    net = Net(numpy.random.default_rng(seed), opset, kind)
    made = family(net)
    net.ends_in(made if isinstance(made, list) else [made])
    return net.model()
