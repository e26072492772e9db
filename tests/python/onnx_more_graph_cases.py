"""Operators of the graphs that tests/python/onnx_graphs.py draws: less usual ones, and attributes that few files have."""

import numpy
from onnx import TensorProto, helper

from onnx_graph_cases import Drawn, Refused


class DrawnOfMore(Drawn):
    """Files of two versions, of which some inputs are repeated by views."""

    def __init__(self, seed):
        super().__init__(seed)
        self.opset = self.pick(21, 23)

    def given(self, shape):
        few = [1 if self.rng.random() < 0.5 else d for d in shape]
        if few == list(shape) or self.rng.random() > 0.2:
            return super().given(shape)
        name = self.node("Expand", [super().given(few), self.integers(shape)])
        self.made.append(name)
        return name

    def draw_scatter_nd(self):
        x = self.of_rank(1)
        v = self.values[x]
        r = self.integer(1, v.ndim)
        lead = self.shape(self.integer(1, 2), 1, 3)
        count = int(numpy.prod(lead))
        places = int(numpy.prod(v.shape[:r]))
        if count > places:
            raise Refused("more updates than places")
        flat = self.rng.choice(places, count, replace=False)
        at = numpy.stack(numpy.unravel_index(flat, v.shape[:r]), -1).reshape(*lead, r)
        at = at - numpy.asarray(v.shape[:r]) * self.rng.integers(0, 2, at.shape)
        more = {"reduction": self.pick("none", "add", "mul", "max", "min")}
        self.done(self.node("ScatterND", [x, self.constant(at.astype(numpy.int64)), self.weight([*lead, *v.shape[r:]])], **more))

    def draw_scatter_at_computed(self):
        """Places may be written several times: the last update stays."""
        x = self.of_rank(1, 3)
        v = self.values[x]
        axis = self.integer(0, v.ndim - 1)
        shape = list(v.shape)
        shape[axis] = self.integer(1, v.shape[axis])
        places = self.node("Mul", [self.weight(shape), self.constant(numpy.float32(v.shape[axis]))])
        other = self.of_rank(1)
        few = self.node("ReduceMax", [other], keepdims=0)  # what is known while running
        if abs(float(self.values[few])) > 5 or not self.far(self.values[places] + self.values[few]):
            raise Refused("near a jump")
        places = self.node("Clip", [self.node("Add", [places, few]), self.constant(numpy.float32(-v.shape[axis])),
                                    self.constant(numpy.float32(v.shape[axis] - 1))])
        at = self.node("Cast", [self.node("Floor", [places])], to=TensorProto.INT64)
        self.done(self.node("ScatterElements", [x, at, self.weight(shape)], axis=axis))

    def draw_gather_nd(self):
        x = self.of_rank(1)
        v = self.values[x]
        b = self.integer(0, v.ndim - 1)
        r = self.integer(1, v.ndim - b)
        lead = [*v.shape[:b], *self.shape(self.integer(0, 2), 1, 3)]
        at = numpy.stack([self.rng.integers(-d, d, lead) for d in v.shape[b:b + r]], -1)
        if not lead:
            at = at.reshape(r)
        self.done(self.node("GatherND", [x, self.constant(at.astype(numpy.int64))], batch_dims=b))

    def draw_windows(self):
        """Convolutions and pools of one to three dimensions whose windows are dilated, at edges of their own, or padded alike."""
        x = self.of_rank(3, 5) if self.integer(0, 3) else self.given(self.shape(5, 1, 4))
        v = self.values[x]
        n = v.ndim - 2
        kernel = [self.integer(1, min(3, d)) for d in v.shape[2:]]
        how = {"kernel_shape": kernel, "strides": [self.integer(1, 3) for _ in kernel], "dilations": [self.integer(1, 2) for _ in kernel]}
        op = self.pick("Conv", "Conv", "ConvTranspose", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")
        if self.integer(0, 3) == 0:
            how["auto_pad"] = self.pick("SAME_UPPER", "SAME_LOWER", "VALID")
            # onnxruntime's padding leaves dilations of pools out, and makes images of larger steps than windows smaller.
            if op.endswith("Pool"):
                how["dilations"] = [1 for _ in kernel]
            if op == "ConvTranspose":
                how["strides"] = [min(s, d * (k - 1) + 1) for s, d, k in zip(how["strides"], how["dilations"], kernel)]
        elif op == "Conv" or self.integer(0, 1):
            # Pools have no window of padding alone.
            how["pads"] = [self.integer(0, 2 if op.startswith("Conv") else max(0, k - 1)) for k in kernel * 2]
        c = v.shape[1]
        g = self.pick(*[g for g in range(1, c + 1) if c % g == 0])
        if op == "Conv":
            out = g * self.integer(1, 2)
            return self.done(self.node(op, [x, self.weight([out, c // g, *kernel]), self.weight([out])], group=g, **how))
        if op == "ConvTranspose":
            more = [self.weight([g * 2])] if self.integer(0, 1) else []
            if "auto_pad" not in how and self.integer(0, 1):
                how["output_padding"] = [self.integer(0, max(s, d) - 1) for s, d in zip(how["strides"], how["dilations"])]
            return self.done(self.node(op, [x, self.weight([c, 2, *kernel]), *more], group=g, **how))
        if op == "LpPool":
            return self.done(self.node(op, [x], p=self.pick(1, 2, 3), **how))
        if n > 3 or self.integer(0, 1):
            how["ceil_mode"] = self.integer(0, 1)
        if op == "AveragePool":
            how["count_include_pad"] = self.integer(0, 1)
        self.done(self.node(op, [x], **how))

    def draw_unusual_resize(self):
        x = self.of_rank(1, 5)
        v = self.values[x]
        axes = sorted(self.rng.choice(v.ndim, self.integer(1, min(2, v.ndim)), replace=False).tolist())
        mode = self.pick("linear", "nearest", "cubic")
        way = self.pick("half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric", "tf_crop_and_resize")
        # Where a part that does not begin at 0 ends at 1, rounding decides whether its end is outside.
        parts = [self.pick((0.0, 1.0), (0.1, 0.8), (0.3, 0.9)) for _ in axes]
        roi = self.constant(numpy.float32([first for first, _ in parts] + [last for _, last in parts]))
        how = {"axes": axes, "mode": mode, "coordinate_transformation_mode": way}
        if mode == "nearest":
            if way not in ("asymmetric",):
                raise Refused("near a jump")
            how["nearest_mode"] = self.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        if mode == "cubic":
            how |= {"cubic_coeff_a": self.pick(-0.5, -0.75), "exclude_outside": self.integer(0, 1)}
        if mode != "nearest" and way in ("half_pixel", "asymmetric") and self.integer(0, 2) == 0:
            how["antialias"] = 1
        if way == "tf_crop_and_resize":
            how["extrapolation_value"] = 0.5
        # Beside tests of the onnx package, onnxruntime takes the size of the result for scale times size, and scales of 1 for a copy.
        if way in ("align_corners", "tf_crop_and_resize") or self.integer(0, 1):
            sizes = [self.integer(1, 2 * v.shape[a] + 1) for a in axes]
            if way == "tf_crop_and_resize" and any(n == v.shape[a] for n, a in zip(sizes, axes)):
                raise Refused("a scale of 1")
            return self.done(self.node("Resize", [x, roi, "", self.integers(sizes)], **how))
        self.done(self.node("Resize", [x, roi, self.constant(numpy.float32([self.pick(0.5, 1.0, 1.5, 2.0, 2.6, 3.0) for _ in axes]))], **how))

    def draw_einsum_of_any(self):
        x = self.of_rank(1, 4)
        v = self.values[x]
        letters = "abcd"[:v.ndim]
        extents = dict(zip(letters, v.shape))
        operands, terms = [x], [letters]
        for k in range(self.integer(0, 2)):
            if self.integer(0, 1):
                extents["efg"[k]] = self.integer(1, 4)
            term = "".join(self.rng.permutation([l for l in extents if self.integer(0, 1)]).tolist())
            if not term:
                continue
            terms.append(term)
            operands.append(self.weight([extents[l] for l in term]))
        used = sorted(set("".join(terms)))
        out = "".join(self.rng.permutation([l for l in used if self.integer(0, 2)]).tolist())
        if not out:
            raise Refused("a scalar")
        self.done(self.node("Einsum", operands, equation=",".join(terms) + "->" + out))

    def draw_microsoft(self):
        op = self.pick("BiasGelu", "FastGelu", "QuickGelu", "SkipSimplifiedLayerNormalization", "FusedMatMul", "RotaryEmbedding",
                       "MatMulNBits", "SimplifiedLayerNormalization")
        x = self.of_rank(3 if op in ("SkipSimplifiedLayerNormalization", "RotaryEmbedding") else 2, 3)
        v = self.values[x]
        d = v.shape[-1]
        ms = {"domain": "com.microsoft"}
        if op in ("BiasGelu", "FastGelu"):
            return self.done(self.node(op, [x, self.weight([d])], **ms))
        if op == "QuickGelu":
            return self.done(self.node(op, [x], alpha=self.pick(1.702, 1.0), **ms))
        if op == "SimplifiedLayerNormalization":
            return self.done(self.node(op, [x, self.weight([d], 0.5, 1.5)], epsilon=1e-3))
        if op == "SkipSimplifiedLayerNormalization":
            return self.done(self.node(op, [x, self.weight(v.shape), self.weight([d], 0.5, 1.5)], epsilon=1e-3, **ms))
        if op == "FusedMatMul":
            ta, tb = self.integer(0, 1), self.integer(0, 1)
            k = v.shape[-2] if ta else d
            n = self.integer(1, 5)
            return self.done(self.node(op, [x, self.weight([n, k] if tb else [k, n])], transA=ta, transB=tb, alpha=self.pick(1.0, 0.3), **ms))
        if op == "RotaryEmbedding":
            b, s, _ = v.shape
            heads = [h for h in range(1, d + 1) if d % h == 0 and d // h % 2 == 0]
            if not heads:
                raise Refused("odd heads")
            h = self.pick(*heads)
            at = self.constant(self.rng.integers(0, 7, [b, s]).astype(numpy.int64))
            return self.done(self.node(op, [x, at, self.weight([7, d // h // 2]), self.weight([7, d // h // 2])], num_heads=h,
                                       interleaved=self.integer(0, 1), **ms))
        n, block = self.integer(1, 5), self.pick(16, 32)
        blocks = -(-d // block)
        packed = self.constant(self.rng.integers(0, 256, [n, blocks, block // 2]).astype(numpy.uint8))
        more = [self.constant(self.rng.integers(0, 256, [n, (blocks + 1) // 2]).astype(numpy.uint8))] if self.integer(0, 1) else []
        self.done(self.node(op, [x, packed, self.weight([n, blocks], 0.01, 0.1), *more], K=d, N=n, bits=4, block_size=block, **ms))

    def draw_moved(self):
        op = self.pick("CenterCropPad", "Compress", "ReverseSequence", "Dropout", "Shrink", "EyeLike", "GlobalLpPool", "Size", "Shape",
                       "Pad", "Slice", "Tile", "Split", "RoiAlign", "Col2Im", "Identity")
        x = self.of_rank(2)
        v = self.values[x]
        if op == "CenterCropPad":
            axes = sorted(self.rng.choice(v.ndim, self.integer(1, v.ndim), replace=False).tolist())
            return self.done(self.node(op, [x, self.integers([self.integer(1, v.shape[a] + 2) for a in axes])], axes=axes))
        if op == "Compress":
            axis = self.axis(v)
            keep = self.rng.integers(0, 2, v.shape[axis]).astype(bool)
            keep[self.integer(0, len(keep) - 1)] = True
            return self.done(self.node(op, [x, self.constant(keep)], axis=axis))
        if op == "ReverseSequence":
            time = self.integer(0, 1)
            lengths = self.rng.integers(1, v.shape[time] + 1, v.shape[1 - time])
            return self.done(self.node(op, [x, self.constant(lengths.astype(numpy.int64))], time_axis=time, batch_axis=1 - time))
        if op == "Shrink":
            if not self.far(numpy.abs(v) - 0.3, False):
                raise Refused("near a jump")
            return self.done(self.node(op, [x], lambd=0.3, bias=self.pick(0.0, 0.2)))
        if op == "EyeLike":
            if v.ndim != 2:
                raise Refused("no matrix")
            return self.done(self.node("Add", [self.node(op, [x], k=self.integer(-1, 1)), x]))
        if op == "GlobalLpPool":
            if v.ndim < 3:
                raise Refused("no image")
            return self.done(self.node(op, [x], p=self.pick(1, 2, 3)))
        if op in ("Size", "Shape"):
            n = self.node("Cast", [self.node(op, [x])], to=TensorProto.FLOAT)
            y = self.node("Mul", [n, self.constant(numpy.float32(0.1))])
            return self.done(self.node("Add", [y, self.node("ReduceMax", [x], keepdims=0)]))
        if op == "Pad":
            axes = sorted(self.rng.choice(v.ndim, self.integer(1, v.ndim), replace=False).tolist())
            pads = [self.integer(-1 if v.shape[a] > 3 else 0, 2) for a in axes * 2]
            return self.done(self.node(op, [x, self.integers(pads), self.constant(numpy.float32(0.4)),
                                            self.integers([a - v.ndim if self.integer(0, 1) else a for a in axes])]))
        if op == "Slice":  # ends far outside, from behind
            axis = self.axis(v)
            step = self.pick(1, 2, 3, -1, -3)
            first, last = (self.pick(0, -2, 1), self.pick(1 << 62, -1, 100)) if step > 0 else (self.pick(-1, 100), self.pick(-(1 << 62), -100))
            return self.done(self.node(op, [x, *(self.integers([n]) for n in (first, last, axis, step))]))
        if op == "Split":
            axis = self.axis(v)
            n = v.shape[axis]
            if n < 3:
                raise Refused("few elements")
            return self.done(self.node(op, [x, self.integers([1, n - 2, 1])], outputs=3, axis=axis))
        if op == "RoiAlign":
            if v.ndim != 4:
                raise Refused("no image")
            rois = numpy.sort(self.rng.uniform(0, 5, [2, 2, 2]), 1).reshape(2, 4).astype(numpy.float32)
            at = self.constant(self.rng.integers(0, v.shape[0], [2]).astype(numpy.int64))
            return self.done(self.node(op, [x, self.constant(rois), at], output_height=2, output_width=self.integer(1, 3), sampling_ratio=2,
                                       coordinate_transformation_mode=self.pick("half_pixel", "output_half_pixel"), spatial_scale=0.8,
                                       mode="avg"))
        if op == "Col2Im":
            c = self.integer(1, 2)
            y = self.given([self.integer(1, 2), c * 4, 6])
            return self.done(self.node(op, [y, self.integers([3, 4]), self.integers([2, 2])]))
        if op == "Tile":
            return self.done(self.node(op, [x, self.integers([self.integer(1, 3) for _ in v.shape])]))
        self.done(self.node(op, [x]))

    def draw_truths(self):
        """Truth values and whole numbers that others compute with."""
        x = self.of_rank(1)
        v = self.values[x]
        if not self.far(v, False) or not self.far(v - 0.5, False):
            raise Refused("near a jump")
        a = self.node("Greater", [x, self.constant(numpy.float32(0))])
        b = self.node("LessOrEqual", [x, self.constant(numpy.float32(0.5))])
        kind = self.pick("logic", "count", "where", "equal", "cast", "bits", "any")
        c = self.node(self.pick("And", "Or", "Xor"), [a, b])
        if kind == "logic":
            c = self.node("Not", [c])
        elif kind == "equal":
            c = self.node("Equal", [a, c])
        elif kind == "where":
            return self.done(self.node("Where", [c, self.constant(numpy.float32(self.pick(-1, 0, 3))), x]))
        elif kind == "count":
            whole = self.node("Cast", [c], to=self.pick(TensorProto.INT64, TensorProto.INT32))
            axis = self.integers([self.integer(0, v.ndim - 1)])
            return self.done(self.node("Cast", [self.node(self.pick("ReduceSum", "ReduceMax", "ReduceMin"), [whole, axis], keepdims=self.integer(0, 1))],
                                       to=TensorProto.FLOAT))
        elif kind == "bits":
            whole = self.node("Add", [self.node("Cast", [c], to=TensorProto.INT32), self.constant(numpy.int32(self.pick(1, 6, 12)))])
            return self.done(self.node("Cast", [self.node(self.pick("BitwiseAnd", "BitwiseOr", "BitwiseXor"), [whole, self.constant(numpy.int32(5))])],
                                       to=TensorProto.FLOAT))
        elif kind == "any":
            real = self.node("Cast", [c], to=TensorProto.FLOAT)
            c = self.node("Greater", [self.node("ReduceMax", [real, self.integers([v.ndim - 1])], keepdims=1), self.constant(numpy.float32(0.5))])
            return self.done(self.node("Where", [c, x, self.constant(numpy.float32(0.25))]))
        self.done(self.node("Cast", [c], to=TensorProto.FLOAT))

    def draw_types(self):
        """There and back through a type that holds the values."""
        x = self.of_rank(1)
        scaled = self.node("Floor", [self.node("Mul", [x, self.constant(numpy.float32(3.3))])])
        if not self.far(self.values[x] * numpy.float32(3.3)):
            raise Refused("near a jump")
        to = self.pick(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.BOOL)
        y = self.node("Cast", [scaled], to=to)
        if to in (TensorProto.INT32, TensorProto.INT64):
            y = self.node(self.pick("Neg", "Abs", "Sign"), [y])
        self.done(self.node("Cast", [y], to=TensorProto.FLOAT))

    def draw_recurrent_of_all_inputs(self):
        x = self.of_rank(3, 3)
        steps, batch, d = self.values[x].shape
        if steps > 4:
            raise Refused("long")
        op, h, dirs = self.pick("LSTM", "GRU", "RNN"), self.integer(1, 3), self.pick(1, 2)
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        lengths = self.constant(self.rng.integers(1, steps + 1, [batch]).astype(numpy.int32)) if self.integer(0, 1) else ""
        inputs = [x, self.weight([dirs, gates * h, d]), self.weight([dirs, gates * h, h]), self.weight([dirs, 2 * gates * h]), lengths,
                  self.weight([dirs, batch, h])]
        if op == "LSTM":
            inputs += [self.weight([dirs, batch, h]), self.weight([dirs, 3 * h]) if self.integer(0, 1) else ""]
        how = {"direction": "bidirectional" if dirs == 2 else "reverse"}
        if op == "GRU":
            how["linear_before_reset"] = self.integer(0, 1)
        if self.integer(0, 2) == 0:
            how["clip"] = 0.6
        self.done(self.node(op, inputs, outputs=3 if op == "LSTM" else 2, hidden_size=h, **how))

    def draw_norm_of_axes(self):
        x = self.of_rank(2)
        v = self.values[x]
        op = self.pick("LayerNormalization", "Softmax", "BatchNormalization", "LpNormalization", "ReduceSum", "ReduceL2", "ReduceMean", "ReduceMax")
        if op == "LayerNormalization":
            axis = self.integer(0, v.ndim - 1)
            if int(numpy.prod(v.shape[axis:])) < 3:
                raise Refused("rounding alone")
            return self.done(self.node(op, [x, self.weight(v.shape[axis:], 0.5, 1.5)], axis=axis - v.ndim, epsilon=1e-2))
        if op == "BatchNormalization":
            c = v.shape[1]
            return self.done(self.node(op, [x, *(self.weight([c], 0.3, 1.3) for _ in range(4))], epsilon=0.1))
        if op in ("Softmax", "LpNormalization"):
            return self.done(self.node(op, [x], axis=self.axis(v), **({"p": 1} if op == "LpNormalization" else {})))
        axes = sorted(self.rng.choice(v.ndim, self.integer(0, v.ndim), replace=False).tolist())
        axes = [a - v.ndim if self.integer(0, 1) else a for a in axes]
        self.done(self.node(op, [x, self.integers(axes)], keepdims=self.integer(0, 1), noop_with_empty_axes=self.integer(0, 1)))

    def draw_loop(self):
        """A few turns that carry two values and keep what each makes."""
        x = self.of_rank(1, 3)
        shape = self.values[x].shape
        turn, go, had, by, then, kept, on, still = (f"{name}_{self.numbered}v" for name in ("turn", "go", "had", "by", "then", "kept", "on", "still"))
        self.numbered += 1
        nodes = [helper.make_node(self.pick("Add", "Mul", "Sub"), [had, by], [then]), helper.make_node(self.pick("Tanh", "Relu", "Neg"), [then], [kept]),
                 helper.make_node("Identity", [by], [still]), helper.make_node("Identity", [go], [on])]
        real = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (had, by, then, still, kept)]
        truth = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in (go, on)]
        body = helper.make_graph(nodes, "body", [helper.make_tensor_value_info(turn, TensorProto.INT64, []), truth[0], *real[:2]], [truth[1], *real[2:]])
        last, _, all_ = self.node("Loop", [self.integers(self.integer(1, 3)), self.constant(numpy.asarray(True)), x, self.weight(shape)], outputs=3,
                                  body=body)
        self.done(last)
        self.done(all_)

    def draw_attention_of_opset_23(self):
        if self.opset < 23:
            raise Refused("an older opset")
        op = self.pick("Attention", "Attention", "RMSNormalization", "RotaryEmbedding")
        if op == "RMSNormalization":
            x = self.of_rank(2)
            v = self.values[x]
            axis = self.integer(0, v.ndim - 1)
            return self.done(self.node(op, [x, self.weight(v.shape[axis:], 0.5, 1.5)], axis=axis, epsilon=1e-2))
        q = self.given([self.integer(1, 2), self.pick(2, 4), self.integer(1, 4), self.pick(2, 4)])
        b, h, s, d = self.values[q].shape
        if op == "RotaryEmbedding":
            tables = [self.weight([b, s, d // 2]) for _ in range(2)]
            return self.done(self.node(op, [q, *tables], interleaved=self.integer(0, 1)))
        keys, groups, width = self.integer(s, 5), self.pick(h, h // 2), self.integer(1, 3)
        mask = self.weight(self.pick([s, keys], [b, 1, s, keys], [1, h, s, keys], [b, h, s, keys])) if self.integer(0, 1) else ""
        self.done(self.node(op, [q, self.weight([b, groups, keys, d]), self.weight([b, groups, keys, width]), mask],
                            is_causal=self.integer(0, 1) if not mask else 0, softcap=self.pick(0.0, 2.0), scale=self.pick(0.3, 0.7)))
