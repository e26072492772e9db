"""ATen's products, attention and convolutions."""

import math

from .lower import NotCovered, broadcast, lowers


@lowers("aten.mm", "aten.bmm", "aten.matmul", args="self mat2")
def _mm(l, n, a):
    x, y = a["self"], a["mat2"] if a["mat2"] is not None else a.get("other")
    if len(x.shape) < 2 or len(y.shape) < 2:
        return l.emit("MatMul", [x, y], n.value.shape)
    return l.matmul(x, y)


@lowers("aten.mv", "aten.dot", "aten.vdot", args="self vec")
def _mv(l, n, a):
    return l.emit("MatMul", [a["self"], a["vec"]], n.value.shape)


@lowers("aten.addmm", "aten.baddbmm", "aten.addmv", args="self mat1 mat2 beta alpha")
def _addmm(l, n, a):
    x, y = a["mat1"], a["mat2"]
    product = l.matmul(x, y) if len(y.shape) > 1 else l.emit("MatMul", [x, y], n.value.shape)
    for key, value in (("alpha", product), ("beta", a["self"])):
        if a[key] not in (None, 1):
            a[key] = l.binary("Mul", value, a[key], value.dtype)
        else:
            a[key] = value
    return l.binary("Add", a["alpha"], a["beta"], n.value.dtype)


@lowers("aten.linear", args="input weight bias")
def _linear(l, n, a):
    out = l.matmul(a["input"], l.swapped(a["weight"], 0, 1))
    return out if a["bias"] is None else l.binary("Add", out, a["bias"])


# ---- Attention ------------------------------------------------------------------------------------------------------

def _scores(l, q, k, mask, causal, scale):
    """scale * Q K^T and the mask, added."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = l.binary("Mul", l.matmul(q, l.swapped(k, -1, -2)), scale, q.dtype)
    if mask is not None:
        if mask.dtype == "bool":
            s = l.emit("Where", [mask, s, l.constant(-math.inf, s.dtype)], broadcast(mask.shape, s.shape), s.dtype)
        else:
            s = l.binary("Add", s, mask, s.dtype)
    if causal:
        rows, cols = s.shape[-2:]
        after = l.binary("Less", _range(l, cols, (1, cols)), _range(l, rows, (rows, 1), 1), "int64", "bool")
        s = l.emit("Where", [after, s, l.constant(-math.inf, s.dtype)], s.shape, s.dtype)
    return s


def _range(l, count, shape, first=0):
    return l.constant([i + first for i in range(count)], "int64", shape)


@lowers("aten.scaled_dot_product_attention", args="query key value attn_mask dropout_p is_causal")
def _attention(l, n, a):
    q, k, v = a["query"], a["key"], a["value"]
    if a["dropout_p"]:
        raise NotCovered("random numbers")
    if len(q.shape) != 4 or a["is_causal"] and a["attn_mask"]:
        return l.matmul(l.unary("Softmax", _scores(l, q, k, a["attn_mask"], a["is_causal"], a.get("scale")), axis=-1),
                        v)
    if k.shape[1] not in (1, q.shape[1]) and not a.get("enable_gqa"):
        raise NotCovered("heads that differ")
    scale = 1 / math.sqrt(q.shape[-1]) if a.get("scale") is None else a["scale"]
    return l.emit("Attention", [q, k, v] + ([a["attn_mask"]] if a["attn_mask"] else []), n.value.shape,
                  scale=float(scale), is_causal=int(bool(a["is_causal"])))


@lowers("aten._scaled_dot_product_flash_attention_for_cpu", args="query key value dropout_p is_causal")
def _flash(l, n, a):
    """The output, and for each row log(sum(exp(scores))), which its derivative reads."""
    q, k, v = a["query"], a["key"], a["value"]
    if a["dropout_p"]:
        raise NotCovered("random numbers")
    s = _scores(l, q, k, a.get("attn_mask"), a["is_causal"], a.get("scale"))
    last = [len(s.shape) - 1]
    most = l.reduce("ReduceMax", s, last, True)
    p = l.unary("Exp", l.binary("Sub", s, most))
    total = l.reduce("ReduceSum", p, last, True)
    out = l.matmul(l.binary("Div", p, total), v)
    return [out, l.reshape(l.binary("Add", most, l.unary("Log", total)), s.shape[:-1])]


@lowers("aten._scaled_dot_product_flash_attention_for_cpu_backward",
        args="grad_out query key value out logsumexp dropout_p is_causal")
def _flash_backward(l, n, a):
    """FlashAttention-2 (ICLR 2024), equations of section 2.2: P = exp(S - L), dV = P^T dO, dP = dO V^T,
    dS = P (dP - rowsum(dO O)), dQ = scale dS K, dK = scale dS^T Q."""
    q, k, v, grad = a["query"], a["key"], a["value"], a["grad_out"]
    if a["dropout_p"]:
        raise NotCovered("random numbers")
    scale = 1 / math.sqrt(q.shape[-1]) if a.get("scale") is None else a["scale"]
    s = _scores(l, q, k, a.get("attn_mask"), a["is_causal"], scale)
    p = l.unary("Exp", l.binary("Sub", s, l.reshape(a["logsumexp"], (*s.shape[:-1], 1)), s.dtype))
    dp = l.matmul(grad, l.swapped(v, -1, -2))
    row = l.reduce("ReduceSum", l.binary("Mul", grad, a["out"]), [len(s.shape) - 1], True)
    ds = l.binary("Mul", l.binary("Mul", p, l.binary("Sub", dp, row)), scale)
    return [l.matmul(ds, k), l.matmul(l.swapped(ds, -1, -2), q), l.matmul(l.swapped(p, -1, -2), grad)]


# ---- Convolutions ---------------------------------------------------------------------------------------------------

_CONVOLUTION = "stride padding dilation transposed output_padding groups"


def _spatial(a, rank):
    """stride, padding, dilation, output padding: one number each dimension."""
    def wide(x):
        x = [x] if isinstance(x, int) else list(x)
        return x * rank if len(x) == 1 else x
    return [wide(a[k]) for k in ("stride", "padding", "dilation", "output_padding")]


def _conv(l, x, w, bias, shape, stride, padding, dilation, groups):
    return l.emit("Conv", [x, w] + ([bias] if bias else []), shape, strides=stride, pads=padding * 2,
                  dilations=dilation, group=groups)


def _conv_transpose(l, x, w, bias, shape, stride, padding, dilation, groups):
    """Of that output: what the convolution's rounding down leaves over is added at the end."""
    extra = [shape[i + 2] - ((x.shape[i + 2] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (w.shape[i + 2] - 1) + 1)
             for i in range(len(stride))]
    return l.emit("ConvTranspose", [x, w] + ([bias] if bias else []), shape, strides=stride, pads=padding * 2,
                  dilations=dilation, output_padding=extra, group=groups)


@lowers("aten.convolution", args=f"input weight bias {_CONVOLUTION}")
def _convolution(l, n, a):
    x, w = a["input"], a["weight"]
    if len(x.shape) != len(w.shape):
        raise NotCovered("an image without a batch")
    stride, padding, dilation, _ = _spatial(a, len(x.shape) - 2)
    conv = _conv_transpose if a["transposed"] else _conv
    return conv(l, x, w, a["bias"], n.value.shape, stride, padding, dilation, a["groups"])


def _weight_gradient(l, x, g, kernel, stride, padding, dilation, groups):
    """gw[o,c,r] = sum over n, y of g[n,o,y] x[n,c, stride y + dilation r - padding]: a convolution of images that are
    channels with gradients that are kernels, stride and dilation changed over, where groups stay groups."""
    batch, channels, outs = x.shape[0], x.shape[1] // groups, g.shape[1]
    rank = len(kernel)
    image = l.reshape(x, (batch, groups, channels, *x.shape[2:]))
    image = l.permute(image, [2, 1, 0, *range(3, 3 + rank)])
    image = l.reshape(image, (channels, groups * batch, *x.shape[2:]))
    kernels = l.swapped(g, 0, 1)
    size = [(x.shape[i + 2] + 2 * padding[i] - stride[i] * (g.shape[i + 2] - 1) - 1) // dilation[i] + 1
            for i in range(rank)]
    out = _conv(l, image, kernels, None, (channels, outs, *size), dilation, padding, stride, groups)
    for i in range(rank):  # what the stride left over gives more taps than there are
        out = l.slice(out, i + 2, 0, kernel[i])
    return l.swapped(out, 0, 1)


@lowers("aten.convolution_backward", args=f"grad_output input weight bias_sizes {_CONVOLUTION} output_mask")
def _convolution_backward(l, n, a):
    g, x, w, groups = a["grad_output"], a["input"], a["weight"], a["groups"]
    stride, padding, dilation, _ = _spatial(a, len(x.shape) - 2)
    to_input, to_weight, to_bias = a["output_mask"]
    out = [None, None, None]
    if to_input:
        conv = _conv if a["transposed"] else _conv_transpose
        out[0] = conv(l, g, w, None, x.shape, stride, padding, dilation, groups)
    if to_weight:
        image, gradient = (g, x) if a["transposed"] else (x, g)
        out[1] = _weight_gradient(l, image, gradient, w.shape[2:], stride, padding, dilation, groups)
    if to_bias:
        out[2] = l.reduce("ReduceSum", g, [d for d in range(len(g.shape)) if d != 1], False)
    return out
