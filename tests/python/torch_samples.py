"""PyTorch's own samples of its operators (`op_db`), by torch.compile(backend="tilewright") and by eager PyTorch: results and
gradients, of inputs as they are, of inputs whose elements lie apart, and of some with NaN, infinities and zeros. Prints what is off or raises, what is left to PyTorch, then
counts. Needs PyTorch with what its tests need (expecttest).

    PYTHONPATH=tests/python python3 tests/python/torch_samples.py [--seeds 0:100] [--seconds 600] [--only conv,pool] [--verbose]

A seed draws an operator, a type, one of its samples and how it is called."""

import argparse
import collections
import random
import time
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree

import torch_functions

MOST = 1 << 16  # elements of an argument or result
LEFT_OUT = ("linalg.", "sparse", "masked.", "fft.", "_segment", "special.", "torch.ops", "to_sparse", "empty", "signal.", "svd", "nonzero",
            "unique", "multinomial", "normal", "rand", "uniform", "bernoulli", "cauchy", "geometric", "exponential", "dropout", "cholesky", "stft")


def drawn(seed, only, way=""):
    """(name, its operator, its sample, how it is called), or None"""
    rng = random.Random(f"{seed} sample")
    torch.manual_seed(seed)
    ops = [o for o in op_db if not o.name.startswith(LEFT_OUT) and not any(word in o.name for word in LEFT_OUT)
           and (not only or any(word in o.name for word in only))]
    op = rng.choice(ops)
    kinds = [k for k in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool) if k in op.dtypes]
    if not kinds:
        return None
    dtype = rng.choice(kinds[:1] * 4 + kinds)
    samples = []
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        samples.append(sample)
        if len(samples) == 100:
            break
    if not samples:
        return None
    sample = rng.choice(samples)
    how = rng.choice(["as it is", "as it is", "gradients", "gradients", "apart", "dynamic", "special"])
    how = way or how
    return f"{op.name} {str(dtype).split('.')[1]} {how}", op, sample, how


def tensors_of(tree):
    return [x for x in _pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def apart(x):
    """Its elements, with others between them."""
    if not isinstance(x, torch.Tensor) or not x.dim() or x.layout != torch.strided:
        return x
    return torch.stack([x.detach(), torch.zeros_like(x)], -1)[..., 0] if x.dim() % 2 else x.detach().transpose(0, -1).contiguous().transpose(0, -1)


def special(x):
    """With NaN, infinities, zeros and large numbers here and there."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
        return x
    x = x.detach().clone().contiguous()
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, torch.finfo(x.dtype).max, 1e-30], dtype=x.dtype)
    at = torch.rand(x.numel(), generator=torch.Generator().manual_seed(x.numel())) < .3
    x.view(-1)[at] = values[torch.arange(int(at.sum())) % len(values)]
    return x


def called(op, sample, how, compiled):
    """(results, gradients)"""
    arguments = (sample.input, sample.args, sample.kwargs)
    if how == "apart":
        arguments = _pytree.tree_map(apart, arguments)
    elif how == "special":
        arguments = _pytree.tree_map(special, arguments)
    else:
        arguments = _pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, arguments)
    given = [x for x in tensors_of(arguments) if x.is_floating_point()]
    if how == "gradients":
        for x in given:
            x.requires_grad_(True)

    def f(arguments):
        first, args, kwargs = arguments
        made = op.op(first, *args, **kwargs)
        return sample.output_process_fn_grad(made) if how == "gradients" else made

    torch.manual_seed(0)
    f = torch.compile(f, backend="tilewright", dynamic=True if how == "dynamic" else None) if compiled else f
    with torch.set_grad_enabled(how == "gradients"):
        results = tensors_of(f(arguments))
        sums = [(r.double() * torch.linspace(.5, 1.5, r.numel(), dtype=torch.float64).reshape(r.shape)).sum()
                for r in results if how == "gradients" and r.requires_grad and r.is_floating_point() and r.numel()]
        if sums:
            sum(sums).backward()
    return results, [x.grad for x in given if how == "gradients"]


def tried(seed, only, way=""):
    """(name, "right" | "wrong" | "raises" | "not drawn", why, reports)"""
    from tilewright.pytorch import backend
    torch._dynamo.reset()
    backend.clear_reports()
    try:
        case = drawn(seed, only, way)
        if case is None:
            return "", "not drawn", "", []
        name, op, sample, how = case
        want, again = called(op, sample, how, False), called(op, sample, how, False)
    except Exception as error:  # noqa: BLE001: what eager refuses
        return "", "not drawn", str(error), []
    leaves = [x for part in want for x in part if x is not None]
    if any(x.is_complex() or x.is_sparse or x.numel() > MOST or x.is_quantized for x in leaves + tensors_of((sample.input, sample.args))):
        return name, "not drawn", "", []
    if any(torch_functions.off(a, b) for x, y in zip(want, again) for a, b in zip(x, y) if a is not None and a.dtype in torch_functions.TOLERANCE):
        return name, "not drawn", "", []  # random numbers
    words = f"{name}: {sample.summary()}"
    try:
        got = called(op, sample, how, True)
    except Exception as error:  # noqa: BLE001
        return words, "raises", f"{type(error).__name__}: {str(error)[:400]}", backend.reports()
    for kind, x, y in zip(("result", "gradient"), got, want):
        if len(x) != len(y):
            return words, "wrong", f"{len(x)} {kind}s for {len(y)}", backend.reports()
        for i, (a, b) in enumerate(zip(x, y)):
            if (a is None) != (b is None):
                return words, "wrong", f"{kind} {i}: there is none", backend.reports()
            if a is not None and (why := torch_functions.off(a, b, 1 if kind == "result" else 5)):
                return words, "wrong", f"{kind} {i}: {why}", backend.reports()
    return words, "right", "", backend.reports()


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seeds", default="0:100")
    ask.add_argument("--seconds", type=float, default=600)
    ask.add_argument("--only", default="", help="parts of operators' names")
    ask.add_argument("--how", default="", help="that way alone")
    ask.add_argument("--verbose", action="store_true")
    how = ask.parse_args()
    warnings.filterwarnings("ignore")
    begin, end = map(int, how.seeds.split(":"))
    start, counts, left, bad = time.monotonic(), collections.Counter(), collections.Counter(), 0
    for seed in range(begin, end):
        if time.monotonic() - start > how.seconds:
            break
        name, what, why, reports = tried(seed, [w for w in how.only.split(",") if w], how.how)
        counts[what] += 1
        counts["programs"] += sum(len(r.programs) for r in reports)
        counts["with a program"] += any(r.programs for r in reports)
        for line in (line for r in reports for line in r.in_torch):
            if "in a program that is wrong" in line:
                what, why = "not used", line
            else:
                left[line.split(": ", 1)[1]] += 1
        bad += what in ("wrong", "raises", "not used")
        if what in ("wrong", "raises", "not used") or how.verbose:
            print(f"seed {seed}: {name[:300]}: {what} {why}", flush=True)
    for line, n in left.most_common(60):
        print(f"{n:5} in PyTorch: {line}")
    print(", ".join(f"{k} {v}" for k, v in counts.items()) + f", {time.monotonic() - start:.0f} s")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
