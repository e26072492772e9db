"""More families of drawn_functions.py, which seeds from 10000 on draw, too: running sums, lookups, norms of images, gates, windows
of attention, small linear algebra, losses of boxes, weights with zero points.
"""
import torch
import torch.nn.functional as F

from drawn_functions import family


@family
def running_sum(d):
    rows, cols = d.size(1, 2048), d.size(2, 1024)
    kind = d.one("sum", "softmax", "mean")

    def run(x):
        if kind == "softmax":
            return torch.cumsum(F.softmax(x, -1), -1)
        y = torch.cumsum(x, -1)
        return y if kind == "sum" else y / torch.arange(1, cols + 1, device=x.device, dtype=x.dtype)
    return run, [((rows, cols), 1)]


@family
def looked_up(d):
    words, h, rows, each = d.size(100, 50000), d.size(16, 1024), d.size(1, 2048), d.one(2, 4, 8)
    kind = d.one("bag", "select", "onehot", "dot")

    def run(i, t, w):
        if kind == "bag":
            return (F.embedding(i, t).view(rows, each, h) * w[:, :, None]).sum(1)
        if kind == "select":
            return torch.index_select(t, 0, i) * 2 + 1
        if kind == "onehot":
            return F.one_hot(i % 64, 64).to(t.dtype) @ t[:64]
        x = F.embedding(i, t).view(rows, each, h)
        return (x[:, :1] * x).sum(-1)
    return run, [((rows * each,), f"below {words}"), ((words, h), 1), ((rows, each), 1)]


@family
def image_norm(d):
    batch, groups = d.size(1, 16), d.one(2, 3, 5, 7)
    c, h, w = d.parted(6, 256, groups), d.size(4, 80), d.size(4, 80)
    kind = d.one("instance", "group", "channels", "scale")

    def run(x, g, b):
        if kind == "instance":
            return F.instance_norm(x, weight=g, bias=b)
        if kind == "group":
            return x + F.silu(F.group_norm(x, groups, g, b))
        if kind == "scale":
            return x + g[:, None, None] * torch.tanh(x)
        return F.layer_norm(x.permute(0, 2, 3, 1), (c,), g, b).permute(0, 3, 1, 2)
    return run, [((batch, c, h, w), 1), ((c,), 1), ((c,), 1)]


@family
def excited(d):
    batch, c, size = d.size(1, 32), d.parted(16, 512, 8), d.size(7, 64)
    r = max(1, c // 8)

    def run(x, a, b):
        return x * torch.sigmoid(F.linear(F.relu(F.linear(x.mean((2, 3)), a)), b))[:, :, None, None]
    return run, [((batch, c, size, size), 1), ((r, c), c), ((c, r), r)]


@family
def standardised_convolution(d):
    batch, c, out, size = d.one(1, 2, 4), d.size(4, 128), d.size(8, 128), d.size(7, 56)

    def run(x, w, g):
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w * g[:, None, None, None] / (9 * c) ** 0.5, padding=1)
    return run, [((batch, c, size, size), 1), ((out, c, 3, 3), 1), ((out,), 1)]


@family
def shuffled_pixels(d):
    batch, c, size, r = d.one(1, 2, 4), d.size(2, 64), d.size(4, 64), d.one(2, 3)
    if d.one(0, 1):
        return lambda x: F.relu(F.pixel_shuffle(x, r)), [((batch, c * r * r, size, size), 1)]
    return lambda x: F.pixel_unshuffle(x, r) * 2, [((batch, c, size * r, size * r), 1)]


@family
def gated_unit(d):
    rows, h, n, f = d.size(1, 2048), d.size(32, 1024), d.size(32, 2048), d.one(F.silu, F.gelu, torch.sigmoid, F.relu)

    def run(x, w):
        a, b = F.linear(x, w).chunk(2, -1)
        return f(a) * b
    return run, [((rows, h), 1), ((2 * n, h), h)]


@family
def window_attention(d):
    """Keys of a window before each query, after norms of both and a rotation."""
    heads, tokens, wide, window = d.size(1, 16), d.size(16, 1024), d.one(32, 64, 128), d.one(32, 64, 128)
    kind = d.one("window", "norms", "rotary", "alibi")

    def run(q, k, v, cos, sin):
        def turned(x):
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat([-b, a], -1) * sin
        if kind == "norms":
            q, k = F.rms_norm(q, (wide,)), F.rms_norm(k, (wide,))
        if kind == "rotary":
            q, k = turned(q), turned(k)
        at = torch.arange(tokens, device=q.device)
        apart = at[:, None] - at
        s = q @ k.transpose(-1, -2) / wide ** 0.5
        if kind == "alibi":
            s = s - apart.abs().to(s.dtype) * 0.01
        seen = (apart >= 0) & (apart < window) if kind == "window" else apart >= 0
        return s.masked_fill(~seen, -10000.0).softmax(-1) @ v
    return run, [((heads, tokens, wide), 1)] * 3 + [((tokens, wide), 1)] * 2


@family
def filter_step(d):
    """A step of many small Kalman filters."""
    batch, n = d.size(8, 8192), d.one(2, 3, 4, 6)

    def run(x, p, f, z):
        x, p = (f @ x[..., None])[..., 0], f @ p @ f.transpose(-1, -2)
        gain = p[..., 0] / (p[..., 0, :1].abs() + 1)
        return x + gain * (z - x[..., :1]), p - gain[..., None] * p[..., :1, :]
    return run, [((batch, n), 1), ((batch, n, n), 1), ((n, n), 1), ((batch, 1), 1)]


@family
def box_losses(d):
    boxes = d.size(8, 65536)
    kind = d.one("iou", "triplet", "hinge", "margin")

    def run(x, y):
        if kind == "iou":
            low, high = torch.maximum(x[:, :2], y[:, :2]), torch.minimum(x[:, 2:].abs() + 1, y[:, 2:].abs() + 1)
            sides = (high - low).clamp(min=0)
            return 1 - (sides[:, 0] * sides[:, 1] / (x.abs().sum(-1) + y.abs().sum(-1) + 1)).mean()
        if kind == "triplet":
            return (((x - y) ** 2).sum(-1) - (x ** 2).sum(-1) + 0.5).clamp(min=0).mean()
        if kind == "hinge":
            return (1 - x * torch.sign(y)).clamp(min=0).mean()
        return F.smooth_l1_loss(x, y, reduction="none").sum(-1)
    return run, [((boxes, 4), 1), ((boxes, 4), 1)]


@family
def shifted_weights(d):
    """Weights of eight bits with a zero point for each row."""
    m, n, k = d.size(1, 256), d.size(64, 2048), d.parted(64, 2048, 16)
    return lambda x, w, z, s: F.linear(x, (torch.round(w * 127) - torch.round(z * 8)) * s), [((m, k), 1), ((n, k), 1), ((n, 1), 1), ((n, 1), k)]
