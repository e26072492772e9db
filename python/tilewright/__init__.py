"""How much data will a plan for fused tensor kernels move, and is that true?

Each verb of the ``tilewright`` command is a function here. It takes what the command line takes and
returns the same JSON document, as an :class:`Answer`: a dict that is also a table (``frame()`` for
pandas, ``arrays()`` for NumPy) and a picture (``plot()``):

>>> import tilewright
>>> best = tilewright.plan("gemm-chain:m=512,n=64,k=64,l=512", "scratchpad:32K")
>>> best["exact_bytes"], best["plan"]["kernels"][0]["tree"]
(2621440, 'm n l ( k ( C.gemm1 ) C.gemm2 )')
>>> true = tilewright.simulate(best)
>>> int(true.arrays()["read_bytes"].sum() + true.arrays()["written_bytes"].sum())
2621440
>>> list(true.frame().columns[:4])
['tensor', 'boundary', 'read_bytes', 'written_bytes']
>>> report = tilewright.validate("gemm-chain", "cache:32K/8", orders=["mlkn"], samples=20, seed=1)
>>> report["valid"], len(report["points"])
(20, 20)

A workload is a built-in name, the path of a workload file, or what such a file says as a dict. A
plan is the path of a plan file, such a file as a dict, the answer of :func:`plan`, or a workload
with ``tree`` and ``tiles``. A machine is a name, the path of a machine file, or such a file as a
dict.

Bad input raises :class:`InputError`, a ``ValueError`` of one line that names what, where and what
is accepted. An outcome that says no (nothing fits, not available, below the R² asked for) is an
answer like any other, with its ``"reason"``; with ``check=True`` it raises :class:`Refused`. Verbs let
other Python threads run. Models written in Python (:class:`Model`, :func:`register`) are asked like the
built-in ones.
"""

import difflib as _difflib
import inspect as _inspect
import json as _json
import math as _math
import os as _os

from ._tilewright import InputError, call as _call
from .answer import Answer
from .model import (Access, Buffer, Choice, Infeasible, Kernel, Level, Machine, Model, Node, Operator, Price,
                    Question, Tensor, Workload, register, unregister)
from .sweeps import read_rows, sweep

__version__ = "0.1.0"


class Refused(RuntimeError):
    """An outcome that says no, raised with ``check=True``; ``answer`` is the whole document."""

    def __init__(self, reason, answer):
        super().__init__(reason)
        self.answer = answer


# One record an option: what it is, and its default in parentheses.
_OPTIONS = {
    "rewrite": "the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a "
               "list of such, in order",
    "model": "the model, a name of models()",
    "tree": "a loop tree in place: 'm l ( k ( C.gemm1 ) n ( C.gemm2 ) )'",
    "tiles": "tile sizes by loop: {'m': 64} or 'm=64'",
    "pins": "with tree: {'C': 'dram'}, or {'C': 'L1@m'} from a loop's body on",
    "flags": "with tree: {'C': 'sliding'}, {'rowmax': 'running'}",
    "level": "the level planned for (the innermost on-chip one), or 'all'",
    "capacity": "instead of the level's: bytes, or '32K', or elements as '262144e'",
    "order": "an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'",
    "reading": "Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'",
    "edges": "tiles at the edges: 'full' (default; validate: 'exact') or 'exact'",
    "memory": "memory use: 'creq' (default), 'paper', 'sum'",
    "objective": "with level='all', of the levels' costs: 'largest' (default), 'sum'",
    "write_weight": "what an output's movement counts (1)",
    "min_tile": "the smallest tile tried (1)",
    "expression": "MCFuser's tiling expression in the workload's loops: 'mnlk', 'ml(k,n)'",
    "hoist": "MCFuser: how far loads leave loops: 'dag' (default), 'block', 'scope', 'none'",
    "rule1": "MCFuser: spatial loops bound to blocks: 'between' (default), 'always'",
    "rule4": "MCFuser: tensors of the estimate: 'loaded' (default), 'all'",
    "stores": "MCFuser: an output kept over its reduction: 'once' (default), 'each'",
    "phi": "MCFuser: the ratio's output: 'written-once' (default), 'printed'",
    "rules": "MCFuser: the rules that prune ('1,2,3,4'), or 'none'",
    "slack": "MCFuser, rule 4: times the shared memory (1.2)",
    "padding": "MCFuser, rule 3: part of a dimension (0.05)",
    "tile_step": "MCFuser: tiles are multiples of it (16)",
    "search": "MCFuser: 'exhaustive' (default) or 'evolutionary'",
    "population": "evolutionary: N (512)",
    "top": "evolutionary: measured a round (8)",
    "epsilon": "evolutionary: part of the best (0.001)",
    "patience": "evolutionary: rounds within epsilon that end it (4)",
    "generations": "evolutionary: rounds at most (200)",
    "no_guard": "evolutionary: the last round's best, as Algorithm 1 prints it (False)",
    "stitch": "FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}",
    "models": "the models to compare, with commas between ('all')",
    "layout": "tensors in memory: 'tiled' (default) or 'row-major'",
    "seed": "of everything random (1)",
    "threads": "threads (every core; run, simulate: 1)",
    "resolved": "of a plan: the schedule, every default made visible (False)",
    "curve": "explain: the least bytes by buffer size, fused and not; simulate: misses of LRU caches "
             "of every size (False)",
    "trace": "a recorded trace's file instead of a plan: din, lackey or save_trace's",
    "save_trace": "a file for what the innermost cache is touched with",
    "attribute": "misses by kind, who evicted whom, which loop pays (False; slow)",
    "no_skip": "walk iterations that only repeat themselves too; the counts are the same (False)",
    "occupancy": "a file for the lines that each tensor holds over time: .csv, or .json, which plot and "
                 "chrome://tracing read",
    "timeline": "target 'npu': a file for what every pipe does when: .svg (core 0), or .json for Perfetto and "
                "chrome://tracing",
    "stride": "of occupancy, in accesses (512 to 1024 samples)",
    "cores": "cores that blocks are dealt to, sharing the outer caches (1)",
    "schedule": "GPU: blocks are 'timed' (default), in 'lockstep', or 'serial'",
    "blocks_per_sm": "GPU: blocks that an SM holds (by memory, at most 8)",
    "partitions": "GPU: of L2: 1 (default), or 2 that copy what the other one is home of",
    "jitter": "GPU: how far a block's pace is off, at most (0.1)",
    "sample_waves": "GPU: approximate: so many waves of blocks stand for all",
    "target": "'cpu', 'cuda', 'cuda-emulated' or 'npu', see targets(); plan: tiles suit its "
              "micro-kernel",
    "isa": "'avx512_bf16', 'avx512', 'avx2' or 'generic' (the widest that runs here)",
    "micro_kernel": "'6x4', '5x5', '6x2', '4x3' or 'scalar'; cuda: 'mma', 'wmma2x2', 'simt' (the one "
                    "that fits each product)",
    "warps": "cuda: warps that compute, a block (by the tiles)",
    "stages": "cuda: copies of a loaded tile (two where they fit)",
    "arch": "cuda: built for 'sm_80', 'sm_90a' (the device's; emit: both)",
    "cache": "cuda: a folder where built kernels are kept and found again",
    "cold": "cuda: time on tensors in turn that are together larger than L2 (False)",
    "build_only": "cuda: build, and stop before a device is needed (False)",
    "count": "cuda: run each verified kernel once more for a profiler; not timed (False)",
    "seconds": "of timing, about (2 on cpu, 0.25 on cuda)",
    "batch": "cuda: a file of many runs, a JSON object of options a line; the subject is then None",
    "prefetch": "ask for the lines of tiles in place before they are used (False)",
    "meter": "what measures: 'cachegrind' (default), 'perf', 'likwid', 'pcm', 'ncu', see meters()",
    "cold_only": "ncu: count only with caches emptied before every kernel: half the time (False)",
    "executed": "also every address executed, through simulated caches, and the causes (False)",
    "out": "the file (plan, run with a batch) or folder (emit, reproduce) to write",
    "orders": "the orders to validate: a list, or 'mlkn,mlnk' (the model's best)",
    "samples": "tilings an order (60); explain: candidates drawn from MCFuser's pruned space",
    "size": "of the kernels: 'small', 'medium' (default) or 'large'",
    "all": "every experiment; those that are finished stay as they are (False)",
    "data": "the folder where counted misses lie ('../shared/data/polybench-papi'), or recordings ('experiments/results')",
    "truth": "what the prediction is held against: 'simulator' (default) or a meter",
    "min_r2": "the least R² about y = x; below it the answer is refused",
    "beyond": "tilings past half the capacity too, in a block of their own (False)",
    "spill": "an intermediate that goes home and back (Chimera's Fig. 8 f)",
    "csv": "a file for the points",
    "recorded": "truth 'ncu', 'cuda-events': a file that experiments/gpu/counters has written, instead of a GPU",
}

_PLAN = ["rewrite", "model", "tree", "tiles", "pins", "flags", "level", "capacity", "order"]
_MODEL = ["reading", "edges", "memory", "objective", "write_weight", "min_tile",
          "stitch"]
_FUSER = ["hoist", "rule1", "rule4", "stores", "phi", "rules", "slack", "padding", "tile_step",
          "search", "population", "top", "epsilon", "patience", "generations", "no_guard", "seed"]


def _assignments(value):
    if isinstance(value, dict):
        return [f"{name}={item}" for name, item in value.items()]
    return [value] if isinstance(value, str) else list(value)


def _orders(value):
    if isinstance(value, str):
        return value.split(";" if ";" in value else ",")
    return [_order(order) for order in value]


def _order(value):
    return value if isinstance(value, str) else ",".join(value)


def _capacity(value):
    return f"{value}B" if isinstance(value, int) and not isinstance(value, bool) else value


def _subject(value):
    if isinstance(value, dict):
        return value["plan"] if isinstance(value.get("plan"), dict) else value
    return _os.fspath(value)


def _machine(value):
    return value if value is None or isinstance(value, dict) else _os.fspath(value)


def _names(value):
    return [value] if isinstance(value, str) else list(value)


def _tiles(value):
    return ",".join(_assignments(value))


# From what is convenient in Python to what the command line says.
_CONVERT = {
    "subject": _subject,
    "machine": _machine,
    "tiles": _tiles,
    "pins": _assignments,
    "flags": _assignments,
    "stitch": _assignments,
    "rewrite": _names,
    "order": _order,
    "orders": _orders,
    "capacity": _capacity,
    "out": _os.fspath,
    "csv": _os.fspath,
    "recorded": _os.fspath,
    "trace": _os.fspath,
    "batch": _os.fspath,
    "cache": _os.fspath,
    "save_trace": _os.fspath,
    "occupancy": _os.fspath,
    "timeline": _os.fspath,
}


def _plain(name, value):
    """Numbers of other libraries become Python's; what JSON cannot say is bad input."""
    if hasattr(value, "item") and not isinstance(value, (str, dict, list, tuple)):
        value = value.item()
    if isinstance(value, float) and not _math.isfinite(value):
        raise InputError(f"{name}: {value} is not accepted; accepted: a finite number")
    return value


def _ask(verb, options, check):
    asked = {}
    for name, value in options.items():
        value = _plain(name, value)
        if value is None:
            continue
        try:
            asked[name] = _CONVERT.get(name, lambda v: v)(value)
        except TypeError:
            raise InputError(f"{name}: {value!r} is not accepted; accepted: "
                             + _OPTIONS.get(name, "a name, a path or a dict")) from None
    try:
        text = _json.dumps(asked, default=lambda v: _plain("options", v.item()))
    except (AttributeError, TypeError, ValueError) as e:
        raise InputError(f"{verb}: an option is not accepted: {e}") from None
    document, done = _call(verb, text)
    answer = Answer(_json.loads(document))
    if check and not done:
        raise Refused(answer.get("reason", "refused"), answer)
    return answer


def _verb(name, positional, options, doc):
    """A function of that verb, with a signature and a docstring made from the option records."""
    parameter = _inspect.Parameter
    signature = _inspect.Signature(
        [parameter(p, parameter.POSITIONAL_OR_KEYWORD,
                   default=None if p in ("machine", "id") else parameter.empty) for p in positional]
        + [parameter(o, parameter.KEYWORD_ONLY, default=None) for o in options]
        + [parameter("check", parameter.KEYWORD_ONLY, default=False)])

    def function(*args, **kwargs):
        unknown = [k for k in kwargs if k not in signature.parameters]
        if unknown:
            near = _difflib.get_close_matches(unknown[0], signature.parameters, 1)
            raise TypeError(f"{name}() has no option '{unknown[0]}'"
                            + (f"; did you mean '{near[0]}'?" if near else ""))
        given = signature.bind(*args, **kwargs).arguments
        check = given.pop("check", False)
        if positional:
            given["subject"] = given.pop(positional[0])
        return _ask(name, given, check)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature
    function.__module__ = __name__
    lines = [f"    {o}: {_OPTIONS[o]}" for o in options]
    lines.append("    check: raise Refused where the outcome says no (False)")
    function.__doc__ = doc + "\n\nOptions:\n" + "\n".join(lines) + "\n"
    return function


def _list(name, doc):
    return _verb(name, [], [], doc)


models = _list("models", "The cost models: source, assumptions, options.")
machines = _list("machines", "The machines that are known by name.")
workloads = _list("workloads", "The built-in workloads and their parameters.")
targets = _list("targets", "What code can be generated for, and whether it is usable here.")
meters = _list("meters", "What can measure a kernel, and whether it is usable here.")
experiments = _list("experiments", "The tables and figures that reproduce() knows.")

explain = _verb(
    "explain", ["subject", "machine"],
    _PLAN + _MODEL + ["expression"] + _FUSER + ["samples", "resolved", "curve", "out"],
    "Prices every order of a workload, ranked; or shows a plan's schedule; or (curve=True) says\n"
    "what any plan must move, by buffer size.\n\n"
    "Returns {'orders': [{'order', 'legal', 'reason', 'volume_elements', 'memory_elements',\n"
    "'tensors'}]}.")
plan = _verb(
    "plan", ["workload", "machine"],
    ["rewrite", "model", "level", "capacity", "target"] + _MODEL + _FUSER + ["out"],
    "A model's best plan for a workload on a machine.\n\n"
    "Returns {'plan', 'volume_bytes', 'bound_bytes', 'gap', ...}, which simulate() takes.")
predict = _verb(
    "predict", ["subject", "machine"], _PLAN + _MODEL + ["expression"] + _FUSER,
    "One model's price of a plan.\n\n"
    "Returns a traffic document: {'source': 'predicted', 'traffic': [{'tensor', 'boundary',\n"
    "'read_bytes', 'written_bytes'}], ...}.")
compare = _verb(
    "compare", ["workload", "machine"], ["rewrite", "models", "level", "capacity"] + _MODEL + _FUSER,
    "Every model's plan, priced by every model, by exact and by the simulator.\n\n"
    "Returns {'bound_bytes', 'plans': [{'model', 'tree', 'exact_bytes', 'simulated_bytes', 'gap',\n"
    "'prices': [{'by', 'volume_bytes', 'difference_bytes', 'causes'}]}]}.")
simulate = _verb(
    "simulate", ["subject", "machine"],
    _PLAN + _MODEL + ["expression"] + _FUSER +
    ["layout", "trace", "save_trace", "curve", "csv", "attribute", "occupancy",
     "stride", "no_skip", "cores", "threads", "schedule", "blocks_per_sm", "partitions", "jitter",
     "sample_waves"],
    "What a plan moves, by a walk over its accesses; or a recorded trace (subject None, trace=FILE).\n\n"
    "Returns a traffic document as predict() does, with 'source': 'simulated'.")
emit = _verb(
    "emit", ["subject", "machine"],
    _PLAN + _MODEL + ["target", "isa", "micro_kernel", "prefetch", "out", "threads", "warps",
                      "stages", "arch", "cache"],
    "Writes a plan's generated source, and how to build it, into the folder out.")
run = _verb(
    "run", ["subject", "machine"],
    _PLAN + _MODEL + ["target", "isa", "micro_kernel", "prefetch", "seed", "threads", "seconds",
                      "warps", "stages", "arch", "cache", "cold", "build_only", "count", "timeline",
                      "batch", "out"],
    "Emits, builds, verifies against the reference evaluator and times a plan's kernel.\n\n"
    "Returns {'verified', 'relative_error', 'seconds_median', 'gflops', 'peak_gflops', ...}.")
measure = _verb(
    "measure", ["subject", "machine"],
    _PLAN + _MODEL + ["target", "meter", "cold_only", "executed", "isa", "micro_kernel", "prefetch", "seed", "threads",
                      "warps", "stages", "arch", "cache", "build_only", "batch", "out"],
    "What a plan's verified kernel moves, by a meter.\n\n"
    "Returns a traffic document as predict() does, of one tensor 'total', with 'counters' and 'notes';\n"
    "with executed=True 'comparison': plan, executed addresses and meter, and every difference's cause.\n"
    "target='cuda', meter='ncu': also 'predicted' and 'counted'; with a batch {'results': [...]}.")
validate = _verb(
    "validate", ["workload", "machine"],
    ["rewrite", "model", "level", "capacity", "order", "orders", "samples", "truth", "min_r2", "beyond",
     "spill", "csv", "recorded"] + _MODEL + ["layout", "seed", "threads"],
    "Predicted against true bytes over many tilings.\n\n"
    "Returns {'r2_identity', 'r2_fit', 'mape', 'worst', 'bias', 'points': [{'order', 'tiles',\n"
    "'predicted_bytes', 'true_bytes'}], ...}.")
reproduce = _verb(
    "reproduce", ["id"], ["all", "out", "samples", "size", "data", "threads"],
    "A paper's table or figure: our numbers beside the paper's. Writes into the folder out. Of a paper\n"
    "('chimera'), or with all=True (and id None): each into out/ID, those that are finished left as they\n"
    "are.")

__all__ = [
    "Access", "Answer", "Buffer", "Choice", "Infeasible", "InputError", "Kernel", "Level", "Machine", "Model",
    "Node", "Operator", "Price", "Question", "Refused", "Tensor", "Workload", "compare", "emit",
    "experiments", "explain", "machines", "measure", "meters", "models", "plan", "predict",
    "read_rows", "register", "reproduce", "run", "simulate", "sweep", "targets", "unregister", "validate", "workloads",
]
