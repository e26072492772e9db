"""Whole networks as PyTorch's users write them, at the sizes of the built-in ones: its own fused operators, batch
normalisation folded into biases. function(name, sizes, dtype) returns (function, inputs); weights are drawn.
"""
import torch
import torch.nn.functional as F


class Weights:
    """Drawn so that a product's results are about as large as what went in."""

    def __init__(self, dtype):
        self.dtype, self.generator = dtype, torch.Generator(device="cuda").manual_seed(1)

    def __call__(self, *shape, fan=1):
        drawn = torch.rand(shape, device="cuda", generator=self.generator) * 2 - 1
        return drawn.mul_((3 / fan) ** 0.5).to(self.dtype)

    def linear(self, outputs, inputs):
        return self(outputs, inputs, fan=inputs), self(outputs)

    def convolution(self, outputs, inputs, kernel):
        return self(outputs, inputs, kernel, kernel, fan=inputs * kernel * kernel), self(outputs)


def bert(sizes, w):
    hidden, heads, ffn, tokens = 768, 12, 3072, 384
    layers = [(w.linear(hidden, hidden), w.linear(hidden, hidden), w.linear(hidden, hidden), w.linear(hidden, hidden),
               w(hidden), w(hidden), w.linear(ffn, hidden), w.linear(hidden, ffn), w(hidden), w(hidden))
              for _ in range(sizes.get("layers", 12))]

    def run(x):
        for q, k, v, project, gain1, bias1, fc1, fc2, gain2, bias2 in layers:
            heads_of = [F.linear(x, *m).view(1, tokens, heads, -1).transpose(1, 2) for m in (q, k, v)]
            mixed = F.scaled_dot_product_attention(*heads_of).transpose(1, 2).reshape(tokens, hidden)
            x = F.layer_norm(x + F.linear(mixed, *project), (hidden,), gain1, bias1)
            x = F.layer_norm(x + F.linear(F.gelu(F.linear(x, *fc1)), *fc2), (hidden,), gain2, bias2)
        return x
    return run, [w(tokens, hidden)]


def gpt2(sizes, w):
    batch, past, hidden, heads = 128, sizes["past"], 768, 12
    attend, project = w.linear(3 * hidden, hidden), w.linear(hidden, hidden)
    fc1, fc2 = w.linear(4 * hidden, hidden), w.linear(hidden, 4 * hidden)
    norms, last = [(w(hidden), w(hidden)) for _ in range(3)], w(sizes["vocabulary"], hidden, fan=hidden)

    def run(x, keys, values):
        q, k, v = F.linear(F.layer_norm(x, (hidden,), *norms[0]), *attend).view(batch, 3, heads, 1, -1).unbind(1)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        mixed = F.scaled_dot_product_attention(q, keys, values).reshape(batch, hidden)
        x = x + F.linear(mixed, *project)
        x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (hidden,), *norms[1]), *fc1), approximate="tanh"), *fc2)
        return F.linear(F.layer_norm(x, (hidden,), *norms[2]), last), keys, values
    cache = (batch, heads, past, hidden // heads)
    return run, [w(batch, hidden), w(*cache), w(*cache)]


def resnet50(_, w):
    stem, stages, inputs = w.convolution(64, 3, 7), [], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stages.append((w.convolution(width, inputs, 1), w.convolution(width, width, 3), w.convolution(4 * width, width, 1),
                           w.convolution(4 * width, inputs, 1) if block == 0 else None,
                           2 if block == 0 and stage > 0 else 1))
            inputs = 4 * width
    last = w.linear(1000, inputs)

    def run(x):
        x = F.max_pool2d(F.relu(F.conv2d(x, *stem, stride=2, padding=3)), 3, 2, 1)
        for reduce, middle, expand, shortcut, stride in stages:
            y = F.relu(F.conv2d(x, *reduce))
            y = F.conv2d(F.relu(F.conv2d(y, *middle, stride=stride, padding=1)), *expand)
            x = F.relu(y + (F.conv2d(x, *shortcut, stride=stride) if shortcut else x))
        return F.linear(x.mean((2, 3)), *last)
    return run, [w(1, 3, 224, 224)]


def efficientnet(_, w):
    stem, blocks, inputs = w.convolution(32, 3, 3), [], 32
    for ratio, outputs, count, first, kernel in ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
                                                 (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for block in range(count):
            wide, squeezed = inputs * ratio, max(1, inputs // 4)
            blocks.append((w.convolution(wide, inputs, 1) if ratio > 1 else None, w.convolution(wide, 1, kernel),
                           w.convolution(squeezed, wide, 1), w.convolution(wide, squeezed, 1),
                           w.convolution(outputs, wide, 1), first if block == 0 else 1, kernel, wide,
                           block > 0))
            inputs = outputs
    head, last = w.convolution(1280, inputs, 1), w.linear(1000, 1280)

    def run(x):
        x = F.silu(F.conv2d(x, *stem, stride=2, padding=1))
        for expand, each, less, more, project, stride, kernel, wide, residual in blocks:
            y = F.silu(F.conv2d(x, *expand)) if expand else x
            y = F.silu(F.conv2d(y, *each, stride=stride, padding=kernel // 2, groups=wide))
            gate = torch.sigmoid(F.conv2d(F.silu(F.conv2d(y.mean((2, 3), keepdim=True), *less)), *more))
            y = F.conv2d(y * gate, *project)
            x = x + y if residual else y
        return F.linear(F.silu(F.conv2d(x, *head)).mean((2, 3)), *last)
    return run, [w(1, 3, 224, 224)]


def lstm(_, w):
    module = torch.nn.LSTM(256, 256, 10).to("cuda", w.dtype).eval()
    return (lambda x: module(x)[0]), [w(100, 1, 256)]


def function(name, sizes, dtype):
    return globals()[name](sizes, Weights(dtype))
