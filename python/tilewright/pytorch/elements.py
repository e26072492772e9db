"""ATen operators that work element by element."""

import math

from .graph import Dtype
from .lower import FLOATS, NotCovered, Value, broadcast, lowers, promoted


def _scaled(l, x, alpha, dtype):
    return x if alpha in (None, 1) else l.binary("Mul", x, alpha, dtype)


@lowers("aten.add", "aten.sub", "aten.rsub", args="self other alpha")
def _sum(l, n, a):
    dtype, x, y = n.value.dtype, a["self"], a["other"]
    if dtype == "bool":
        raise NotCovered("a sum of truth values")
    if n.target.startswith("aten.rsub"):
        x, y = y, _scaled(l, x, a["alpha"], dtype)
    elif isinstance(y, Value):
        y = _scaled(l, y, a["alpha"], dtype)
    elif a["alpha"] not in (None, 1):
        y = y * a["alpha"]
    return l.binary("Add" if n.target.startswith("aten.add") else "Sub", x, y, dtype)


@lowers("aten.mul", args="self other")
def _mul(l, n, a):
    if n.value.dtype == "bool":
        return l.binary("And", a["self"], a["other"])
    return l.binary("Mul", a["self"], a["other"], n.value.dtype)


@lowers("aten.div", args="self other rounding_mode")
def _div(l, n, a):
    way, dtype = a["rounding_mode"], n.value.dtype
    out = l.binary("Div", a["self"], a["other"], dtype)  # of whole numbers towards zero
    if way is None or way == "trunc" and dtype not in FLOATS:
        return out
    if dtype not in FLOATS:
        raise NotCovered("a division of whole numbers that rounds down")
    return l.unary("Floor", out) if way == "floor" else _trunc(l, out)


def _trunc(l, x):
    return l.binary("Mul", l.unary("Sign", x), l.unary("Floor", l.unary("Abs", x)))


@lowers("aten.trunc", "aten.frac", args="self")
def _truncated(l, n, a):
    whole = _trunc(l, a["self"])
    return whole if n.target.startswith("aten.trunc") else l.binary("Sub", a["self"], whole)


@lowers("aten.fmod", "aten.remainder", args="self other")
def _mod(l, n, a):
    """With the sign of the first operand, or of the second."""
    x, y = (l.operand(a[k], n.value.dtype) for k in ("self", "other"))
    return l.emit("Mod", [x, y], n.value.shape, fmod=int(n.target.startswith("aten.fmod")))


@lowers("aten.pow", args="self exponent")
def _pow(l, n, a):
    if n.value.dtype not in FLOATS:
        raise NotCovered("a power of whole numbers")
    return l.binary("Pow", a["self"], a["exponent"], n.value.dtype)


@lowers("aten.maximum", "aten.minimum", args="self other")
def _extremum(l, n, a):
    return l.binary("Max" if "max" in n.target else "Min", a["self"], a["other"], n.value.dtype)


_COMPARISONS = {"aten.eq": "Equal", "aten.lt": "Less", "aten.le": "LessOrEqual", "aten.gt": "Greater",
                "aten.ge": "GreaterOrEqual", "aten.ne": "Equal"}


@lowers(*_COMPARISONS, args="self other")
def _compare(l, n, a):
    kind, x, y = ".".join(n.target.split(".")[:2]), a["self"], a["other"]
    dtype = promoted(*(v.dtype if isinstance(v, Value) else "float32" if isinstance(v, float) else "bool"
                       for v in (x, y)))
    if dtype == "float32":  # a number takes the tensor's type
        dtype = promoted(*(v.dtype for v in (x, y) if isinstance(v, Value)))
        dtype = dtype if dtype in FLOATS else "float32"
    elif not isinstance(y, Value) and dtype == "bool":
        dtype = "int64"
    out = l.binary(_COMPARISONS[kind], x, y, dtype, "bool")
    return l.unary("Not", out) if kind == "aten.ne" else out


_LOGIC = {"and": "And", "or": "Or", "xor": "Xor"}


@lowers(*(f"aten.{kind}_{op}" for kind in ("logical", "bitwise") for op in _LOGIC), args="self other")
def _logic(l, n, a):
    name = n.target.split(".")[1]
    if name.startswith("bitwise") and n.value.dtype != "bool":
        raise NotCovered("bits of whole numbers")
    return l.binary(_LOGIC[name.split("_")[1]], a["self"], a["other"], "bool")


@lowers("aten.logical_not", "aten.bitwise_not", args="self")
def _not(l, n, a):
    if n.value.dtype != "bool":
        raise NotCovered("bits of whole numbers")
    return l.unary("Not", l.cast(a["self"], "bool"))


_UNARY = {"neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal",
          "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "sign": "Sign", "sgn": "Sign",
          "floor": "Floor", "ceil": "Ceil", "round": "Round", "sin": "Sin", "cos": "Cos", "isnan": "IsNaN",
          "isinf": "IsInf", "tan": "Tan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
          "atanh": "Atanh", "asin": "Asin", "acos": "Acos", "atan": "Atan", "hardswish": "HardSwish", "mish": "Mish", "selu": "Selu"}


@lowers(*(f"aten.{op}" for op in _UNARY), args="self")
def _unary(l, n, a):
    x = a["self"]
    if a.get("decimals"):
        raise NotCovered("digits that are rounded to")
    if n.value.dtype == "bool":
        return l.emit(_UNARY[n.target.split(".")[1]], [x], x.shape, "bool")
    return l.unary(_UNARY[n.target.split(".")[1]], l.cast(x, n.value.dtype))


@lowers("aten.rsqrt", args="self")
def _rsqrt(l, n, a):
    return l.binary("Pow", a["self"], -0.5, n.value.dtype)


@lowers("aten.square", args="self")
def _square(l, n, a):
    return l.binary("Pow", a["self"], 2.0, n.value.dtype)


@lowers("aten.exp2", args="self")
def _exp2(l, n, a):
    return l.unary("Exp", l.binary("Mul", a["self"], math.log(2), n.value.dtype))


@lowers("aten.expm1", args="self")
def _expm1(l, n, a):
    return l.binary("Sub", l.unary("Exp", l.cast(a["self"], n.value.dtype)), 1.0)


@lowers("aten.log1p", args="self")
def _log1p(l, n, a):
    return l.unary("Log", l.binary("Add", a["self"], 1.0, n.value.dtype))


@lowers("aten.log2", "aten.log10", args="self")
def _log_of(l, n, a):
    return l.binary("Mul", l.unary("Log", l.cast(a["self"], n.value.dtype)),
                    1 / math.log(2 if n.target.startswith("aten.log2") else 10))


@lowers("aten.gelu", args="self approximate")
def _gelu(l, n, a):
    return l.unary("Gelu", a["self"], approximate=a["approximate"] or "none")


@lowers("aten.silu", args="self")
def _silu(l, n, a):
    return l.binary("Mul", a["self"], l.unary("Sigmoid", a["self"]))


@lowers("aten.hardsigmoid", args="self")
def _hardsigmoid(l, n, a):
    return l.unary("HardSigmoid", a["self"], alpha=1 / 6, beta=0.5)


@lowers("aten.leaky_relu", args="self negative_slope")
def _leaky(l, n, a):
    return l.unary("LeakyRelu", a["self"], alpha=float(0.01 if a["negative_slope"] is None else a["negative_slope"]))


@lowers("aten.elu", args="self alpha scale input_scale")
def _elu(l, n, a):
    if a["input_scale"] not in (None, 1):
        raise NotCovered("a scale of its input")
    out = l.unary("Elu", a["self"], alpha=float(1.0 if a["alpha"] is None else a["alpha"]))
    return out if a["scale"] in (None, 1) else l.binary("Mul", out, a["scale"])


@lowers("aten.celu", args="self alpha")
def _celu(l, n, a):
    return l.unary("Celu", a["self"], alpha=float(1.0 if a["alpha"] is None else a["alpha"]))


@lowers("aten.softplus", args="self beta threshold")
def _softplus(l, n, a):
    beta = 1 if a["beta"] is None else a["beta"]
    x = a["self"] if beta == 1 else l.binary("Mul", a["self"], beta)
    out = l.unary("Softplus", x)  # beyond the threshold the two are equal but for rounding
    return out if beta == 1 else l.binary("Mul", out, 1 / beta)


@lowers("aten.clamp", "aten.hardtanh", args="self min max")
def _clamp(l, n, a):
    low, high = a["min"], a["max"]
    if n.target.startswith("aten.hardtanh"):
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    x = l.cast(a["self"], n.value.dtype)
    x = x if low is None else l.binary("Max", x, low, n.value.dtype)
    return x if high is None else l.binary("Min", x, high, n.value.dtype)


@lowers("aten.clamp_min", "aten.clamp_max", args="self bound")
def _clamp_one(l, n, a):
    bound = next(a[k] for k in ("bound", "min", "max") if a.get(k) is not None)
    return l.binary("Max" if "min" in n.target else "Min", a["self"], bound, n.value.dtype)


@lowers("aten.relu6", args="self")
def _relu6(l, n, a):
    return l.binary("Min", l.unary("Relu", a["self"]), 6.0)


@lowers("aten.threshold", args="self threshold value")
def _threshold(l, n, a):
    above = l.binary("Greater", a["self"], a["threshold"], None, "bool")
    return _select(l, above, a["self"], a["value"], n.value.dtype)


@lowers("aten.addcmul", "aten.addcdiv", args="self tensor1 tensor2 value")
def _addc(l, n, a):
    dtype = n.value.dtype
    term = l.binary("Mul" if "addcmul" in n.target else "Div", a["tensor1"], a["tensor2"], dtype)
    return l.binary("Add", a["self"], _scaled(l, term, a["value"], dtype), dtype)


@lowers("prims.fma", args="self tensor1 tensor2")
def _fma(l, n, a):
    dtype = n.value.dtype
    return l.binary("Add", l.binary("Mul", a["self"], a["tensor1"], dtype), a["tensor2"], dtype)


@lowers("aten.lerp", args="self end weight")
def _lerp(l, n, a):
    dtype = n.value.dtype
    return l.binary("Add", a["self"], l.binary("Mul", a["weight"], l.binary("Sub", a["end"], a["self"], dtype), dtype),
                    dtype)


def _select(l, c, x, y, dtype):
    x, y = l.operand(x, dtype), l.operand(y, dtype)
    return l.emit("Where", [c, x, y], broadcast(c.shape, broadcast(x.shape, y.shape)), dtype)


@lowers("aten.where", args="condition self other")
def _where(l, n, a):
    if a["self"] is None:
        raise NotCovered("positions of true values, whose number is not known")
    return _select(l, l.cast(a["condition"], "bool"), a["self"], a["other"], n.value.dtype)


@lowers("aten.masked_fill", args="self mask value")
def _masked_fill(l, n, a):
    return l.expand(_select(l, a["mask"], a["value"], a["self"], n.value.dtype), n.value.shape)


@lowers("aten._to_copy", "aten.to", "prims.convert_element_type", args="self dtype")
def _cast(l, n, a):
    if a["dtype"] is not None and not isinstance(a["dtype"], Dtype):
        raise NotCovered("a copy to another device")
    return l.cast(a["self"], n.value.dtype)


@lowers("aten.alias", "aten.clone", "aten.detach", "aten.lift_fresh_copy", "aten.contiguous", "aten.view_of",
        args="self", moves=True)
def _same(l, n, a):
    return a["self"]


@lowers("aten.copy", args="self src non_blocking", moves=True)
def _copy(l, n, a):
    return l.expand(l.cast(a["src"], n.value.dtype), n.value.shape)


@lowers("aten.dropout", args="input p train")
def _dropout(l, n, a):
    if a["train"] and a["p"]:
        raise NotCovered("random numbers")
    return a["input"]
