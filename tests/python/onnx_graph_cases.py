"""Graphs of random operators, each on values that others have made: what tests/python/onnx_graphs.py draws.

A node that onnxruntime does not take is drawn again. Operators that jump (Floor, Less, ArgMax) get operands that rounding does
not carry over a jump."""

import numpy
import onnxruntime
from onnx import TensorProto, helper

from onnx_builder import Case

MOST = 4000  # elements of a value
FAR = 2e-3   # from a jump
ONE = ("Relu Sigmoid Tanh Erf Softplus Neg Abs LeakyRelu Elu Selu HardSwish HardSigmoid Gelu Sin Cos Mish Softsign Celu "
       "ThresholdedRelu Identity Atan Swish").split()
JUMPS = "Floor Ceil Round Sign".split()
REDUCE = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp ReduceProd".split()


class Refused(Exception):
    """A node that cannot be drawn for these operands."""


class Drawn(Case):
    """A graph with the values that onnxruntime gives each of its names."""

    def __init__(self, seed):
        super().__init__(numpy.random.default_rng(seed), opset=21)
        self.values = {}
        self.made = []  # names that nodes may read
        self.read = set()
        for _ in range(self.integer(1, 3)):
            self.given(self.shape(self.integer(1, 4), 1, 6))

    def given(self, shape):
        if len(self.inputs) >= 8:
            raise Refused("many inputs")
        name = self.input(shape)
        self.values[name] = self.rng.uniform(-1, 1, shape).astype(numpy.float32)
        self.made.append(name)
        return name

    def constant(self, values):
        name = super().constant(values)
        self.values[name] = numpy.asarray(values)
        return name

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = super().node(op, inputs, outputs, domain, **attributes)
        names = [names] if outputs == 1 else names
        graph = helper.make_graph(
            [self.nodes[-1]], "node",
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(self.values[n].dtype), self.values[n].shape)
             for n in dict.fromkeys(inputs) if n], [helper.make_empty_tensor_value_info(n) for n in names])
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        try:
            options = onnxruntime.SessionOptions()
            options.log_severity_level, options.intra_op_num_threads = 4, 1
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            session = onnxruntime.InferenceSession(
                helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), options)
            results = session.run(None, {n: self.values[n] for n in dict.fromkeys(inputs) if n})
        except Exception as error:
            self.nodes.pop()
            raise Refused(str(error)) from error
        if any(not isinstance(y, numpy.ndarray) or y.size == 0 or y.size > MOST or not numpy.isfinite(y.astype(float)).all()
               or numpy.abs(y.astype(float)).max() > 1e4 for y in results):
            self.nodes.pop()
            raise Refused("values too large, or none")
        self.values.update(zip(names, results))
        self.read.update(inputs)
        return names[0] if outputs == 1 else names

    # ---- Operands -------------------------------------------------------------------------------
    def any(self, test=lambda x: True, fresh=0.3):
        """A real value that fits: the latest ones more often. Sometimes, and where none fits, None."""
        fits = [n for n in self.made if self.values[n].dtype == numpy.float32 and test(self.values[n])]
        if not fits or self.rng.random() < fresh / len(fits):
            return None
        return fits[max(self.integer(0, len(fits) - 1), self.integer(0, len(fits) - 1))]

    def some(self, test=lambda x: True):
        name = self.any(test)
        if name is None:
            raise Refused("no operand")
        return name

    def of_rank(self, low, high=4, wide=1):
        return self.any(lambda x: low <= x.ndim <= high and x.size >= wide) or self.given(self.shape(
            self.integer(low, high), 1 if wide == 1 else 2, 6))

    def far(self, x, from_whole=True):
        """Whether no element is so near to a whole number, or zero, that rounding decides."""
        at = x - numpy.round(x) if from_whole else x
        if from_whole and (at == 0).all():
            return True
        return bool((numpy.abs(at) > FAR).all())

    def axis(self, x):
        return self.integer(-x.ndim, x.ndim - 1)

    def done(self, names):
        for n in [names] if isinstance(names, str) else names:
            self.made.append(n)

    # ---- Operators ------------------------------------------------------------------------------
    def step(self):
        kinds = [getattr(self, k) for k in dir(self) if k.startswith("draw_")]
        for _ in range(60):
            nodes, weights, inputs = len(self.nodes), len(self.weights), len(self.inputs)
            try:
                return kinds[self.integer(0, len(kinds) - 1)]()
            except Refused:
                del self.nodes[nodes:]
                there = {i.name for i in self.inputs}.union(*(n.output for n in self.nodes))
                self.made = [name for name in self.made if name in there]
        return None

    def draw_one(self):
        op = self.pick(*ONE)
        if op == "Swish":
            x = self.of_rank(1)
            return self.done(self.node("Mul", [x, self.node("Sigmoid", [x])]))
        self.done(self.node(op, [self.of_rank(1)]))

    def draw_one_of_positive(self):
        x = self.positive(self.of_rank(1))
        self.done(self.node(self.pick("Log", "Sqrt", "Reciprocal"), [x]))

    def draw_exp(self):
        x = self.node("Clip", [self.of_rank(1), self.constant(numpy.float32(-3)), self.constant(numpy.float32(2.5))])
        self.done(self.node("Exp", [x]))

    def draw_jump(self):
        op = self.pick(*JUMPS)
        x = self.of_rank(1)
        scaled = self.node("Mul", [x, self.constant(numpy.float32(2.5))])
        v = self.values[scaled]
        if not self.far(v + 0.5 if op == "Round" else v, op != "Sign"):
            raise Refused("near a jump")
        self.done(self.node(op, [scaled]))

    def draw_two(self):
        x = self.of_rank(1)
        shape = self.values[x].shape
        other = self.any(lambda y: y.shape == shape or broadcasts(shape, y.shape)) or self.weight(
            [1 if self.integer(0, 3) == 0 else d for d in shape][self.integer(0, len(shape)):], 0.1)
        op = self.pick("Add", "Sub", "Mul", "Max", "Min", "Div", "Mean", "Sum", "PRelu")
        if op == "Div":
            other = self.positive(other)
        pair = [x, other] if op == "PRelu" or self.integer(0, 1) else [other, x]
        self.done(self.node(op, pair))

    def draw_where(self):
        x = self.of_rank(1)
        v = self.values[x]
        y = self.any(lambda y: broadcasts(v.shape, y.shape)) or self.weight(v.shape)
        if not self.far(v - self.values[y], False):
            raise Refused("near a jump")
        c = self.node(self.pick("Less", "Greater", "LessOrEqual", "GreaterOrEqual"), [x, y])
        if self.integer(0, 2) == 0:
            c = self.node("Not", [c])
        self.done(self.node("Where", [c, self.pick(x, y), self.constant(numpy.float32(0.7))]))

    def draw_reshape(self):
        x = self.of_rank(1)
        left, to = self.values[x].size, []
        while left > 1 and len(to) < 4:
            d = self.pick(*[d for d in range(2, left + 1) if left % d == 0])
            to.append(d)
            left //= d
        to += [left] if left > 1 else []
        to.insert(self.integer(0, len(to)), 1) if self.integer(0, 3) == 0 else None
        if not to:
            to = [1]
        if self.integer(0, 2) == 0:
            to[self.integer(0, len(to) - 1)] = -1
        self.done(self.node("Reshape", [x, self.integers(to)]))

    def draw_transpose(self):
        x = self.of_rank(2)
        self.done(self.node("Transpose", [x], perm=[int(i) for i in self.rng.permutation(self.values[x].ndim)]))

    def draw_slice(self):
        x = self.of_rank(1)
        axes = [a for a in range(self.values[x].ndim) if self.integer(0, 1)] or [0]
        starts, ends, steps = [], [], []
        for a in axes:
            n, step = self.values[x].shape[a], self.pick(1, 1, 2, -1, -2)
            first, last = sorted((self.integer(0, n - 1), self.integer(0, n - 1)))
            starts.append(first if step > 0 else last)
            ends.append(last + 1 if step > 0 else (first - 1 if first > 0 else -n - 1))
            steps.append(step)
        self.done(self.node("Slice", [x, *map(self.integers, (starts, ends, axes, steps))]))

    def draw_concat(self):
        x = self.of_rank(1)
        v = self.values[x]
        axis = self.axis(v)
        fits = [n for n in self.made if self.values[n].dtype == v.dtype and self.values[n].ndim == v.ndim and all(
            a == b for i, (a, b) in enumerate(zip(self.values[n].shape, v.shape)) if i != axis % v.ndim)]
        self.done(self.node("Concat", [x] + [self.pick(*fits) for _ in range(self.integer(1, 2))], axis=axis))

    def draw_split(self):
        x = self.of_rank(1, wide=2)
        v = self.values[x]
        axis = self.axis(v)
        n = v.shape[axis]
        if n < 2:
            raise Refused("one element")
        first = self.integer(1, n - 1)
        if self.integer(0, 1):
            return self.done(self.node("Split", [x, self.integers([first, n - first])], outputs=2, axis=axis))
        self.done(self.node("Split", [x], outputs=2, axis=axis, num_outputs=2))

    def draw_expand(self):
        x = self.of_rank(1, 3)
        v = self.values[x]
        shape = [self.integer(2, 4) if d == 1 else d for d in v.shape]
        self.done(self.node("Expand", [x, self.integers([self.integer(1, 2)] * self.integer(0, 1) + shape)]))

    def draw_tile(self):
        x = self.of_rank(1, 3)
        self.done(self.node("Tile", [x, self.integers([self.integer(1, 2) for _ in self.values[x].shape])]))

    def draw_pad(self):
        x = self.of_rank(1)
        v = self.values[x]
        mode = self.pick("constant", "edge", "reflect", "wrap")
        most = [2 if mode == "constant" else d - 1 for d in v.shape]
        pads = [self.integer(0, min(2, m)) for m in most + most]
        inputs = [x, self.integers(pads)] + ([self.constant(numpy.float32(0.4))] if mode == "constant" else [])
        self.done(self.node("Pad", inputs, mode=mode))

    def draw_gather(self):
        x = self.of_rank(1)
        v = self.values[x]
        axis = self.axis(v)
        indices = self.rng.integers(-v.shape[axis], v.shape[axis], self.shape(self.integer(0, 2), 1, 4))
        self.done(self.node("Gather", [x, self.constant(numpy.asarray(indices, numpy.int64))], axis=axis))

    def draw_elements(self):
        x = self.of_rank(1)
        v = self.values[x]
        axis = self.axis(v)
        shape = list(v.shape)
        shape[axis] = self.integer(1, v.shape[axis])
        indices = numpy.stack([self.rng.permutation(v.shape[axis])[:shape[axis]] for _ in range(int(numpy.prod(shape)) // shape[axis])])
        moved = [d for i, d in enumerate(shape) if i != axis % v.ndim] + [shape[axis]]
        at = self.constant(numpy.moveaxis(indices.reshape(moved), -1, axis).astype(numpy.int64).copy())
        if self.integer(0, 1):
            return self.done(self.node("GatherElements", [x, at], axis=axis))
        more = {"reduction": self.pick("none", "add", "max", "mul")}
        self.done(self.node("ScatterElements", [x, at, self.weight(shape)], axis=axis, **more))

    def draw_squeeze(self):
        x = self.of_rank(1, 3)
        v = self.values[x]
        ones = [i for i, d in enumerate(v.shape) if d == 1]
        if ones and v.ndim > 1 and self.integer(0, 1):
            return self.done(self.node("Squeeze", [x, self.integers([self.pick(*ones)])]))
        self.done(self.node("Unsqueeze", [x, self.integers([self.integer(0, v.ndim)])]))

    def draw_flatten(self):
        x = self.of_rank(2)
        self.done(self.node("Flatten", [x], axis=self.integer(0, self.values[x].ndim)))

    def draw_depth(self):
        x = self.of_rank(4)
        _, c, h, w = self.values[x].shape
        if c % 4 == 0:
            return self.done(self.node("DepthToSpace", [x], blocksize=2, mode=self.pick("DCR", "CRD")))
        if h % 2 or w % 2:
            raise Refused("no blocks")
        self.done(self.node("SpaceToDepth", [x], blocksize=2))

    def draw_resize(self):
        x = self.of_rank(4)
        _, _, h, w = self.values[x].shape
        mode = self.pick("nearest", "linear", "cubic")
        sizes = self.integers([*self.values[x].shape[:2], self.integer(1, 2 * h), self.integer(1, 2 * w)])
        way = self.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        if mode == "nearest":
            way = "asymmetric"
        self.done(self.node("Resize", [x, "", "", sizes], mode=mode, coordinate_transformation_mode=way,
                            **({"nearest_mode": "floor"} if mode == "nearest" else {})))

    def draw_reduce(self):
        x = self.of_rank(1)
        v = self.values[x]
        axes = [a for a in range(v.ndim) if self.integer(0, 1)]
        inputs = [x] + ([self.integers(axes)] if axes else [])
        self.done(self.node(self.pick(*REDUCE), inputs, keepdims=self.integer(0, 1)))

    def draw_norm(self):
        op = self.pick("Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "BatchNormalization",
                       "GroupNormalization", "LpNormalization", "Hardmax", "MeanVarianceNormalization", "LRN")
        x = self.of_rank(3 if op in ("InstanceNormalization", "GroupNormalization", "LRN") else 2)
        v = self.values[x]
        if op in ("Softmax", "LogSoftmax", "LpNormalization"):
            return self.done(self.node(op, [x], axis=self.axis(v)))
        if op == "Hardmax":
            top = numpy.sort(v, -1)
            if v.shape[-1] > 1 and (top[..., -1] - top[..., -2]).min() < FAR:
                raise Refused("near a jump")
            return self.done(self.node(op, [x], axis=-1))
        if op == "LRN":
            return self.done(self.node(op, [x], size=self.pick(1, 3, 5), alpha=0.3, bias=1.5))
        if op == "MeanVarianceNormalization":
            if v.ndim != 4 or v.size // v.shape[1] < 4:
                raise Refused("no image")
            if v.std((0, 2, 3)).min() < 1e-3:
                raise Refused("rounding alone")
            return self.done(self.node(op, [x]))
        if op == "LayerNormalization":
            if v.shape[-1] < 3:
                raise Refused("rounding alone")
            return self.done(self.node(op, [x, self.weight([v.shape[-1]], 0.5, 1.5), self.weight([v.shape[-1]])], axis=-1))
        c = v.shape[1]
        scale, bias = self.weight([c], 0.5, 1.5), self.weight([c])
        if op == "BatchNormalization":
            return self.done(self.node(op, [x, scale, bias, self.weight([c]), self.weight([c], 0.5, 1.5)]))
        if int(numpy.prod(v.shape[2:])) < 3:
            raise Refused("rounding alone")
        if op == "InstanceNormalization":
            return self.done(self.node(op, [x, scale, bias]))
        self.done(self.node(op, [x, scale, bias], num_groups=self.pick(*[g for g in range(1, c + 1) if c % g == 0])))

    def draw_running(self):
        x = self.of_rank(1)
        self.done(self.node("CumSum", [x, self.integers(self.axis(self.values[x]))], exclusive=self.integer(0, 1),
                            reverse=self.integer(0, 1)))

    def draw_order(self):
        x = self.of_rank(1, wide=2)
        v = self.values[x]
        axis = self.axis(v)
        order = numpy.sort(v, axis)
        if v.shape[axis] > 1 and numpy.abs(numpy.diff(order, axis=axis)).min() < FAR:
            raise Refused("near a jump")
        op = self.pick("ArgMax", "ArgMin", "TopK", "TopK")
        if op != "TopK":
            at = self.node(op, [x], axis=axis, keepdims=self.integer(0, 1))
            return self.done(self.node("Cast", [at], to=TensorProto.FLOAT))
        k = self.integer(1, v.shape[axis])
        best, at = self.node("TopK", [x, self.integers([k])], outputs=2, axis=axis, largest=self.integer(0, 1))
        self.done(best)
        if self.integer(0, 1):  # computed places
            self.done(self.node("GatherElements", [x, at], axis=axis))

    def draw_matmul(self):
        x = self.of_rank(2)
        v = self.values[x]
        k = v.shape[-1]
        other = self.any(lambda y: y.ndim >= 2 and y.shape[-2] == k and broadcasts_batches(v.shape, y.shape))
        self.done(self.node("MatMul", [x, other or self.weight(self.pick([k, self.integer(1, 6)], [k]))]))

    def draw_gemm(self):
        x = self.of_rank(2, 2)
        m, k = self.values[x].shape
        ta, tb, n = self.integer(0, 1), self.integer(0, 1), self.integer(1, 6)
        k, m = (m, k) if ta else (k, m)
        more = [self.weight(self.pick([n], [m, 1], [m, n], []))] if self.integer(0, 1) else []
        self.done(self.node("Gemm", [x, self.weight([n, k] if tb else [k, n]), *more], transA=ta, transB=tb,
                            alpha=self.pick(1.0, 0.6)))

    def draw_einsum(self):
        x = self.of_rank(3, 3)
        a, b, c = self.values[x].shape
        equation, shape = self.pick(("abc,cd->abd", [c, 3]), ("abc,abd->acd", [a, b, 2]), ("abc,bc->a", [b, c]),
                                    ("abc,dc->bda", [4, c]), ("abc->cab", None))
        self.done(self.node("Einsum", [x] + ([self.weight(shape)] if shape else []), equation=equation))

    def window(self, spatial):
        kernel = [self.integer(1, min(3, d)) for d in spatial]
        return {"kernel_shape": kernel, "strides": [self.integer(1, 2) for _ in spatial],
                "pads": [self.integer(0, k - 1) for k in kernel] * 2}

    def draw_conv(self):
        x = self.of_rank(3)
        v = self.values[x]
        c, how = v.shape[1], self.window(v.shape[2:])
        g = self.pick(*[g for g in range(1, c + 1) if c % g == 0])
        if self.integer(0, 3) == 0:
            how["pads"] = [0] * len(how["pads"])
            out = self.integer(1, 2)
            return self.done(self.node("ConvTranspose", [x, self.weight([c, out, *how["kernel_shape"]])], group=g, **how))
        out = g * self.integer(1, 3)
        more = [self.weight([out])] if self.integer(0, 1) else []
        self.done(self.node("Conv", [x, self.weight([out, c // g, *how["kernel_shape"]]), *more], group=g, **how))

    def draw_pool(self):
        x = self.of_rank(3)
        v = self.values[x]
        op = self.pick("MaxPool", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool")
        if op.startswith("Global"):
            return self.done(self.node(op, [x]))
        how = self.window(v.shape[2:])
        if op != "LpPool" and self.integer(0, 2) == 0:
            how["ceil_mode"] = 1
        if op == "AveragePool":
            how["count_include_pad"] = self.integer(0, 1)
        if op == "MaxPool" and self.integer(0, 1):
            order = numpy.sort(v.reshape(-1))
            if v.size > 1 and numpy.diff(order).min() < 1e-6:
                raise Refused("near a jump")
            y, at = self.node(op, [x], outputs=2, **how)
            self.done(y)
            return self.done(self.node("Cast", [at], to=TensorProto.FLOAT))
        self.done(self.node(op, [x], **how))

    def draw_grid(self):
        x = self.of_rank(4, 4)
        n = self.values[x].shape[0]
        grid = self.weight([n, self.integer(1, 4), self.integer(1, 4), 2], -1.4, 1.4)
        self.done(self.node("GridSample", [x, grid], mode=self.pick("linear", "cubic"), align_corners=self.integer(0, 1),
                            padding_mode=self.pick("zeros", "border", "reflection")))

    def draw_whole(self):
        x = self.of_rank(1)
        scaled = self.node("Mul", [x, self.constant(numpy.float32(4.3))])
        if not self.far(self.values[scaled]):
            raise Refused("near a jump")
        whole = self.node("Cast", [scaled], to=self.pick(TensorProto.INT64, TensorProto.INT32))
        kind = self.values[whole].dtype
        other = self.constant(numpy.asarray(self.pick(2, 3, -3, 5), kind))
        y = self.node(self.pick("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"), [whole, other])
        if self.integer(0, 1):
            y = self.node("Abs", [y])
        self.done(self.node("Cast", [y], to=TensorProto.FLOAT))

    def draw_quantised(self):
        x = self.of_rank(1)
        scale = self.constant(numpy.float32(self.pick(0.02, 0.05)))
        kind = self.pick(numpy.uint8, numpy.int8, numpy.int16)
        zero = self.constant(kind(self.pick(0, 5, 100)))
        v = self.values[x] / self.values[scale]
        if (numpy.abs(v - numpy.floor(v) - 0.5) < 0.01).any():
            raise Refused("near a jump")
        q = self.node("QuantizeLinear", [x, scale, zero])
        self.done(self.node("DequantizeLinear", [q, scale, zero]))

    def draw_triangle(self):
        x = self.of_rank(2)
        self.done(self.node("Trilu", [x, self.integers(self.integer(-1, 1))], upper=self.integer(0, 1)))

    def draw_one_hot(self):
        n = self.integer(2, 5)
        at = self.constant(self.rng.integers(-n, n, self.shape(self.integer(1, 2), 1, 4)))
        y = self.node("OneHot", [at, self.integers(n), self.constant(numpy.float32([0.1, 1.5]))], axis=-1)
        x = self.any(lambda x: x.ndim == 2 and x.shape[0] == n) or self.weight([n, 3])
        self.done(self.node("MatMul", [y, x]))

    def draw_recurrent(self):
        x = self.of_rank(3, 3)
        steps, batch, d = self.values[x].shape
        op, h, dirs = self.pick("LSTM", "GRU", "RNN"), self.integer(1, 3), self.pick(1, 1, 2)
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        if steps > 4:
            raise Refused("long")
        way = {"direction": "bidirectional"} if dirs == 2 else {"direction": self.pick("forward", "reverse")}
        y = self.node(op, [x, self.weight([dirs, gates * h, d]), self.weight([dirs, gates * h, h]),
                           self.weight([dirs, 2 * gates * h])], outputs=2, hidden_size=h, **way)
        self.done(y)

    def draw_skip_norm(self):
        x = self.of_rank(3, 3)
        v = self.values[x]
        if v.shape[-1] < 3:
            raise Refused("rounding alone")
        other = self.any(lambda y: y.shape == v.shape) or self.weight(v.shape)
        self.done(self.node("SkipLayerNormalization", [x, other, self.weight([v.shape[-1]], 0.5, 1.5)], domain="com.microsoft",
                            epsilon=1e-5))

    def draw_attention(self):
        x = self.of_rank(3, 3)
        b, rows, d = self.values[x].shape
        heads = self.pick(*[h for h in (1, 2, 3) if d % h == 0])
        w = self.node("MatMul", [x, self.weight([d, d])])
        self.done(self.node("MultiHeadAttention", [x, w, x], domain="com.microsoft", num_heads=heads))

    def finish(self):
        for n in self.made:
            if n not in self.read or self.rng.random() < 0.15:
                if not any(n == i.name for i in self.inputs):
                    self.outputs.append(helper.make_tensor_value_info(n, TensorProto.FLOAT, self.values[n].shape))
        used = {i for n in self.nodes for i in n.input}
        self.weights = [w for w in self.weights if w.name in used]
        self.inputs = [i for i in self.inputs if i.name in used]
        return self.model()


def broadcasts(to, shape):
    return len(shape) <= len(to) and all(b in (1, a) for a, b in zip(to[::-1], shape[::-1]))


def broadcasts_batches(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(a[:-2][::-1], b[:-2][::-1]))


def drawn(seed, nodes, cases=Drawn):
    case = cases([seed, nodes])
    for _ in range(case.integer(max(1, nodes // 3), nodes)):
        case.step()
    model = case.finish()
    return model, case
