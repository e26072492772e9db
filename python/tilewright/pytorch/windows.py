"""ATen's pooling and resizing."""

import math

from .lower import NotCovered, lowers
from .products import _conv_transpose


def _wide(x, rank, otherwise):
    if x is None or x == []:
        return list(otherwise)
    x = [x] if isinstance(x, int) else list(x)
    return x * rank if len(x) == 1 else x


def _pooling(a, rank):
    kernel = _wide(a["kernel_size"], rank, [])
    stride = _wide(a["stride"], rank, kernel)
    return kernel, stride, _wide(a["padding"], rank, [0] * rank)


def _batched(l, x, rank):
    """An image without a batch gets one."""
    return x if len(x.shape) == rank + 2 else l.reshape(x, (*[1] * (rank + 2 - len(x.shape)), *x.shape))


def _with_batch(shape, rank):
    return (*[1] * (rank + 2 - len(shape)), *shape)


@lowers("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices", "aten.max_pool2d", "aten.max_pool1d",
        args="self kernel_size stride padding dilation ceil_mode")
def _max_pool(l, n, a):
    rank = int(n.target.split("pool")[1][0])
    several = "indices" in n.target
    if several and l.wants(1):
        raise NotCovered("positions of the largest")
    kernel, stride, padding = _pooling(a, rank)
    meta = n.value[0] if several else n.value
    out = l.emit("MaxPool", [_batched(l, a["self"], rank)], _with_batch(meta.shape, rank), kernel_shape=kernel,
                 strides=stride, pads=padding * 2, dilations=_wide(a["dilation"], rank, [1] * rank),
                 ceil_mode=int(bool(a["ceil_mode"])))
    out = l.reshape(out, meta.shape)
    return [out, None] if several else out


@lowers("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d",
        args="self kernel_size stride padding ceil_mode count_include_pad divisor_override")
def _avg_pool(l, n, a):
    rank = int(n.target.split("pool")[1][0])
    kernel, stride, padding = _pooling(a, rank)
    out = l.emit("AveragePool", [_batched(l, a["self"], rank)], _with_batch(n.value.shape, rank),
                 kernel_shape=kernel, strides=stride, pads=padding * 2, ceil_mode=int(bool(a["ceil_mode"])),
                 count_include_pad=int(a["count_include_pad"] in (None, True) or bool(a["divisor_override"])))
    if a["divisor_override"]:
        if a["ceil_mode"]:
            raise NotCovered("a divisor, and windows that end outside")
        out = l.binary("Mul", out, math.prod(kernel) / a["divisor_override"])
    return l.reshape(out, n.value.shape)


def _counts(size, outs, kernel, stride, padding, with_padding):
    """How many elements each window averages."""
    all_of = []
    for y in range(outs):
        first = y * stride - padding
        last = min(first + kernel, size + padding)
        all_of.append(last - first if with_padding else min(last, size) - max(first, 0))
    return all_of


@lowers("aten.avg_pool2d_backward",
        args="grad_output self kernel_size stride padding ceil_mode count_include_pad divisor_override")
def _avg_pool_backward(l, n, a):
    x, g = a["self"], a["grad_output"]
    if len(x.shape) != 4:
        raise NotCovered("an image without a batch")
    kernel, stride, padding = _pooling(a, 2)
    if a["divisor_override"]:
        g = l.binary("Mul", g, 1 / a["divisor_override"])
    else:
        rows, cols = (_counts(x.shape[i + 2], g.shape[i + 2], kernel[i], stride[i], padding[i],
                              a["count_include_pad"] in (None, True)) for i in (0, 1))
        g = l.binary("Mul", g, l.constant([1 / (r * c) for r in rows for c in cols], g.dtype, (len(rows), len(cols))))
    ones = l.filled(1.0, g.dtype, (x.shape[1], 1, *kernel))
    return _conv_transpose(l, g, ones, None, x.shape, stride, padding, [1, 1], x.shape[1])


def _averages(size, outs):
    """A row for each window of adaptive pooling."""
    rows = []
    for y in range(outs):
        first, last = y * size // outs, -(-(y + 1) * size // outs)
        rows.append([1 / (last - first) if first <= i < last else 0.0 for i in range(size)])
    return rows


def _along(l, x, matrices, transposed=False):
    """The last dimensions, each times a matrix of constants."""
    rank = len(x.shape)
    for i, rows in enumerate(matrices):
        d = rank - len(matrices) + i
        if transposed:
            rows = [list(c) for c in zip(*rows)]
        if len(rows) == len(rows[0]) and all(v == (r == c) for r, row in enumerate(rows) for c, v in enumerate(row)):
            continue
        matrix = l.constant([v for row in rows for v in row], x.dtype, (len(rows), len(rows[0])))
        x = l.swapped(x, d, rank - 1)
        x = l.emit("MatMul", [x, l.swapped(matrix, 0, 1)], (*x.shape[:-1], len(rows)))
        x = l.swapped(x, d, rank - 1)
    return x


@lowers("aten._adaptive_avg_pool2d_backward", args="grad_output self")
def _adaptive_backward(l, n, a):
    g, x = a["grad_output"], a["self"]
    return _along(l, g, [_averages(s, t) for s, t in zip(x.shape[-2:], g.shape[-2:])], transposed=True)


def _lines(size, outs, aligned, scale):
    """A row for each element that lies between two of the input."""
    rows = []
    for y in range(outs):
        if aligned:
            x = y * (size - 1) / (outs - 1) if outs > 1 else 0.0
        else:
            x = max((y + 0.5) * (size / outs if not scale else 1 / scale) - 0.5, 0.0)
        low = min(int(x), size - 1)
        row = [0.0] * size
        row[low] += 1 - (x - low)
        row[min(low + 1, size - 1)] += x - low
        rows.append(row)
    return rows


_SCALES = "scales_first scales_second scales_third"


def _scales(a, shape, to):
    """A scale for each dimension of the image, where those of its sizes are not what is meant."""
    given = [a[k] for k in _SCALES.split()][:len(shape) - 2]
    if isinstance(given[0], list):  # of the overload "vec"
        given = given[0]
    aligned = bool(a.get("align_corners"))
    return [None if aligned or g is None or s * g == t else g for g, s, t in zip(given, shape[2:], to[2:])]


@lowers("aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", "aten.upsample_bicubic2d",
        args=f"input output_size align_corners {_SCALES}")
def _interpolated(l, n, a):
    return _resized(l, n, a, mode="cubic" if "cubic" in n.target else "linear",
                    coordinate_transformation_mode="align_corners" if a["align_corners"] else "half_pixel")


@lowers("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d", args=f"input output_size {_SCALES}")
def _nearest(l, n, a):
    return _resized(l, n, a, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _resized(l, n, a, **how):
    x, to = a["input"], n.value.shape
    scales = _scales(a, x.shape, to)
    if not any(scales):
        return l.emit("Resize", [x, None, None, l.integers(to)], to, **how)
    scales = [float(g or t / s) for g, s, t in zip([1.0, 1.0, *scales], x.shape, to)]
    return l.emit("Resize", [x, None, l.constant(scales, "float64", (len(scales),))], to, **how)


@lowers("aten.upsample_linear1d_backward", "aten.upsample_bilinear2d_backward", "aten.upsample_trilinear3d_backward",
        args=f"grad_output output_size input_size align_corners {_SCALES}")
def _interpolated_backward(l, n, a):
    g, shape = a["grad_output"], n.value.shape
    return _along(l, g, [_lines(s, t, bool(a["align_corners"]), scale) for s, t, scale in
                         zip(shape[2:], g.shape[2:], _scales(a, shape, g.shape))], transposed=True)


@lowers("aten.grid_sampler_2d", args="input grid mode padding align_corners")
def _grid(l, n, a):
    modes, paddings = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    return l.emit("GridSample", [a["input"], a["grid"]], n.value.shape, mode=modes[a["mode"]],
                  padding_mode=paddings[a["padding"]], align_corners=int(bool(a["align_corners"])))


@lowers("aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d",
        "aten._adaptive_avg_pool3d", args="self output_size")
def _adaptive(l, n, a):
    x, rank = a["self"], len(a["output_size"])
    size, to = x.shape[len(x.shape) - rank:], n.value.shape[len(x.shape) - rank:]
    if any(s % t for s, t in zip(size, to)):  # windows of different sizes
        return _along(l, x, [_averages(s, t) for s, t in zip(size, to)])
    kernel = [s // t for s, t in zip(size, to)]
    out = l.emit("AveragePool", [_batched(l, x, rank)], _with_batch(n.value.shape, rank), kernel_shape=kernel,
                 strides=kernel)
    return l.reshape(out, n.value.shape)
