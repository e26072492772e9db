"""PyTorch functions that a seed draws, as users write them: what follows a product, norms, losses, attention by hand and by
PyTorch's own, convolutions, reductions, moved elements, recurrent steps, optimisers, gradients. Weights are inputs.

Each family takes a Draw and returns (function, inputs); an input is (shape, what): values are uniform, with a variance of
1 / what (of 1: from -1 to 1), or whole numbers "below N" that index a table.
"""
import math
import random

import torch
import torch.nn.functional as F

FAMILIES = {}
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


class Draw:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def size(self, low, high):
        """Even on a logarithmic scale; half of them rounded to a multiple of 8, 16 or 64."""
        n = round(math.exp(self.rng.uniform(math.log(low), math.log(high))))
        step = self.rng.choice((1, 1, 1, 8, 16, 64))
        return max(low, n // step * step) if step <= high else n

    def one(self, *values):
        return self.rng.choice(values)

    def parted(self, low, high, parts):
        """A multiple of `parts`."""
        return max(1, self.size(low, high) // parts) * parts


def family(f):
    FAMILIES[f.__name__] = f
    return f


def act(d):
    return d.one(F.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid, F.hardswish, F.softplus, lambda x: F.leaky_relu(x, 0.1),
                 lambda x: F.relu(x) ** 2)


@family
def linear(d):
    m, n, k = d.size(1, 4096), d.size(16, 4096), d.size(16, 4096)
    f = act(d)
    return lambda x, w, b: f(F.linear(x, w, b)), [((m, k), 1), ((n, k), k), ((n,), 1)]


@family
def perceptron(d):
    m, sizes = d.size(1, 2048), [d.size(16, 2048) for _ in range(d.one(3, 4))]
    f = act(d)

    def run(x, *weights):
        for w in weights[:-1]:
            x = f(F.linear(x, w))
        return F.linear(x, weights[-1])
    return run, [((m, sizes[0]), 1)] + [((b, a), a) for a, b in zip(sizes, sizes[1:])]


@family
def gated(d):
    m, h, n = d.size(1, 1024), d.size(64, 2048), d.size(64, 4096)
    return (lambda x, g, a, b, c: F.linear(F.silu(F.linear(F.rms_norm(x, (h,), g), a)) * F.linear(x, b), c) + x,
            [((m, h), 1), ((h,), 1), ((n, h), h), ((n, h), h), ((h, n), n)])


@family
def low_rank(d):
    m, n, k, r = d.size(16, 4096), d.size(64, 4096), d.size(64, 4096), d.one(4, 8, 16, 32)
    return lambda x, w, a, b: F.linear(x, w) + F.linear(F.linear(x, a), b), [((m, k), 1), ((n, k), k), ((r, k), k), ((n, r), r)]


@family
def contraction(d):
    """Over drawn letters, with a batch or without."""
    text = d.one("bij,bjk->bik", "bij,bkj->bik", "ij,jk->ki", "bhqd,bkhd->bhqk", "bnd,de->ben", "abc,cd->abd", "abc,bcd->ad", "bij,bij->b",
                 "bi,bj->bij", "ijk,k->ij", "ijk,j->ik", "bqhd,bkhd->bhqk", "xyz,xw->wyz", "bcl,ocl->bo", "ab,cb,cd->ad")
    sizes = {c: d.size(2, {1: 8192, 2: 2048, 3: 256, 4: 96}[max(map(len, text.split("->")[0].split(",")))]) for c in "abcdehijklnoqwxyz"}
    parts = text.split("->")[0].split(",")
    return lambda *x: torch.einsum(text, *x), [([sizes[c] for c in part], 1) for part in parts]


@family
def attention(d):
    heads, wide = d.size(1, 24), d.one(32, 64, 64, 80, 96, 128)
    q = d.size(1, 2048)
    keys, causal = (q, True) if d.one(0, 1) else (d.size(16, 2048), False)
    batch = d.one(1, 1, 2, 4)
    return (lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=causal),
            [((batch, heads, q, wide), 1), ((batch, heads, keys, wide), 1), ((batch, heads, keys, wide), 1)])


@family
def attention_by_hand(d):
    heads, wide, q, keys = d.size(1, 16), d.one(32, 64, 128), d.size(1, 1024), d.size(16, 1024)
    kind = d.one("bias", "mask", "alibi", "cap")

    def run(a, b, c, extra):
        s = a @ b.transpose(-1, -2) / wide ** 0.5
        if kind == "bias":
            s = s + extra
        elif kind == "mask":
            s = torch.where(extra > -0.8, s, -10000.0)
        elif kind == "alibi":
            s = s + extra[:, :1] * torch.arange(keys, device=a.device, dtype=a.dtype)
        else:
            s = 30 * torch.tanh(s / 30)
        return s.softmax(-1) @ c
    return run, [((heads, q, wide), 1), ((heads, keys, wide), 1), ((heads, keys, wide), 1), ((q, keys), 1)]


@family
def shared_keys(d):
    groups, heads, wide, keys, batch = d.one(2, 4, 8), d.one(1, 2, 4, 8), d.one(64, 128), d.size(64, 4096), d.size(1, 16)

    def run(q, k, v):
        q = q.view(batch, heads, groups, wide)
        return ((q @ k.transpose(-1, -2)) / wide ** 0.5).softmax(-1) @ v
    return run, [((batch, heads * groups, wide), 1), ((batch, heads, keys, wide), 1), ((batch, heads, keys, wide), 1)]


@family
def linear_attention(d):
    heads, n, wide = d.size(1, 16), d.size(64, 4096), d.one(32, 64)

    def run(q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2).unsqueeze(-1))
    return run, [((heads, n, wide), 1)] * 3


@family
def rotated(d):
    tokens, heads, wide = d.size(1, 4096), d.size(1, 32), d.one(64, 128)

    def run(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None]
    return run, [((tokens, heads, wide), 1), ((tokens, wide), 1), ((tokens, wide), 1)]


@family
def block(d):
    """A layer of a transformer."""
    tokens, wide, heads = d.size(1, 1024), d.one(32, 64, 128), d.size(2, 16)
    h, f = wide * heads, act(d)
    n = d.one(2, 4) * h

    def run(x, g1, qkv, o, g2, up, down):
        q, k, v = F.linear(F.layer_norm(x, (h,), g1), qkv).view(tokens, 3, heads, wide).permute(1, 2, 0, 3).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(tokens, h)
        x = x + F.linear(y, o)
        return x + F.linear(f(F.linear(F.layer_norm(x, (h,), g2), up)), down)
    return run, [((tokens, h), 1), ((h,), 1), ((3 * h, h), h), ((h, h), h), ((h,), 1), ((n, h), h), ((h, n), n)]


@family
def norm(d):
    """Over the last sizes, with what comes before and after."""
    rows, cols = d.size(1, 16384), d.size(16, 8192)
    kind, f = d.one("layer", "rms", "l2", "standard"), d.one(lambda x: x, F.silu, F.gelu)

    def run(x, r, g, b):
        x = x + r
        if kind == "layer":
            return f(F.layer_norm(x, (cols,), g, b)), x
        if kind == "rms":
            return f(F.rms_norm(x, (cols,), g)), x
        if kind == "l2":
            return f(F.normalize(x, dim=-1) * g + b), x
        return f((x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5) * g + b), x
    return run, [((rows, cols), 1), ((rows, cols), 1), ((cols,), 1), ((cols,), 1)]


@family
def channel_norm(d):
    batch, groups = d.size(1, 32), d.one(1, 4, 8, 32)
    c, h, w, f = d.parted(8, 512, groups), d.size(4, 96), d.size(4, 96), act(d)
    if d.one(0, 1):
        return lambda x, g, b: f(F.group_norm(x, groups, g, b)), [((batch, c, h, w), 1), ((c,), 1), ((c,), 1)]
    return (lambda x, m, v, g, b: f(F.batch_norm(x, m, v.abs() + 0.5, g, b)),
            [((batch, c, h, w), 1), ((c,), 1), ((c,), 1), ((c,), 1), ((c,), 1)])


@family
def batch_statistics(d):
    batch, c, h, w = d.size(1, 64), d.size(4, 512), d.size(4, 64), d.size(4, 64)
    return (lambda x, g, b: F.relu(F.batch_norm(x, None, None, g, b, training=True)), [((batch, c, h, w), 1), ((c,), 1), ((c,), 1)])


@family
def softmax(d):
    shape, axis = [d.size(1, 64), d.size(1, 512), d.size(2, 512)], d.one(0, 1, 2, 2)
    f = d.one(F.softmax, F.log_softmax, lambda x, dim: torch.logsumexp(x, dim), lambda x, dim: F.softmax(x / 0.7, dim) * x)
    return lambda x: f(x, dim=axis), [(shape, 1)]


@family
def losses(d):
    rows, classes = d.size(8, 8192), d.size(8, 32000)
    kind = d.one("cross", "smooth", "focal", "kl", "mse", "huber", "bce", "cosine", "dice")

    def run(x, y, i):
        if kind in ("cross", "smooth"):
            return F.cross_entropy(x, i, label_smoothing=0.1 if kind == "smooth" else 0.0)
        if kind == "focal":
            p = torch.sigmoid(x)
            return -((1 - p) ** 2 * F.logsigmoid(x) * (y > 0)).mean()
        if kind == "kl":
            return (F.softmax(y, -1) * (F.log_softmax(y, -1) - F.log_softmax(x, -1))).sum(-1).mean()
        if kind == "mse":
            return ((x - y) ** 2).mean()
        if kind == "huber":
            return F.smooth_l1_loss(x, y)
        if kind == "bce":
            return F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))
        if kind == "cosine":
            return 1 - (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1) + 1e-6)
        p, q = torch.sigmoid(x), torch.sigmoid(y)
        return 1 - 2 * (p * q).sum() / (p.sum() + q.sum())
    return run, [((rows, classes), 1), ((rows, classes), 1), ((rows,), f"below {classes}")]


@family
def reduction(d):
    rank = d.one(2, 3, 4)
    shape = [d.size(1, {2: 8192, 3: 512, 4: 96}[rank]) for _ in range(rank)]
    axes = d.rng.sample(range(rank), d.one(1, 1, 2 if rank > 2 else 1))
    pre = d.one(lambda x: x, torch.exp, torch.abs, lambda x: x * x, torch.sigmoid)
    kind = d.one("sum", "mean", "amax", "amin", "var", "norm", "all", "argmax")

    def run(x):
        x = pre(x)
        if kind == "sum":
            return x.sum(axes)
        if kind == "mean":
            return x.mean(axes)
        if kind == "amax":
            return x.amax(axes) - x.amin(axes)
        if kind == "amin":
            return x - x.amin(axes, keepdim=True)
        if kind == "var":
            return x.var(axes)
        if kind == "norm":
            return x / torch.linalg.vector_norm(x, dim=axes, keepdim=True)
        if kind == "argmax":
            return x.argmax(axes[0])
        return x.sum()
    return run, [(shape, 1)]


@family
def elements(d):
    """A graph of element-wise operators over broadcast operands."""
    rank = d.one(1, 2, 3)
    shape = [d.size(2, {1: 1 << 24, 2: 4096, 3: 256}[rank]) for _ in range(rank)]
    inputs = [(shape, 1)] + [([1 if d.one(0, 0, 1) else n for n in shape], 1) for _ in range(d.one(1, 2, 3))]
    rng, count = random.Random(d.rng.random()), len(inputs)
    ways = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: torch.maximum(a, b), lambda a, b: torch.tanh(a) * b,
            lambda a, b: torch.sigmoid(a), lambda a, b: torch.where(a > b, a, 0.5 * b), lambda a, b: a.abs().sqrt(),
            lambda a, b: torch.exp(-a.abs()), lambda a, b: a / (1 + b * b), lambda a, b: torch.erf(a))
    # Drawn here: PyTorch cannot trace a generator of random numbers, and would compile each operator alone.
    drawn_ones = [(rng.choice(range(count + n)), rng.choice(range(count + n)), rng.choice(ways)) for n in range(rng.randint(3, 12))]

    def run(*x):
        made = list(x)
        for a, b, way in drawn_ones:
            made.append(way(made[a], made[b]))
        return made[-1] + x[0], made[-2] * x[0]
    return run, inputs


@family
def moved(d):
    """Transposes, joins, splits, padding, shifts."""
    a, b, c = d.size(2, 512), d.size(2, 512), d.parted(2, 256, 2)
    kind = d.one("transpose", "join", "swap", "pad", "roll", "flip", "shuffle", "tile", "tril", "stack")

    def run(x, y):
        if kind == "transpose":
            return (x * y).permute(2, 0, 1).contiguous()
        if kind == "join":
            return torch.cat([x, torch.relu(y), x + y], 1)
        if kind == "swap":
            p, q = x.chunk(2, -1)
            return torch.cat([q * y[..., : c // 2], p], -1)
        if kind == "pad":
            return F.pad(x + y, (1, 2, 3, 0))
        if kind == "roll":
            return torch.roll(x, (1, 2), (0, 1)) - y
        if kind == "flip":
            return torch.flip(x, (1,)) * y
        if kind == "shuffle":
            return (x + y).view(a, b, c // 2, 2).transpose(1, 2).reshape(a, c // 2, 2 * b)
        if kind == "tile":
            return (x * y).repeat(1, 2, 1) + 1
        if kind == "tril":
            return torch.tril(x) + torch.triu(y, 1)
        return torch.stack([x, y, x - y], -1)
    return run, [((a, b, c), 1), ((a, b, c), 1)]


@family
def convolution(d):
    groups = d.one(1, 1, 1, "depth", 4)
    batch, size, kernel, stride = d.one(1, 1, 2, 8), d.size(7, 112), d.one(1, 3, 3, 5, 7), d.one(1, 1, 2)
    c = d.parted(3, 384, 4 if groups == 4 else 1)
    out = c if groups == "depth" else d.parted(8, 384, 4 if groups == 4 else 1)
    g, dilation, f = c if groups == "depth" else groups, d.one(1, 1, 1, 2), act(d)
    return (lambda x, w, b: f(F.conv2d(x, w, b, stride, kernel // 2 * dilation, dilation, g)),
            [((batch, c, size, size), 1), ((out, c // g, kernel, kernel), c // g * kernel * kernel), ((out,), 1)])


@family
def line_convolution(d):
    batch, c, out, length, kernel = d.one(1, 2, 8), d.size(1, 512), d.size(8, 512), d.size(16, 8192), d.one(3, 5, 7, 15)
    f = act(d)
    return (lambda x, w, b: f(F.conv1d(F.pad(x, (kernel - 1, 0)), w, b)), [((batch, c, length), 1), ((out, c, kernel), c * kernel), ((out,), 1)])


@family
def raised_convolution(d):
    batch, c, out, size, kernel = d.one(1, 2), d.size(4, 256), d.size(4, 256), d.size(4, 48), d.one(2, 3, 4)
    if d.one(0, 1):
        return (lambda x, w: F.relu(F.conv_transpose2d(x, w, stride=2)), [((batch, c, size, size), 1), ((c, out, kernel, kernel), c * kernel)])
    mode = d.one("nearest", "bilinear")
    return (lambda x, w: F.conv2d(F.interpolate(x, scale_factor=2, mode=mode), w, padding=1),
            [((batch, c, size, size), 1), ((out, c, 3, 3), c * 9)])


@family
def residual_block(d):
    batch, c, size = d.one(1, 1, 4), d.parted(16, 256, 8), d.size(7, 64)
    if d.one(0, 1):
        return (lambda x, a, b: F.relu(x + F.conv2d(F.relu(F.conv2d(x, a, padding=1)), b, padding=1)),
                [((batch, c, size, size), 1), ((c, c, 3, 3), 9 * c), ((c, c, 3, 3), 9 * c)])
    e = 4 * c

    def run(x, a, w, s, t, b):
        y = F.silu(F.conv2d(F.silu(F.conv2d(x, a)), w, padding=1, groups=e))
        gate = torch.sigmoid(F.conv2d(F.silu(F.conv2d(y.mean((2, 3), keepdim=True), s)), t))
        return x + F.conv2d(y * gate, b)
    return run, [((batch, c, size, size), 1), ((e, c, 1, 1), c), ((e, 1, 3, 3), 9), ((c, e, 1, 1), e), ((e, c, 1, 1), c), ((c, e, 1, 1), e)]


@family
def pooling(d):
    batch, c, size, window = d.size(1, 16), d.size(1, 256), d.size(8, 128), d.one(2, 3, 5)
    kind = d.one("max", "avg", "global", "local")

    def run(x):
        if kind == "max":
            return F.max_pool2d(F.relu(x), window, 2, window // 2)
        if kind == "avg":
            return F.avg_pool2d(x, window, 2)
        if kind == "global":
            return torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)
        return x - F.avg_pool2d(x, 3, 1, 1)
    return run, [((batch, c, size, size), 1)]


@family
def recurrent(d):
    batch, h, n = d.size(1, 512), d.size(32, 1024), d.size(32, 1024)
    if d.one(0, 1):
        def run(x, y, c, w, u, b):
            i, f, g, o = (F.linear(x, w, b) + F.linear(y, u)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c
        return run, [((batch, n), 1), ((batch, h), 1), ((batch, h), 1), ((4 * h, n), n), ((4 * h, h), h), ((4 * h,), 1)]

    def run(x, y, w, u, b):
        (r, z, n), (s, t, m) = F.linear(x, w, b).chunk(3, -1), F.linear(y, u).chunk(3, -1)
        z = torch.sigmoid(z + t)
        return (1 - z) * torch.tanh(n + torch.sigmoid(r + s) * m) + z * y
    return run, [((batch, n), 1), ((batch, h), 1), ((3 * h, n), n), ((3 * h, h), h), ((3 * h,), 1)]


@family
def state_step(d):
    """One step of a selective state space."""
    batch, h, n = d.size(1, 128), d.size(64, 4096), d.one(8, 16, 64)

    def run(s, x, dt, a, b, c, skip):
        dt = F.softplus(dt)
        s = s * torch.exp(dt[..., None] * a) + (dt * x)[..., None] * b[:, None]
        return s, (s * c[:, None]).sum(-1) + skip * x
    return run, [((batch, h, n), 1), ((batch, h), 1), ((batch, h), 1), ((h, n), 1), ((batch, n), 1), ((batch, n), 1), ((h,), 1)]


@family
def table(d):
    words, h, tokens = d.size(100, 50000), d.size(16, 2048), d.size(1, 8192)
    kind = d.one("norm", "bag", "scaled")

    def run(i, t, p, g):
        x = F.embedding(i, t)
        if kind == "norm":
            return F.layer_norm(x + p, (h,), g)
        if kind == "bag":
            return x.view(-1, 1 if tokens % 4 else 4, h).mean(1)
        return x * h ** 0.5 + p
    return run, [((tokens,), f"below {words}"), ((words, h), 1), ((tokens, h), 1), ((h,), 1)]


@family
def distances(d):
    m, n, k = d.size(8, 2048), d.size(8, 2048), d.size(2, 256)
    kind = d.one("squared", "cosine", "l1", "boxes", "contrast")

    def run(x, y):
        if kind == "squared":
            return (x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * x @ y.t()
        if kind == "cosine":
            return F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t()
        if kind == "l1":
            return (x[:, None, :8] - y[None, :, :8]).abs().sum(-1)
        if kind == "boxes":
            a, b = torch.minimum(x[:, None, :2], y[None, :, :2]), torch.maximum(x[:, None, :2], y[None, :, :2])
            return a[..., 0] * a[..., 1] / (b[..., 0].abs() + b[..., 1].abs() + 1)
        return F.log_softmax(x @ y.t() / k, -1)
    return run, [((m, k), 1), ((n, k), 1)]


@family
def optimiser(d):
    shape = (d.size(16, 4096), d.size(16, 4096))
    kind = d.one("adam", "sgd", "lion", "clip", "average")

    def run(p, g, m, v):
        if kind == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v.abs() + 0.001 * g * g
            return p - 1e-3 * (m / 0.1 / ((v / 0.001).sqrt() + 1e-8) + 0.01 * p), m, v
        if kind == "sgd":
            m = 0.9 * m + g
            return p - 0.1 * (g + 0.9 * m), m
        if kind == "lion":
            return p - 1e-4 * torch.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g
        if kind == "clip":
            return g * (1 / (torch.linalg.vector_norm(g) + 1e-6)).clamp(max=1)
        return 0.99 * v + 0.01 * p
    return run, [(shape, 1)] * 4


@family
def gradients(d):
    rows, cols, n = d.size(8, 4096), d.size(16, 2048), d.size(16, 2048)
    kind = d.one("softmax", "norm", "linear", "gelu", "rms")

    def run(dy, x, w, g):
        if kind == "softmax":
            p = F.softmax(x, -1)
            return p * (dy - (dy * p).sum(-1, keepdim=True))
        if kind == "norm":
            hat = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)
            a = dy * g
            return (a - a.mean(-1, keepdim=True) - hat * (a * hat).mean(-1, keepdim=True)), (dy * hat).sum(0), dy.sum(0)
        if kind == "linear":
            return dy @ w, dy.t() @ x, dy.sum(0)
        if kind == "gelu":
            return dy * (0.5 * (1 + torch.erf(x * 0.70710678)) + x * torch.exp(-0.5 * x * x) * 0.39894228)
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        a = dy * g
        return a * r - x * r ** 3 * (a * x).mean(-1, keepdim=True), (dy * x * r).sum(0)
    return run, [((rows, cols), 1), ((rows, cols), 1), ((cols, n), cols), ((cols,), 1)]


@family
def scores(d):
    """A head's logits and what is taken of them."""
    batch, h, words = d.size(1, 64), d.size(64, 2048), d.size(100, 32000)
    kind = d.one("argmax", "softmax", "log", "max")

    def run(x, w):
        y = F.linear(x, w)
        return y.argmax(-1) if kind == "argmax" else F.softmax(y, -1) if kind == "softmax" else F.log_softmax(y, -1) if kind == "log" else y.amax(-1)
    return run, [((batch, h), 1), ((words, h), h)]


@family
def experts(d):
    """Every expert on every token, mixed by a router."""
    tokens, h, n, count = d.size(1, 256), d.size(32, 512), d.size(32, 1024), d.one(2, 4, 8)

    def run(x, router, up, down):
        gate = F.softmax(F.linear(x, router), -1)
        y = F.silu(torch.einsum("th,enh->etn", x, up))
        return torch.einsum("etn,ehn,te->th", y, down, gate)
    return run, [((tokens, h), 1), ((count, h), h), ((count, n, h), h), ((count, h, n), n)]


@family
def quantised(d):
    """Weights of eight bits that a product spreads first."""
    m, n, k = d.size(1, 256), d.size(64, 4096), d.parted(64, 4096, 32)
    return (lambda x, w, s: F.linear(x, (torch.round(w * 127).view(n, k // 32, 32) * s[..., None]).view(n, k)),
            [((m, k), 1), ((n, k), 1), ((n, k // 32), k)])


def drawn(seed):
    """(name, function, inputs, type) of this seed: of this file's families, from 10000 on of drawn_functions_more.py, too, and from
    20000 on of drawn_functions_layers.py, too."""
    import drawn_functions_layers  # noqa: F401
    import drawn_functions_more  # noqa: F401
    d = Draw(seed)
    files = (__name__, "drawn_functions_more", "drawn_functions_layers")[:1 + min(seed // 10000, 2)]
    name = d.one(*(name for file in files for name, f in FAMILIES.items() if f.__module__ == file))
    run, inputs = FAMILIES[name](d)
    return name, run, inputs, d.one("f16", "f16", "bf16", "f32")


def tensors(inputs, dtype, device):
    out, generator = [], torch.Generator(device="cpu").manual_seed(1)
    for shape, what in inputs:
        if isinstance(what, str) and what.startswith("below"):
            out.append(torch.randint(int(what.split()[1]), tuple(shape), generator=generator).to(device))
            continue
        x = (2 * torch.rand(tuple(shape), generator=generator) - 1) * (3 / what if what > 1 else 1) ** 0.5
        out.append(x.to(device, TYPES[dtype]))
    return out
