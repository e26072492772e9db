"""Modules that networks are made of, small, with random weights; and modules that a seed draws. Needs PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 18), nn.Tanh(), nn.Linear(18, 5))

    def forward(self, x):
        return F.log_softmax(self.layers(x), -1)


class BasicBlock(nn.Module):
    """ResNet-18's (CVPR 2016)."""

    def __init__(self, c=8):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.norm2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + x)


class Bottleneck(nn.Module):
    """ResNeXt's: groups, a stride, a shortcut with a product of its own."""

    def __init__(self, c=6, m=8):
        super().__init__()
        self.a, self.n1 = nn.Conv2d(c, m, 1, bias=False), nn.BatchNorm2d(m)
        self.b, self.n2 = nn.Conv2d(m, m, 3, 2, 1, groups=4, bias=False), nn.BatchNorm2d(m)
        self.c, self.n3 = nn.Conv2d(m, 2 * c, 1, bias=False), nn.BatchNorm2d(2 * c)
        self.short = nn.Sequential(nn.Conv2d(c, 2 * c, 1, 2, bias=False), nn.BatchNorm2d(2 * c))

    def forward(self, x):
        y = F.relu(self.n2(self.b(F.relu(self.n1(self.a(x))))))
        return F.relu(self.n3(self.c(y)) + self.short(x))


class InvertedResidual(nn.Module):
    """MobileNetV3's, with squeeze and excitation."""

    def __init__(self, c=8, e=12):
        super().__init__()
        self.expand, self.n1 = nn.Conv2d(c, e, 1, bias=False), nn.BatchNorm2d(e)
        self.depth, self.n2 = nn.Conv2d(e, e, 5, 2, 2, groups=e, bias=False), nn.BatchNorm2d(e)
        self.squeeze, self.excite = nn.Conv2d(e, 4, 1), nn.Conv2d(4, e, 1)
        self.project, self.n3 = nn.Conv2d(e, c, 1, bias=False), nn.BatchNorm2d(c)

    def forward(self, x):
        y = F.hardswish(self.n2(self.depth(F.hardswish(self.n1(self.expand(x))))))
        gate = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return self.n3(self.project(y * gate))


class Bert(nn.Module):
    """Embeddings, a padding mask, a layer."""

    def __init__(self, words=23, h=16, heads=2):
        super().__init__()
        self.word, self.place, self.norm = nn.Embedding(words, h), nn.Embedding(8, h), nn.LayerNorm(h)
        self.q, self.k, self.v, self.o = (nn.Linear(h, h) for _ in range(4))
        self.up, self.down = nn.Linear(h, 2 * h), nn.Linear(2 * h, h)
        self.norm1, self.norm2, self.heads = nn.LayerNorm(h), nn.LayerNorm(h), heads

    def forward(self, words, mask):
        batch, seq = words.shape
        x = self.norm(self.word(words) + self.place(torch.arange(seq)))
        q, k, v = (f(x).view(batch, seq, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + (1.0 - mask[:, None, None, :].float()) * -10000.0
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, seq, -1)
        x = self.norm1(self.o(y) + x)
        return self.norm2(self.down(F.gelu(self.up(x))) + x)


class Gpt2(nn.Module):
    """A block with causal attention."""

    def __init__(self, h=16, heads=2):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(h), nn.LayerNorm(h), heads
        self.qkv, self.o = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x):
        batch, seq, h = x.shape
        q, k, v = (y.view(batch, seq, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(h, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, seq, h))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class PatchEmbedding(nn.Module):
    """ViT's."""

    def __init__(self, h=16):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, h, 4, 4), nn.LayerNorm(h)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, h)), nn.Parameter(torch.randn(1, 10, h))

    def forward(self, x):
        y = self.conv(x).flatten(2).transpose(1, 2)
        return self.norm(torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.places)


class ConvNext(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c)
        self.up, self.down = nn.Linear(c, 3 * c), nn.Linear(3 * c, c)
        self.scale = nn.Parameter(torch.full((c,), 0.5))

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class UNet(nn.Module):
    """Down, up by a transposed convolution, and what was kept beside it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.down, self.up = nn.Conv2d(8, 12, 3, padding=1), nn.ConvTranspose2d(12, 8, 2, 2)
        self.last = nn.Conv2d(16, 4, 3, padding=2, dilation=2)

    def forward(self, x):
        y = F.silu(self.norm(self.first(x)))
        z = self.up(F.silu(self.down(F.avg_pool2d(y, 2))))
        return self.last(torch.cat([z, y], 1))


def modules(seed=0):
    """{name: (module, inputs)}, in training mode."""
    torch.manual_seed(seed)
    r = torch.randn
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    return {
        "mlp": (Mlp(), (r(6, 12),)),
        "basic": (BasicBlock(), (r(2, 8, 7, 7),)),
        "bottleneck": (Bottleneck(), (r(2, 6, 8, 8),)),
        "inverted": (InvertedResidual(), (r(2, 8, 7, 7),)),
        "encoder": (nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), (r(2, 5, 16),)),
        "bert": (Bert(), (torch.randint(0, 23, (2, 6)), mask)),
        "gpt2": (Gpt2(), (r(2, 7, 16),)),
        "lstm": (nn.LSTMCell(8, 12), (r(3, 8), (r(3, 12), r(3, 12)))),
        "patch": (PatchEmbedding(), (r(2, 3, 12, 12),)),
        "convnext": (ConvNext(), (r(2, 8, 6, 6),)),
        "unet": (UNet(), (r(1, 3, 8, 8),)),
    }


class Drawn(nn.Module):
    """Layers drawn by a seed over an image or rows, shapes, strides, groups and dilations among them; inputs with it."""

    def __init__(self, seed):
        super().__init__()
        self.rng = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.layers = nn.ModuleList()
        self.steps = []
        if self.pick(0, 1):
            self.batch, c, h, w = self.pick(1, 2, 3), self.pick(2, 4, 6), self.pick(5, 6, 7, 9), self.pick(4, 6, 8)
            self.inputs = (torch.randn(self.batch, c, h, w),)
            for _ in range(self.pick(2, 3, 4)):
                c = self.image_layer(c)
        else:
            self.batch, rows, d = self.pick(1, 2, 3), self.pick(1, 4, 5), self.pick(4, 6, 12)
            self.inputs = (torch.randn(self.batch, rows, d),)
            for _ in range(self.pick(2, 3, 4, 5)):
                d = self.row_layer(d)

    def pick(self, *values):
        return values[int(torch.randint(0, len(values), (), generator=self.rng))]

    def keep(self, layer, step):
        self.layers.append(layer)
        self.steps.append(step)

    def image_layer(self, c):
        kind = self.pick("conv", "conv", "transposed", "norm", "group norm", "act", "average", "shuffle", "gate", "pad",
                         "largest", "adaptive", "resized", "instance", "split", "attention", "scattered")
        if kind == "conv":
            groups, k = self.pick(1, 2), self.pick(1, 2, 3)
            to = groups * self.pick(1, 2, 3)
            self.keep(nn.Conv2d(c, to, k, self.pick(1, 1, 2), self.pick(1, 2), self.pick(1, 2), groups,
                                bias=bool(self.pick(0, 1))), lambda f, x: f(x))
            return to
        if kind == "transposed":
            groups = self.pick(1, 2)
            to, stride = groups * self.pick(1, 2), self.pick(1, 2)
            self.keep(nn.ConvTranspose2d(c, to, self.pick(2, 3), stride, self.pick(0, 1), stride - 1, groups),
                      lambda f, x: f(x))
            return to
        if kind == "norm":
            self.keep(nn.BatchNorm2d(c), lambda f, x: f(x))
        elif kind == "group norm":
            self.keep(nn.GroupNorm(2, c) if c % 2 == 0 else nn.GroupNorm(1, c), lambda f, x: f(x))
        elif kind == "act":
            self.activation()
        elif kind == "average":
            padding = self.pick(0, 1)
            self.keep(nn.AvgPool2d(2, self.pick(1, 2), padding, count_include_pad=bool(self.pick(0, 1))),
                      lambda f, x: f(x))
        elif kind == "shuffle":
            self.keep(nn.Identity(), lambda f, x: torch.cat([x.flip(2), x.roll(1, 3)], 1) if x.shape[1] < 8 else
                      x.transpose(2, 3))
            return c * 2 if c < 8 else c
        elif kind == "largest":
            self.keep(nn.MaxPool2d(self.pick(2, 3), self.pick(1, 2), self.pick(0, 1), ceil_mode=bool(self.pick(0, 1))),
                      lambda f, x: f(x))
        elif kind == "adaptive":
            self.keep(nn.AdaptiveAvgPool2d((self.pick(1, 2, 3), self.pick(2, 3, 5))), lambda f, x: f(x))
        elif kind == "resized":
            mode = self.pick("nearest", "bilinear", "bicubic")
            size = {"scale_factor": self.pick(0.5, 1.5, 2)} if self.pick(0, 1) else {"size": (self.pick(3, 5, 8), self.pick(4, 7))}
            aligned = None if mode == "nearest" else bool(self.pick(0, 1))
            self.keep(nn.Identity(), lambda f, x: F.interpolate(x, mode=mode, align_corners=aligned, **size))
        elif kind == "instance":
            self.keep(nn.InstanceNorm2d(c, affine=bool(self.pick(0, 1))), lambda f, x: f(x) + x)
        elif kind == "split" and c % 2 == 0:
            self.keep(nn.Conv2d(c // 2, c // 2, 3, 1, 1, c // 2), lambda f, x: torch.cat(
                [x.chunk(2, 1)[1], f(x.chunk(2, 1)[0]) * x.chunk(2, 1)[1]], 1))
        elif kind == "attention":
            self.keep(nn.Linear(c, 3 * c), lambda f, x: F.scaled_dot_product_attention(
                *f(x.flatten(2).transpose(1, 2)).chunk(3, -1)).transpose(1, 2).reshape(x.shape) + x)
        elif kind == "scattered":
            self.keep(nn.Identity(), lambda f, x: torch.index_put(
                x, (torch.arange(x.shape[0]), torch.tensor(0)), x[:, 0] * 0.5))
        elif kind == "gate":
            self.keep(nn.Linear(c, c), lambda f, x: x * torch.sigmoid(f(x.mean((2, 3))))[:, :, None, None])
        elif kind == "pad":
            value = self.pick(0.0, 0.5)
            self.keep(nn.Identity(), lambda f, x: F.pad(x, (1, 0, 2, 1), value=value))
        return c

    def row_layer(self, d):
        kind = self.pick("linear", "linear", "norm", "softmax", "act", "attention", "split", "residual", "reduce",
                         "heads", "rms", "conv", "running", "gated", "angles", "chosen", "best", "einsum", "cell")
        if kind == "linear":
            to = self.pick(3, 4, 6, 8)
            self.keep(nn.Linear(d, to, bias=bool(self.pick(0, 1))), lambda f, x: f(x))
            return to
        if kind == "norm":
            self.keep(nn.LayerNorm(d), lambda f, x: f(x))
        elif kind == "softmax":
            dim = self.pick(-1, 1)
            self.keep(nn.Identity(), lambda f, x: x.softmax(dim))
        elif kind == "act":
            self.activation()
        elif kind == "attention":
            causal = bool(self.pick(0, 1))
            self.keep(nn.Linear(d, 3 * d), lambda f, x: F.scaled_dot_product_attention(
                *f(x).unsqueeze(1).chunk(3, -1), is_causal=causal).squeeze(1) + x)
        elif kind == "split" and d % 2 == 0:
            self.keep(nn.Identity(), lambda f, x: torch.stack(x.chunk(2, -1), -1).flatten(-2).clamp(-1.5, 1.5))
        elif kind == "heads":
            heads = self.pick(*(h for h in (1, 2, 3) if d % h == 0))
            masked = self.pick("none", "causal", "padding")

            def attend(f, x):
                rows = x.shape[1]
                mask = torch.ones(rows, rows).triu(1).bool() if masked == "causal" else None
                keys = torch.arange(rows).expand(x.shape[0], -1) >= max(1, rows - 1) if masked == "padding" else None
                return f(x, x, x, attn_mask=mask, key_padding_mask=keys, need_weights=False)[0] + x
            self.keep(nn.MultiheadAttention(d, heads, batch_first=True), attend)
        elif kind == "rms":
            self.keep(nn.RMSNorm(d, eps=1e-4), lambda f, x: f(x))
        elif kind == "conv":
            self.keep(nn.Conv1d(d, d, 3, padding=1, groups=self.pick(1, d)), lambda f, x: f(x.transpose(1, 2)).transpose(1, 2))
        elif kind == "running":
            dim = self.pick(-1, 1)
            self.keep(nn.Identity(), lambda f, x: x.cumsum(dim) * 0.5)
        elif kind == "gated" and d % 2 == 0:
            self.keep(nn.Linear(d, 2 * d), lambda f, x: F.glu(f(x), -1))
        elif kind == "angles":
            self.keep(nn.Identity(), lambda f, x: torch.cat([x.sin(), x.cos()], -1) if x.shape[-1] < 8 else x.sin() + x)
            return 2 * d if d < 8 else d
        elif kind == "chosen":
            self.keep(nn.Identity(), lambda f, x: x[:, torch.arange(x.shape[1]).flip(0), None].squeeze(2) + x[:, :1])
        elif kind == "best":
            self.keep(nn.Identity(), lambda f, x: x.topk(max(1, x.shape[-1] // 2), -1).values)
            return max(1, d // 2)
        elif kind == "einsum":
            self.keep(nn.Linear(d, d, bias=False), lambda f, x: torch.einsum("bid,de->bie", x, f.weight))
        elif kind == "cell":
            self.keep(self.pick(nn.GRUCell, nn.LSTMCell)(d, d), lambda f, x: torch.stack(
                [y[0] if isinstance(y := f(r), tuple) else y for r in x.unbind(1)], 1))
        elif kind == "residual":
            self.keep(nn.Linear(d, d), lambda f, x: torch.where(x > 0.1, f(x), 0.5 * x) + x)
        elif kind == "reduce":
            self.keep(nn.Identity(), lambda f, x: (x - x.mean(1, keepdim=True)) / (x.var(-1, keepdim=True,
                                                                                        correction=0) + 1).sqrt())
        return d

    def activation(self):
        self.keep(self.pick(nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Hardswish(), nn.LeakyReLU(0.2), nn.ELU(),
                            nn.Softplus(), nn.Tanh(), nn.Sigmoid(), nn.ReLU6(), nn.Mish(), nn.PReLU(), nn.CELU(0.7), nn.SELU(),
                            nn.Hardsigmoid(), nn.Hardtanh(-0.5, 0.8), nn.LogSigmoid(), nn.Softsign(), nn.Softshrink(0.2),
                            nn.Hardshrink(0.2), nn.Tanhshrink(), nn.Threshold(0.1, -0.3), nn.Softplus(2.0)), lambda f, x: f(x))

    def forward(self, x):
        for layer, step in zip(self.layers, self.steps):
            x = step(layer, x)
        return x
