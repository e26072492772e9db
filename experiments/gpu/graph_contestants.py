"""A graph at one size and its contestants: inputs, what float64 says, and each way to run it.

All but XLA are captured in CUDA graphs of several runs. XLA gets an executable of as many runs, one after
the other, which it launches as one command buffer. Runs go through sets of tensors that together exceed
twice the L2. Benchmarks that compilers make while they tune hold a lock, so that processes side by side
do not disturb one another's.
"""
import fcntl
import math
import os
import time

import graph_functions as graphs
import graph_torch
import torch

MOST_RUNS, MOST_OUTPUT_BYTES = 20, 1 << 29  # of one graph or executable


class Lock:
    """Of the GPU among the processes of one comparison; may be taken again by its holder."""

    def __init__(self, path):
        self.file, self.depth = open(path, "w"), 0

    def __enter__(self):
        if self.depth == 0:
            fcntl.flock(self.file, fcntl.LOCK_EX)
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if self.depth == 0:
            try:  # after a fault this throws, and the others must not wait for ever
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
            finally:
                fcntl.flock(self.file, fcntl.LOCK_UN)


LOCK = Lock(os.environ.get("TILEWRIGHT_GPU_LOCK") or os.devnull)


def tune_alone():
    """Inductor's benchmarks of its candidates under the lock; says what it could not find."""
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
        bench = CachingAutotuner.bench

        def alone(*args, **kwargs):
            with LOCK:
                return bench(*args, **kwargs)
        CachingAutotuner.bench = alone
        return None
    except (ImportError, AttributeError) as why:
        return f"inductor's benchmarks are not alone on the GPU: {why}"


def frobenius(got, reference):
    """Relative error of a tensor in the Frobenius norm."""
    norm = torch.linalg.vector_norm(reference)
    return (torch.linalg.vector_norm(got.double() - reference) / norm).item()


def worst(errors):
    """The largest; a NaN among them stays one."""
    return max(errors, key=lambda e: math.inf if math.isnan(e) else e)


def draw(text, seed, device):
    """Inputs by name: uniform in [-1, 1), indices in range."""
    generator = torch.Generator(device=device).manual_seed(seed)
    name, shapes = graphs.name_of(text), graphs.shapes(text)
    below = graphs.index_range(name, shapes)
    return {t: torch.randint(below[t], shape, generator=generator, device=device, dtype=torch.int32)
            if t in below else torch.rand(shape, generator=generator, device=device).mul_(2).sub_(1)
            for t, shape in shapes.items()}


def in_float64(tensors):
    return {t: v.double() if v.is_floating_point() else v for t, v in tensors.items()}


class Size:
    """A graph at one size: its sets of inputs and its contestants."""

    def __init__(self, workload, size):
        self.workload, self.text = workload, graphs.subject(workload, size)
        self.names, self.function = graphs.OUTPUTS[workload], graph_torch.function(workload)
        first = draw(self.text, 1, "cuda")
        self.input_bytes = sum(v.nbytes for v in first.values())
        with torch.no_grad():
            outputs = self.function(**first)
        self.shapes = {n: tuple(y.shape) for n, y in zip(self.names, outputs)}
        self.output_bytes = sum(y.nbytes for y in outputs)
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        count = 2 * l2 // (self.input_bytes + self.output_bytes) + 1
        self.sets = [first] + [draw(self.text, 1 + i, "cuda") for i in range(1, count)]
        runs = max(4, min(MOST_RUNS, MOST_OUTPUT_BYTES // self.output_bytes))
        self.runs = max(count, runs // count * count)
        self.contestants = {}

    def about(self):
        return {"subject": self.text, "input_bytes": self.input_bytes, "output_bytes": self.output_bytes,
                "sets": len(self.sets), "runs_a_launch": self.runs}

    def error(self, contestant):
        """The largest over outputs and over the first and the last set of inputs."""
        found = []
        for i in sorted({0, len(self.sets) - 1}):
            reference = self.function(**in_float64(self.sets[i]))
            for got, right in zip(contestant.outputs(i), reference):
                found.append(frobenius(got.reshape(right.shape), right))
            del reference
            torch.cuda.empty_cache()
        return worst(found)


class Captured:
    """Runs of a function on PyTorch's stream, captured in a CUDA graph."""

    timed_by = "CUDA events around launches of a CUDA graph"

    def __init__(self, size, run):
        """run(i) enqueues a run on set i and returns its outputs."""
        self.runs, self.kept = size.runs, [None] * len(size.sets)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run(0)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        # Another thread, one of JAX say, may allocate meanwhile.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            for r in range(size.runs):
                i = r % len(size.sets)
                self.kept[i] = None  # its memory is that of the outputs that come now
                self.kept[i] = run(i)
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.launch(1)

    def launch(self, times):
        for _ in range(times):
            self.graph.replay()
        torch.cuda.synchronize()

    def seconds(self, times):
        """A launch's, over `times` of them."""
        self.events[0].record()
        for _ in range(times):
            self.graph.replay()
        self.events[1].record()
        self.events[1].synchronize()
        return self.events[0].elapsed_time(self.events[1]) * 1e-3 / times

    def outputs(self, i):
        self.launch(1)
        return self.kept[i]


def eager(size):
    with torch.no_grad():
        return Captured(size, lambda i: size.function(**size.sets[i]))


def compiled(size, mode):
    function = torch.compile(size.function, dynamic=False, mode=mode)
    with torch.no_grad():
        function(**size.sets[0])  # compiles; tunes under the lock
        with LOCK:
            return Captured(size, lambda i: function(**size.sets[i]))


def home(size, answer):
    """Every set's tensors by name, inputs, outputs and what passes from one kernel to the next, NaN at first."""
    # The last as large as the command says.
    sizes = {t: n for t, n in answer["tensor_elements"].items() if t not in size.shapes and t not in size.sets[0]}
    made = {**size.shapes, **{t: (n,) for t, n in sizes.items()}}
    return [{**inputs, **{t: torch.full(s, float("nan"), dtype=torch.float32, device="cuda")
                          for t, s in made.items()}} for inputs in size.sets]


def ours(size, answer, full=None):
    import emitted
    kernels = emitted.Kernels(answer)
    full = full or home(size, answer)

    def run(i):
        kernels.run(full[i])
        return [full[i][n] for n in size.names]
    contestant = Captured(size, run)
    contestant.kernels, contestant.full = kernels, full  # the graph uses them as long as it lives
    return contestant


class Xla:
    """An executable of all runs, each after the one before; and one of a single run, for calls."""

    timed_by = "the host's clock around launches of an executable of all runs, a command buffer"
    WINDOW = 2  # launches under way beside the last, each with outputs of its own

    def __init__(self, size):
        import jax
        ops = graphs.jax_ops()
        self.jax, self.size, self.runs = jax, size, size.runs
        self.sets = [{t: jax.dlpack.from_dlpack(v) for t, v in s.items()} for s in size.sets]
        compute = graphs.function(size.workload)

        def one(inputs):
            return compute(ops, **inputs)

        def many(sets):
            results, before = [], None
            for r in range(size.runs):
                inputs = sets[r % len(sets)]
                if before is not None:  # so that runs are neither merged nor side by side
                    inputs, before = jax.lax.optimization_barrier((inputs, before))
                before = one(inputs)
                results.append(before)
            return results
        self.one, self.many = jax.jit(one), jax.jit(many)
        jax.block_until_ready(self.one(self.sets[0]))
        self.launch(2)

    def launch(self, times):
        for _ in range(times):
            self.jax.block_until_ready(self.many(self.sets))

    def _seconds(self, call, times):
        under_way, start = [], time.perf_counter()
        for n in range(times):
            under_way.append(call(n))
            if len(under_way) > self.WINDOW:
                self.jax.block_until_ready(under_way.pop(0))
        self.jax.block_until_ready(under_way)
        return (time.perf_counter() - start) / times

    def seconds(self, times):
        return self._seconds(lambda _: self.many(self.sets), times)

    def call_seconds(self, times):
        """A run's, where the host calls the executable of one run again and again."""
        return self._seconds(lambda n: self.one(self.sets[n % len(self.sets)]), times)

    def single(self):
        self.jax.block_until_ready(self.one(self.sets[0]))

    def outputs(self, i):
        # Of the executable that is timed: the last run on that set.
        result = self.many(self.sets)
        last = max(r for r in range(self.runs) if r % len(self.sets) == i)
        return [torch.from_dlpack(y) for y in self.jax.block_until_ready(result[last])]
