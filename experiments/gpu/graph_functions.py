"""The built-in graphs of memory-intensive operators: at which sizes they are compared, what goes in, and
what each computes, written as the workload's text has it (core/workload/catalogue/builtin_graphs.cpp, builtin_rows.cpp).

`compute(name, ops, **inputs)` takes the operations from `ops`: numpy_ops() for values that are held
against the reference evaluator, jax_ops() for what XLA compiles. PyTorch's own forms are in
graph_torch.py.
"""
import os
import random
import types

# Inputs and outputs in f32, about 3.1 million and 33.6 million elements a graph. At the middle size, 10
# million, schedules are ranked only: no constant of the latency-evaluator was chosen by times of that size.
ROWS = {"small": "rows=4096,cols=768", "large": "rows=32768,cols=1024", "middle": "rows=16384,cols=640"}
WIDE = {"small": "rows=1024,cols=3072", "large": "rows=8192,cols=4096", "middle": "rows=3072,cols=3072"}
LOGITS = {"small": "rows=616,cols=5120", "large": "rows=6560,cols=5120", "middle": "rows=1920,cols=5120"}
SIZES = {
    "layernorm": ROWS,
    "layernorm-backward": ROWS,
    "softmax": ROWS,
    "gelu": ROWS,
    "batchnorm": {"small": "batch=16,channels=64,size=3136", "large": "batch=128,channels=64,size=4096",
                  "middle": "batch=24,channels=128,size=3136"},
    "groupnorm": {"small": "batch=16,groups=32,channels=8,size=784",
                  "large": "batch=128,groups=32,channels=8,size=1024",
                  "middle": "batch=24,groups=32,channels=12,size=1024"},
    "residual-layernorm": ROWS,
    "adam": {"small": "size=3145728", "large": "size=33554432", "middle": "size=9437184"},
    "lstm-cell": {"small": "batch=4096,hidden=192", "large": "batch=32768,hidden=256",
                  "middle": "batch=16384,hidden=160"},
    "masked-softmax": {"small": "batch=8,heads=8,m=128,l=384", "large": "batch=32,heads=16,m=128,l=512",
                       "middle": "batch=12,heads=16,m=128,l=400"},
    "squeeze-excite": {"small": "batch=16,channels=256,size=784,squeezed=16",
                       "large": "batch=128,channels=256,size=1024,squeezed=16",
                       "middle": "batch=48,channels=208,size=1024,squeezed=13"},
    "attention-unit": {"small": "batch=512,items=96,width=64,rows=100000",
                       "large": "batch=4096,items=128,width=64,rows=1000000",
                       "middle": "batch=2048,items=72,width=64,rows=200000"},
    "rotary": {"small": "tokens=1024,heads=24,half=64", "large": "tokens=8192,heads=32,half=64",
               "middle": "tokens=3072,heads=24,half=64"},
    "column-norm": {"small": "rows=2048,cols=1536", "large": "rows=8192,cols=4096",
                    "middle": "rows=6144,cols=1600"},
    "cross-entropy": LOGITS,
    "soft-cross-entropy": {size: text + ",soft=1" for size, text in LOGITS.items()},
    "rmsnorm": WIDE,
    "rmsnorm-backward": WIDE,
    "swiglu": {"small": "rows=1024,cols=1536", "large": "rows=4096,cols=4096", "middle": "rows=2048,cols=2304"},
    "add-layernorm-gelu": WIDE,
}
FAMILY = {"soft-cross-entropy": "cross-entropy"}  # of the graphs that have another name
NAMES = tuple(SIZES)


DRAWN = "TILEWRIGHT_GRAPH_SIZES"  # a seed: sizes near those above are drawn, for this process and those it starts


def draw_sizes(seed):
    """Each length is up to 1.6 times longer or shorter; two of three are multiples of 16, the others any."""
    for name, sizes in SIZES.items():
        for size, text in sizes.items():
            drawn, lengths = random.Random(f"{seed} {name} {size}"), []
            for part in text.split(","):
                key, value = part.split("=")
                longer = int(value) * 1.6 ** drawn.uniform(-1, 1)
                length = 16 * round(longer / 16) if drawn.random() < 2 / 3 else round(longer)
                lengths.append(part if key == "soft" else f"{key}={max(1, length)}")
            sizes[size] = ",".join(lengths)


if DRAWN in os.environ:
    # Some graphs share a table of sizes.
    SIZES = {name: dict(sizes) for name, sizes in SIZES.items()}
    draw_sizes(int(os.environ[DRAWN]))


def subject(name, size):
    """As the command takes it."""
    return f"{FAMILY.get(name, name)}:{SIZES[name][size]}"


def name_of(text):
    """"soft-cross-entropy" of "cross-entropy:rows=4,cols=8,soft=1"."""
    family = text.partition(":")[0]
    return next((name for name, of in FAMILY.items() if of == family and parameters(text).get("soft") == 1), family)


def parameters(text):
    """{"rows": 4096, ...} of "name:rows=4096,..." """
    return {key: int(value) for key, value in
            (part.split("=") for part in text.partition(":")[2].split(","))}


def _matrix(p, *rows, columns=()):
    return {**{name: (p["rows"], p["cols"]) for name in rows}, **{name: (p["cols"],) for name in columns}}


SHAPES = {
    "layernorm": lambda p: _matrix(p, "x", columns=("gain",)),
    "layernorm-backward": lambda p: {**_matrix(p, "x", "dy", columns=("gain",)),
                                     "mean": (p["rows"],), "rstd": (p["rows"],)},
    "softmax": lambda p: _matrix(p, "x"),
    "gelu": lambda p: _matrix(p, "x", columns=("bias",)),
    "batchnorm": lambda p: {"x": (p["batch"], p["channels"], p["size"]),
                            **{c: (p["channels"],) for c in ("variance", "gain", "bias", "mean")}},
    "groupnorm": lambda p: {"x": (p["batch"], p["groups"], p["channels"], p["size"]),
                            "gain": (p["groups"], p["channels"]), "bias": (p["groups"], p["channels"])},
    "residual-layernorm": lambda p: _matrix(p, "x", "keep", "residual", columns=("bias", "gain", "offset")),
    "adam": lambda p: {name: (p["size"],) for name in ("m", "g", "v", "p")},
    "lstm-cell": lambda p: {"xw": (p["batch"], 4 * p["hidden"]), "hw": (p["batch"], 4 * p["hidden"]),
                            "bias": (4 * p["hidden"],), "c0": (p["batch"], p["hidden"])},
    "masked-softmax": lambda p: {"S": (p["batch"], p["heads"], p["m"], p["l"]), "keep": (p["batch"], p["l"])},
    "squeeze-excite": lambda p: {"x": (p["batch"], p["channels"], p["size"]),
                                 "W1": (p["channels"], p["squeezed"]), "W2": (p["squeezed"], p["channels"])},
    "attention-unit": lambda p: {"table": (p["rows"], p["width"]), "ids": (p["batch"], p["items"]),
                                 "q": (p["batch"], p["width"]), "w1": (p["width"],), "w2": (p["width"],),
                                 "seen": (p["batch"], p["items"])},
    "rotary": lambda p: {"x": (p["tokens"], p["heads"], 2 * p["half"]), "cosine": (p["tokens"], p["half"]),
                         "sine": (p["tokens"], p["half"])},
    "column-norm": lambda p: _matrix(p, "x"),
    "cross-entropy": lambda p: {**_matrix(p, "x"), "label": (p["rows"],)},
    "soft-cross-entropy": lambda p: _matrix(p, "x", "target"),
    "rmsnorm": lambda p: _matrix(p, "x", columns=("gain",)),
    "rmsnorm-backward": lambda p: {**_matrix(p, "x", "dy", columns=("gain",)), "rstd": (p["rows"],)},
    "swiglu": lambda p: {"x": (p["rows"], 2 * p["cols"])},
    "add-layernorm-gelu": lambda p: _matrix(p, "x", "residual", columns=("gain", "offset")),
}
OUTPUTS = {
    "layernorm": ("y",), "layernorm-backward": ("dx", "dgain", "dbias"), "softmax": ("y",), "gelu": ("y",),
    "batchnorm": ("y",), "groupnorm": ("y",), "residual-layernorm": ("y",), "adam": ("m1", "v1", "p1"),
    "lstm-cell": ("c1", "h1"), "masked-softmax": ("Y",), "squeeze-excite": ("y",),
    "attention-unit": ("interest",), "rotary": ("low", "high"), "column-norm": ("y",),
    "cross-entropy": ("loss",), "soft-cross-entropy": ("loss",), "rmsnorm": ("y",),
    "rmsnorm-backward": ("dx", "dgain"), "swiglu": ("y",), "add-layernorm-gelu": ("y",),
}


def shapes(text):
    """By input's name, in elements; of "layernorm:rows=4096,cols=768"."""
    return SHAPES[name_of(text)](parameters(text))


def index_range(name, shape):
    """{"ids": 100000}: inputs that are i32 indices below that."""
    if name == "cross-entropy":
        return {"label": shape["x"][1]}
    return {"ids": shape["table"][0]} if name == "attention-unit" else {}


def numpy_ops():
    import numpy
    return types.SimpleNamespace(
        exp=numpy.exp, log=numpy.log,
        picked=lambda x, at: numpy.take_along_axis(x, at[:, None], 1)[:, 0], tanh=numpy.tanh, sqrt=numpy.sqrt, abs=numpy.abs, where=numpy.where,
        matmul=numpy.matmul, maximum=numpy.maximum, rsqrt=lambda x: 1 / numpy.sqrt(x),
        sigmoid=lambda x: 1 / (1 + numpy.exp(-x)), rows_of=lambda table, ids: table[ids])


def jax_ops():
    import jax
    import jax.numpy as jnp

    def matmul(a, b):  # f32 products, not TF32 ones
        return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
    return types.SimpleNamespace(
        exp=jnp.exp, log=jnp.log, tanh=jnp.tanh, sqrt=jnp.sqrt, abs=jnp.abs, where=jnp.where, matmul=matmul,
        maximum=jnp.maximum, rsqrt=jax.lax.rsqrt, sigmoid=jax.nn.sigmoid,
        # Indices are in range, as a kernel's caller must see to; JAX's default clamps each.
        rows_of=lambda table, ids: table.at[ids].get(mode="promise_in_bounds"),
        picked=lambda x, at: jnp.take_along_axis(x, at[:, None], 1, mode="promise_in_bounds")[:, 0])


def _normal(x, axes, each, o):
    """(x - mean) / sqrt(variance + eps) along `axes`, in two passes over x."""
    sub = x - x.sum(axes, keepdims=True) * each
    return sub * o.rsqrt((sub * sub).sum(axes, keepdims=True) * each + 1e-5)


def _softmax(x, o):
    e = o.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layernorm(o, x, gain):
    return (_normal(x, -1, 1 / x.shape[-1], o) * gain,)


def layernorm_backward(o, x, mean, rstd, dy, gain):
    each = 1 / x.shape[-1]
    normal = (x - mean[:, None]) * rstd[:, None]
    scaled = dy * gain
    sum1 = scaled.sum(-1, keepdims=True)
    sum2 = (scaled * normal).sum(-1, keepdims=True)
    dx = (scaled - sum1 * each - normal * sum2 * each) * rstd[:, None]
    return dx, (dy * normal).sum(0), dy.sum(0)


def softmax(o, x):
    return (_softmax(x, o),)


def gelu(o, x, bias):
    biased = x + bias
    cubic = biased + 0.044715 * biased * (biased * biased)
    return (0.5 * biased * (1 + o.tanh(0.7978845608028654 * cubic)),)


def batchnorm(o, x, variance, gain, bias, mean):
    scale = o.rsqrt(o.abs(variance) + 1e-5) * gain
    shift = bias - mean * scale
    return (x * scale[:, None] + shift[:, None],)


def groupnorm(o, x, gain, bias):
    normal = _normal(x, (-2, -1), 1 / (x.shape[-2] * x.shape[-1]), o)
    return (normal * gain[:, :, None] + bias[:, :, None],)


def residual_layernorm(o, x, bias, keep, residual, gain, offset):
    added = (x + bias) * keep * 1.1111111111111112 + residual
    return (_normal(added, -1, 1 / x.shape[-1], o) * gain + offset,)


def adam(o, m, g, v, p):
    m1 = 0.9 * m + 0.1 * g
    v1 = 0.999 * o.abs(v) + 0.001 * (g * g)
    step = m1 * 1.1111 / (o.sqrt(v1 * 1.0526) + 1e-8)
    return m1, v1, p - 0.001 * step


def lstm_cell(o, xw, hw, bias, c0):
    pre = xw + hw + bias
    n = c0.shape[-1]
    i, f, z, out = (pre[:, gate * n:(gate + 1) * n] for gate in range(4))
    c1 = o.sigmoid(f) * c0 + o.sigmoid(i) * o.tanh(z)
    return c1, o.sigmoid(out) * o.tanh(c1)


def masked_softmax(o, S, keep):
    return (_softmax(o.where(keep[:, None, None, :] < 0, -10000.0, S * 0.125), o),)


def squeeze_excite(o, x, W1, W2):
    mean = x.sum(-1) / x.shape[-1]
    gate = o.sigmoid(o.matmul(o.maximum(o.matmul(mean, W1), 0), W2))
    return (x * gate[:, :, None],)


def attention_unit(o, table, ids, q, w1, w2, seen):
    k = o.rows_of(table, ids)
    mixed = q[:, None, :] * k * w1 + (q[:, None, :] - k) * w2
    share = _softmax(o.where(seen < 0, -10000.0, mixed.sum(-1)), o)
    return ((share[:, :, None] * k).sum(1),)


def rotary(o, x, cosine, sine):
    half = cosine.shape[-1]
    low, high = x[..., :half], x[..., half:]
    cosine, sine = cosine[:, None, :], sine[:, None, :]
    return low * cosine - high * sine, high * cosine + low * sine


def column_norm(o, x):
    return (_normal(x, 0, 1 / x.shape[0], o),)


def cross_entropy(o, x, label):
    most = x.max(-1)
    return (o.log(o.exp(x - most[:, None]).sum(-1)) + most - o.picked(x, label),)


def soft_cross_entropy(o, x, target):
    most = x.max(-1)
    logsum = o.log(o.exp(x - most[:, None]).sum(-1)) + most
    return (((logsum[:, None] - x) * target).sum(-1),)


def rmsnorm(o, x, gain):
    return (x * o.rsqrt((x * x).sum(-1, keepdims=True) / x.shape[-1] + 1e-5) * gain,)


def rmsnorm_backward(o, x, dy, gain, rstd):
    normal = x * rstd[:, None]
    scaled = dy * gain
    dot = (scaled * normal).sum(-1, keepdims=True) / x.shape[-1]
    return (scaled - normal * dot) * rstd[:, None], (dy * normal).sum(0)


def swiglu(o, x):
    n = x.shape[-1] // 2
    return (x[:, :n] * o.sigmoid(x[:, :n]) * x[:, n:],)


def add_layernorm_gelu(o, x, residual, gain, offset):
    normal = _normal(x + residual, -1, 1 / x.shape[-1], o) * gain + offset
    cubic = normal + 0.044715 * normal * (normal * normal)
    return (0.5 * normal * (1 + o.tanh(0.7978845608028654 * cubic)),)


def function(name):
    return globals()[name.replace("-", "_")]


def compute(name, ops, **inputs):
    """The outputs, in the order of OUTPUTS[name]."""
    return function(name)(ops, **inputs)
