# Written by scripts/docs from the command's records.
from os import PathLike
from typing import Any, Mapping, Sequence

from .answer import Answer as Answer
from .model import (
    Access as Access,
    Buffer as Buffer,
    Choice as Choice,
    Infeasible as Infeasible,
    Kernel as Kernel,
    Level as Level,
    Machine as Machine,
    Model as Model,
    Node as Node,
    Operator as Operator,
    Price as Price,
    Question as Question,
    Tensor as Tensor,
    Workload as Workload,
    register as register,
    unregister as unregister,
)
from .pytorch import TorchWorkload as TorchWorkload, from_torch as from_torch
from .sweeps import read_rows as read_rows, sweep as sweep

__version__: str
__all__: list[str]

class InputError(ValueError): ...

class Refused(RuntimeError):
    answer: Answer
    def __init__(self, reason: str, answer: Answer) -> None: ...

def machine(name: str | PathLike[str]) -> Answer: ...
def workload(name: str | PathLike[str], rewrite: str | Sequence[str] | None = ..., **parameters: int | str) -> Answer: ...

def calibrate(
    machine: str | PathLike[str] | Mapping[str, Any] | None = ..., *, out: str | PathLike[str] |
    None = ..., check: bool = ...
) -> Answer:
    """Measure this machine into a machine file that -m FILE reads.

    Returns {'numbers': [{'name', 'seconds', 'spread', 'samples', 'date'}], 'scattered', 'written'}.

    Options:
        out: the machine file to write
        check: raise Refused where the outcome says no (default False)
    """

def compare(
    workload: str | PathLike[str] | Mapping[str, Any], machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., models: str |
    Sequence[str] | None = ..., split: str | None = ..., level: str | None = ..., capacity: int
    | str | None = ..., seed: int | None = ..., published: bool | None = ..., ours: bool | None
    = ..., reading: str | None = ..., edges: str | None = ..., memory: str | None = ...,
    objective: str | None = ..., write_weight: float | None = ..., min_tile: int | None = ...,
    expression: str | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4: str |
    None = ..., stores: str | None = ..., phi: str | None = ..., rules: str | None = ..., slack:
    float | None = ..., padding: float | None = ..., tile_step: int | None = ..., search: str |
    None = ..., population: int | None = ..., top: int | None = ..., epsilon: float | None =
    ..., patience: int | None = ..., generations: int | None = ..., no_guard: bool | None = ...,
    top_k: int | None = ..., group: int | None = ..., beam: int | None = ..., last_step: str |
    None = ..., alone: str | None = ..., remote: str | None = ..., skip: str | None = ...,
    xla_seed: str | None = ..., most_operators: int | None = ..., call_us: float | None = ...,
    registers: int | None = ..., penalty: str | None = ..., pick: str | None = ..., groupings:
    str | None = ..., product: str | None = ..., written: str | None = ..., latency: str | None
    = ..., bandwidth: str | None = ..., compose: str | None = ..., schedule_rank: int | None =
    ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., criterion: str | None
    = ..., fit: str | None = ..., visit: str | None = ..., ci: str | None = ..., threshold:
    float | None = ..., subprograms: str | None = ..., schedules: str | Mapping[str, object] |
    None = ..., horizontal: str | None = ..., concat: str | None = ..., pack: str | None = ...,
    vertical: str | None = ..., global_sync: str | None = ..., reuse: str | None = ..., units:
    str | None = ..., pipeline: str | None = ..., sync: str | None = ..., reduction: str | None
    = ..., step: str | None = ..., launch_us: float | None = ..., sync_us: float | None = ...,
    scope: str | None = ..., swap: str | None = ..., duplicate: str | None = ..., library: str |
    None = ..., ridge: float | None = ..., merges: str | None = ..., exact: int | None = ...,
    width: int | None = ..., price_by: str | None = ..., kernel_us: float | None = ..., cluster:
    str | None = ..., block_tile: int | None = ..., busy: str | None = ..., dsm_bandwidth: float
    | None = ..., shared_width: float | None = ..., register_part: float | None = ...,
    xla_launch_us: float | None = ..., xla_parallelism: float | None = ..., xla_l2_speedup:
    float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int | None = ...,
    xla_duplicate: str | None = ..., xla_multi_output: str | None = ..., xla_products: str |
    None = ..., inductor_reads: int | None = ..., inductor_gathered_reads: int | None = ...,
    inductor_operations: int | None = ..., inductor_unrolled: int | None = ..., inductor_nests:
    int | None = ..., inductor_shared_bytes: int | None = ..., inductor_overlap: str | None =
    ..., inductor_reorder: str | None = ..., inductor_phases: str | None = ...,
    inductor_products: str | None = ..., why: bool | None = ..., as_written: bool | None = ...,
    check: bool = ...
) -> Answer:
    """Every model's plan, priced by every model and by the simulator.

    Returns {'bound_bytes', 'plans': [{'model', 'tree', 'exact_bytes', 'simulated_bytes', 'gap',
    'prices': [{'by', 'volume_bytes', 'difference_bytes', 'causes'}]}]}.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        models: the models to compare, with commas between (default all)
        split: how to cut a network into layers, as in plan split; each layer is priced (each, contractions or followed; default of an ONNX file followed)
        level: the memory level to plan for, or all (default: the innermost on chip)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        seed: seed of all random numbers (default 1)
        check: raise Refused where the outcome says no (default False)

    Options of models: help(tilewright.compare).
    """

def doctor(
    *, check: bool = ...
) -> Answer:
    """What works on this machine, what is missing, and what to try next.

    Returns {'host', 'parts': [{'name', 'kind', 'usable', 'reason', 'help'}], 'next'}.

    Options:
        check: raise Refused where the outcome says no (default False)
    """

def emit(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, object] | None = ..., pins:
    str | Sequence[str] | Mapping[str, object] | None = ..., flags: str | Sequence[str] |
    Mapping[str, object] | None = ..., level: str | None = ..., order: str | Sequence[str] |
    None = ..., capacity: int | str | None = ..., target: str | None = ..., threads: int | None
    = ..., seed: int | None = ..., explain: bool | None = ..., out: str | PathLike[str] | None =
    ..., isa: str | None = ..., micro_kernel: str | None = ..., prefetch: bool | None = ...,
    constant: str | Sequence[str] | None = ..., warps: int | None = ..., stages: int | None =
    ..., arch: str | None = ..., cache: str | PathLike[str] | None = ..., published: bool | None
    = ..., ours: bool | None = ..., reading: str | None = ..., edges: str | None = ..., memory:
    str | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile:
    int | None = ..., expression: str | None = ..., hoist: str | None = ..., rule1: str | None =
    ..., rule4: str | None = ..., stores: str | None = ..., phi: str | None = ..., rules: str |
    None = ..., slack: float | None = ..., padding: float | None = ..., tile_step: int | None =
    ..., search: str | None = ..., population: int | None = ..., top: int | None = ..., epsilon:
    float | None = ..., patience: int | None = ..., generations: int | None = ..., no_guard:
    bool | None = ..., top_k: int | None = ..., group: int | None = ..., beam: int | None = ...,
    last_step: str | None = ..., alone: str | None = ..., remote: str | None = ..., skip: str |
    None = ..., xla_seed: str | None = ..., most_operators: int | None = ..., call_us: float |
    None = ..., registers: int | None = ..., penalty: str | None = ..., pick: str | None = ...,
    groupings: str | None = ..., product: str | None = ..., written: str | None = ..., latency:
    str | None = ..., bandwidth: str | None = ..., compose: str | None = ..., schedule_rank: int
    | None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., criterion:
    str | None = ..., fit: str | None = ..., visit: str | None = ..., ci: str | None = ...,
    threshold: float | None = ..., subprograms: str | None = ..., schedules: str | Mapping[str,
    object] | None = ..., horizontal: str | None = ..., concat: str | None = ..., pack: str |
    None = ..., vertical: str | None = ..., global_sync: str | None = ..., reuse: str | None =
    ..., units: str | None = ..., pipeline: str | None = ..., sync: str | None = ..., reduction:
    str | None = ..., step: str | None = ..., launch_us: float | None = ..., sync_us: float |
    None = ..., scope: str | None = ..., swap: str | None = ..., duplicate: str | None = ...,
    library: str | None = ..., ridge: float | None = ..., merges: str | None = ..., exact: int |
    None = ..., width: int | None = ..., price_by: str | None = ..., kernel_us: float | None =
    ..., cluster: str | None = ..., block_tile: int | None = ..., busy: str | None = ...,
    dsm_bandwidth: float | None = ..., shared_width: float | None = ..., register_part: float |
    None = ..., xla_launch_us: float | None = ..., xla_parallelism: float | None = ...,
    xla_l2_speedup: float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int |
    None = ..., xla_duplicate: str | None = ..., xla_multi_output: str | None = ...,
    xla_products: str | None = ..., inductor_reads: int | None = ..., inductor_gathered_reads:
    int | None = ..., inductor_operations: int | None = ..., inductor_unrolled: int | None =
    ..., inductor_nests: int | None = ..., inductor_shared_bytes: int | None = ...,
    inductor_overlap: str | None = ..., inductor_reorder: str | None = ..., inductor_phases: str
    | None = ..., inductor_products: str | None = ..., why: bool | None = ..., as_written: bool
    | None = ..., check: bool = ...
) -> Answer:
    """The generated source and how to build it.

    Returns {'target', 'files', 'build', 'notes', ...}; with explain 'program', its lines.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        tree: the plan as a loop tree: "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
        tiles: tile sizes by loop, in iterations; a size for a loop that needs none is ignored
        pins: with tree: the level that holds a tensor; C=L1@m: from the body of loop m on
        flags: with tree: mark a tensor as sliding or running
        level: the memory level to plan for, or all (default: the innermost on chip)
        order: loop order, outermost first (m,oc1,k where names have several letters)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        target: what to generate code for; tilewright.targets() lists them (default cpu; plan: none)
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        seed: seed of all random numbers (default 1)
        explain: print what the threads of each kernel do, step by step; needs no out
        out: the folder to write
        check: raise Refused where the outcome says no (default False)

    Options of targets and models: help(tilewright.emit).
    """

def experiments(
    *, check: bool = ...
) -> Answer:
    """The papers' tables and figures that reproduce knows.

    Options:
        check: raise Refused where the outcome says no (default False)
    """

def explain(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, object] | None = ..., pins:
    str | Sequence[str] | Mapping[str, object] | None = ..., flags: str | Sequence[str] |
    Mapping[str, object] | None = ..., level: str | None = ..., order: str | Sequence[str] |
    None = ..., capacity: int | str | None = ..., seed: int | None = ..., samples: int | None =
    ..., resolved: bool | None = ..., curve: bool | None = ..., split: str | None = ..., out:
    str | PathLike[str] | None = ..., published: bool | None = ..., ours: bool | None = ...,
    reading: str | None = ..., edges: str | None = ..., memory: str | None = ..., objective: str
    | None = ..., write_weight: float | None = ..., min_tile: int | None = ..., expression: str
    | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4: str | None = ...,
    stores: str | None = ..., phi: str | None = ..., rules: str | None = ..., slack: float |
    None = ..., padding: float | None = ..., tile_step: int | None = ..., search: str | None =
    ..., population: int | None = ..., top: int | None = ..., epsilon: float | None = ...,
    patience: int | None = ..., generations: int | None = ..., no_guard: bool | None = ...,
    top_k: int | None = ..., group: int | None = ..., beam: int | None = ..., last_step: str |
    None = ..., alone: str | None = ..., remote: str | None = ..., skip: str | None = ...,
    xla_seed: str | None = ..., most_operators: int | None = ..., call_us: float | None = ...,
    registers: int | None = ..., penalty: str | None = ..., pick: str | None = ..., groupings:
    str | None = ..., product: str | None = ..., written: str | None = ..., latency: str | None
    = ..., bandwidth: str | None = ..., compose: str | None = ..., schedule_rank: int | None =
    ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., criterion: str | None
    = ..., fit: str | None = ..., visit: str | None = ..., ci: str | None = ..., threshold:
    float | None = ..., subprograms: str | None = ..., schedules: str | Mapping[str, object] |
    None = ..., horizontal: str | None = ..., concat: str | None = ..., pack: str | None = ...,
    vertical: str | None = ..., global_sync: str | None = ..., reuse: str | None = ..., units:
    str | None = ..., pipeline: str | None = ..., sync: str | None = ..., reduction: str | None
    = ..., step: str | None = ..., launch_us: float | None = ..., sync_us: float | None = ...,
    scope: str | None = ..., swap: str | None = ..., duplicate: str | None = ..., library: str |
    None = ..., ridge: float | None = ..., merges: str | None = ..., exact: int | None = ...,
    width: int | None = ..., price_by: str | None = ..., kernel_us: float | None = ..., cluster:
    str | None = ..., block_tile: int | None = ..., busy: str | None = ..., dsm_bandwidth: float
    | None = ..., shared_width: float | None = ..., register_part: float | None = ...,
    xla_launch_us: float | None = ..., xla_parallelism: float | None = ..., xla_l2_speedup:
    float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int | None = ...,
    xla_duplicate: str | None = ..., xla_multi_output: str | None = ..., xla_products: str |
    None = ..., inductor_reads: int | None = ..., inductor_gathered_reads: int | None = ...,
    inductor_operations: int | None = ..., inductor_unrolled: int | None = ..., inductor_nests:
    int | None = ..., inductor_shared_bytes: int | None = ..., inductor_overlap: str | None =
    ..., inductor_reorder: str | None = ..., inductor_phases: str | None = ...,
    inductor_products: str | None = ..., why: bool | None = ..., as_written: bool | None = ...,
    check: bool = ...
) -> Answer:
    """Why a plan is as it is: what shares a kernel and what the other choice costs; orders ranked.

    Returns {'edges': [{'tensor', 'from', 'to', 'fused', 'why', ...}], ...}, or, of orders, {'orders':
    [{'order', 'legal', 'reason', 'volume_elements', 'memory_elements', 'tensors'}]}.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        tree: the plan as a loop tree: "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
        tiles: tile sizes by loop, in iterations; a size for a loop that needs none is ignored
        pins: with tree: the level that holds a tensor; C=L1@m: from the body of loop m on
        flags: with tree: mark a tensor as sliding or running
        level: the memory level to plan for, or all (default: the innermost on chip)
        order: loop order, outermost first (m,oc1,k where names have several letters)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        seed: seed of all random numbers (default 1)
        samples: candidates to draw at random from the model's search space
        resolved: print the plan with every default made visible
        curve: the least bytes by buffer size, fused and unfused
        split: how to cut a network into layers, as in plan split; each layer is priced (each, contractions or followed; default of an ONNX file followed)
        out: the drawing of the graph to write: .dot, .svg
        check: raise Refused where the outcome says no (default False)

    Options of models: help(tilewright.explain).
    """

def import_(
    workload: str | PathLike[str] | Mapping[str, Any], *, bind: str | Sequence[str] |
    Mapping[str, object] | None = ..., skip: bool | None = ..., out: str | PathLike[str] | None
    = ..., check: bool = ...
) -> Answer:
    """An ONNX model as a workload file.

    Returns {'workload', 'operators', 'nodes', 'inputs', 'outputs', 'notes', 'skipped', 'unused', ...}.

    Options:
        bind: sizes of symbolic dimensions; they may also follow the file's name, model.onnx:batch=1
        skip: leave out unsupported nodes: their results become inputs, and what only they read becomes an output
        out: the workload file to write
        check: raise Refused where the outcome says no (default False)
    """

def machines(
    machine: str | PathLike[str] | Mapping[str, Any] | None = ..., *, yaml: bool | None = ...,
    out: str | PathLike[str] | None = ..., check: bool = ...
) -> Answer:
    """The machines that -m names, or one as a file to start from.

    Returns {'machines': [...], 'made': [...]}, or {'machine', 'file', 'content'}: the file's text, and what it says.

    Options:
        yaml: the one named, as a file; what is printed of it anyway
        out: the machine file to write
        check: raise Refused where the outcome says no (default False)
    """

def measure(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, object] | None = ..., pins:
    str | Sequence[str] | Mapping[str, object] | None = ..., flags: str | Sequence[str] |
    Mapping[str, object] | None = ..., level: str | None = ..., order: str | Sequence[str] |
    None = ..., capacity: int | str | None = ..., target: str | None = ..., meter: str | None =
    ..., cold_only: bool | None = ..., build_only: bool | None = ..., executed: bool | None =
    ..., threads: int | None = ..., seed: int | None = ..., batch: str | PathLike[str] | None =
    ..., out: str | PathLike[str] | None = ..., isa: str | None = ..., micro_kernel: str | None
    = ..., prefetch: bool | None = ..., constant: str | Sequence[str] | None = ..., warps: int |
    None = ..., stages: int | None = ..., arch: str | None = ..., cache: str | PathLike[str] |
    None = ..., published: bool | None = ..., ours: bool | None = ..., reading: str | None =
    ..., edges: str | None = ..., memory: str | None = ..., objective: str | None = ...,
    write_weight: float | None = ..., min_tile: int | None = ..., expression: str | None = ...,
    hoist: str | None = ..., rule1: str | None = ..., rule4: str | None = ..., stores: str |
    None = ..., phi: str | None = ..., rules: str | None = ..., slack: float | None = ...,
    padding: float | None = ..., tile_step: int | None = ..., search: str | None = ...,
    population: int | None = ..., top: int | None = ..., epsilon: float | None = ..., patience:
    int | None = ..., generations: int | None = ..., no_guard: bool | None = ..., top_k: int |
    None = ..., group: int | None = ..., beam: int | None = ..., last_step: str | None = ...,
    alone: str | None = ..., remote: str | None = ..., skip: str | None = ..., xla_seed: str |
    None = ..., most_operators: int | None = ..., call_us: float | None = ..., registers: int |
    None = ..., penalty: str | None = ..., pick: str | None = ..., groupings: str | None = ...,
    product: str | None = ..., written: str | None = ..., latency: str | None = ..., bandwidth:
    str | None = ..., compose: str | None = ..., schedule_rank: int | None = ..., stitch: str |
    Sequence[str] | Mapping[str, object] | None = ..., criterion: str | None = ..., fit: str |
    None = ..., visit: str | None = ..., ci: str | None = ..., threshold: float | None = ...,
    subprograms: str | None = ..., schedules: str | Mapping[str, object] | None = ...,
    horizontal: str | None = ..., concat: str | None = ..., pack: str | None = ..., vertical:
    str | None = ..., global_sync: str | None = ..., reuse: str | None = ..., units: str | None
    = ..., pipeline: str | None = ..., sync: str | None = ..., reduction: str | None = ...,
    step: str | None = ..., launch_us: float | None = ..., sync_us: float | None = ..., scope:
    str | None = ..., swap: str | None = ..., duplicate: str | None = ..., library: str | None =
    ..., ridge: float | None = ..., merges: str | None = ..., exact: int | None = ..., width:
    int | None = ..., price_by: str | None = ..., kernel_us: float | None = ..., cluster: str |
    None = ..., block_tile: int | None = ..., busy: str | None = ..., dsm_bandwidth: float |
    None = ..., shared_width: float | None = ..., register_part: float | None = ...,
    xla_launch_us: float | None = ..., xla_parallelism: float | None = ..., xla_l2_speedup:
    float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int | None = ...,
    xla_duplicate: str | None = ..., xla_multi_output: str | None = ..., xla_products: str |
    None = ..., inductor_reads: int | None = ..., inductor_gathered_reads: int | None = ...,
    inductor_operations: int | None = ..., inductor_unrolled: int | None = ..., inductor_nests:
    int | None = ..., inductor_shared_bytes: int | None = ..., inductor_overlap: str | None =
    ..., inductor_reorder: str | None = ..., inductor_phases: str | None = ...,
    inductor_products: str | None = ..., why: bool | None = ..., as_written: bool | None = ...,
    check: bool = ...
) -> Answer:
    """Measured traffic of the plan's verified kernel.

    Returns a traffic document as predict() does, of one tensor 'total', with 'counters' and 'notes';
    with executed=True 'comparison': plan, executed addresses and meter, and every difference's cause.
    target='cuda', meter='ncu': also 'predicted' and 'counted'; with a batch {'results': [...]}.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        tree: the plan as a loop tree: "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
        tiles: tile sizes by loop, in iterations; a size for a loop that needs none is ignored
        pins: with tree: the level that holds a tensor; C=L1@m: from the body of loop m on
        flags: with tree: mark a tensor as sliding or running
        level: the memory level to plan for, or all (default: the innermost on chip)
        order: loop order, outermost first (m,oc1,k where names have several letters)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        target: what to generate code for; tilewright.targets() lists them (default cpu; plan: none)
        meter: the meter; tilewright.meters() lists them (default cachegrind)
        cold_only: ncu: count only with caches emptied before every kernel (takes half the time)
        build_only: build the kernel, do not run it: needs no device
        executed: also simulate every address executed, and name the causes of the difference
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        seed: seed of all random numbers (default 1)
        batch: cuda: many runs, one JSON object of options in each line; built in parallel
        out: of batch: the file that gets the answers, a line each
        check: raise Refused where the outcome says no (default False)

    Options of targets and models: help(tilewright.measure).
    """

def meters(
    *, check: bool = ...
) -> Answer:
    """What can measure traffic, and whether it is usable here.

    Options:
        check: raise Refused where the outcome says no (default False)
    """

def models(
    *, check: bool = ...
) -> Answer:
    """The cost models, their sources, assumptions and options.

    Options:
        check: raise Refused where the outcome says no (default False)
    """

def plan(
    workload: str | PathLike[str] | Mapping[str, Any], machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., level: str | None = ..., capacity: int | str | None = ..., target: str | None =
    ..., threads: int | None = ..., seed: int | None = ..., part: str | None = ..., split: str |
    None = ..., out: str | PathLike[str] | None = ..., published: bool | None = ..., ours: bool
    | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str | None = ...,
    objective: str | None = ..., write_weight: float | None = ..., min_tile: int | None = ...,
    expression: str | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4: str |
    None = ..., stores: str | None = ..., phi: str | None = ..., rules: str | None = ..., slack:
    float | None = ..., padding: float | None = ..., tile_step: int | None = ..., search: str |
    None = ..., population: int | None = ..., top: int | None = ..., epsilon: float | None =
    ..., patience: int | None = ..., generations: int | None = ..., no_guard: bool | None = ...,
    top_k: int | None = ..., group: int | None = ..., beam: int | None = ..., last_step: str |
    None = ..., alone: str | None = ..., remote: str | None = ..., skip: str | None = ...,
    xla_seed: str | None = ..., most_operators: int | None = ..., call_us: float | None = ...,
    registers: int | None = ..., penalty: str | None = ..., pick: str | None = ..., groupings:
    str | None = ..., product: str | None = ..., written: str | None = ..., latency: str | None
    = ..., bandwidth: str | None = ..., compose: str | None = ..., schedule_rank: int | None =
    ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., criterion: str | None
    = ..., fit: str | None = ..., visit: str | None = ..., ci: str | None = ..., threshold:
    float | None = ..., subprograms: str | None = ..., schedules: str | Mapping[str, object] |
    None = ..., horizontal: str | None = ..., concat: str | None = ..., pack: str | None = ...,
    vertical: str | None = ..., global_sync: str | None = ..., reuse: str | None = ..., units:
    str | None = ..., pipeline: str | None = ..., sync: str | None = ..., reduction: str | None
    = ..., step: str | None = ..., launch_us: float | None = ..., sync_us: float | None = ...,
    scope: str | None = ..., swap: str | None = ..., duplicate: str | None = ..., library: str |
    None = ..., ridge: float | None = ..., merges: str | None = ..., exact: int | None = ...,
    width: int | None = ..., price_by: str | None = ..., kernel_us: float | None = ..., cluster:
    str | None = ..., block_tile: int | None = ..., busy: str | None = ..., dsm_bandwidth: float
    | None = ..., shared_width: float | None = ..., register_part: float | None = ...,
    xla_launch_us: float | None = ..., xla_parallelism: float | None = ..., xla_l2_speedup:
    float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int | None = ...,
    xla_duplicate: str | None = ..., xla_multi_output: str | None = ..., xla_products: str |
    None = ..., inductor_reads: int | None = ..., inductor_gathered_reads: int | None = ...,
    inductor_operations: int | None = ..., inductor_unrolled: int | None = ..., inductor_nests:
    int | None = ..., inductor_shared_bytes: int | None = ..., inductor_overlap: str | None =
    ..., inductor_reorder: str | None = ..., inductor_phases: str | None = ...,
    inductor_products: str | None = ..., why: bool | None = ..., as_written: bool | None = ...,
    check: bool = ...
) -> Answer:
    """The model's best plan, its traffic and time, its gap to the lower bound.

    Returns {'plan', 'volume_bytes', 'bound_bytes', 'gap', ...}, which simulate() takes.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        level: the memory level to plan for, or all (default: the innermost on chip)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        target: what to generate code for; tilewright.targets() lists them (default cpu; plan: none)
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        seed: seed of all random numbers (default 1)
        part: plan these operators alone; tensors that cross the cut are inputs and outputs
        split: plan in parts and join the plans: each (every operator alone), contractions (pairs of products with what lies between; the rest apart), followed (an operator with the element-wise operators behind it; attention whole), 'OP OP=MODEL; OP=MODEL' (these parts by these models, other operators alone), or a YAML file of parts; model may name several models, with commas
        out: the plan file to write
        check: raise Refused where the outcome says no (default False)

    Options of models: help(tilewright.plan).
    """

def predict(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, object] | None = ..., pins:
    str | Sequence[str] | Mapping[str, object] | None = ..., flags: str | Sequence[str] |
    Mapping[str, object] | None = ..., level: str | None = ..., order: str | Sequence[str] |
    None = ..., capacity: int | str | None = ..., target: str | None = ..., threads: int | None
    = ..., seed: int | None = ..., layout: str | None = ..., published: bool | None = ..., ours:
    bool | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str | None =
    ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int | None =
    ..., expression: str | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4:
    str | None = ..., stores: str | None = ..., phi: str | None = ..., rules: str | None = ...,
    slack: float | None = ..., padding: float | None = ..., tile_step: int | None = ..., search:
    str | None = ..., population: int | None = ..., top: int | None = ..., epsilon: float | None
    = ..., patience: int | None = ..., generations: int | None = ..., no_guard: bool | None =
    ..., top_k: int | None = ..., group: int | None = ..., beam: int | None = ..., last_step:
    str | None = ..., alone: str | None = ..., remote: str | None = ..., skip: str | None = ...,
    xla_seed: str | None = ..., most_operators: int | None = ..., call_us: float | None = ...,
    registers: int | None = ..., penalty: str | None = ..., pick: str | None = ..., groupings:
    str | None = ..., product: str | None = ..., written: str | None = ..., latency: str | None
    = ..., bandwidth: str | None = ..., compose: str | None = ..., schedule_rank: int | None =
    ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., criterion: str | None
    = ..., fit: str | None = ..., visit: str | None = ..., ci: str | None = ..., threshold:
    float | None = ..., subprograms: str | None = ..., schedules: str | Mapping[str, object] |
    None = ..., horizontal: str | None = ..., concat: str | None = ..., pack: str | None = ...,
    vertical: str | None = ..., global_sync: str | None = ..., reuse: str | None = ..., units:
    str | None = ..., pipeline: str | None = ..., sync: str | None = ..., reduction: str | None
    = ..., step: str | None = ..., launch_us: float | None = ..., sync_us: float | None = ...,
    scope: str | None = ..., swap: str | None = ..., duplicate: str | None = ..., library: str |
    None = ..., ridge: float | None = ..., merges: str | None = ..., exact: int | None = ...,
    width: int | None = ..., price_by: str | None = ..., kernel_us: float | None = ..., cluster:
    str | None = ..., block_tile: int | None = ..., busy: str | None = ..., dsm_bandwidth: float
    | None = ..., shared_width: float | None = ..., register_part: float | None = ...,
    xla_launch_us: float | None = ..., xla_parallelism: float | None = ..., xla_l2_speedup:
    float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int | None = ...,
    xla_duplicate: str | None = ..., xla_multi_output: str | None = ..., xla_products: str |
    None = ..., inductor_reads: int | None = ..., inductor_gathered_reads: int | None = ...,
    inductor_operations: int | None = ..., inductor_unrolled: int | None = ..., inductor_nests:
    int | None = ..., inductor_shared_bytes: int | None = ..., inductor_overlap: str | None =
    ..., inductor_reorder: str | None = ..., inductor_phases: str | None = ...,
    inductor_products: str | None = ..., why: bool | None = ..., as_written: bool | None = ...,
    check: bool = ...
) -> Answer:
    """One model's price of any plan.

    Returns a traffic document: {'source': 'predicted', 'traffic': [{'tensor', 'boundary',
    'read_bytes', 'written_bytes'}], ...}.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        tree: the plan as a loop tree: "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
        tiles: tile sizes by loop, in iterations; a size for a loop that needs none is ignored
        pins: with tree: the level that holds a tensor; C=L1@m: from the body of loop m on
        flags: with tree: mark a tensor as sliding or running
        level: the memory level to plan for, or all (default: the innermost on chip)
        order: loop order, outermost first (m,oc1,k where names have several letters)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        target: what to generate code for; tilewright.targets() lists them (default cpu; plan: none)
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        seed: seed of all random numbers (default 1)
        layout: how tensors lie in memory (tiled or row-major; default tiled)
        check: raise Refused where the outcome says no (default False)

    Options of models: help(tilewright.predict).
    """

def reproduce(
    id: str | None = ..., *, all: bool | None = ..., out: str | PathLike[str] | None = ...,
    samples: int | None = ..., size: str | None = ..., data: str | PathLike[str] | None = ...,
    threads: int | None = ..., check: bool = ...
) -> Answer:
    """A paper's table or figure: our numbers beside the paper's.

    Returns {'id', 'title', 'holds', 'compared', 'files', ...}; of several, a row each.

    Options:
        all: every experiment; those that are finished stay as they are
        out: the folder to write (default results/ID; of several: results)
        samples: tilings an order (default the experiment's own)
        size: of the kernels: small, medium (default) or large
        data: where counted misses or recordings lie
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        check: raise Refused where the outcome says no (default False)
    """

def run(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, object] | None = ..., pins:
    str | Sequence[str] | Mapping[str, object] | None = ..., flags: str | Sequence[str] |
    Mapping[str, object] | None = ..., level: str | None = ..., order: str | Sequence[str] |
    None = ..., capacity: int | str | None = ..., target: str | None = ..., threads: int | None
    = ..., seed: int | None = ..., seconds: float | None = ..., tune: int | None = ...,
    tune_log: str | PathLike[str] | None = ..., split: str | None = ..., profile: bool | None =
    ..., trace: str | PathLike[str] | None = ..., beside: str | None = ..., build_only: bool |
    None = ..., count: bool | None = ..., batch: str | PathLike[str] | None = ..., out: str |
    PathLike[str] | None = ..., isa: str | None = ..., micro_kernel: str | None = ..., prefetch:
    bool | None = ..., constant: str | Sequence[str] | None = ..., warps: int | None = ...,
    stages: int | None = ..., arch: str | None = ..., cache: str | PathLike[str] | None = ...,
    cold: bool | None = ..., launch: str | None = ..., timeline: str | PathLike[str] | None =
    ..., published: bool | None = ..., ours: bool | None = ..., reading: str | None = ...,
    edges: str | None = ..., memory: str | None = ..., objective: str | None = ...,
    write_weight: float | None = ..., min_tile: int | None = ..., expression: str | None = ...,
    hoist: str | None = ..., rule1: str | None = ..., rule4: str | None = ..., stores: str |
    None = ..., phi: str | None = ..., rules: str | None = ..., slack: float | None = ...,
    padding: float | None = ..., tile_step: int | None = ..., search: str | None = ...,
    population: int | None = ..., top: int | None = ..., epsilon: float | None = ..., patience:
    int | None = ..., generations: int | None = ..., no_guard: bool | None = ..., top_k: int |
    None = ..., group: int | None = ..., beam: int | None = ..., last_step: str | None = ...,
    alone: str | None = ..., remote: str | None = ..., skip: str | None = ..., xla_seed: str |
    None = ..., most_operators: int | None = ..., call_us: float | None = ..., registers: int |
    None = ..., penalty: str | None = ..., pick: str | None = ..., groupings: str | None = ...,
    product: str | None = ..., written: str | None = ..., latency: str | None = ..., bandwidth:
    str | None = ..., compose: str | None = ..., schedule_rank: int | None = ..., stitch: str |
    Sequence[str] | Mapping[str, object] | None = ..., criterion: str | None = ..., fit: str |
    None = ..., visit: str | None = ..., ci: str | None = ..., threshold: float | None = ...,
    subprograms: str | None = ..., schedules: str | Mapping[str, object] | None = ...,
    horizontal: str | None = ..., concat: str | None = ..., pack: str | None = ..., vertical:
    str | None = ..., global_sync: str | None = ..., reuse: str | None = ..., units: str | None
    = ..., pipeline: str | None = ..., sync: str | None = ..., reduction: str | None = ...,
    step: str | None = ..., launch_us: float | None = ..., sync_us: float | None = ..., scope:
    str | None = ..., swap: str | None = ..., duplicate: str | None = ..., library: str | None =
    ..., ridge: float | None = ..., merges: str | None = ..., exact: int | None = ..., width:
    int | None = ..., price_by: str | None = ..., kernel_us: float | None = ..., cluster: str |
    None = ..., block_tile: int | None = ..., busy: str | None = ..., dsm_bandwidth: float |
    None = ..., shared_width: float | None = ..., register_part: float | None = ...,
    xla_launch_us: float | None = ..., xla_parallelism: float | None = ..., xla_l2_speedup:
    float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int | None = ...,
    xla_duplicate: str | None = ..., xla_multi_output: str | None = ..., xla_products: str |
    None = ..., inductor_reads: int | None = ..., inductor_gathered_reads: int | None = ...,
    inductor_operations: int | None = ..., inductor_unrolled: int | None = ..., inductor_nests:
    int | None = ..., inductor_shared_bytes: int | None = ..., inductor_overlap: str | None =
    ..., inductor_reorder: str | None = ..., inductor_phases: str | None = ...,
    inductor_products: str | None = ..., why: bool | None = ..., as_written: bool | None = ...,
    check: bool = ...
) -> Answer:
    """Emit, build, verify against the reference evaluator, time.

    Returns {'verified', 'relative_error', 'seconds_median', 'gflops', 'peak_gflops', ...}.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        tree: the plan as a loop tree: "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
        tiles: tile sizes by loop, in iterations; a size for a loop that needs none is ignored
        pins: with tree: the level that holds a tensor; C=L1@m: from the body of loop m on
        flags: with tree: mark a tensor as sliding or running
        level: the memory level to plan for, or all (default: the innermost on chip)
        order: loop order, outermost first (m,oc1,k where names have several letters)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        target: what to generate code for; tilewright.targets() lists them (default cpu; plan: none)
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        seed: seed of all random numbers (default 1)
        seconds: how long to time, about (default 2 on cpu, 0.25 on cuda)
        tune: time N of the model's plans and take the fastest; in a network, for each kernel (MCFuser's paper: 8)
        tune_log: with tune: keep the plans' times in FILE; what it has of this processor or GPU, target and code is not measured again
        split: how to cut a network into parts, as in plan split (default: the model plans the whole; followed where it refuses, and for our planner on a processor for more than 24 operators)
        profile: of a network: for each kernel its predicted and measured time, bytes, and share of the roof
        trace: of a network: write when each kernel ran, for Perfetto and chrome://tracing
        beside: of an ONNX file: the Python whose onnxruntime runs the same inputs; none: do not compare (default python3)
        build_only: build the kernel, do not run it: needs no device
        count: run each verified kernel once more for a profiler, untimed
        batch: cuda: many runs, one JSON object of options in each line; built in parallel
        out: of batch: the file that gets each answer, a line each
        check: raise Refused where the outcome says no (default False)

    Options of targets and models: help(tilewright.run).
    """

def simulate(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, object] | None = ..., pins:
    str | Sequence[str] | Mapping[str, object] | None = ..., flags: str | Sequence[str] |
    Mapping[str, object] | None = ..., level: str | None = ..., order: str | Sequence[str] |
    None = ..., capacity: int | str | None = ..., seed: int | None = ..., layout: str | None =
    ..., trace: str | PathLike[str] | None = ..., save_trace: str | PathLike[str] | None = ...,
    curve: bool | None = ..., csv: str | PathLike[str] | None = ..., attribute: bool | None =
    ..., occupancy: str | PathLike[str] | None = ..., stride: int | None = ..., computes: int |
    None = ..., no_skip: bool | None = ..., cores: int | None = ..., schedule: str | None = ...,
    blocks_per_sm: int | None = ..., partitions: int | None = ..., jitter: float | None = ...,
    sample_waves: int | None = ..., threads: int | None = ..., published: bool | None = ...,
    ours: bool | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str |
    None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int |
    None = ..., expression: str | None = ..., hoist: str | None = ..., rule1: str | None = ...,
    rule4: str | None = ..., stores: str | None = ..., phi: str | None = ..., rules: str | None
    = ..., slack: float | None = ..., padding: float | None = ..., tile_step: int | None = ...,
    search: str | None = ..., population: int | None = ..., top: int | None = ..., epsilon:
    float | None = ..., patience: int | None = ..., generations: int | None = ..., no_guard:
    bool | None = ..., top_k: int | None = ..., group: int | None = ..., beam: int | None = ...,
    last_step: str | None = ..., alone: str | None = ..., remote: str | None = ..., skip: str |
    None = ..., xla_seed: str | None = ..., most_operators: int | None = ..., call_us: float |
    None = ..., registers: int | None = ..., penalty: str | None = ..., pick: str | None = ...,
    groupings: str | None = ..., product: str | None = ..., written: str | None = ..., latency:
    str | None = ..., bandwidth: str | None = ..., compose: str | None = ..., schedule_rank: int
    | None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., criterion:
    str | None = ..., fit: str | None = ..., visit: str | None = ..., ci: str | None = ...,
    threshold: float | None = ..., subprograms: str | None = ..., schedules: str | Mapping[str,
    object] | None = ..., horizontal: str | None = ..., concat: str | None = ..., pack: str |
    None = ..., vertical: str | None = ..., global_sync: str | None = ..., reuse: str | None =
    ..., units: str | None = ..., pipeline: str | None = ..., sync: str | None = ..., reduction:
    str | None = ..., step: str | None = ..., launch_us: float | None = ..., sync_us: float |
    None = ..., scope: str | None = ..., swap: str | None = ..., duplicate: str | None = ...,
    library: str | None = ..., ridge: float | None = ..., merges: str | None = ..., exact: int |
    None = ..., width: int | None = ..., price_by: str | None = ..., kernel_us: float | None =
    ..., cluster: str | None = ..., block_tile: int | None = ..., busy: str | None = ...,
    dsm_bandwidth: float | None = ..., shared_width: float | None = ..., register_part: float |
    None = ..., xla_launch_us: float | None = ..., xla_parallelism: float | None = ...,
    xla_l2_speedup: float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int |
    None = ..., xla_duplicate: str | None = ..., xla_multi_output: str | None = ...,
    xla_products: str | None = ..., inductor_reads: int | None = ..., inductor_gathered_reads:
    int | None = ..., inductor_operations: int | None = ..., inductor_unrolled: int | None =
    ..., inductor_nests: int | None = ..., inductor_shared_bytes: int | None = ...,
    inductor_overlap: str | None = ..., inductor_reorder: str | None = ..., inductor_phases: str
    | None = ..., inductor_products: str | None = ..., why: bool | None = ..., as_written: bool
    | None = ..., check: bool = ...
) -> Answer:
    """Simulated traffic: every level, every tensor, reads and writes.

    Returns a traffic document as predict() does, with 'source': 'simulated'; or of a recorded trace
    (subject None, trace=FILE).

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        tree: the plan as a loop tree: "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"
        tiles: tile sizes by loop, in iterations; a size for a loop that needs none is ignored
        pins: with tree: the level that holds a tensor; C=L1@m: from the body of loop m on
        flags: with tree: mark a tensor as sliding or running
        level: the memory level to plan for, or all (default: the innermost on chip)
        order: loop order, outermost first (m,oc1,k where names have several letters)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        seed: seed of all random numbers (default 1)
        layout: how tensors lie in memory (tiled or row-major; default tiled)
        trace: simulate a recorded trace in place of a plan: din, lackey, or from save_trace
        save_trace: record the accesses to the innermost cache
        curve: misses by size of an LRU cache
        csv: with curve: write every size at which the misses change
        attribute: misses by kind, which tensor evicted which, and in which loop (slow)
        occupancy: write the lines that each tensor holds over time: .csv, or .json for plot and chrome://tracing
        stride: with occupancy: accesses between two samples (default 512 to 1024 samples)
        computes: stop after N computes: the traffic until then, and what each level holds (default all)
        no_skip: also walk iterations that only repeat others (slower, same counts)
        cores: cores that run the blocks in turn; they share the outer caches (default 1)
        schedule: GPU: how blocks advance (timed, lockstep or serial; default timed)
        blocks_per_sm: GPU: blocks resident on an SM (default by memory, at most 8)
        partitions: GPU: partitions of L2; with 2, each caches lines of the other (default 1)
        jitter: GPU: largest relative deviation of a block's pace (default 0.1)
        sample_waves: GPU: simulate only N waves of blocks and scale up (approximate)
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        check: raise Refused where the outcome says no (default False)

    Options of models: help(tilewright.simulate).
    """

def targets(
    *, check: bool = ...
) -> Answer:
    """What code can be generated for, and whether it is usable here.

    Options:
        check: raise Refused where the outcome says no (default False)
    """

def validate(
    workload: str | PathLike[str] | Mapping[str, Any], machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., orders: str | Sequence[str | Sequence[str]] | None = ..., samples: int | None =
    ..., truth: str | None = ..., min_r2: float | None = ..., beyond: bool | None = ..., spill:
    str | None = ..., csv: str | PathLike[str] | None = ..., recorded: str | PathLike[str] |
    None = ..., order: str | Sequence[str] | None = ..., level: str | None = ..., capacity: int
    | str | None = ..., layout: str | None = ..., seed: int | None = ..., threads: int | None =
    ..., published: bool | None = ..., ours: bool | None = ..., reading: str | None = ...,
    edges: str | None = ..., memory: str | None = ..., objective: str | None = ...,
    write_weight: float | None = ..., min_tile: int | None = ..., expression: str | None = ...,
    hoist: str | None = ..., rule1: str | None = ..., rule4: str | None = ..., stores: str |
    None = ..., phi: str | None = ..., rules: str | None = ..., slack: float | None = ...,
    padding: float | None = ..., tile_step: int | None = ..., search: str | None = ...,
    population: int | None = ..., top: int | None = ..., epsilon: float | None = ..., patience:
    int | None = ..., generations: int | None = ..., no_guard: bool | None = ..., top_k: int |
    None = ..., group: int | None = ..., beam: int | None = ..., last_step: str | None = ...,
    alone: str | None = ..., remote: str | None = ..., skip: str | None = ..., xla_seed: str |
    None = ..., most_operators: int | None = ..., call_us: float | None = ..., registers: int |
    None = ..., penalty: str | None = ..., pick: str | None = ..., groupings: str | None = ...,
    product: str | None = ..., written: str | None = ..., latency: str | None = ..., bandwidth:
    str | None = ..., compose: str | None = ..., schedule_rank: int | None = ..., stitch: str |
    Sequence[str] | Mapping[str, object] | None = ..., criterion: str | None = ..., fit: str |
    None = ..., visit: str | None = ..., ci: str | None = ..., threshold: float | None = ...,
    subprograms: str | None = ..., schedules: str | Mapping[str, object] | None = ...,
    horizontal: str | None = ..., concat: str | None = ..., pack: str | None = ..., vertical:
    str | None = ..., global_sync: str | None = ..., reuse: str | None = ..., units: str | None
    = ..., pipeline: str | None = ..., sync: str | None = ..., reduction: str | None = ...,
    step: str | None = ..., launch_us: float | None = ..., sync_us: float | None = ..., scope:
    str | None = ..., swap: str | None = ..., duplicate: str | None = ..., library: str | None =
    ..., ridge: float | None = ..., merges: str | None = ..., exact: int | None = ..., width:
    int | None = ..., price_by: str | None = ..., kernel_us: float | None = ..., cluster: str |
    None = ..., block_tile: int | None = ..., busy: str | None = ..., dsm_bandwidth: float |
    None = ..., shared_width: float | None = ..., register_part: float | None = ...,
    xla_launch_us: float | None = ..., xla_parallelism: float | None = ..., xla_l2_speedup:
    float | None = ..., xla_l1_speedup: float | None = ..., xla_operands: int | None = ...,
    xla_duplicate: str | None = ..., xla_multi_output: str | None = ..., xla_products: str |
    None = ..., inductor_reads: int | None = ..., inductor_gathered_reads: int | None = ...,
    inductor_operations: int | None = ..., inductor_unrolled: int | None = ..., inductor_nests:
    int | None = ..., inductor_shared_bytes: int | None = ..., inductor_overlap: str | None =
    ..., inductor_reorder: str | None = ..., inductor_phases: str | None = ...,
    inductor_products: str | None = ..., why: bool | None = ..., as_written: bool | None = ...,
    check: bool = ...
) -> Answer:
    """Predicted against true traffic over many tilings.

    Returns {'r2_identity', 'r2_fit', 'mape', 'worst', 'bias', 'points': [{'order', 'tiles',
    'predicted_bytes', 'true_bytes'}], ...}.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        model: the model; tilewright.models() lists them
        orders: the orders to validate, or all (default the model's best)
        samples: tilings drawn for each order (default 60)
        truth: what predictions are compared with: simulator, or a meter (default simulator)
        min_r2: the least R² about y = x that passes; below it the exit status is 3
        beyond: also draw tilings past half the capacity; they are reported apart
        spill: an intermediate that is written home and read back
        csv: write the points
        recorded: with truth ncu or cuda-events: a recording by experiments/gpu/counters
        order: loop order, outermost first (m,oc1,k where names have several letters)
        level: the memory level to plan for, or all (default: the innermost on chip)
        capacity: capacity to plan for, in place of the level's: bytes (4096B, 32K, 1M; K is 1,024) or elements of the workload's type (262144e)
        layout: how tensors lie in memory (tiled or row-major; default tiled)
        seed: seed of all random numbers (default 1)
        threads: number of threads (default every core; emit, run, measure, plan, predict, simulate: 1)
        check: raise Refused where the outcome says no (default False)

    Options of models: help(tilewright.validate).
    """

def workloads(
    workload: str | PathLike[str] | Mapping[str, Any] | None = ..., *, rewrite: str |
    Sequence[str] | None = ..., yaml: bool | None = ..., out: str | PathLike[str] | None = ...,
    check: bool = ...
) -> Answer:
    """The built-in workloads and their parameters, or one as a file to start from.

    Returns {'workloads': [...]}, or {'workload', 'file', 'content'}: the file's text, and what it says.

    Options:
        rewrite: rewrite the workload first: online-softmax, compose, compose-gathers, compose-all, split-variance, split-sums:OP;OP, split-running:ITERATIONS, share-loops, scale-late, copies:OP=READER+READER/READER;OP=READER, inline:OP;OP, hoist:OP;OP, pad:LOOP;LOOP, materialise-gathers, materialise-patches, materialise-matrices:OP;OP, materialise-windows:OP;OP, materialise-borders:OP;OP, materialise-orders:OP;OP, materialise-across:OP;OP, pad-results, place-results, channels-last:OP;OP
        yaml: the one named, as a file; what is printed of it anyway
        out: the workload file to write
        check: raise Refused where the outcome says no (default False)
    """
