"""from_torch and the backend of torch.compile against PyTorch's eager results, where PyTorch is installed.

TILEWRIGHT_CASES=N: so many drawn modules (1) are trained, from seed TILEWRIGHT_SEED on (0). TILEWRIGHT_LONG=1: every module
is also trained by the backend, which compiles some 30 kernels a module; else three are. With TILEWRIGHT_LONG=1 also
architectures of torchvision and transformers, of sizes that TILEWRIGHT_SEED draws: -k library runs these alone."""

import copy
import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: recorded graphs are tested instead")
numpy = pytest.importorskip("numpy")
tilewright = pytest.importorskip("tilewright")
reference = pytest.importorskip("tilewright.reference")

import library_modules  # noqa: E402
import torch_modules  # noqa: E402
from tilewright.pytorch import backend  # noqa: E402

MODULES = list(torch_modules.modules())
CASES = int(os.environ.get("TILEWRIGHT_CASES", "1"))
LONG = bool(os.environ.get("TILEWRIGHT_LONG"))
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9, torch.bfloat16: 4e-2}


def flat(y):
    return [y] if isinstance(y, torch.Tensor) else [z for part in y for z in flat(part)]


def largest_difference(a, b):
    return float((a.detach().double() - b.detach().double()).abs().max())


def assert_same(got, want, what, exact=None):
    """`exact`: makes the value in f64, for what cancels: ours may then be off by a few times what eager's is."""
    scale = max(float(want.detach().abs().max()), 0.05)  # what cancels to nothing is rounding alone
    off = largest_difference(got, want)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride(), what
    if off > TOLERANCE[want.dtype] * scale * 5 and exact is not None:
        off, scale = largest_difference(got, exact()), 4 * largest_difference(want, exact())
        assert off <= scale, f"{what}: off by {off:.3g} of what f64 gives, four times eager's is {scale:.3g}"
        return
    assert off <= TOLERANCE[want.dtype] * scale * 5, f"{what}: off by {off:.3g} of {scale:.3g}"


def assert_exported(module, inputs, what):
    """from_torch's workload, evaluated in float64, gives what eager gives."""
    module.eval()
    workload = tilewright.from_torch(module, inputs)
    for name, x in zip(workload.inputs, flat(inputs)):
        for tensor in workload["tensors"]:
            if tensor["name"] == name:
                tensor["values"] = x.detach().double().reshape(-1).tolist()
    values = reference.evaluate(workload)
    for name, want in zip(workload.outputs, flat(module(*inputs))):
        got = torch.from_numpy(values[name].copy()).reshape(want.shape).to(want.dtype)
        scale = float(want.detach().abs().max())
        assert float((got - want.detach()).abs().max()) <= 2e-5 * max(scale, 1e-3), what


def assert_trained(module, inputs, what, **options):
    """Results and every gradient of the backend are eager's. Returns the reports."""
    backend.clear_reports()
    torch._dynamo.reset()
    eager, compiled = copy.deepcopy(module).train(), copy.deepcopy(module).train()
    run = torch.compile(compiled, backend="tilewright", options=options)
    want, got = flat(eager(*inputs)), flat(run(*inputs))
    weights = [torch.randn_like(y) for y in want]
    for results in (want, got):
        sum((y * w).sum() for y, w in zip(results, weights)).backward()
    for i, (a, b) in enumerate(zip(got, want)):
        assert_same(a, b, f"{what}: result {i}")

    @functools.cache
    def exact():
        double = copy.deepcopy(module).double().train()
        results = flat(double(*(x.double() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs)))
        sum((y * w.double()).sum() for y, w in zip(results, weights)).backward()
        return dict(double.named_parameters())
    for (name, a), b in zip(compiled.named_parameters(), eager.parameters()):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert_same(a.grad, b.grad, f"{what}: gradient of {name}", lambda name=name: exact()[name].grad)
    for (name, a), b in zip(compiled.named_buffers(), eager.buffers()):
        assert torch.allclose(a.float(), b.float(), rtol=1e-4, atol=1e-5), f"{what}: {name}"
    return backend.reports()


@pytest.mark.parametrize("name", MODULES)
def test_exported_modules(name):
    assert_exported(*torch_modules.modules()[name], name)


@pytest.mark.parametrize("name", MODULES if LONG else ["mlp", "lstm", "bert"])
def test_trained_modules(name):
    reports = assert_trained(*torch_modules.modules()[name], name)
    assert [r.graph for r in reports] == ["forward", "backward"]
    assert all(r.programs for r in reports), "\n".join(map(str, reports))


@pytest.mark.parametrize("seed", range(100, 100 + 40 * max(CASES, 1) if LONG else 130))
def test_drawn_modules_are_exported(seed):
    module = torch_modules.Drawn(seed)
    try:
        module.eval()(*module.inputs)
    except RuntimeError:
        pytest.skip("the drawn layers do not fit together")
    assert_exported(module, module.inputs, f"seed {seed}")


@pytest.mark.parametrize("seed", range(int(os.environ.get("TILEWRIGHT_SEED", "0")), int(os.environ.get("TILEWRIGHT_SEED", "0")) + CASES))
def test_drawn_modules_are_trained(seed):
    while True:
        module = torch_modules.Drawn(seed)
        try:
            fits = any(p.requires_grad for p in module.parameters()) and module(*module.inputs).numel() > 0
        except RuntimeError:
            fits = False
        if fits:
            break
        seed += 1000
    assert_trained(module, module.inputs, f"seed {seed}")


LIBRARY = sorted(library_modules.families()) if LONG else []
SEEDS = range(int(os.environ.get("TILEWRIGHT_SEED", "1")), int(os.environ.get("TILEWRIGHT_SEED", "1")) + max(CASES, 1))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LIBRARY)
def test_library_modules_are_exported(name, seed):
    assert_exported(*library_modules.drawn(name, seed), f"{name}, seed {seed}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LIBRARY)
def test_library_modules_are_trained(name, seed):
    """What is not covered runs in PyTorch."""
    reports = assert_trained(*library_modules.drawn(name, seed), f"{name}, seed {seed}")
    assert any(r.programs for r in reports), "\n".join(map(str, reports))


def test_whole_numbers():
    """Masks and distances of positions; what inputs change, too, unless it may be too large for f32 or outside of a table."""
    def attend(q, k, decay):
        at = torch.arange(q.shape[0])
        away = (at[:, None] - at[None, :]).clamp(min=0)
        scores = (q @ k.T) * decay ** away
        return scores.masked_fill(at[:, None] < at[None, :], 0) @ k

    def looked_up(table, i):
        return torch.relu(table[(i + 1) % table.shape[0]])

    def squared(table, i):
        return torch.relu(table[(i * i) % table.shape[0]])

    def next_ones(table, i):
        return torch.relu(table[i + 1])

    def padded(x, i):
        return torch.nn.functional.cross_entropy(x, i) + (i != -100).sum() * x.argmax(1).sum()
    inputs, table, i = (torch.randn(23, 9), torch.randn(23, 9), torch.tensor(0.9)), torch.randn(5, 7), torch.tensor([3, 0, 2, 0, 1])
    for f, given, left in ((attend, inputs, []), (looked_up, (table, i), []), (squared, (table, i), ["mul"]),
                           (next_ones, (table, i), ["add"]), (padded, (table, i), [])):
        backend.clear_reports()
        torch._dynamo.reset()
        with torch.no_grad():
            run = torch.compile(f, backend="tilewright")
            assert_same(run(*given), f(*given), f.__name__)
            assert_same(run(*given), f(*given), f.__name__)
        (report,) = backend.reports()
        assert [line.split(":")[0] for line in report.in_torch] == left and len(report.programs) == 1, report
        if given[-1] is i:  # within the table but for -100, which a loss leaves out; and larger ones than f32 has
            for other in (torch.tensor([3, -100, 2, 0, 1]) if f is padded else i + 1, i - 1, i + (1 << 24)):
                got, want = (attempt(way, given[0], other) for way in (run, f))
                assert type(got) is type(want) and (got is None or torch.allclose(got, want)), (f.__name__, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types(dtype):
    module = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5)).to(dtype)
    reports = assert_trained(module, (torch.randn(6, 12).to(dtype),), str(dtype))
    assert all(r.programs for r in reports), "\n".join(map(str, reports))


def attempt(f, *args):
    """What it makes; None: PyTorch refuses the operands."""
    try:
        return f(*args)
    except (IndexError, RuntimeError):
        return None


def test_what_is_not_covered_runs_in_torch():
    torch._dynamo.reset()
    backend.clear_reports()

    def f(x):
        return torch.lgamma(torch.relu(x) * 2 + 1).sigmoid() + 1

    x = torch.randn(4, 5)
    assert torch.allclose(torch.compile(f, backend="tilewright")(x), f(x))
    report, = backend.reports()
    assert report.in_torch == ["lgamma: aten.lgamma.default: the operator is not supported"]
    assert len(report.programs) == 2


def test_indices_from_the_end_and_beyond():
    torch._dynamo.reset()
    f = torch.compile(lambda x, i: x[i] * 2, backend="tilewright")
    x = torch.randn(5, 3)
    for i in ([0, 4], [-1, 2]):
        i = torch.tensor(i)
        assert torch.equal(f(x, i), x[i] * 2)
    with pytest.raises(IndexError):
        f(x, torch.tensor([0, 5]))


def test_constants_within_the_graph():
    """A tensor that the traced function makes of numbers is an attribute of the graph: DeBERTa's scale is one."""
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(6, 5)

        def forward(self, x):
            return self.layer(x) / torch.sqrt(torch.tensor(5, dtype=torch.float))

    reports = assert_trained(Scaled(), (torch.randn(3, 6),), "a constant")
    assert any(r.programs for r in reports)


def test_results_that_repeat_elements():
    """What the backward graph keeps of an expanded tensor has a stride of zero."""
    rows = torch.arange(4.0).expand(3, 4).contiguous()
    got = backend._returned(rows, (0, 1), torch.float32)
    assert got.stride() == (0, 1) and torch.equal(got, rows)


def test_tensors_whose_dimensions_lie_in_another_order():
    """They are read and written as they lie, and so is what has the elements of a view."""
    torch._dynamo.reset()
    a, b, wide = torch.randn(6, 9), torch.randn(9, 6), torch.randn(9, 20)

    def f(x, y, z, w):
        return torch.tanh(x.t() + y), (z.view(2, 3, 9) * 2).transpose(0, 1), w * 2, x[:, None] + 1
    compiled = torch.compile(f, backend="tilewright", dynamic=False)
    given = (a, b, a, wide[:, 3:9])
    for inputs in (given, given, (b.t(), a.t(), a, wide[:, 3:9].contiguous())):  # the last compile again
        for got, want in zip(compiled(*inputs), f(*inputs)):
            assert got.stride() == want.stride()
            assert_same(got, want, "a result")


NUMBERS = {
    "flip": lambda x: x.flip([0]), "flip the last": lambda x: x.flip([-1]), "sum": lambda x: x.sum(-1, keepdim=True),
    "largest": lambda x: x.max(0)[0], "place of the largest": lambda x: x.max(0)[1], "softmax": lambda x: x.softmax(0),
    "variance": lambda x: x.var(0, unbiased=False), "deviation and mean": lambda x: torch.std_mean(x, 0, unbiased=False)[1],
    "norm": lambda x: torch.linalg.vector_norm(x, dim=0), "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1),
    "select": lambda x: x.index_select(0, torch.zeros(1, dtype=torch.long)), "running sum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(0)[0], "gather": lambda x: x.gather(0, torch.tensor(0)), "roll": lambda x: x.roll(1),
    "expand": lambda x: x.expand(3), "squeeze": lambda x: x.squeeze(0), "is one true": lambda x: (x > 0).any(0),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_tensors_without_dimensions(name):
    """PyTorch takes the dimensions 0 and -1 of a tensor that has none."""
    def f(x):
        return NUMBERS[name](x * 2) * 1
    x = torch.tensor(-1.5)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f, backend="tilewright")(x), f(x))


def test_rows_and_columns_by_index():
    """x[:, i, j] with an index for each, as of an image that is made larger."""
    torch._dynamo.reset()
    x, rows, columns = torch.randn(2, 5, 7), torch.tensor([3, 0, 0, 4]), torch.tensor([6, 2])

    def f(x, i, j):
        y = torch.relu(x)
        return y[:, i[:, None], j] * 2, y[:, i[:2, None] + j[:, None] * 0, j] * 3
    for i in (rows, rows - 5):  # from the end: PyTorch counts
        for got, want in zip(torch.compile(f, backend="tilewright")(x, i, columns), f(x, i, columns)):
            assert_same(got, want, "elements")
    larger = torch.nn.functional.interpolate
    got = torch.compile(lambda y: larger(torch.relu(y), size=(9, 4)), backend="tilewright")(x[None])
    assert_same(got, larger(torch.relu(x[None]), size=(9, 4)), "an image")


def test_shapes_change():
    """Dynamic shapes: a program for each."""
    torch._dynamo.reset()
    backend.clear_reports()
    f = torch.compile(lambda x: torch.tanh(x) * x, backend="tilewright", dynamic=True)
    for n in (3, 5, 3):
        x = torch.randn(n, 4)
        assert torch.allclose(f(x), torch.tanh(x) * x, atol=1e-6)
    assert len(backend.reports()) == 2 and all(r.programs for r in backend.reports())


def test_frozen_parameters_are_read_once():
    """And again where they have changed: another module, or the same after a step."""
    def made(seed):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(24, 40), torch.nn.BatchNorm1d(40), torch.nn.GELU(), torch.nn.Linear(40, 9)]
        module = torch.nn.Sequential(*layers).eval()
        module[1].running_mean.uniform_(-1, 1)
        return module

    x = torch.randn(7, 24)
    for change in ("step", "buffer", "module", "inference"):
        torch._dynamo.reset()
        backend.clear_reports()
        module = made(1)
        run = torch.compile(module, backend="tilewright", options={"freeze": True})
        context = torch.inference_mode() if change == "inference" else torch.no_grad()
        with context:
            for _ in range(3):
                assert_same(run(x), module(x), change)
            programs = [p for report in backend.reports() for p in report.programs]
            assert len(programs) == 1 and not backend.reports()[0].in_torch
            if change == "step":
                module[0].weight.mul_(2)
            elif change == "buffer":
                module[1].running_mean.add_(1)
            elif change == "module":
                module[3].weight = torch.nn.Parameter(torch.randn(9, 40))
            for _ in range(2):
                assert_same(run(x), module(x), change)
        given = module(x)  # with gradients nothing is frozen
        assert_same(run(x), given, change)


def test_frozen_parameters_are_no_inputs_of_a_call():
    torch._dynamo.reset()
    module = torch.nn.Linear(16, 8).eval()
    calls = []
    real = backend._Program._run

    def counted(program, args):
        calls.append([len(program.loaded[1]), len(program.loaded[2])])
        return real(program, args)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(backend._Program, "_run", counted)
        for freeze in (False, True):
            torch._dynamo.reset()
            torch.compile(module, backend="tilewright", options={"freeze": freeze})(torch.randn(3, 16))
    assert calls == [[3, 0], [1, 2]]


def test_a_plain_function_is_its_program(monkeypatch):
    """From the second call on; what writes its input, returns a part of it or is given one tensor twice gives the same as eager."""
    asked = []
    real = backend._Program.results_of
    monkeypatch.setattr(backend._Program, "results_of", lambda self, args: asked.append(1) or real(self, args))

    def written(x, y):
        x.mul_(2)
        return torch.tanh(x) + y

    functions = {
        "plain": lambda x, y: torch.softmax(x + y, -1), "order": lambda x, y: (torch.exp(y), torch.tanh(x)), "written": written,
        "view": lambda x, y: (x.t(), torch.exp(x) * y), "itself": lambda x, y: (y, torch.exp(x) * 2),
        "twice": lambda x, y: (z := torch.exp(x) * y, z), "parts": lambda x, y: (torch.exp(x) * y).split(2)}
    for name, f in functions.items():
        for same in (False, True):
            torch._dynamo.reset()
            asked.clear()
            run = torch.compile(f, backend="tilewright")
            for seed in range(3):
                torch.manual_seed(seed)
                x, y = torch.randn(4, 6), torch.randn(4, 6)
                given, wanted = ([x, x if same else y], [x.clone(), x.clone() if same else y.clone()])
                if same:
                    wanted[1] = wanted[0]
                got, want = flat(run(*given)), flat(f(*wanted))
                for one, other in zip(got + given, want + wanted, strict=True):
                    assert_same(one, other, (name, same))
                aliases = [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in results for b in inputs]
                           for results, inputs in ((got, given), (want, wanted))]
                assert aliases[0] == aliases[1], (name, same)
            if name == "plain" and not same:
                assert len(asked) == 1  # to be checked


def test_a_wrong_program_is_not_used(monkeypatch):
    torch._dynamo.reset()
    backend.clear_reports()
    run = backend._Program._run
    monkeypatch.setattr(backend._Program, "_run", lambda self, args: [y + 1 for y in run(self, args)])
    x = torch.randn(3, 4)
    f = torch.compile(lambda x: torch.exp(x) * 2, backend="tilewright")
    for _ in range(2):
        assert torch.equal(f(x), torch.exp(x) * 2)
    report, = backend.reports()
    assert not report.programs and "in a program that is wrong" in report.in_torch[0]


def test_bad_options():
    torch._dynamo.reset()
    with pytest.raises(Exception, match="option 'thread' is not accepted"):
        torch.compile(lambda x: x * 2, backend="tilewright", options={"thread": 2})(torch.randn(3))


def test_not_covered_modules_are_named():
    class Products(torch.nn.Module):
        def forward(self, x):
            return torch.cumprod(x, 0) + torch.lgamma(x) + torch.relu(x)

    with pytest.raises(tilewright.InputError) as error:
        tilewright.from_torch(Products(), (torch.randn(3, 4),))
    assert str(error.value).startswith("Products: 2 nodes of the graph cannot be lowered")
    workload = tilewright.from_torch(Products(), (torch.randn(3, 4),), skip=True)
    assert len(workload.not_covered) == 2 and tilewright.plan(workload, "scratchpad:32K")["exact_bytes"] > 0


def test_the_page():
    """What docs/pytorch.md shows, run: it prints what the page says."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```\n\n```\n(.*?)^```", page, re.M | re.S)
    assert blocks
    for code, shown in blocks:
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout == shown
