"""Networks that a seed draws, trained for one step by torch.compile(backend="tilewright") and by eager PyTorch: results, loss,
every gradient, every parameter and buffer after a step of SGD, Adam or AdamW. Prints what is off, what each of the compiled
graphs leaves to PyTorch, then counts.

    PYTHONPATH=tests/python python3 tests/python/torch_training.py [--seeds 0:20] [--seconds 600] [--verbose]

They have layers, norms, attention, convolutions, recurrent layers, tied and frozen weights, dropout that is off, views and
tensors that are changed in place."""

import argparse
import collections
import copy
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import torch_modules


class Rows(nn.Module):
    """A recurrent layer over [batch, rows, width], step by step or PyTorch's own."""

    def __init__(self, kind, d, own):
        super().__init__()
        self.own = own
        self.f = {("LSTM", True): nn.LSTM, ("GRU", True): nn.GRU, ("RNN", True): nn.RNN, ("LSTM", False): nn.LSTMCell,
                  ("GRU", False): nn.GRUCell, ("RNN", False): nn.RNNCell}[kind, own](d, d, **({"batch_first": True} if own else {}))

    def forward(self, x):
        if self.own:
            return self.f(x)[0]
        state, out = None, []
        for row in x.unbind(1):
            state = self.f(row, state)
            out.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(out, 1)


class Network(torch_modules.Drawn):
    """Drawn layers, a head and a loss. `inputs` and `target` are drawn with it."""

    def __init__(self, seed):
        nn.Module.__init__(self)
        self.rng = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.layers, self.steps = nn.ModuleList(), []
        self.words = self.tied = None
        self.batch = self.pick(1, 2, 3, 4)
        form = self.pick("image", "rows", "rows", "words", "flat")
        self.form = form
        classes = self.pick(3, 5, 8)
        if form == "image":
            c = self.pick(2, 4, 6)
            self.inputs = (torch.randn(self.batch, c, self.pick(6, 7, 9), self.pick(6, 8)),)
            for _ in range(self.pick(2, 3, 4)):
                c = self.image_step(c)
            self.head = nn.Linear(c, classes)
            shape = (self.batch,)
        elif form == "flat":
            d = self.pick(5, 8, 12)
            self.inputs = (torch.randn(self.batch * 3, d),)
            for _ in range(self.pick(2, 3, 4)):
                d = self.flat_step(d)
            self.head = nn.Linear(d, classes)
            shape = (self.batch * 3,)
        else:
            rows, d = self.pick(1, 3, 4, 5), self.pick(4, 6, 12)
            if form == "words":
                classes = self.pick(11, 17)
                self.words = nn.Embedding(classes, d, padding_idx=self.pick(None, 0))
                self.inputs = (torch.randint(0, classes, (self.batch, rows)),)
            else:
                self.inputs = (torch.randn(self.batch, rows, d),)
            for _ in range(self.pick(2, 3, 4)):
                d = self.row_step(d)
            self.head = nn.Linear(d, classes, bias=bool(self.pick(0, 1)))
            if form == "words" and d == self.words.embedding_dim and self.pick(0, 1, 1):
                self.head.weight = self.words.weight
            shape = (self.batch, rows)
        for layer in self.layers:  # some are not trained
            if self.pick(0, 0, 0, 0, 1):
                for p in layer.parameters():
                    p.requires_grad_(False)
        self.kind = self.pick("classes", "classes", "squares", "smooth", "distance")
        self.target = torch.randint(0, classes, shape) if self.kind == "classes" else torch.randn(*shape, classes)
        self.smoothing = self.pick(0.0, 0.1)

    def image_step(self, c):
        kind = self.pick("drawn", "drawn", "drawn", "norm", "in place", "residual", "dropout", "view", "squeezed")
        if kind == "drawn":
            return self.image_layer(c)
        if kind == "norm":
            self.keep(nn.Sequential(nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(inplace=True)),
                      lambda f, x: f(x))
        elif kind == "in place":
            def changed(f, x):
                y = f(x)
                y[:, 0] = y[:, 0] * 0.5
                y.mul_(1.5).add_(x.mean())
                return y
            self.keep(nn.Conv2d(c, c, 1), changed)
        elif kind == "residual":
            self.keep(nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.GELU(), nn.Conv2d(c, c, 1)), lambda f, x: f(x) + x)
        elif kind == "dropout":
            self.keep(nn.Dropout2d(0.4), lambda f, x: f(x) * 1.1)
        elif kind == "view":
            self.keep(nn.Linear(c, c), lambda f, x: f(x.permute(0, 2, 3, 1).reshape(-1, c)).view(
                x.shape[0], x.shape[2], x.shape[3], c).movedim(-1, 1))
        else:
            self.keep(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c, 1), nn.Sigmoid()), lambda f, x: x * f(x))
        return c

    def row_step(self, d):
        kind = self.pick("drawn", "drawn", "encoder", "recurrent", "recurrent", "in place", "dropout", "view", "tied", "window",
                         "masked", "decoder")
        if kind == "drawn":
            return self.row_layer(d)
        if kind == "encoder":
            self.keep(nn.TransformerEncoderLayer(d, self.pick(*(h for h in (1, 2, 3) if d % h == 0)), 2 * d, dropout=0.2,
                                                 activation=self.pick("relu", "gelu"), batch_first=True,
                                                 norm_first=bool(self.pick(0, 1))), lambda f, x: f(x))
        elif kind == "decoder":
            self.keep(nn.TransformerDecoderLayer(d, 2, 2 * d, dropout=0.1, batch_first=True),
                      lambda f, x: f(x, x.detach() * 0.5))
        elif kind == "recurrent":
            self.keep(Rows(self.pick("LSTM", "GRU", "RNN"), d, bool(self.pick(0, 1))), lambda f, x: f(x) + x)
        elif kind == "in place":
            def changed(f, x):
                y = f(x)
                y[:, -1].zero_()
                y.clamp_(-2, 2)
                y[..., ::2] += 0.25
                return y
            self.keep(nn.Linear(d, d), changed)
        elif kind == "dropout":
            self.keep(nn.Dropout(0.3), lambda f, x: f(x) - 0.1 * x.flip(-1))
        elif kind == "view":
            self.keep(nn.Linear(d, d), lambda f, x: (f(x).transpose(0, 1).contiguous().view(-1, d)[:: 1].reshape(
                x.shape[1], x.shape[0], d).transpose(0, 1) + x.narrow(1, 0, 1).expand_as(x)))
        elif kind == "tied":
            self.keep(nn.Linear(d, d, bias=False), lambda f, x: F.linear(f(x).tanh(), f.weight.t()) + x)
        elif kind == "window":
            self.keep(nn.Linear(2, 1), lambda f, x: f(F.pad(x, (1, 0)).unfold(2, 2, 1)).squeeze(-1))
        else:
            self.keep(nn.Linear(d, d), lambda f, x: f(x).masked_fill(x > 0.8, 0.0) * torch.where(x < 0, 0.5, 1.0))
        return d

    def flat_step(self, d):
        kind = self.pick("linear", "linear", "norm", "in place", "bilinear", "dropout", "experts", "drawn act", "normalised")
        if kind == "linear":
            to = self.pick(4, 7, 9)
            self.keep(nn.Linear(d, to, bias=bool(self.pick(0, 1))), lambda f, x: f(x))
            return to
        if kind == "norm":
            self.keep(nn.BatchNorm1d(d, momentum=self.pick(0.1, None)), lambda f, x: f(x))
        elif kind == "in place":
            def changed(f, x):
                y = f(x).sigmoid_()
                y.t()[0].neg_()
                return y.sub_(x)
            self.keep(nn.Linear(d, d), changed)
        elif kind == "bilinear":
            self.keep(nn.Bilinear(d, d, d), lambda f, x: f(x, x.roll(1, 0)))
        elif kind == "dropout":
            self.keep(nn.Dropout(0.5), lambda f, x: f(x) + 1)
        elif kind == "experts":
            self.keep(nn.ModuleList([nn.Linear(d, 2), nn.Linear(d, d), nn.Linear(d, d)]), lambda f, x: torch.einsum(
                "ne,ned->nd", f[0](x).softmax(-1), torch.stack([f[1](x), f[2](x)], 1)))
        elif kind == "normalised":
            self.keep(nn.utils.parametrizations.weight_norm(nn.Linear(d, d)), lambda f, x: F.normalize(f(x), dim=-1))
        else:
            self.activation()
        return d

    def forward(self, x, target):
        x = self.words(x) if self.words is not None else x
        for layer, step in zip(self.layers, self.steps):
            x = step(layer, x)
        if self.form == "image":
            x = x.mean((2, 3))
        y = self.head(x)
        return y, self.loss(y, target)

    def loss(self, y, target):
        if self.kind == "classes":
            return F.cross_entropy(y.flatten(0, -2), target.flatten(), label_smoothing=self.smoothing)
        return {"squares": F.mse_loss, "smooth": F.smooth_l1_loss, "distance": F.l1_loss}[self.kind](y, target)


def ready(net):
    """In training mode, but for dropout."""
    net.train()
    for m in net.modules():
        if isinstance(m, (nn.Dropout, nn.Dropout2d, nn.MultiheadAttention)):
            m.eval()
            m.dropout = 0.0
    return net


def drawn(seed):
    """The first network from a seed on whose layers fit together, and its seed."""
    while True:
        net = ready(Network(seed))
        try:
            y, loss = copy.deepcopy(net)(*net.inputs, net.target)
            if y.numel() > 0 and loss.isfinite() and loss.requires_grad:
                return net, seed
        except (RuntimeError, ValueError, IndexError, AssertionError):
            pass
        seed += 100000


def off(got, want):
    """Of the largest element, which is at least a hundredth."""
    if got is None or want is None:
        return 0.0 if got is want else float("inf")
    got, want = got.detach().double(), want.detach().double()
    if got.shape != want.shape:
        return float("inf")
    same = (got == want) | (got.isnan() & want.isnan())
    if bool(same.all()):
        return 0.0
    return float((got - want).abs().max() / max(float(want.abs().max()), 1e-2))


def one_step(net, run, make, compiled_step):
    optimiser = make([p for p in net.parameters() if p.requires_grad])
    y, loss = run(*net.inputs, net.target)
    loss.backward()
    gradients = {n: p.grad.clone() if p.grad is not None else None for n, p in net.named_parameters()}
    (torch.compile(optimiser.step, backend="tilewright") if compiled_step else optimiser.step)()
    return y, loss, gradients


def trial(seed):
    """(what is off, reports)"""
    from tilewright.pytorch import backend

    net, seed = drawn(seed)
    # In double precision too: how far rounding alone moves each result.
    twin = copy.deepcopy(net).double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in net.inputs)
    target = net.target.double() if net.target.is_floating_point() else net.target
    eager, ours = copy.deepcopy(net), copy.deepcopy(net)
    make = net.pick(lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
                    lambda p: torch.optim.Adam(p, 1e-2), lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1))
    compiled_step = bool(net.pick(0, 0, 1))
    torch._dynamo.reset()
    backend.clear_reports()
    want_y, want_loss, want = one_step(eager, eager, make, False)
    y, loss = twin(*inputs, target)
    loss.backward()
    exact = {n: p.grad for n, p in twin.named_parameters()}
    got_y, got_loss, got = one_step(ours, torch.compile(ours, backend="tilewright"), make, compiled_step)
    lines = []

    def held(what, a, b, precise, tolerance=2e-4):
        error, of_eager = off(a, b), off(b, precise) if precise is not None else 0.0
        if error > tolerance + 8 * of_eager:
            lines.append(f"{what}: off by {error:.2g}, eager's own rounding {of_eager:.2g}")
    held("result", got_y, want_y, y)
    held("loss", got_loss, want_loss, loss)
    for name in want:
        held(f"gradient of {name}", got[name], want[name], exact[name])
    bad = {name for name in want if off(got[name], want[name]) > 1e-5}
    for (name, a), b in zip(ours.named_parameters(), eager.parameters()):
        # Adam's first step is a sign: where a gradient is nothing but rounding, so is the step.
        noise = 0.03 if name in bad else 2e-4
        grad = want[name]
        if grad is not None:
            small = grad.abs() < 1e-5 * max(float(grad.abs().max()), 1e-6) + 1e-7
            a, b = torch.where(small, b, a), b
        held(f"{name} after the step", a, b, None, noise)
    for (name, a), b in zip(ours.named_buffers(), eager.buffers()):
        held(f"{name} after the step", a.float(), b.float(), None)
    return seed, net, lines, backend.reports()


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seeds", default="0:20")
    ask.add_argument("--seconds", type=float, default=1e9, help="start no further network after so many")
    ask.add_argument("--verbose", action="store_true")
    how = ask.parse_args()
    warnings.simplefilter("ignore")
    first, last = map(int, how.seeds.split(":"))
    counts, left, nodes, begun = collections.Counter(), collections.Counter(), collections.Counter(), time.time()
    for seed in range(first, last):
        if time.time() - begun > how.seconds:
            break
        start = time.time()
        try:
            used, net, lines, reports = trial(seed)
        except Exception as error:
            counts["failed"] += 1
            print(f"seed {seed}: failed: {type(error).__name__}: {str(error)[:400]}", flush=True)
            continue
        wrong = [line for r in reports for line in r.in_torch if "that is wrong" in line]
        what = "off" if lines else "right, a program was wrong and not used" if wrong else "right"
        counts[what] += 1
        for r in reports:
            nodes["programs"] += sum(p["nodes"] for p in r.programs)
            nodes["PyTorch"] += len(r.in_torch)
            for line in r.in_torch:
                left[line.split(": ", 1)[1]] += 1
        if how.verbose or what != "right":
            print(f"seed {used} ({net.form}, {net.kind}, {[type(m).__name__ for m in net.layers]}): {what}, "
                  f"{len(reports)} graphs, {time.time() - start:.0f} s", flush=True)
            for line in lines + wrong[:3]:
                print(f"  {line}", flush=True)
    for why, n in left.most_common(40):
        print(f"{n} nodes in PyTorch: {why}")
    print(f"nodes in programs {nodes['programs']}, in PyTorch {nodes['PyTorch']}")
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
