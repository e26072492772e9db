"""ATen's reductions, softmax and normalisations."""

import math

from .graph import Meta
from .lower import FLOATS, NotCovered, axes, axis, demand_short, lowers

_REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin",
               "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp"}


@lowers(*(f"aten.{op}" for op in _REDUCTIONS), args="self dim keepdim")
def _reduce(l, n, a):
    x = l.cast(a["self"], n.value.dtype)
    if n.value.dtype not in FLOATS and "mean" in n.target:
        raise NotCovered("a mean of whole numbers")
    return l.reduce(_REDUCTIONS[n.target.split(".")[1]], x, axes(a["dim"], len(x.shape)), bool(a["keepdim"]))


@lowers("aten.max", "aten.min", args="self dim keepdim")
def _extremum(l, n, a):
    op = "Max" if n.target.startswith("aten.max") else "Min"
    x = a["self"]
    if n.target.endswith(".other"):
        return l.binary(op, x, a["dim"], n.value.dtype)
    if n.target.endswith(".default"):
        return l.reduce(f"Reduce{op}", x, axes(None, len(x.shape)), False)
    over, keep = axes(a["dim"], len(x.shape)), bool(a["keepdim"])
    at = _position(l, f"Arg{op}", x, axis(a["dim"], len(x.shape)), keep, n.value[1].shape) if l.wants(1) else None
    return [l.reduce(f"Reduce{op}", x, over, keep), at]


def _position(l, op, x, dim, keep, shape):
    if not x.shape:
        raise NotCovered("a position in a number")
    return l.emit(op, [x], shape, "int64", axis=dim, keepdims=int(keep))


@lowers("aten.argmax", "aten.argmin", args="self dim keepdim")
def _arg(l, n, a):
    x, dim = a["self"], a["dim"]
    if dim is None:
        x, dim = l.reshape(x, (math.prod(x.shape),)), 0
        return l.reshape(_position(l, "ArgMax" if "max" in n.target else "ArgMin", x, 0, True, (1,)), n.value.shape)
    return _position(l, "ArgMax" if "max" in n.target else "ArgMin", x, axis(dim, len(x.shape)), bool(a["keepdim"]),
                     n.value.shape)


@lowers("aten.topk", args="self k dim largest sorted")
def _topk(l, n, a):
    return _ordered(l, a["self"], a["k"], -1 if a["dim"] is None else a["dim"], a["largest"] in (None, True), n.value)


@lowers("aten.sort", args="self dim descending")
def _sort(l, n, a):
    x, dim = a["self"], -1 if a["dim"] is None else a["dim"]
    return _ordered(l, x, x.shape[dim] if x.shape else 0, dim, bool(a["descending"]), n.value)


def _ordered(l, x, k, dim, largest, metas):
    if not x.shape:
        raise NotCovered("an order of a number")
    demand_short(math.prod(x.shape), x.shape[axis(dim, len(x.shape))])
    return l.emit_many("TopK", [x, l.integers([k])], metas, axis=axis(dim, len(x.shape)), largest=int(largest))


@lowers("aten.any", "aten.all", args="self dim keepdim")
def _truth(l, n, a):
    x = l.cast(l.cast(a["self"], "bool"), "float32")
    op = "ReduceMax" if n.target.startswith("aten.any") else "ReduceMin"
    return l.reduce(op, x, axes(a["dim"], len(x.shape)), bool(a["keepdim"]))


def moments(l, x, over, correction, keep):
    """Mean and variance, from the squares of what is left without the mean."""
    count = math.prod(x.shape[d] for d in over) - correction
    if count <= 0:
        raise NotCovered("a variance of too few elements")
    mean = l.reduce("ReduceMean", x, over, True)
    squares = l.reduce("ReduceSumSquare", l.binary("Sub", x, mean), over, keep)
    if not keep:
        mean = l.reshape(mean, squares.shape)
    return mean, l.binary("Mul", squares, 1 / count)


@lowers("aten.var", "aten.std", "aten.var_mean", "aten.std_mean", args="self dim unbiased keepdim")
def _variance(l, n, a):
    if isinstance(a["dim"], bool):  # var(unbiased)
        a["dim"], a["unbiased"] = None, a["dim"]
    correction = a.get("correction")
    correction = (1 if a["unbiased"] in (None, True) else 0) if correction is None else correction
    x = a["self"]
    mean, variance = moments(l, x, axes(a["dim"], len(x.shape)), correction, bool(a["keepdim"]))
    if "std" in n.target.split(".")[1]:
        variance = l.unary("Sqrt", variance)
    return [variance, mean] if "mean" in n.target.split(".")[1] else variance


@lowers("aten.linalg_vector_norm", args="self ord dim keepdim")
def _norm(l, n, a):
    x, order = l.cast(a["self"], n.value.dtype), 2 if a["ord"] is None else a["ord"]
    over, keep = axes(a["dim"], len(x.shape)), bool(a["keepdim"])
    if order in (1, 2):
        return l.reduce("ReduceL1" if order == 1 else "ReduceL2", x, over, keep)
    if order == math.inf:
        return l.reduce("ReduceMax", l.unary("Abs", x), over, keep)
    raise NotCovered(f"a norm of order {order}")


@lowers("aten._softmax", "aten._log_softmax", "aten.softmax", "aten.log_softmax", args="self dim half_to_float")
def _softmax(l, n, a):
    x = l.cast(a["self"], n.value.dtype)
    if not x.shape:
        raise NotCovered("a softmax of a scalar")
    return l.unary("LogSoftmax" if "log" in n.target else "Softmax", x, axis=axis(a["dim"], len(x.shape)))


def _affine(l, x, weight, bias, shape=None):
    for op, by in (("Mul", weight), ("Add", bias)):
        if by is not None:
            x = l.binary(op, x, by if shape is None else l.reshape(by, shape), x.dtype)
    return x


@lowers("aten.native_layer_norm", "aten.layer_norm", args="input normalized_shape weight bias eps")
def _layer_norm(l, n, a):
    x, native = a["input"], "native" in n.target
    over = len(a["normalized_shape"])
    kept = (*x.shape[:len(x.shape) - over], *[1] * over)
    # The results that the graph has not are not computed: nothing reads them.
    weight = a["weight"] or l.filled(1.0, x.dtype, x.shape[len(x.shape) - over:])
    metas = [n.value[0]] + [Meta(x.dtype, kept)] * 2 if native else [n.value]
    made = l.emit_many("LayerNormalization", [x, weight] + ([a["bias"]] if a["bias"] else []), metas, axis=-over,
                       epsilon=float(a["eps"]))
    return made if native else made[0]


@lowers("aten.rms_norm", args="input normalized_shape weight eps")
def _rms_norm(l, n, a):
    x, over = a["input"], len(a["normalized_shape"])
    if a["eps"] is None:
        raise NotCovered("an epsilon that depends on the type")
    weight = a["weight"] or l.filled(1.0, x.dtype, x.shape[len(x.shape) - over:])
    return l.emit("RMSNormalization", [x, weight], x.shape, axis=-over, epsilon=float(a["eps"]))


@lowers("aten.native_group_norm", "aten.group_norm", args="input weight bias N C HxW group eps")
def _group_norm(l, n, a):
    x, native = a["input"], "native" in n.target
    if not native:
        raise NotCovered("the composite form")
    groups, channels = a["group"], a["C"]
    cut = l.reshape(x, (a["N"], groups, math.prod(x.shape) // (a["N"] * groups)))
    mean, variance = moments(l, cut, [2], 0, True)
    inverse = l.binary("Pow", l.binary("Add", variance, a["eps"]), -0.5)
    out = l.reshape(l.binary("Mul", l.binary("Sub", cut, mean), inverse), x.shape)
    shape = (1, channels, *[1] * (len(x.shape) - 2))
    out = _affine(l, out, a["weight"], a["bias"], shape)
    return [out, l.reshape(mean, (a["N"], groups)), l.reshape(inverse, (a["N"], groups))]


def _channels(x):
    return (1, x.shape[1], *[1] * (len(x.shape) - 2))


@lowers("aten._native_batch_norm_legit_no_training", args="input weight bias running_mean running_var momentum eps")
def _batch_norm(l, n, a):
    x, shape = a["input"], _channels(a["input"])
    mean, variance = (l.reshape(l.cast(a[k], x.dtype), shape) for k in ("running_mean", "running_var"))
    gain = l.binary("Pow", l.binary("Add", variance, a["eps"]), -0.5)
    if a["weight"]:
        gain = l.binary("Mul", l.reshape(a["weight"], shape), gain, x.dtype)
    out = _affine(l, l.binary("Mul", l.binary("Sub", x, mean), gain), None, a["bias"], shape)
    if l.wants(1) or l.wants(2):
        raise NotCovered("statistics of no elements")
    return [out, None, None]


@lowers("aten._native_batch_norm_legit", args="input weight bias training momentum eps")
def _batch_norm_without(l, n, a):
    """Without running statistics, as instance normalisation has it: (out, mean, 1 / deviation)."""
    if not n.target.endswith("no_stats"):
        raise NotCovered("running statistics that are written")
    x, shape = a["input"], _channels(a["input"])
    mean, variance = moments(l, x, [d for d in range(len(x.shape)) if d != 1], 0, True)
    inverse = l.binary("Pow", l.binary("Add", variance, a["eps"]), -0.5)
    out = _affine(l, l.binary("Mul", l.binary("Sub", x, mean), inverse), a["weight"], a["bias"], shape)
    return [out, l.reshape(mean, (x.shape[1],)), l.reshape(inverse, (x.shape[1],))]


@lowers("aten._native_batch_norm_legit_functional",
        args="input weight bias running_mean running_var training momentum eps")
def _batch_norm_training(l, n, a):
    """(out, mean, 1 / deviation, new running mean, new running variance)"""
    if not a["training"]:
        out = _batch_norm(l, n, a)[0]
        return [out, None, None, a["running_mean"], a["running_var"]]
    x, shape = a["input"], _channels(a["input"])
    over = [d for d in range(len(x.shape)) if d != 1]
    count, flat = math.prod(x.shape) // x.shape[1], (x.shape[1],)
    mean, variance = moments(l, x, over, 0, True)
    inverse = l.binary("Pow", l.binary("Add", variance, a["eps"]), -0.5)
    out = _affine(l, l.binary("Mul", l.binary("Sub", x, mean), inverse), a["weight"], a["bias"], shape)

    def moved(old, new, factor):
        if old is None:
            return None
        momentum = a["momentum"]
        return l.binary("Add", l.binary("Mul", old, 1 - momentum),
                        l.binary("Mul", l.reshape(new, flat), momentum * factor), old.dtype)
    return [out, l.reshape(mean, flat), l.reshape(inverse, flat), moved(a["running_mean"], mean, 1),
            moved(a["running_var"], variance, count / max(count - 1, 1))]
