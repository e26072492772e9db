"""Core ATen graphs as ONNX models: the import of ONNX files then makes workloads of them, so that there is one lowering
to index notation. An operator here is a function in a table; what has none becomes an ONNX node of that name, which
the import reports like any other that it does not support."""

import math
from collections import namedtuple

from .graph import Meta, Ref
from .onnx_file import Model, TYPES
from .whole import Made, WholeNumbers, within

# What an argument stands for: a name in the model (none where it has no elements: nothing computes it), PyTorch's type,
# a tuple
Value = namedtuple("Value", "name dtype shape")

FLOATS = ("float16", "bfloat16", "float32", "float64")
_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


class NotCovered(Exception):
    """Why a node has no lowering."""


# By name without overload: (function, the names of its arguments, whether it only moves elements)
_TABLE = {}
Lowered = namedtuple("Lowered", "function arguments moves")


def lowers(*names, args, moves=False):
    """Registers a function of (lowering, node, arguments by name) for ATen operators. It returns a Value, or a list
    with None for what the graph does not use."""
    def register(function):
        for name in names:
            _TABLE[name] = Lowered(function, tuple(args.split()), moves)
        return function
    return register


def base(target):
    """"aten.add.Tensor" without its overload."""
    parts = target.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else target


def lowering_of(target):
    """The table's entry; None: not covered."""
    return _TABLE.get(base(target))


def covered():
    """Names of the ATen operators that have a lowering, sorted."""
    return sorted(_TABLE)


def promoted(*dtypes):
    return max(dtypes, key=_ORDER.index)


def axis(dim, rank):
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise NotCovered(f"dimension {dim} of rank {rank}")
    return dim + max(rank, 1) if dim < 0 else dim


def axes(dims, rank):
    """A list of dimensions, None or none of them for all; a number has none."""
    if dims is None or dims == [] or rank == 0:
        return list(range(rank))
    return sorted(axis(d, rank) for d in ([dims] if isinstance(dims, int) else dims))


def demand_short(size, count):
    """Of operators that compare each of `size` elements with `count` others: PyTorch does better where these are many."""
    if size * count > 1 << 26 or count > 4096:
        raise NotCovered(f"{size} elements that are compared with {count} each")


class Lowering:
    """One graph on its way into a model. `orders`: the dimensions as they lie in memory, outermost first, of inputs
    by node and of results by position, where that is another order; the model has these as they lie. `looks_up`: one
    element of a row is read at its place, not summed up with zeros for the others, which one pass over a row's registers
    does on GPUs."""

    def __init__(self, graph, orders=None, looks_up=False):
        self.graph = graph
        self.orders = orders or {}
        self.looks_up = looks_up
        self.model = Model(graph.name)
        self.values = {}      # by node: a Value or a list
        self.users = {}       # (node, index or None): used by the graph
        self._node = None
        self._made = 0
        self._constants = {}
        self.bounds = {}      # by placeholder whose values index: the least and the most, which others it may have
        self.doubts = {}      # by node: why a program may not compute its whole numbers
        self.whole = WholeNumbers()
        self._node_of = {}    # by value of whole numbers: the node that made it
        for n in graph.nodes:
            self._count_users(n)

    def _count_users(self, node):
        if node.target == "getitem":
            self.users[(node.args[0].name, node.args[1])] = True
            return
        stack = [list(node.args), node.kwargs]
        while stack:
            x = stack.pop()
            if isinstance(x, Ref):
                self.users[(x.name, None)] = True
            elif type(x) in (list, tuple):
                stack.extend(x)
            elif isinstance(x, dict):
                stack.extend(x.values())

    def wants(self, index):
        """Whether anything reads that result of the node that is being lowered."""
        return (self._node.name, index) in self.users or (self._node.name, None) in self.users

    # ---- What lowerings are made of -------------------------------------------------------------------------------
    def emit(self, op, inputs, shape, dtype=None, **attributes):
        """One ONNX node with one result, of the first input's type unless `dtype` says another."""
        return self.emit_many(op, inputs, [Meta(dtype or inputs[0].dtype, tuple(shape))], **attributes)[0]

    def emit_many(self, op, inputs, metas, domain="", **attributes):
        out = []
        given, shapes = [i.name if i else "" for i in inputs], [i.shape if i else () for i in inputs]
        for place, meta in enumerate(metas):
            self._made += 1
            # A number, so that no two nodes' names meet; the node's name, so that tensors are known by it.
            name = f"{self._node.name}/{self._made}" if self._node else f"value/{self._made}"
            self.model.value(name, *meta)
            out.append(Value(name, *meta))
            made = Made(op, given, shapes, meta.shape, meta.dtype, place, attributes)
            if domain == "pytorch" and meta.dtype not in FLOATS:
                self.whole.given(name, meta.dtype)
            else:
                why = self.whole.computed(name, made, meta.dtype not in FLOATS)
                if why and self._node:
                    self.doubts[self._node.name] = why
            if self._node and meta.dtype not in FLOATS:
                self._node_of[name] = self._node.name
        self.model.node(op, out[0].name, given, [o.name for o in out], attributes, domain)
        return out

    def constant(self, values, dtype, shape=()):
        """`values`: a number, or as many as the shape has elements."""
        values = list(values) if isinstance(values, (list, tuple)) else [values] * math.prod(shape)
        stored = "float32" if dtype in ("float16", "bfloat16") else dtype  # such a number is not rounded before use
        key = (tuple(map(repr, values)), stored, tuple(shape))
        if key not in self._constants:
            name = f"constant/{len(self._constants)}"
            self.model.constant(name, stored, shape, values)
            self.whole.constant(name, values)
            self._constants[key] = Value(name, stored, tuple(shape))
        return self.cast(self._constants[key], dtype)

    def integers(self, values):
        return self.constant([int(v) for v in values], "int64", (len(values),))

    def filled(self, value, dtype, shape):
        """A tensor of one value."""
        one = self.constant(value, dtype)
        return one if not shape else self.emit("Expand", [one, self.integers(shape)], shape)

    def cast(self, value, dtype):
        if value.dtype == dtype:
            return value
        return self.emit("Cast", [value], value.shape, dtype, to=TYPES[dtype])

    def gather(self, x, indices, dim, shape):
        """x at `indices` along a dimension. Whoever gives the indices checks their bounds: `bounds`."""
        self.bound(indices, x.shape[dim])
        return self.emit("Gather", [x, indices], shape, axis=dim)

    def bound(self, indices, size):
        """Those index a dimension of that size: inputs that they are made of must have values so that they lie within."""
        inside = (0, size - 1)
        if within(self.whole.range(indices.name, {}), inside):
            return
        sources = [s for s in self.whole.sources(indices.name) if not within(self.whole.ranges[s], inside)]
        given = dict.fromkeys(sources, inside)
        if not within(self.whole.range(indices.name, given), inside):
            for value in self.whole.within(indices.name):
                node = self._node_of.get(value)
                if node and value in self.whole.made and value not in self.whole.fixed and node != self._node.name:
                    self.doubts[node] = "whole numbers that may lie outside of what they index"
        for source in sources:
            others = {c for c in self.whole.compared_with(indices.name) if not within((c, c), inside) and within(
                self.whole.range(indices.name, {**given, source: (c, c)}), inside)}
            _, most, also = self.bounds.get(source, (*inside, others))
            self.bounds[source] = (0, min(size - 1, most), others & also)

    def operand(self, x, dtype):
        """A tensor or a number as one of that type."""
        if isinstance(x, Value):
            return self.cast(x, dtype)
        if not isinstance(x, (bool, int, float)):
            raise NotCovered("an operand that is not a number")
        return self.constant(float(x) if dtype in FLOATS else int(x), dtype)

    def binary(self, op, a, b, dtype=None, out=None):
        """Broadcast; numbers take the other's type. `dtype`: what both are computed in, `out`: what comes out."""
        if dtype is None:
            dtype = promoted(*(x.dtype for x in (a, b) if isinstance(x, Value)))
        a, b = self.operand(a, dtype), self.operand(b, dtype)
        return self.emit(op, [a, b], broadcast(a.shape, b.shape), out or dtype)

    def unary(self, op, x, **attributes):
        return self.emit(op, [x], x.shape, **attributes)

    def reshape(self, x, shape):
        return x if tuple(shape) == x.shape else self.emit("Reshape", [x, self.integers(shape)], shape, allowzero=1)

    def permute(self, x, order):
        if list(order) == list(range(len(order))):
            return x
        return self.emit("Transpose", [x], [x.shape[d] for d in order], perm=list(order))

    def swapped(self, x, a, b):
        order = list(range(len(x.shape)))
        order[a], order[b] = order[b], order[a]
        return self.permute(x, order)

    def expand(self, x, shape):
        return x if tuple(shape) == x.shape else self.emit("Expand", [x, self.integers(shape)], shape)

    def slice(self, x, dim, start, end, step=1):
        """Of positions that lie within the tensor."""
        if (start, end, step) == (0, x.shape[dim], 1):
            return x
        shape = list(x.shape)
        shape[dim] = len(range(start, end, step))
        if shape[dim] == 0:
            return Value("", x.dtype, tuple(shape))
        if end < 0:  # backwards to the first
            end = -(1 << 62)
        return self.emit("Slice", [x] + [self.integers([i]) for i in (start, end, dim, step)], shape)

    def concat(self, parts, dim):
        parts = [p for p in parts if p.shape[dim] > 0]
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[dim] = sum(p.shape[dim] for p in parts)
        return self.emit("Concat", parts, shape, axis=dim)

    def reduce(self, op, x, over, keep):
        if not x.shape:
            return self.unary("Abs", x) if op in ("ReduceL1", "ReduceL2") else \
                self.binary("Mul", x, x) if op == "ReduceSumSquare" else x
        shape = [1 if d in over else e for d, e in enumerate(x.shape) if keep or d not in over]
        return self.emit(op, [x, self.integers(over)], shape, keepdims=int(keep))

    def matmul(self, a, b):
        batch = broadcast(a.shape[:-2], b.shape[:-2])
        return self.emit("MatMul", [a, b], (*batch, a.shape[-2], b.shape[-1]))

    # ---- The graph ------------------------------------------------------------------------------------------------
    def _resolved(self, x):
        if isinstance(x, Ref):
            value = self.values[x.name]
            if value is None:
                raise NotCovered(f"its input {x.name} is not a tensor")
            return value
        return [self._resolved(i) for i in x] if type(x) in (list, tuple) else x

    def arguments(self, node, names):
        out = dict.fromkeys(names)
        if len(node.args) > len(names):
            raise NotCovered("more arguments than are known")
        out.update({k: self._resolved(v) for k, v in zip(names, node.args)})
        out.update({k: self._resolved(v) for k, v in node.kwargs.items()})
        return out

    def run(self, constants=None):
        """Lowers the whole graph. `constants`: by placeholder the bytes of parameters, which become initialisers.

        Returns {node: why} of what is not covered; the model has a node for each of them, too."""
        problems = {}
        for node in self.graph.nodes:
            self._node = node
            if node.op == "placeholder":
                self._placeholder(node, (constants or {}).get(node.name))
            elif node.op == "output":
                self._node = None
                self._outputs(node)
            elif node.target == "getitem":
                made = self.values[node.args[0].name]
                self.values[node.name] = made[node.args[1]] if made else None
            else:
                try:
                    self.values[node.name] = self._call(node)
                except NotCovered as why:
                    problems[node.name] = f"{node.target}: {why}"
                    self.values[node.name] = self._foreign(node)
        return problems

    def _placeholder(self, node, constant):
        if not isinstance(node.value, Meta):
            self.values[node.name] = None  # a number, or nothing
            return
        if node.value.dtype not in TYPES:
            self.values[node.name] = None
            return
        order = self.orders.get(node.name)
        if constant is not None:
            self.model.constant(node.name, *node.value, constant)
        elif order:
            lies = Meta(node.value.dtype, tuple(node.value.shape[d] for d in order))
            self.model.input(node.name, *lies)
            self.values[node.name] = self.permute(Value(node.name, *lies), [order.index(d) for d in range(len(order))])
            return
        else:
            self.model.input(node.name, *node.value)
            if node.value.dtype not in FLOATS:
                self.whole.given(node.name, node.value.dtype)
        self.values[node.name] = Value(node.name, *node.value)

    def _call(self, node):
        entry = lowering_of(node.target)
        if entry is None:
            raise NotCovered("the operator is not supported")
        for meta in node.value if isinstance(node.value, list) else [node.value]:
            if meta is not None and meta.dtype not in TYPES:
                raise NotCovered(f"a tensor of type {meta.dtype}")
        if isinstance(node.value, Meta) and 0 in node.value.shape:
            return Value("", *node.value)
        arguments = self.arguments(node, entry.arguments)
        if base(node.target) != "aten.cat" and any(isinstance(v, Value) and not v.name for v in arguments.values()):
            raise NotCovered("a tensor without elements")
        made = entry.function(self, node, arguments)
        if isinstance(made, Value):
            return self.cast(made, node.value.dtype) if isinstance(node.value, Meta) else made
        return [self.cast(v, m.dtype) if v is not None and m is not None else v for v, m in zip(made, node.value)]

    def _foreign(self, node):
        """What it makes becomes an input where the import is asked to skip it."""
        inputs, stack = [], [list(node.args), node.kwargs]
        while stack:
            x = stack.pop(0)
            if isinstance(x, Ref):
                value = self.values.get(x.name)
                inputs += [v for v in (value if isinstance(value, list) else [value]) if v is not None and v.name]
            elif type(x) in (list, tuple):
                stack = list(x) + stack
            elif isinstance(x, dict):
                stack = list(x.values()) + stack
        several = isinstance(node.value, list)
        metas = [m for m in (node.value if several else [node.value]) if m is not None and m.dtype in TYPES]
        if not metas:
            return None
        made = self.emit_many(node.target, inputs, metas, domain="pytorch")
        return made if several else made[0]

    def _outputs(self, node):
        """Results by position: "output/0", ... Constants, numbers and inputs returned as they are have none."""
        self.outputs = []
        flat = node.args[0] if type(node.args[0]) in (list, tuple) else [node.args[0]]
        for i, x in enumerate(flat):
            value = self.values.get(x.name) if isinstance(x, Ref) else None
            if not isinstance(value, Value) or not value.name:
                self.outputs.append(None)
                continue
            name = f"output/{i}"
            value = self.permute(value, self.orders.get(i) or range(len(value.shape)))
            self.model.node("Identity", name, [value.name], [name])
            self.model.output(name, value.dtype, value.shape)
            self.outputs.append(Value(name, value.dtype, value.shape))


def broadcast(a, b):
    out = []
    for i in range(1, max(len(a), len(b)) + 1):
        x, y = (s[-i] if i <= len(s) else 1 for s in (a, b))
        if x != y and 1 not in (x, y):
            raise NotCovered(f"shapes {list(a)} and {list(b)} do not broadcast")
        out.append(y if x == 1 else x)
    return tuple(reversed(out))
