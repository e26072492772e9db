"""FX graphs of PyTorch as plain data. The only part, with the backend, that reads PyTorch's own objects."""

import operator

from .graph import Dtype, Graph, Meta, Node, Other, Ref


# Lowered whole, where Core ATen has elements by index.
KEPT = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "grid_sampler_2d")


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def meta_of(value):
    """Of what a node makes; None for what is no tensor, or a tensor whose shape is not known yet."""
    import torch

    if isinstance(value, (list, tuple)):
        return [meta_of(v) for v in value]
    if not isinstance(value, torch.Tensor) or not all(isinstance(d, int) for d in value.shape):
        return None
    return Meta(name_of(value.dtype), tuple(value.shape))


def _argument(x):
    import torch

    if isinstance(x, torch.fx.Node):
        return Ref(x.name)
    if isinstance(x, (list, tuple)):
        return [_argument(i) for i in x]
    if isinstance(x, torch.dtype):
        return Dtype(name_of(x))
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    return Other(str(x))


def target_of(node):
    return "getitem" if node.target is operator.getitem else str(node.target)


def node_of(node):
    """An fx.Node with its "val", as tracing leaves it."""
    op = {"placeholder": "placeholder", "get_attr": "placeholder", "output": "output"}.get(node.op, "call")
    return Node(node.name, op, target_of(node) if op == "call" else "", [_argument(a) for a in node.args],
                {k: _argument(v) for k, v in node.kwargs.items()}, meta_of(node.meta.get("val")))


def graph_of(fx_graph, name):
    return Graph(name, [node_of(n) for n in fx_graph.nodes])


def decompositions():
    """To Core ATen operators, less those that are lowered, or run, whole: attention, interpolation, a table's gradient."""
    import torch
    from torch._decomp import core_aten_decompositions

    table = core_aten_decompositions()
    for op in ("_scaled_dot_product_flash_attention_for_cpu", "embedding_dense_backward", *KEPT):
        table.pop(getattr(torch.ops.aten, op).default, None)
    return table
