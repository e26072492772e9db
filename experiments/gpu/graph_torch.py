"""The same graphs as PyTorch's users write them: its own fused operators where it has one, so that eager
execution and the compiler both get the form that they know best. Outputs in the order of
graph_functions.OUTPUTS.
"""
import torch
import torch.nn.functional as F


def layernorm(x, gain):
    return (F.layer_norm(x, gain.shape, gain, None, 1e-5),)


def layernorm_backward(x, mean, rstd, dy, gain):
    # The bias says which gradients there are; its values are not read.
    return torch.ops.aten.native_layer_norm_backward(
        dy, x, list(gain.shape), mean[:, None], rstd[:, None], gain, gain, [True, True, True])


def softmax(x):
    return (torch.softmax(x, -1),)


def gelu(x, bias):
    return (F.gelu(x + bias, approximate="tanh"),)


def batchnorm(x, variance, gain, bias, mean):
    return (F.batch_norm(x, mean, variance.abs(), gain, bias, False, 0.0, 1e-5),)


def groupnorm(x, gain, bias):
    n, g, c, s = x.shape
    return (F.group_norm(x.view(n, g * c, s), g, gain.view(-1), bias.view(-1), 1e-5).view(x.shape),)


def residual_layernorm(x, bias, keep, residual, gain, offset):
    added = (x + bias) * keep * 1.1111111111111112 + residual
    return (F.layer_norm(added, gain.shape, gain, offset, 1e-5),)


def adam(m, g, v, p):
    m1 = 0.9 * m + 0.1 * g
    v1 = 0.999 * v.abs() + 0.001 * (g * g)
    step = m1 * 1.1111 / ((v1 * 1.0526).sqrt() + 1e-8)
    return m1, v1, p - 0.001 * step


def lstm_cell(xw, hw, bias, c0):
    i, f, z, out = (xw + hw + bias).chunk(4, 1)
    c1 = torch.sigmoid(f) * c0 + torch.sigmoid(i) * torch.tanh(z)
    return c1, torch.sigmoid(out) * torch.tanh(c1)


def masked_softmax(S, keep):
    return (torch.softmax((S * 0.125).masked_fill((keep < 0)[:, None, None, :], -10000.0), -1),)


def squeeze_excite(x, W1, W2):
    gate = torch.sigmoid(torch.relu(x.mean(-1) @ W1) @ W2)
    return (x * gate[:, :, None],)


def attention_unit(table, ids, q, w1, w2, seen):
    k = F.embedding(ids, table)
    mixed = q[:, None, :] * k * w1 + (q[:, None, :] - k) * w2
    share = torch.softmax(mixed.sum(-1).masked_fill(seen < 0, -10000.0), -1)
    return ((share[:, :, None] * k).sum(1),)


def rotary(x, cosine, sine):
    low, high = x.chunk(2, -1)
    cosine, sine = cosine[:, None, :], sine[:, None, :]
    return low * cosine - high * sine, high * cosine + low * sine


def column_norm(x):
    variance, mean = torch.var_mean(x, 0, correction=0)
    return ((x - mean) * torch.rsqrt(variance + 1e-5),)


def cross_entropy(x, label):
    return (F.cross_entropy(x, label.long(), reduction="none"),)


def soft_cross_entropy(x, target):
    return (F.cross_entropy(x, target, reduction="none"),)


def rmsnorm(x, gain):
    return (F.rms_norm(x, gain.shape, gain, 1e-5),)


def rmsnorm_backward(x, dy, gain, rstd):
    normal = x * rstd[:, None]
    scaled = dy * gain
    dx = (scaled - normal * (scaled * normal).mean(-1, keepdim=True)) * rstd[:, None]
    return dx, (dy * normal).sum(0)


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return (F.silu(gate) * up,)


def add_layernorm_gelu(x, residual, gain, offset):
    return (F.gelu(F.layer_norm(x + residual, gain.shape, gain, offset, 1e-5), approximate="tanh"),)


def function(name):
    """Of the inputs by name; returns the outputs in order."""
    return globals()[name.replace("-", "_")]
