"""Whether the functions that are compared compute what the reference evaluator computes: at small sizes,
in float64, on a CPU. Needs the tilewright package; PyTorch and JAX each where it is installed.
"""
import importlib.util
import math

import graph_functions as graphs

# Small, and no two extents of a graph alike.
SMALL = {
    "layernorm": "rows=5,cols=40", "layernorm-backward": "rows=7,cols=24", "softmax": "rows=5,cols=33",
    "gelu": "rows=6,cols=31", "batchnorm": "batch=3,channels=5,size=14",
    "groupnorm": "batch=3,groups=4,channels=5,size=7", "residual-layernorm": "rows=5,cols=36",
    "adam": "size=97", "lstm-cell": "batch=5,hidden=12", "masked-softmax": "batch=3,heads=2,m=5,l=11",
    "squeeze-excite": "batch=3,channels=8,size=10,squeezed=4",
    "attention-unit": "batch=4,items=6,width=8,rows=50", "rotary": "tokens=5,heads=3,half=8",
    "column-norm": "rows=9,cols=14", "cross-entropy": "rows=6,cols=29",
    "soft-cross-entropy": "rows=6,cols=29,soft=1", "rmsnorm": "rows=5,cols=34",
    "rmsnorm-backward": "rows=7,cols=26", "swiglu": "rows=5,cols=16", "add-layernorm-gelu": "rows=5,cols=38",
}


def small(name):
    return f"{graphs.FAMILY.get(name, name)}:{SMALL[name]}"


def reference(name, seed=1):
    """(inputs, outputs) by name, float64; indices whole."""
    from tilewright.reference import evaluate
    text = small(name)
    values = evaluate(text, seed=seed)
    shapes = graphs.shapes(text)
    for tensor, shape in shapes.items():
        if tensor not in values or values[tensor].shape != tuple(shape):
            raise ValueError(f"{text} has no input {tensor} of shape {shape}")
    if set(values) != set(shapes) | set(graphs.OUTPUTS[name]):
        raise ValueError(f"{text} has inputs and outputs {', '.join(values)}")
    indices = graphs.index_range(name, shapes)
    inputs = {t: values[t].astype("int32") if t in indices else values[t] for t in shapes}
    return inputs, {t: values[t] for t in graphs.OUTPUTS[name]}


def by_numpy(name, inputs):
    return graphs.compute(name, graphs.numpy_ops(), **inputs)


def by_torch(name, inputs):
    import graph_torch
    import torch
    with torch.no_grad():
        outputs = graph_torch.function(name)(**{t: torch.from_numpy(v.copy()) for t, v in inputs.items()})
    return [y.numpy() for y in outputs]


def by_jax(name, inputs):
    import jax
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        ops = graphs.jax_ops()
        outputs = jax.jit(lambda given: graphs.compute(name, ops, **given))(inputs)
        return [jax.device_get(y) for y in outputs]


WAYS = {"numpy": by_numpy, "torch": by_torch, "jax": by_jax}


def absent(way):
    return None if importlib.util.find_spec(way) else f"{way} is not installed"


def error(way, name, seed=1):
    """The largest relative Frobenius error over the outputs; infinity where one has another shape."""
    import numpy
    inputs, right = reference(name, seed)
    got = WAYS[way](name, inputs)
    if len(got) != len(right):
        return math.inf
    worst = 0.0
    for y, r in zip(got, right.values()):
        y = numpy.asarray(y)
        if y.shape != r.shape or y.dtype != numpy.float64 or not numpy.isfinite(y).all():
            return math.inf
        worst = max(worst, float(numpy.linalg.norm(y - r) / numpy.linalg.norm(r)))
    return worst
