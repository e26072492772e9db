"""A traced PyTorch graph as plain data: what is lowered, and what is recorded for tests that have no PyTorch.

As JSON a graph is ``{"name": text, "nodes": [node]}``, a node ``{"name", "op", "target", "args", "kwargs", "value"}``
with op ``placeholder``, ``call`` or ``output``; ``value`` is ``[dtype, shape]``, a list of such for a node that makes
several tensors, or null. Within arguments ``{"node": name}`` stands for another node, ``{"dtype": name}`` for a type,
``{"float": text}`` for a number that JSON has not, and ``{"other": text}`` for layouts, devices and memory formats.
"""

import math
from collections import namedtuple

Ref = namedtuple("Ref", "name")
Dtype = namedtuple("Dtype", "name")
Other = namedtuple("Other", "text")
# dtype as PyTorch names it without "torch.", shape as a tuple
Meta = namedtuple("Meta", "dtype shape")
Node = namedtuple("Node", "name op target args kwargs value")
Graph = namedtuple("Graph", "name nodes")


def to_json(graph):
    return {"name": graph.name, "nodes": [
        {"name": n.name, "op": n.op, "target": n.target, "args": _plain(list(n.args)), "kwargs": _plain(n.kwargs),
         "value": _plain_value(n.value)} for n in graph.nodes]}


def from_json(data):
    return Graph(data["name"], [
        Node(n["name"], n["op"], n["target"], _read(n["args"]), _read_keys(n["kwargs"]), _read_value(n["value"]))
        for n in data["nodes"]])


def _plain(x):
    if isinstance(x, Ref):
        return {"node": x.name}
    if isinstance(x, Dtype):
        return {"dtype": x.name}
    if isinstance(x, Other):
        return {"other": x.text}
    if isinstance(x, (list, tuple)):
        return [_plain(i) for i in x]
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    if isinstance(x, float) and not math.isfinite(x):
        return {"float": str(x)}
    return x


def _plain_value(value):
    if value is None:
        return None
    return [value.dtype, list(value.shape)] if isinstance(value, Meta) else [_plain_value(v) for v in value]


def _read(x):
    if isinstance(x, list):
        return [_read(i) for i in x]
    if isinstance(x, dict):
        (kind, value), = x.items()
        return {"node": Ref, "dtype": Dtype, "other": Other, "float": float}[kind](value)
    return x


def _read_keys(kwargs):
    return {k: _read(v) for k, v in kwargs.items()}


def _read_value(value):
    if value is None:
        return None
    if value and isinstance(value[0], str):
        return Meta(value[0], tuple(value[1]))
    return [_read_value(v) for v in value]
