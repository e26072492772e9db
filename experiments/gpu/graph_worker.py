"""One graph's contestants in one process: ours, XLA, torch.compile in two modes and eager execution, on
the same tensors. Reads a request a line and answers with a line:

    {"do": "open", "workload": "layernorm"}                        versions; the GPU
    {"do": "prepare", "size": "large", "contestant": "xla"}        compiles, checks against float64
    {"do": "time", "size": "large", "rounds": 7}                   wall time, contestants in turn
    {"do": "kernels", "size": "large"}                             what each kernel takes (CUPTI)
    {"do": "rank", "workload": "softmax", "size": "small",         schedules, checked and timed in turn
     "answers": [...], "rounds": 9, "seed": 1}
    {"do": "close"}
"""
import contextlib
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
XLA_FLAGS = ("--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION"
             " --xla_gpu_graph_min_graph_size=1 --xla_gpu_command_buffer_scheduling_mode=SERIALIZE")
os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import torch  # noqa: E402
from graph_contestants import LOCK, Size, Xla, compiled, eager, ours, tune_alone  # noqa: E402
from graph_turns import ranked  # noqa: E402

BATCH_SECONDS, WARM_SECONDS = 10e-3, 50e-3
TOLERANCE = 1e-4  # relative Frobenius error in f32, sums of 32,768 elements among it


def make(size, contestant, request):
    if contestant in ("ours", "tuned"):
        with LOCK:
            return ours(size, request["answer"])
    if contestant == "xla":
        return Xla(size)
    if contestant == "eager":
        with LOCK:
            return eager(size)
    return compiled(size, {"compile": None, "autotune": "max-autotune-no-cudagraphs"}[contestant])


def reason_of(problem):
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:400]


def interleaved(contestants, rounds):
    """({name: seconds a run, round by round}, {name: launches a round}, {name: why not}); who begins
    changes from round to round."""
    times, failed = {}, {}
    for name, c in contestants.items():
        try:
            start = time.monotonic()
            while time.monotonic() - start < WARM_SECONDS:  # the clock rises
                c.seconds(3)
            times[name] = max(2, math.ceil(BATCH_SECONDS / max(c.seconds(3), 1e-6)))
        except Exception as problem:  # out of memory, say: the others go on
            failed[name] = {"reason": reason_of(problem)}
    names, found = list(times), {name: [] for name in times}
    for r in range(rounds):
        for name in names[r % len(names):] + names[:r % len(names)]:
            c = contestants[name]
            found[name].append(c.seconds(times[name]) / c.runs)
    return found, times, failed


def traced(launch):
    """What the GPU did during launch(): [(category, name, seconds, correlation)]."""
    from torch.profiler import ProfilerActivity, profile
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        launch()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        p.export_chrome_trace(path)
        events = json.load(open(path))["traceEvents"]
    return [(e["cat"], e["name"], e["dur"] * 1e-6, e.get("args", {}).get("correlation"))
            for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]


def kernel_times(c):
    """Summed over what one run does on the GPU, copies and fills included."""
    launches = 3
    events = traced(lambda: c.launch(launches))
    if not events:
        return {"kernels_reason": "the profiler has seen no kernel"}
    runs = launches * c.runs
    by_name = {}
    for category, name, seconds, _ in events:
        n, total = by_name.get(name, (0, 0.0))
        by_name[name] = (n + 1, total + seconds)
    found = {"kernel_seconds": sum(e[2] for e in events) / runs,
             "kernels_a_run": sum(e[0] == "kernel" for e in events) / runs,
             "copies_a_run": sum(e[0] != "kernel" for e in events) / runs,
             "host_launches_a_run": len({e[3] for e in events}) / runs,
             "kernels": [{"name": name[:160], "a_run": n / runs, "seconds": total / runs}
                         for name, (n, total) in sorted(by_name.items(), key=lambda x: -x[1][1])[:12]]}
    if isinstance(c, Xla):
        alone = traced(c.single)
        found["single_run"] = {"kernel_seconds": sum(e[2] for e in alone),
                               "kernels": sum(e[0] == "kernel" for e in alone),
                               "copies": sum(e[0] != "kernel" for e in alone)}
        if found["kernels_a_run"] < found["single_run"]["kernels"]:
            # Runs were merged after all: what was timed is less than the work.
            found["reason"] = "the executable of all runs has fewer kernels a run than that of one run"
    return found


class Session:
    def __init__(self):
        self.workload, self.sizes = None, {}

    def open(self, request):
        self.workload = request["workload"]
        said = {"torch": torch.__version__, "cuda": torch.version.cuda,
                "device": torch.cuda.get_device_name(), "note": tune_alone(), "xla_flags": os.environ["XLA_FLAGS"]}
        torch.backends.cuda.matmul.allow_tf32 = False
        import jax
        import triton
        return {**said, "jax": jax.__version__, "triton": triton.__version__,
                "jax_device": jax.devices()[0].device_kind}

    def size(self, name):
        if name not in self.sizes:
            with LOCK:
                self.sizes[name] = Size(self.workload, name)
        return self.sizes[name]

    def prepare(self, request):
        size = self.size(request["size"])
        start = time.monotonic()
        contestant = make(size, request["contestant"], request)
        seconds = time.monotonic() - start
        with LOCK:
            error = size.error(contestant)
        said = {"relative_error": error if math.isfinite(error) else None, "prepare_seconds": seconds, "timed_by": contestant.timed_by}
        if not error <= TOLERANCE:
            return {**said, "reason": f"wrong: relative error {error:.1e}, at most {TOLERANCE:.0e}"}
        size.contestants[request["contestant"]] = contestant
        return said

    def time(self, request):
        size = self.size(request["size"])
        found, times, failed = interleaved(size.contestants, request["rounds"])
        said = {name: {"seconds_median": statistics.median(s), "seconds_min": min(s), "seconds_max": max(s),
                       "seconds_rounds": s, "launches_a_round": times[name]} for name, s in found.items()}
        if "xla" in found:
            calls = size.contestants["xla"]
            once = calls.call_seconds(20)
            many = max(20, math.ceil(BATCH_SECONDS / once))
            said["xla"]["calls_seconds_median"] = statistics.median(
                calls.call_seconds(many) for _ in range(request["rounds"]))
        return {**size.about(), "contestants": {**said, **failed}}

    def kernels(self, request):
        size = self.size(request["size"])
        said = {}
        for name, contestant in size.contestants.items():
            try:
                said[name] = kernel_times(contestant)
            except Exception as problem:
                said[name] = {"kernels_reason": reason_of(problem)}
        return {"contestants": said}

    def rank(self, request):
        torch.backends.cuda.matmul.allow_tf32 = False
        return {"points": ranked(request, TOLERANCE)}


def main():
    out, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr  # libraries print what they like
    os.dup2(2, 1)
    session = Session()
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "close":
            break
        try:
            said = getattr(session, request["do"])(request)
        except Exception as problem:  # whatever a compiler may throw is that contestant's outcome
            traceback.print_exc()
            with contextlib.suppress(Exception):
                torch.cuda.empty_cache()
            said = {"reason": reason_of(problem)}
        print(json.dumps(said), file=out, flush=True)
    os._exit(0)  # compilers leave pools of processes that would be waited for


if __name__ == "__main__":
    main()
