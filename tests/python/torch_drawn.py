"""Inputs of recorded graphs, drawn alike where they are recorded and where they are read; and results as text."""

import base64

import numpy

KINDS = {"float32": numpy.float32, "float64": numpy.float64, "int64": numpy.int64, "int32": numpy.int32,
         "bool": numpy.bool_}


def inputs(graph, ranges, seed=1):
    """{placeholder: array}, uniform in its range, or the values that are listed."""
    rng = numpy.random.default_rng(seed)
    out = {}
    for node in graph.nodes:
        if node.op != "placeholder" or node.name not in ranges:
            continue
        said = ranges[node.name]
        values = said["list"] if isinstance(said, dict) else rng.uniform(*said, node.value.shape)
        out[node.name] = numpy.asarray(values).reshape(node.value.shape).astype(KINDS[node.value.dtype])
    return out


def sampled(array, most=32):
    """At most so many elements, over the whole of it."""
    flat = numpy.asarray(array).reshape(-1)
    return flat[numpy.linspace(0, flat.size - 1, min(most, flat.size)).astype(int)]


def packed(array):
    """A sample of it, and the largest of all."""
    array = numpy.asarray(array, dtype="<f4")
    return [float(numpy.abs(array).max(initial=0)), base64.b64encode(sampled(array).tobytes()).decode()]


def unpacked(record):
    return record[0], numpy.frombuffer(base64.b64decode(record[1]), dtype="<f4")
