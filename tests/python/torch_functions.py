"""Functions that a seed draws of PyTorch's operators, by torch.compile(backend="tilewright") and by eager PyTorch: results,
gradients, and what is changed in place. Prints what is off or raises, what is left to PyTorch, then counts.

    PYTHONPATH=tests/python python3 tests/python/torch_functions.py [--seeds 0:100] [--seconds 600] [--steps 10] [--verbose]

They have views, slices that are written to, operands of several types, whole numbers and truth values, tensors without elements
or dimensions, branches by shapes, several sizes of one compiled function (`dynamic`), autocast, and buffers that are updated."""

import argparse
import collections
import copy
import time
import warnings

import torch
import torch.nn.functional as F

import torch_modules  # noqa: F401: the package's path

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
UNARY = ["abs", "neg", "exp", "sin", "cos", "tanh", "sigmoid", "square", "relu", "erf", "atan", "floor", "ceil", "round", "trunc",
         "frac", "sign", "isfinite", "logical_not", "expm1", "reciprocal_", "log_", "sqrt_", "rsqrt_", "log1p_", "log2_", "log10_",
         "nan_to_num", "sinh", "cosh", "asinh", "exp2", "softsign", "lgamma", "deg2rad", "signbit", "isnan", "positive"]
BINARY = ["add", "sub", "mul", "maximum", "minimum", "atan2", "div_", "fmod_", "remainder_", "floor_divide_", "lt", "ge", "eq", "ne",
          "hypot", "copysign", "logical_and", "logical_xor", "fmax", "fmin", "rsub", "pow_", "heaviside", "logaddexp", "squared_difference", "xlogy_"]
ROWS = ["softmax", "log_softmax", "sum", "mean", "amax", "amin", "cumsum", "var", "std", "logsumexp", "argmax", "norm", "prod", "any",
        "all", "max", "min", "sort", "topk", "flip", "roll", "median", "var_mean", "cumprod", "argmin", "count_nonzero", "cummax", "aminmax", "logcumsumexp", "diff"]
MOVES = ["transpose", "reshape", "unsqueeze", "squeeze", "expand", "slice", "step", "select", "cat", "stack", "chunk", "permute",
         "flatten", "tile", "repeat_interleave", "narrow", "unfold", "movedim", "diagonal", "tril", "pad", "index", "masked", "gather",
         "contiguous", "unbind", "split", "as_type", "tensor_split", "rot90", "where", "index_select", "take_along", "one_hot", "pad_reflect"]
CHANGES = ["add_", "mul_", "relu_", "copy_slice", "fill_slice", "zero_", "clamp_", "masked_fill_", "index_add", "scatter", "iadd", "add_view",
           "index_copy", "addcmul_", "index_put", "lerp_", "sub_out"]
PRODUCTS = ["matmul", "linear", "einsum", "bmm", "outer", "conv1d", "layer_norm", "attention", "embedding", "addmm", "conv2d", "bilinear",
            "pool1d", "group_norm", "rms_norm", "cosine", "cdist", "cross_entropy", "mse", "glu", "tensordot", "huber", "batch_norm", "fold"]


class Step:
    """One call: its name, what of the pool it reads, and drawn numbers."""

    def __init__(self, rng, kind, name, pool):
        self.name, self.kind = name, kind
        self.at = [rng.randrange(len(pool)) for _ in range(3)]
        self.numbers = [rng.random() for _ in range(6)]

    def __str__(self):
        return f"{self.name}({', '.join(map(str, self.at))}; {', '.join(f'{n:.3f}' for n in self.numbers)})"

    def pick(self, i, *values):
        return values[int(self.numbers[i] * len(values))]

    def __call__(self, pool, weights):
        x, y, z = (pool[a] for a in self.at)
        return getattr(self, self.kind)(x, y, z, weights)

    def dim(self, i, x):
        return int(self.numbers[i] * max(x.dim(), 1)) if self.numbers[-1] < .6 else -1

    def unary(self, x, y, z, weights):
        name = self.name.rstrip("_")
        if self.name.endswith("_"):
            x = x.abs() + 0.5
        return F.softsign(x) if name == "softsign" else getattr(torch, name)(x)

    def binary(self, x, y, z, weights):
        name = self.name.rstrip("_")
        other = round(self.numbers[0] * 4 - 1.7, 2) if self.numbers[1] < .25 else y
        if self.name.endswith("_"):
            other = abs(other) + 1
            x = x.abs() + 0.25 if name == "pow" else x
        if name == "squared_difference":
            return (x - other) ** 2
        if name == "heaviside":
            return torch.heaviside(x, torch.zeros((), dtype=x.dtype))
        if name == "div" and self.numbers[2] < .4:
            return torch.div(x, other, rounding_mode=self.pick(3, "floor", "trunc"))
        if name in ("add", "sub") and self.numbers[2] < .3:
            return getattr(torch, name)(x, other, alpha=2)
        if not isinstance(other, torch.Tensor) and name in ("maximum", "minimum", "atan2", "hypot", "logical_and", "logical_xor", "fmax", "fmin",
                                                           "logaddexp"):
            other = torch.full((), other, dtype=x.dtype)
        return getattr(torch, name)(x, other)

    def rows(self, x, y, z, weights):
        d, keep, name = self.dim(0, x), self.numbers[1] < .5, self.name
        if name in ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp"):
            return getattr(torch, name)(x, d)
        if name in ("var", "std"):
            return getattr(torch, name)(x, d, correction=self.pick(2, 0, 1), keepdim=keep)
        if name == "norm":
            return torch.linalg.vector_norm(x, self.pick(2, 1, 2, float("inf"), 3), d, keepdim=keep)
        if name == "flip":
            return x.flip(d)
        if name == "roll":
            return x.roll(self.pick(2, 1, -2, 5), d)
        if name in ("max", "min", "cummax", "median"):
            return getattr(torch, name)(x, d)[self.pick(2, 0, 0, 1)]
        if name == "sort":
            return x.sort(d, descending=keep, stable=True)[self.pick(2, 0, 1)]
        if name == "topk":
            return x.topk(min(2, x.shape[d]), d).values
        if name == "var_mean":
            return torch.cat([v.flatten() for v in torch.var_mean(x, d, keepdim=keep)])
        if name == "aminmax":
            return torch.aminmax(x, dim=d, keepdim=keep).max
        if name in ("count_nonzero", "diff"):
            return getattr(torch, name)(x, dim=d)
        if self.numbers[2] < .2 and name in ("sum", "mean", "amax", "any"):
            return getattr(torch, name)(x)
        return getattr(torch, name)(x, d, keepdim=keep)

    def moves(self, x, y, z, weights):
        d, name = self.dim(0, x), self.name
        n = x.shape[d] if x.dim() else 1
        if name == "transpose":
            return x.transpose(d, 0)
        if name == "reshape":
            return x.reshape(self.pick(1, (-1,), (1, -1), (-1, 1), (x.shape[0], -1) if x.dim() else (1,)))
        if name == "unsqueeze":
            return x.unsqueeze(d)
        if name == "squeeze":
            return x.squeeze() if self.numbers[1] < .3 else x.squeeze(d)
        if name == "expand":
            return x.expand(self.pick(1, 1, 2, 3), *x.shape)
        if name == "slice":
            return x.narrow(d, 0, n)[..., n // 3:] if x.dim() else x[None]
        if name == "step":
            return x[self.pick(1, 0, 1)::self.pick(2, 1, 2, 3)]
        if name == "select":
            return x.select(d, self.pick(1, 0, -1))
        if name in ("cat", "stack"):
            return getattr(torch, name)([x, y if x.shape == y.shape else x, x.new_zeros(x.shape)][:self.pick(1, 2, 3)], d)
        if name in ("chunk", "split", "tensor_split"):
            parts = getattr(x, name)(self.pick(1, 2, 3), d)
            return parts[-1] if self.numbers[2] < .5 or parts[0].shape != parts[-1].shape else parts[0] - parts[-1]
        if name == "permute":
            return x.permute(*reversed(range(x.dim())))
        if name == "flatten":
            return x.flatten(max(d, 0))
        if name == "tile":
            return x.tile(self.pick(1, (2,), (1, 2), (2, 1, 1)))
        if name == "repeat_interleave":
            return x.repeat_interleave(self.pick(1, 2, 3), d)
        if name == "narrow":
            return x.narrow(d, n // 2, n - n // 2)
        if name == "unfold":
            return x.unfold(d, min(n, self.pick(1, 1, 2, 3)), self.pick(2, 1, 2))
        if name == "movedim":
            return x.movedim(0, -1)
        if name == "diagonal":
            return x.diagonal(self.pick(1, 0, 1, -1), 0, -1)
        if name == "tril":
            return self.pick(1, torch.tril, torch.triu)(x, self.pick(2, 0, 1, -1))
        if name == "pad":
            return F.pad(x, self.pick(1, (1, 0), (0, 2), (-1, 1)), value=self.pick(2, 0.0, 1.5))
        if name == "pad_reflect":
            return F.pad(x, (1, 1), mode=self.pick(1, "reflect", "replicate", "circular"))
        if name == "index":
            return x[torch.tensor([0, -1, 0])]
        if name == "masked":
            return torch.where(x > self.numbers[1] - .5, x, self.pick(2, 0.0, -1.0, float("-inf")) if self.numbers[3] < .4 else -x)
        if name == "where":
            return torch.where(y > 0, x, z)
        if name == "gather":
            return x.gather(d, x.argsort(d, stable=True))
        if name == "take_along":
            return torch.take_along_dim(x, x.argmax(d, keepdim=True), d)
        if name == "index_select":
            return x.index_select(d, torch.arange(n - 1, -1, -1))
        if name == "one_hot":
            return F.one_hot(x.argmax(d), n).to(x.dtype)
        if name == "contiguous":
            return x.contiguous()
        if name == "unbind":
            return x.unbind(d)[-1]
        if name == "as_type":
            return x.to(self.pick(1, torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool, torch.uint8, torch.int8))
        return torch.rot90(x, 1, (0, -1))

    def changes(self, x, y, z, weights):
        x = x.clone() if self.numbers[0] < .8 else x * 1
        n, name = x.shape[0] if x.dim() else 1, self.name
        if name == "add_":
            x.add_(y)
        elif name == "mul_":
            x.mul_(0.5)
        elif name == "relu_":
            x.relu_()
        elif name == "copy_slice":
            x[n // 2:] = x[:n - n // 2] * 2
        elif name == "fill_slice":
            x[..., 0] = self.pick(1, 0.0, 1.0)
        elif name == "zero_":
            x[:1].zero_()
        elif name == "clamp_":
            x.clamp_(*self.pick(1, (-0.5, 0.5), (None, 0.2), (0, None)))
        elif name == "masked_fill_":
            x.masked_fill_(x > 0.3, self.pick(1, 0.0, -2.0))
        elif name == "index_add":
            x = x.index_add(0, torch.zeros(n, dtype=torch.int64), x)
        elif name == "index_copy":
            x = x.index_copy(0, torch.tensor([0]), x[-1:])
        elif name == "scatter":
            x = x.scatter(-1, x.argmax(-1, keepdim=True), self.pick(1, 0.0, 1.0))
        elif name == "iadd":
            x += x.mean() if x.is_floating_point() else 1
        elif name == "add_view":
            x.view(-1)[::2].add_(1)
        elif name == "addcmul_":
            x.addcmul_(x, x, value=0.3)
        elif name == "index_put":
            x = x.index_put((torch.tensor([0, -1]),), x[:1] * 3, accumulate=self.numbers[1] < .5)
        elif name == "lerp_":
            x.lerp_(x * x, 0.25)
        elif name == "sub_out":
            out = torch.empty_like(x)
            torch.sub(x, 1, out=out)
            x = out
        return x

    def products(self, x, y, z, weights):
        name, d = self.name, x.shape[-1] if x.dim() else 1
        w = weights.get(d)
        if name == "matmul":
            return x @ (y.transpose(-1, -2) if y.dim() > 1 else y)
        if name == "linear":
            return F.linear(x, w, w[:, 0])
        if name == "einsum":
            return torch.einsum("...i,ij->...j", x, w[:, :d].T)
        if name == "tensordot":
            return torch.tensordot(x, w, ([-1], [1]))
        if name == "bmm":
            return torch.bmm(x, x.transpose(1, 2))
        if name == "addmm":
            return torch.addmm(w[:, 0], x, w.T, beta=0.5, alpha=2)
        if name == "outer":
            return torch.outer(x.flatten()[:5], x.flatten()[-4:])
        if name == "conv1d":
            return F.conv1d(x, weights["conv1d"], stride=self.pick(0, 1, 2), padding=self.pick(1, 0, 1, 2), dilation=self.pick(2, 1, 2))
        if name == "conv2d":
            return F.conv2d(x.reshape(1, 1, -1, d), weights["conv2d"], padding=1, stride=self.pick(0, 1, 2))
        if name == "pool1d":
            return self.pick(0, F.max_pool1d, F.avg_pool1d)(x, 2, self.pick(1, 1, 2))
        if name == "layer_norm":
            return F.layer_norm(x, (d,), w[0], None)
        if name == "rms_norm":
            return F.rms_norm(x, (d,), w[0])
        if name == "group_norm":
            return F.group_norm(x, 1)
        if name == "batch_norm":
            return F.batch_norm(x, None, None, training=True)
        if name == "attention":
            return F.scaled_dot_product_attention(x, x, x, is_causal=self.numbers[0] < .5, scale=self.pick(1, None, 0.3))
        if name == "embedding":
            return F.embedding(x.argmax(-1) % w.shape[0], w)
        if name == "bilinear":
            return F.interpolate(x, scale_factor=2, mode=self.pick(0, "linear", "nearest"))
        if name == "cosine":
            return F.cosine_similarity(x, y, -1)
        if name == "cdist":
            return torch.cdist(x, x * 0.5 + 0.1)
        if name == "cross_entropy":
            return F.cross_entropy(x.reshape(-1, d), x.reshape(-1, d).argmax(1), reduction=self.pick(0, "mean", "none", "sum"), label_smoothing=self.pick(1, 0.0, 0.1))
        if name == "mse":
            return F.mse_loss(x, x.flip(-1) * 0.5, reduction=self.pick(0, "mean", "none"))
        if name == "huber":
            return F.smooth_l1_loss(x, x.flip(-1) * 0.5, beta=0.3)
        if name == "fold":
            return F.unfold(x.reshape(1, 1, -1, d), 2, padding=1)
        return F.glu(x, -1)


class Drawn(torch.nn.Module):
    """Steps on a growing pool of values. What eager refuses while it is drawn is left out."""

    def __init__(self, seed, steps):
        super().__init__()
        import random
        rng = random.Random(f"{seed} function")
        torch.manual_seed(seed)
        self.mode = rng.choice(["train", "train", "infer", "dynamic", "dynamic train", "autocast", "double", "bfloat16"])
        kind = {"double": torch.float64, "bfloat16": torch.bfloat16}.get(self.mode, torch.float32)
        sizes = [rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 12, 17, 33]) for _ in range(3)]
        self.shapes = [tuple(sizes[:rng.randint(1, 3)]) if rng.random() < .4 else tuple(sizes) for _ in range(rng.randint(1, 3))]
        self.inputs = [torch.randn(s, dtype=kind) for s in self.shapes]
        self.sizes = {str(d): torch.nn.Parameter(torch.randn(rng.choice([d, 3, 5]), d, dtype=kind) / d ** .5) for d in range(1, 40)}
        self.weights = torch.nn.ParameterDict({**self.sizes})
        channels = sizes[1]
        self.conv1d = torch.nn.Parameter(torch.randn(rng.choice([channels, 2]), channels, 3, dtype=kind) * 0.3)
        self.conv2d = torch.nn.Parameter(torch.randn(2, 1, 3, 3, dtype=kind) * 0.3)
        self.register_buffer("seen", torch.zeros((), dtype=kind))
        self.branches = rng.random() < .3
        self.counts = rng.random() < .3
        self.steps = []
        kinds = [("unary", UNARY), ("binary", BINARY), ("binary", BINARY), ("rows", ROWS), ("moves", MOVES), ("moves", MOVES),
                 ("changes", CHANGES), ("products", PRODUCTS), ("products", PRODUCTS)]
        pool = list(self.inputs)
        tries = 0
        while len(self.steps) < steps and tries < 40 * steps:
            tries += 1
            which, names = rng.choice(kinds)
            step = Step(rng, which, rng.choice(names), pool)
            if rng.random() < .5:
                step.at[0] = len(pool) - 1
            try:
                made = step(pool, self.table())
            except Exception:  # noqa: BLE001: what eager refuses
                continue
            if made.numel() > 1 << 15 or (made.numel() == 0 and rng.random() < .9) or made.is_complex():
                continue
            if made.is_floating_point() and made.numel() and not bool(made.detach().isfinite().all()):
                continue
            if made.is_floating_point() and made.numel() and float(made.detach().abs().max()) > 1e4:
                continue
            self.steps.append(step)
            pool.append(made)

    def table(self):
        return {**{int(k): v for k, v in self.weights.items()}, "conv1d": self.conv1d, "conv2d": self.conv2d}

    def forward(self, *inputs):
        pool, weights = list(inputs), self.table()
        for step in self.steps:
            pool.append(step(pool, weights))
        if self.branches and inputs[0].shape[0] > 2:
            pool.append(inputs[0] * 2)
        if self.counts:
            self.seen += pool[0].detach().mean()
        read = {a for s in self.steps for a in s.at}
        return tuple(p for i, p in enumerate(pool) if i >= len(inputs) and (i not in read or i >= len(pool) - 3))


def off(got, want, times=1, computed=None):
    """`computed`: the type in which a part of it was, where that is not its own."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)} for {want.dtype} {tuple(want.shape)}"
    if not want.numel():
        return ""
    if not want.is_floating_point():
        wrong = (got != want).sum().item()
        return f"{wrong} of {want.numel()} elements differ" if wrong else ""
    got, want, tolerance = got.detach().double(), want.detach().double(), TOLERANCE[computed or want.dtype] * times
    same = (got == want) | (got.isnan() & want.isnan())
    error = torch.where(same, 0, (got - want).abs())
    scale = max(float(want[want.isfinite()].abs().max()) if want.isfinite().any() else 0, 0.05)
    worst = float(error.nan_to_num(nan=float("inf")).max())
    return f"off by {worst:.3g} of {scale:.3g}" if worst > tolerance * scale else ""


def other_sizes(module, seed):
    """The same function for inputs of which the first dimension differs."""
    torch.manual_seed(seed + 1)
    n = module.shapes[0][0] + 3
    first = module.shapes[0][0]
    return [torch.randn([n if i == 0 and d == first else d for i, d in enumerate(s)], dtype=x.dtype) for s, x in zip(module.shapes, module.inputs)]


def tried(seed, steps, backend_name="tilewright"):
    """(what is off or "", reports, the module)"""
    from tilewright.pytorch import backend
    module = Drawn(seed, steps)
    backend.clear_reports()
    torch._dynamo.reset()
    computed = torch.bfloat16 if module.mode == "autocast" else None
    train = "train" in module.mode or module.mode in ("double", "bfloat16", "autocast")
    eager, other = copy.deepcopy(module), copy.deepcopy(module)
    compiled = torch.compile(other, backend=backend_name, dynamic=True if "dynamic" in module.mode else None)
    rounds = [module.inputs] + ([other_sizes(module, seed), module.inputs] if "dynamic" in module.mode else [module.inputs])
    for number, inputs in enumerate(rounds):
        results = []
        for f, parameters in ((eager, eager), (compiled, other)):
            given = [x.clone().requires_grad_(train) for x in inputs]
            parameters.zero_grad(set_to_none=True)
            try:
                with torch.autocast("cpu", torch.bfloat16, enabled=module.mode == "autocast"), torch.set_grad_enabled(train):
                    out = f(*given)
                if train:
                    total = [(o.double() * torch.linspace(0.5, 1.5, o.numel(), dtype=torch.float64).reshape(o.shape)).sum()
                             for o in out if o.is_floating_point() and o.requires_grad and o.numel()]
                    if total:
                        sum(total).backward()
            except Exception as error:  # noqa: BLE001
                results.append(error)
                continue
            gradients = {f"gradient of input {i}": g.grad for i, g in enumerate(given) if g.grad is not None}
            gradients |= {f"gradient of {n}": p.grad for n, p in parameters.named_parameters() if p.grad is not None}
            gradients |= {f"buffer {n}": b for n, b in parameters.named_buffers()}
            results.append((out, gradients))
        want, got = results
        if isinstance(want, Exception):
            return ("" if number else "drawn wrongly: " + str(want).splitlines()[0]), backend.reports(), module
        if isinstance(got, Exception):
            return f"round {number}: {type(got).__name__}: {str(got)[:600]}", backend.reports(), module
        for i, (a, b) in enumerate(zip(got[0], want[0])):
            if why := off(a, b, 1, computed):
                return f"round {number}: result {i}: {why}", backend.reports(), module
        if got[1].keys() != want[1].keys():
            return f"round {number}: gradients of {sorted(got[1].keys() ^ want[1].keys())}", backend.reports(), module
        for name in want[1]:
            if why := off(got[1][name], want[1][name], 1 if computed else 5, computed):
                return f"round {number}: {name}: {why}", backend.reports(), module
    return "", backend.reports(), module


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seeds", default="0:100")
    ask.add_argument("--seconds", type=float, default=600)
    ask.add_argument("--steps", type=int, default=10)
    ask.add_argument("--verbose", action="store_true")
    ask.add_argument("--beside", default="aot_eager", help="a backend of PyTorch's that is asked where ours is off")
    how = ask.parse_args()
    warnings.filterwarnings("ignore")
    torch._dynamo.config.recompile_limit = 64  # behind a break each step is a function of its own; past it they would be eager
    begin, end = map(int, how.seeds.split(":"))
    start, counts, left, wrong = time.monotonic(), collections.Counter(), collections.Counter(), collections.Counter()
    for seed in range(begin, end):
        if time.monotonic() - start > how.seconds:
            break
        why, reports, module = tried(seed, how.steps)
        if why and not why.startswith("drawn wrongly") and tried(seed, how.steps, how.beside)[0]:
            counts["PyTorch's own differs from eager, too"] += 1
            continue
        counts["drawn wrongly" if why.startswith("drawn wrongly") else "wrong" if why else "right"] += 1
        counts["programs"] += sum(len(r.programs) for r in reports)
        for r in reports:
            for line in r.in_torch:
                left[line.split(": ", 1)[1]] += 1
                if "in a program that is wrong" in line:
                    wrong[f"seed {seed}: " + line.split("is wrong: ", 1)[1]] += 1
        if why and not why.startswith("drawn wrongly") or how.verbose:
            print(f"seed {seed} ({module.mode}): {why or 'right'}\n    " + "; ".join(map(str, module.steps)), flush=True)
    for line, n in left.most_common(60):
        print(f"{n:5} in PyTorch: {line}")
    for line in wrong:
        print("not used:", line)
    print(", ".join(f"{k} {v}" for k, v in counts.items()) + f", {time.monotonic() - start:.0f} s")
    raise SystemExit(1 if counts["wrong"] or wrong else 0)


if __name__ == "__main__":
    main()
