"""More families of drawn_functions.py, which seeds from 20000 on draw, too: layers as published networks and training scripts have
them, with what comes before and after: attention with a cache, gates of experts, blocks of images and of sound, adapters, graphs, losses.
"""
import torch
import torch.nn.functional as F

from drawn_functions import family


@family
def cached_attention(d):
    """New tokens are rotated, joined to a cache and read it; groups of queries share keys."""
    tokens, past, wide = d.one(1, 1, 4, d.size(1, 128)), d.size(16, 2048), d.one(64, 128)
    shared, groups = d.one(1, 2, 4, 8), d.one(1, 2, 4)
    heads, h = shared * groups, d.size(64, 1024)

    def run(x, wq, wk, wv, k_past, v_past, cos, sin):
        def turned(x):
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat([-b, a], -1) * sin
        q = turned(F.linear(x, wq).view(tokens, heads, wide).transpose(0, 1))
        k = torch.cat([k_past, turned(F.linear(x, wk).view(tokens, groups, wide).transpose(0, 1))], 1)
        v = torch.cat([v_past, F.linear(x, wv).view(tokens, groups, wide).transpose(0, 1)], 1)
        s = q.reshape(groups, shared * tokens, wide) @ k.transpose(-1, -2) / wide ** 0.5
        return (s.softmax(-1) @ v).view(heads, tokens, wide).transpose(0, 1).reshape(tokens, heads * wide), k, v
    return run, [((tokens, h), 1), ((heads * wide, h), h), ((groups * wide, h), h), ((groups * wide, h), h), ((groups, past, wide), 1),
                 ((groups, past, wide), 1), ((tokens, wide), 1), ((tokens, wide), 1)]


@family
def two_experts(d):
    """A gate that keeps the two largest of a token by masks, its weights and how evenly experts are loaded."""
    tokens, h, count = d.size(1, 4096), d.size(32, 1024), d.one(4, 8, 16, 64)

    def run(x, w):
        p = F.softmax(F.linear(x, w).float(), -1)
        first = p.amax(-1, keepdim=True)
        rest = torch.where(p >= first, torch.zeros_like(p), p)
        kept = torch.where(p >= rest.amax(-1, keepdim=True), p, torch.zeros_like(p))
        return (kept / kept.sum(-1, keepdim=True)).to(x.dtype), ((kept > 0).to(p.dtype).mean(0) * p.mean(0)).sum() * count
    return run, [((tokens, h), 1), ((count, h), h)]


@family
def sound_encoder(d):
    """Strided convolutions of a recording, with norms over channels."""
    batch, c, out, length = d.one(1, 2, 8), d.one(1, 80, d.size(8, 256)), d.size(16, 512), d.size(64, 4096)
    stride, kind = d.one(1, 2), d.one("plain", "norm", "gated")
    middle = 2 * out if kind == "gated" else out

    def run(x, a, b, g):
        y = F.conv1d(x, a, padding=1)
        y = F.glu(y, 1) if kind == "gated" else F.gelu(y)
        y = F.conv1d(y, b, stride=stride, padding=1)
        return F.layer_norm(y.transpose(1, 2), (out,), g) if kind == "norm" else F.gelu(y).transpose(1, 2)
    return run, [((batch, c, length), 1), ((middle, c, 3), 3 * c), ((out, out, 3), 3 * out), ((out,), 1)]


@family
def diffusion_block(d):
    """Of a U-Net: norms of groups, SiLU, convolutions, the step's embedding between them."""
    batch, groups = d.one(1, 2, 4), d.one(4, 8, 32)
    c, out, size, e = d.parted(32, 320, groups), d.parted(32, 320, groups), d.size(8, 64), d.size(64, 1024)

    def run(x, t, g, b, a, w, h, i, v, s):
        y = F.conv2d(F.silu(F.group_norm(x, groups, g, b)), a, padding=1) + F.linear(F.silu(t), w)[:, :, None, None]
        return F.conv2d(x, s) + F.conv2d(F.silu(F.group_norm(y, groups, h, i)), v, padding=1)
    return run, [((batch, c, size, size), 1), ((batch, e), 1), ((c,), 1), ((c,), 1), ((out, c, 3, 3), 9 * c), ((out, e), e), ((out,), 1),
                 ((out,), 1), ((out, out, 3, 3), 9 * out), ((out, c, 1, 1), c)]


@family
def adapter(d):
    """A low-rank change of weights: added, merged first, or of their direction alone."""
    m, n, k, r, kind = d.size(1, 2048), d.size(64, 2048), d.size(64, 2048), d.one(4, 8, 16), d.one("bias", "merged", "direction")

    def run(x, w, a, b, g):
        if kind == "bias":
            return F.linear(x, w, g) + 2 * F.linear(F.linear(x, a), b)
        w = w + 2 * b @ a
        return F.linear(x, w if kind == "merged" else w * (g[:, None] / w.norm(dim=1, keepdim=True)))
    return run, [((m, k), 1), ((n, k), k), ((r, k), k), ((n, r), r), ((n,), 1)]


@family
def language_loss(d):
    """Of logits: smoothed cross entropy of the rows that count, and a penalty of large normalisers."""
    rows, words, ignored = d.size(8, 2048), d.size(64, 32000), d.one(0, 1)

    def run(x, i):
        z = torch.logsumexp(x, -1)
        at = x.gather(-1, i[:, None])[:, 0]
        loss = z - 0.9 * at - 0.1 * x.mean(-1) + 1e-4 * z * z
        if not ignored:
            return loss.mean()
        counted = (i % 5 != 0).to(x.dtype)
        return (loss * counted).sum() / counted.sum()
    return run, [((rows, words), 1), ((rows,), f"below {words}")]


@family
def patches(d):
    """Of an image, embedded, with a token before them and positions."""
    batch, c, side, count, h, kind = d.size(1, 16), d.one(1, 3, 3, 4), d.one(4, 8, 14, 16), d.size(4, 24), d.size(64, 1024), d.one("conv", "view")

    def run(x, w, b, first, at, g):
        if kind == "conv":
            y = F.conv2d(x, w.view(h, c, side, side), b, stride=side).flatten(2).transpose(1, 2)
        else:
            y = x.view(batch, c, count, side, count, side).permute(0, 2, 4, 1, 3, 5).reshape(batch, count * count, c * side * side)
            y = F.linear(y, w, b)
        return F.layer_norm(torch.cat([first.expand(batch, 1, h), y], 1) + at, (h,), g)
    return run, [((batch, c, side * count, side * count), 1), ((h, c * side * side), c * side * side), ((h,), 1), ((1, 1, h), 1),
                 ((count * count + 1, h), 1), ((h,), 1)]


@family
def pooled_attention(d):
    """Many items become one by learned weights; plain, gated or bilinear."""
    batch, items, h, n, kind = d.size(1, 32), d.size(4, 1024), d.size(16, 512), d.size(16, 256), d.one("plain", "gated", "bilinear")

    def run(x, u, v, w, y):
        if kind == "bilinear":
            s = torch.einsum("bth,nh,bn->bt", x, u, y)
        else:
            s = torch.tanh(F.linear(x, u))
            s = F.linear(s * torch.sigmoid(F.linear(x, v)) if kind == "gated" else s, w)[..., 0]
        return (s.softmax(-1)[:, None] @ x)[:, 0]
    return run, [((batch, items, h), 1), ((n, h), h), ((n, h), h), ((1, n), n), ((batch, n), 1)]


@family
def image_block(d):
    """A depthwise convolution, a norm over channels and a perceptron, scaled before it is added."""
    batch, c, size, wide = d.one(1, 2, 8), d.parted(24, 384, 8), d.size(7, 56), d.one(5, 7)

    def run(x, k, g, b, up, down, scale):
        y = F.layer_norm(F.conv2d(x, k, padding=wide // 2, groups=c).permute(0, 2, 3, 1), (c,), g, b)
        return x + (F.linear(F.gelu(F.linear(y, up)), down) * scale).permute(0, 3, 1, 2)
    return run, [((batch, c, size, size), 1), ((c, 1, wide, wide), wide * wide), ((c,), 1), ((c,), 1), ((4 * c, c), c), ((c, 4 * c), 4 * c), ((c,), 1)]


@family
def mixer(d):
    """Tokens are mixed, then channels."""
    batch, tokens, h = d.size(1, 16), d.size(16, 256), d.size(32, 768)
    n = d.size(32, 512)

    def run(x, g, a, b, e, up, down):
        x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (h,), g).transpose(1, 2), a)), b).transpose(1, 2)
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (h,), e), up)), down)
    return run, [((batch, tokens, h), 1), ((h,), 1), ((n, tokens), tokens), ((tokens, n), n), ((h,), 1), ((2 * h, h), h), ((h, 2 * h), 2 * h)]


@family
def speech_block(d):
    """The convolution of a conformer."""
    batch, tokens, c, wide = d.one(1, 2, 8), d.size(16, 1024), d.size(32, 512), d.one(7, 15, 31)

    def run(x, g, a, k, m, v, b):
        y = F.glu(F.linear(F.layer_norm(x, (c,), g), a), -1).transpose(1, 2)
        y = F.conv1d(y, k, padding=wide // 2, groups=c)
        y = F.silu(F.batch_norm(y, m, v.abs() + 0.5))
        return x + F.linear(y.transpose(1, 2), b)
    return run, [((batch, tokens, c), 1), ((c,), 1), ((2 * c, c), c), ((c, 1, wide), wide), ((c,), 1), ((c,), 1), ((c, c), c)]


@family
def decayed_attention(d):
    """Scores fade with distance and have no softmax; each head's output is normed."""
    heads, tokens, wide = d.size(1, 16), d.size(16, 1024), d.one(32, 64, 128)

    def run(q, k, v, rate):
        apart = (torch.arange(tokens, device=q.device)[:, None] - torch.arange(tokens, device=q.device)).to(q.dtype)
        fade = torch.where(apart >= 0, torch.exp(-apart.clamp(min=0) * rate.abs()[:, None, None]), 0.0)
        return F.rms_norm((q @ k.transpose(-1, -2) / wide ** 0.5 * fade) @ v, (wide,))
    return run, [((heads, tokens, wide), 1)] * 3 + [((heads,), 1)]


@family
def rounded_activations(d):
    """Eight bits with a scale for each row, made while they are read, then a product and both scales."""
    m, n, k = d.size(1, 2048), d.size(64, 2048), d.size(64, 2048)

    def run(x, w, s):
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 127
        return F.linear(torch.round(x / scale).clamp(-128, 127), torch.round(w * 127)) * scale * s / 127
    return run, [((m, k), 1), ((n, k), k), ((n,), k)]


@family
def conditioned_block(d):
    """A perceptron whose norm is shifted, scaled and gated by a condition."""
    batch, tokens, h, e = d.size(1, 8), d.size(16, 1024), d.size(64, 1024), d.size(32, 1024)

    def run(x, c, w, b, up, down):
        shift, scale, gate = F.linear(F.silu(c), w, b)[:, None].chunk(3, -1)
        y = F.layer_norm(x, (h,)) * (1 + scale) + shift
        return x + gate.tanh() * F.linear(F.gelu(F.linear(y, up), approximate="tanh"), down)
    return run, [((batch, tokens, h), 1), ((batch, e), 1), ((3 * h, e), e), ((3 * h,), 1), ((4 * h, h), h), ((h, 4 * h), 4 * h)]


@family
def graph_layer(d):
    """Of nodes whose edges are a matrix: means by degree, or attention."""
    nodes, c, n, kind = d.size(16, 2048), d.size(8, 512), d.size(8, 256), d.one("degree", "attention", "maximum")

    def run(x, edges, w, s, t):
        y, seen = F.linear(x, w), edges > 0.2
        if kind == "degree":
            a = seen.to(x.dtype)
            r = torch.rsqrt(a.sum(-1) + 1)
            return F.relu(r[:, None] * (a @ (r[:, None] * y)))
        if kind == "attention":
            z = F.leaky_relu((y * s).sum(-1)[:, None] + (y * t).sum(-1), 0.2)
            return F.elu(torch.where(seen, z, -10000.0).softmax(-1) @ y)
        return torch.where(seen[:, :, None], F.relu(y[None, :, :8]), 0.0).amax(1)
    return run, [((nodes, c), 1), ((nodes, nodes), 1), ((n, c), c), ((n,), n), ((n,), n)]


@family
def paired_loss(d):
    """Pictures and texts: both directions of a contrastive loss, or each pair alone."""
    rows, h, kind = d.size(8, 1024), d.size(32, 1024), d.one("both", "sigmoid")

    def run(x, y):
        s = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t() * 10
        at = torch.arange(rows, device=x.device)
        same = at[:, None] == at
        if kind == "sigmoid":
            return -F.logsigmoid(torch.where(same, s, -s)).sum() / rows
        own = torch.where(same, s, 0.0).sum(-1)
        return (torch.logsumexp(s, 0) + torch.logsumexp(s, 1) - 2 * own).mean() / 2
    return run, [((rows, h), 1), ((rows, h), 1)]


@family
def policy_loss(d):
    """Clipped ratios of a policy's actions, its entropy and the value's error."""
    rows, actions = d.size(32, 16384), d.size(2, 512)

    def run(x, i, old, gain, value):
        p = F.log_softmax(x, -1)
        ratio = torch.exp(p.gather(-1, i[:, None])[:, 0] + old.abs())
        gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        chosen = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
        return -chosen.mean() + 0.5 * ((value - gain) ** 2).mean() + 0.01 * (p.exp() * p).sum(-1).mean()
    return run, [((rows, actions), 1), ((rows,), f"below {actions}"), ((rows,), 1), ((rows,), 1), ((rows,), 1)]


@family
def spectrum(d):
    """Frames of a recording, their power by two products, and the logarithm of filters."""
    batch, frames, size, bins, mels = d.size(1, 16), d.size(8, 1024), d.one(64, 256, 400), d.one(33, 129, 201), d.one(40, 80)

    def run(x, window, real, imaginary, filters):
        y = x * window
        power = F.linear(y, real) ** 2 + F.linear(y, imaginary) ** 2
        return torch.log(F.linear(power, filters.abs()) + 1e-3)
    return run, [((batch, frames, size), 1), ((size,), 1), ((bins, size), size), ((bins, size), size), ((mels, bins), bins)]
