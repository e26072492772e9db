# Written by scripts/docs from the signatures in __init__.py and the options that python/options.cpp
# reads.
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
from .sweeps import read_rows as read_rows, sweep as sweep

__version__: str
__all__: list[str]

class InputError(ValueError): ...

class Refused(RuntimeError):
    answer: Answer
    def __init__(self, reason: str, answer: Answer) -> None: ...

def compare(
    workload: str | PathLike[str] | Mapping[str, Any], machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., models: str |
    None = ..., level: str | None = ..., capacity: int | str | None = ..., reading: str | None =
    ..., edges: str | None = ..., memory: str | None = ..., objective: str | None = ...,
    write_weight: float | None = ..., min_tile: int | None = ..., stitch: str | Sequence[str] |
    Mapping[str, object] | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4:
    str | None = ..., stores: str | None = ..., phi: str | None = ..., rules: str | None = ...,
    slack: float | None = ..., padding: float | None = ..., tile_step: int | None = ..., search:
    str | None = ..., population: int | None = ..., top: int | None = ..., epsilon: float | None
    = ..., patience: int | None = ..., generations: int | None = ..., no_guard: bool | None =
    ..., seed: int | None = ..., check: bool = ...
) -> Answer:
    """Every model's plan, priced by every model, by exact and by the simulator.

    Returns {'bound_bytes', 'plans': [{'model', 'tree', 'exact_bytes', 'simulated_bytes', 'gap',
    'prices': [{'by', 'volume_bytes', 'difference_bytes', 'causes'}]}]}.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        models: the models to compare, with commas between ('all')
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        hoist: MCFuser: how far loads leave loops: 'dag' (default), 'block', 'scope', 'none'
        rule1: MCFuser: spatial loops bound to blocks: 'between' (default), 'always'
        rule4: MCFuser: tensors of the estimate: 'loaded' (default), 'all'
        stores: MCFuser: an output kept over its reduction: 'once' (default), 'each'
        phi: MCFuser: the ratio's output: 'written-once' (default), 'printed'
        rules: MCFuser: the rules that prune ('1,2,3,4'), or 'none'
        slack: MCFuser, rule 4: times the shared memory (1.2)
        padding: MCFuser, rule 3: part of a dimension (0.05)
        tile_step: MCFuser: tiles are multiples of it (16)
        search: MCFuser: 'exhaustive' (default) or 'evolutionary'
        population: evolutionary: N (512)
        top: evolutionary: measured a round (8)
        epsilon: evolutionary: part of the best (0.001)
        patience: evolutionary: rounds within epsilon that end it (4)
        generations: evolutionary: rounds at most (200)
        no_guard: evolutionary: the last round's best, as Algorithm 1 prints it (False)
        seed: of everything random (1)
        check: raise Refused where the outcome says no (False)
    """

def emit(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, int] | None = ..., pins: str |
    Sequence[str] | Mapping[str, str] | None = ..., flags: str | Sequence[str] | Mapping[str,
    str] | None = ..., level: str | None = ..., capacity: int | str | None = ..., order: str |
    Sequence[str] | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str
    | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int |
    None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., target: str |
    None = ..., isa: str | None = ..., micro_kernel: str | None = ..., prefetch: bool | None =
    ..., out: str | PathLike[str] | None = ..., threads: int | None = ..., warps: int | None =
    ..., stages: int | None = ..., arch: str | None = ..., cache: str | PathLike[str] | None =
    ..., check: bool = ...
) -> Answer:
    """Writes a plan's generated source, and how to build it, into the folder out.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        tree: a loop tree in place: 'm l ( k ( C.gemm1 ) n ( C.gemm2 ) )'
        tiles: tile sizes by loop: {'m': 64} or 'm=64'
        pins: with tree: {'C': 'dram'}, or {'C': 'L1@m'} from a loop's body on
        flags: with tree: {'C': 'sliding'}, {'rowmax': 'running'}
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        order: an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        target: 'cpu', 'cuda', 'cuda-emulated' or 'npu', see targets(); plan: tiles suit its micro-kernel
        isa: 'avx512_bf16', 'avx512', 'avx2' or 'generic' (the widest that runs here)
        micro_kernel: '6x4', '5x5', '6x2', '4x3' or 'scalar'; cuda: 'mma', 'wmma2x2', 'simt' (the one that fits each product)
        prefetch: ask for the lines of tiles in place before they are used (False)
        out: the file (plan, run with a batch) or folder (emit, reproduce) to write
        threads: threads (every core; run, simulate: 1)
        warps: cuda: warps that compute, a block (by the tiles)
        stages: cuda: copies of a loaded tile (two where they fit)
        arch: cuda: built for 'sm_80', 'sm_90a' (the device's; emit: both)
        cache: cuda: a folder where built kernels are kept and found again
        check: raise Refused where the outcome says no (False)
    """

def experiments(
    *, check: bool = ...
) -> Answer:
    """The tables and figures that reproduce() knows.

    Options:
        check: raise Refused where the outcome says no (False)
    """

def explain(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, int] | None = ..., pins: str |
    Sequence[str] | Mapping[str, str] | None = ..., flags: str | Sequence[str] | Mapping[str,
    str] | None = ..., level: str | None = ..., capacity: int | str | None = ..., order: str |
    Sequence[str] | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str
    | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int |
    None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., expression: str
    | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4: str | None = ...,
    stores: str | None = ..., phi: str | None = ..., rules: str | None = ..., slack: float |
    None = ..., padding: float | None = ..., tile_step: int | None = ..., search: str | None =
    ..., population: int | None = ..., top: int | None = ..., epsilon: float | None = ...,
    patience: int | None = ..., generations: int | None = ..., no_guard: bool | None = ...,
    seed: int | None = ..., samples: int | None = ..., resolved: bool | None = ..., curve: bool
    | None = ..., out: str | PathLike[str] | None = ..., check: bool = ...
) -> Answer:
    """Prices every order of a workload, ranked; or shows a plan's schedule; or (curve=True) says
    what any plan must move, by buffer size.

    Returns {'orders': [{'order', 'legal', 'reason', 'volume_elements', 'memory_elements',
    'tensors'}]}.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        tree: a loop tree in place: 'm l ( k ( C.gemm1 ) n ( C.gemm2 ) )'
        tiles: tile sizes by loop: {'m': 64} or 'm=64'
        pins: with tree: {'C': 'dram'}, or {'C': 'L1@m'} from a loop's body on
        flags: with tree: {'C': 'sliding'}, {'rowmax': 'running'}
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        order: an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        expression: MCFuser's tiling expression in the workload's loops: 'mnlk', 'ml(k,n)'
        hoist: MCFuser: how far loads leave loops: 'dag' (default), 'block', 'scope', 'none'
        rule1: MCFuser: spatial loops bound to blocks: 'between' (default), 'always'
        rule4: MCFuser: tensors of the estimate: 'loaded' (default), 'all'
        stores: MCFuser: an output kept over its reduction: 'once' (default), 'each'
        phi: MCFuser: the ratio's output: 'written-once' (default), 'printed'
        rules: MCFuser: the rules that prune ('1,2,3,4'), or 'none'
        slack: MCFuser, rule 4: times the shared memory (1.2)
        padding: MCFuser, rule 3: part of a dimension (0.05)
        tile_step: MCFuser: tiles are multiples of it (16)
        search: MCFuser: 'exhaustive' (default) or 'evolutionary'
        population: evolutionary: N (512)
        top: evolutionary: measured a round (8)
        epsilon: evolutionary: part of the best (0.001)
        patience: evolutionary: rounds within epsilon that end it (4)
        generations: evolutionary: rounds at most (200)
        no_guard: evolutionary: the last round's best, as Algorithm 1 prints it (False)
        seed: of everything random (1)
        samples: tilings an order (60); explain: candidates drawn from MCFuser's pruned space
        resolved: of a plan: the schedule, every default made visible (False)
        curve: explain: the least bytes by buffer size, fused and not; simulate: misses of LRU caches of every size (False)
        out: the file (plan, run with a batch) or folder (emit, reproduce) to write
        check: raise Refused where the outcome says no (False)
    """

def machines(
    *, check: bool = ...
) -> Answer:
    """The machines that are known by name.

    Options:
        check: raise Refused where the outcome says no (False)
    """

def measure(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, int] | None = ..., pins: str |
    Sequence[str] | Mapping[str, str] | None = ..., flags: str | Sequence[str] | Mapping[str,
    str] | None = ..., level: str | None = ..., capacity: int | str | None = ..., order: str |
    Sequence[str] | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str
    | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int |
    None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., target: str |
    None = ..., meter: str | None = ..., cold_only: bool | None = ..., executed: bool | None =
    ..., isa: str | None = ..., micro_kernel: str | None = ..., prefetch: bool | None = ...,
    seed: int | None = ..., threads: int | None = ..., warps: int | None = ..., stages: int |
    None = ..., arch: str | None = ..., cache: str | PathLike[str] | None = ..., build_only:
    bool | None = ..., batch: str | PathLike[str] | None = ..., out: str | PathLike[str] | None
    = ..., check: bool = ...
) -> Answer:
    """What a plan's verified kernel moves, by a meter.

    Returns a traffic document as predict() does, of one tensor 'total', with 'counters' and 'notes';
    with executed=True 'comparison': plan, executed addresses and meter, and every difference's cause.
    target='cuda', meter='ncu': also 'predicted' and 'counted'; with a batch {'results': [...]}.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        tree: a loop tree in place: 'm l ( k ( C.gemm1 ) n ( C.gemm2 ) )'
        tiles: tile sizes by loop: {'m': 64} or 'm=64'
        pins: with tree: {'C': 'dram'}, or {'C': 'L1@m'} from a loop's body on
        flags: with tree: {'C': 'sliding'}, {'rowmax': 'running'}
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        order: an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        target: 'cpu', 'cuda', 'cuda-emulated' or 'npu', see targets(); plan: tiles suit its micro-kernel
        meter: what measures: 'cachegrind' (default), 'perf', 'likwid', 'pcm', 'ncu', see meters()
        cold_only: ncu: count only with caches emptied before every kernel: half the time (False)
        executed: also every address executed, through simulated caches, and the causes (False)
        isa: 'avx512_bf16', 'avx512', 'avx2' or 'generic' (the widest that runs here)
        micro_kernel: '6x4', '5x5', '6x2', '4x3' or 'scalar'; cuda: 'mma', 'wmma2x2', 'simt' (the one that fits each product)
        prefetch: ask for the lines of tiles in place before they are used (False)
        seed: of everything random (1)
        threads: threads (every core; run, simulate: 1)
        warps: cuda: warps that compute, a block (by the tiles)
        stages: cuda: copies of a loaded tile (two where they fit)
        arch: cuda: built for 'sm_80', 'sm_90a' (the device's; emit: both)
        cache: cuda: a folder where built kernels are kept and found again
        build_only: cuda: build, and stop before a device is needed (False)
        batch: cuda: a file of many runs, a JSON object of options a line; the subject is then None
        out: the file (plan, run with a batch) or folder (emit, reproduce) to write
        check: raise Refused where the outcome says no (False)
    """

def meters(
    *, check: bool = ...
) -> Answer:
    """What can measure a kernel, and whether it is usable here.

    Options:
        check: raise Refused where the outcome says no (False)
    """

def models(
    *, check: bool = ...
) -> Answer:
    """The cost models: source, assumptions, options.

    Options:
        check: raise Refused where the outcome says no (False)
    """

def plan(
    workload: str | PathLike[str] | Mapping[str, Any], machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., level: str | None = ..., capacity: int | str | None = ..., target: str | None =
    ..., reading: str | None = ..., edges: str | None = ..., memory: str | None = ...,
    objective: str | None = ..., write_weight: float | None = ..., min_tile: int | None = ...,
    stitch: str | Sequence[str] | Mapping[str, object] | None = ..., hoist: str | None = ...,
    rule1: str | None = ..., rule4: str | None = ..., stores: str | None = ..., phi: str | None
    = ..., rules: str | None = ..., slack: float | None = ..., padding: float | None = ...,
    tile_step: int | None = ..., search: str | None = ..., population: int | None = ..., top:
    int | None = ..., epsilon: float | None = ..., patience: int | None = ..., generations: int
    | None = ..., no_guard: bool | None = ..., seed: int | None = ..., out: str | PathLike[str]
    | None = ..., check: bool = ...
) -> Answer:
    """A model's best plan for a workload on a machine.

    Returns {'plan', 'volume_bytes', 'bound_bytes', 'gap', ...}, which simulate() takes.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        target: 'cpu', 'cuda', 'cuda-emulated' or 'npu', see targets(); plan: tiles suit its micro-kernel
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        hoist: MCFuser: how far loads leave loops: 'dag' (default), 'block', 'scope', 'none'
        rule1: MCFuser: spatial loops bound to blocks: 'between' (default), 'always'
        rule4: MCFuser: tensors of the estimate: 'loaded' (default), 'all'
        stores: MCFuser: an output kept over its reduction: 'once' (default), 'each'
        phi: MCFuser: the ratio's output: 'written-once' (default), 'printed'
        rules: MCFuser: the rules that prune ('1,2,3,4'), or 'none'
        slack: MCFuser, rule 4: times the shared memory (1.2)
        padding: MCFuser, rule 3: part of a dimension (0.05)
        tile_step: MCFuser: tiles are multiples of it (16)
        search: MCFuser: 'exhaustive' (default) or 'evolutionary'
        population: evolutionary: N (512)
        top: evolutionary: measured a round (8)
        epsilon: evolutionary: part of the best (0.001)
        patience: evolutionary: rounds within epsilon that end it (4)
        generations: evolutionary: rounds at most (200)
        no_guard: evolutionary: the last round's best, as Algorithm 1 prints it (False)
        seed: of everything random (1)
        out: the file (plan, run with a batch) or folder (emit, reproduce) to write
        check: raise Refused where the outcome says no (False)
    """

def predict(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, int] | None = ..., pins: str |
    Sequence[str] | Mapping[str, str] | None = ..., flags: str | Sequence[str] | Mapping[str,
    str] | None = ..., level: str | None = ..., capacity: int | str | None = ..., order: str |
    Sequence[str] | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str
    | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int |
    None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., expression: str
    | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4: str | None = ...,
    stores: str | None = ..., phi: str | None = ..., rules: str | None = ..., slack: float |
    None = ..., padding: float | None = ..., tile_step: int | None = ..., search: str | None =
    ..., population: int | None = ..., top: int | None = ..., epsilon: float | None = ...,
    patience: int | None = ..., generations: int | None = ..., no_guard: bool | None = ...,
    seed: int | None = ..., check: bool = ...
) -> Answer:
    """One model's price of a plan.

    Returns a traffic document: {'source': 'predicted', 'traffic': [{'tensor', 'boundary',
    'read_bytes', 'written_bytes'}], ...}.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        tree: a loop tree in place: 'm l ( k ( C.gemm1 ) n ( C.gemm2 ) )'
        tiles: tile sizes by loop: {'m': 64} or 'm=64'
        pins: with tree: {'C': 'dram'}, or {'C': 'L1@m'} from a loop's body on
        flags: with tree: {'C': 'sliding'}, {'rowmax': 'running'}
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        order: an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        expression: MCFuser's tiling expression in the workload's loops: 'mnlk', 'ml(k,n)'
        hoist: MCFuser: how far loads leave loops: 'dag' (default), 'block', 'scope', 'none'
        rule1: MCFuser: spatial loops bound to blocks: 'between' (default), 'always'
        rule4: MCFuser: tensors of the estimate: 'loaded' (default), 'all'
        stores: MCFuser: an output kept over its reduction: 'once' (default), 'each'
        phi: MCFuser: the ratio's output: 'written-once' (default), 'printed'
        rules: MCFuser: the rules that prune ('1,2,3,4'), or 'none'
        slack: MCFuser, rule 4: times the shared memory (1.2)
        padding: MCFuser, rule 3: part of a dimension (0.05)
        tile_step: MCFuser: tiles are multiples of it (16)
        search: MCFuser: 'exhaustive' (default) or 'evolutionary'
        population: evolutionary: N (512)
        top: evolutionary: measured a round (8)
        epsilon: evolutionary: part of the best (0.001)
        patience: evolutionary: rounds within epsilon that end it (4)
        generations: evolutionary: rounds at most (200)
        no_guard: evolutionary: the last round's best, as Algorithm 1 prints it (False)
        seed: of everything random (1)
        check: raise Refused where the outcome says no (False)
    """

def reproduce(
    id: str | None = ..., *, all: bool | None = ..., out: str | PathLike[str] | None = ...,
    samples: int | None = ..., size: str | None = ..., data: str | None = ..., threads: int |
    None = ..., check: bool = ...
) -> Answer:
    """A paper's table or figure: our numbers beside the paper's. Writes into the folder out. Of a paper
    ('chimera'), or with all=True (and id None): each into out/ID, those that are finished left as they
    are.

    Options:
        all: every experiment; those that are finished stay as they are (False)
        out: the file (plan, run with a batch) or folder (emit, reproduce) to write
        samples: tilings an order (60); explain: candidates drawn from MCFuser's pruned space
        size: of the kernels: 'small', 'medium' (default) or 'large'
        data: the folder where counted misses lie ('../shared/data/polybench-papi'), or recordings ('experiments/results')
        threads: threads (every core; run, simulate: 1)
        check: raise Refused where the outcome says no (False)
    """

def run(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, int] | None = ..., pins: str |
    Sequence[str] | Mapping[str, str] | None = ..., flags: str | Sequence[str] | Mapping[str,
    str] | None = ..., level: str | None = ..., capacity: int | str | None = ..., order: str |
    Sequence[str] | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str
    | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int |
    None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., target: str |
    None = ..., isa: str | None = ..., micro_kernel: str | None = ..., prefetch: bool | None =
    ..., seed: int | None = ..., threads: int | None = ..., seconds: float | None = ..., warps:
    int | None = ..., stages: int | None = ..., arch: str | None = ..., cache: str |
    PathLike[str] | None = ..., cold: bool | None = ..., build_only: bool | None = ..., count:
    bool | None = ..., timeline: str | None = ..., batch: str | PathLike[str] | None = ..., out:
    str | PathLike[str] | None = ..., check: bool = ...
) -> Answer:
    """Emits, builds, verifies against the reference evaluator and times a plan's kernel.

    Returns {'verified', 'relative_error', 'seconds_median', 'gflops', 'peak_gflops', ...}.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        tree: a loop tree in place: 'm l ( k ( C.gemm1 ) n ( C.gemm2 ) )'
        tiles: tile sizes by loop: {'m': 64} or 'm=64'
        pins: with tree: {'C': 'dram'}, or {'C': 'L1@m'} from a loop's body on
        flags: with tree: {'C': 'sliding'}, {'rowmax': 'running'}
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        order: an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        target: 'cpu', 'cuda', 'cuda-emulated' or 'npu', see targets(); plan: tiles suit its micro-kernel
        isa: 'avx512_bf16', 'avx512', 'avx2' or 'generic' (the widest that runs here)
        micro_kernel: '6x4', '5x5', '6x2', '4x3' or 'scalar'; cuda: 'mma', 'wmma2x2', 'simt' (the one that fits each product)
        prefetch: ask for the lines of tiles in place before they are used (False)
        seed: of everything random (1)
        threads: threads (every core; run, simulate: 1)
        seconds: of timing, about (2 on cpu, 0.25 on cuda)
        warps: cuda: warps that compute, a block (by the tiles)
        stages: cuda: copies of a loaded tile (two where they fit)
        arch: cuda: built for 'sm_80', 'sm_90a' (the device's; emit: both)
        cache: cuda: a folder where built kernels are kept and found again
        cold: cuda: time on tensors in turn that are together larger than L2 (False)
        build_only: cuda: build, and stop before a device is needed (False)
        count: cuda: run each verified kernel once more for a profiler; not timed (False)
        timeline: target 'npu': a file for what every pipe does when: .svg (core 0), or .json for Perfetto and chrome://tracing
        batch: cuda: a file of many runs, a JSON object of options a line; the subject is then None
        out: the file (plan, run with a batch) or folder (emit, reproduce) to write
        check: raise Refused where the outcome says no (False)
    """

def simulate(
    subject: str | PathLike[str] | Mapping[str, Any] | None, machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., tree: str | None = ..., tiles: str | Mapping[str, int] | None = ..., pins: str |
    Sequence[str] | Mapping[str, str] | None = ..., flags: str | Sequence[str] | Mapping[str,
    str] | None = ..., level: str | None = ..., capacity: int | str | None = ..., order: str |
    Sequence[str] | None = ..., reading: str | None = ..., edges: str | None = ..., memory: str
    | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile: int |
    None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., expression: str
    | None = ..., hoist: str | None = ..., rule1: str | None = ..., rule4: str | None = ...,
    stores: str | None = ..., phi: str | None = ..., rules: str | None = ..., slack: float |
    None = ..., padding: float | None = ..., tile_step: int | None = ..., search: str | None =
    ..., population: int | None = ..., top: int | None = ..., epsilon: float | None = ...,
    patience: int | None = ..., generations: int | None = ..., no_guard: bool | None = ...,
    seed: int | None = ..., layout: str | None = ..., trace: str | PathLike[str] | None = ...,
    save_trace: str | PathLike[str] | None = ..., curve: bool | None = ..., csv: str |
    PathLike[str] | None = ..., attribute: bool | None = ..., occupancy: str | PathLike[str] |
    None = ..., stride: int | None = ..., no_skip: bool | None = ..., cores: int | None = ...,
    threads: int | None = ..., schedule: str | None = ..., blocks_per_sm: int | None = ...,
    partitions: int | None = ..., jitter: float | None = ..., sample_waves: int | None = ...,
    check: bool = ...
) -> Answer:
    """What a plan moves, by a walk over its accesses; or a recorded trace (subject None, trace=FILE).

    Returns a traffic document as predict() does, with 'source': 'simulated'.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        tree: a loop tree in place: 'm l ( k ( C.gemm1 ) n ( C.gemm2 ) )'
        tiles: tile sizes by loop: {'m': 64} or 'm=64'
        pins: with tree: {'C': 'dram'}, or {'C': 'L1@m'} from a loop's body on
        flags: with tree: {'C': 'sliding'}, {'rowmax': 'running'}
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        order: an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        expression: MCFuser's tiling expression in the workload's loops: 'mnlk', 'ml(k,n)'
        hoist: MCFuser: how far loads leave loops: 'dag' (default), 'block', 'scope', 'none'
        rule1: MCFuser: spatial loops bound to blocks: 'between' (default), 'always'
        rule4: MCFuser: tensors of the estimate: 'loaded' (default), 'all'
        stores: MCFuser: an output kept over its reduction: 'once' (default), 'each'
        phi: MCFuser: the ratio's output: 'written-once' (default), 'printed'
        rules: MCFuser: the rules that prune ('1,2,3,4'), or 'none'
        slack: MCFuser, rule 4: times the shared memory (1.2)
        padding: MCFuser, rule 3: part of a dimension (0.05)
        tile_step: MCFuser: tiles are multiples of it (16)
        search: MCFuser: 'exhaustive' (default) or 'evolutionary'
        population: evolutionary: N (512)
        top: evolutionary: measured a round (8)
        epsilon: evolutionary: part of the best (0.001)
        patience: evolutionary: rounds within epsilon that end it (4)
        generations: evolutionary: rounds at most (200)
        no_guard: evolutionary: the last round's best, as Algorithm 1 prints it (False)
        seed: of everything random (1)
        layout: tensors in memory: 'tiled' (default) or 'row-major'
        trace: a recorded trace's file instead of a plan: din, lackey or save_trace's
        save_trace: a file for what the innermost cache is touched with
        curve: explain: the least bytes by buffer size, fused and not; simulate: misses of LRU caches of every size (False)
        csv: a file for the points
        attribute: misses by kind, who evicted whom, which loop pays (False; slow)
        occupancy: a file for the lines that each tensor holds over time: .csv, or .json, which plot and chrome://tracing read
        stride: of occupancy, in accesses (512 to 1024 samples)
        no_skip: walk iterations that only repeat themselves too; the counts are the same (False)
        cores: cores that blocks are dealt to, sharing the outer caches (1)
        threads: threads (every core; run, simulate: 1)
        schedule: GPU: blocks are 'timed' (default), in 'lockstep', or 'serial'
        blocks_per_sm: GPU: blocks that an SM holds (by memory, at most 8)
        partitions: GPU: of L2: 1 (default), or 2 that copy what the other one is home of
        jitter: GPU: how far a block's pace is off, at most (0.1)
        sample_waves: GPU: approximate: so many waves of blocks stand for all
        check: raise Refused where the outcome says no (False)
    """

def targets(
    *, check: bool = ...
) -> Answer:
    """What code can be generated for, and whether it is usable here.

    Options:
        check: raise Refused where the outcome says no (False)
    """

def validate(
    workload: str | PathLike[str] | Mapping[str, Any], machine: str | PathLike[str] |
    Mapping[str, Any] | None = ..., *, rewrite: str | Sequence[str] | None = ..., model: str |
    None = ..., level: str | None = ..., capacity: int | str | None = ..., order: str |
    Sequence[str] | None = ..., orders: str | Sequence[str | Sequence[str]] | None = ...,
    samples: int | None = ..., truth: str | None = ..., min_r2: float | None = ..., beyond: bool
    | None = ..., spill: str | None = ..., csv: str | PathLike[str] | None = ..., recorded: str
    | PathLike[str] | None = ..., reading: str | None = ..., edges: str | None = ..., memory:
    str | None = ..., objective: str | None = ..., write_weight: float | None = ..., min_tile:
    int | None = ..., stitch: str | Sequence[str] | Mapping[str, object] | None = ..., layout:
    str | None = ..., seed: int | None = ..., threads: int | None = ..., check: bool = ...
) -> Answer:
    """Predicted against true bytes over many tilings.

    Returns {'r2_identity', 'r2_fit', 'mape', 'worst', 'bias', 'points': [{'order', 'tiles',
    'predicted_bytes', 'true_bytes'}], ...}.

    Options:
        rewrite: the workload rewritten: 'online-softmax', 'compose', 'compose-gathers', 'compose-all', or a list of such, in order
        model: the model, a name of models()
        level: the level planned for (the innermost on-chip one), or 'all'
        capacity: instead of the level's: bytes, or '32K', or elements as '262144e'
        order: an order of the loops, outermost first: 'mlkn', 'm,oc1,k', ['m', 'oc1']; or 'all'
        orders: the orders to validate: a list, or 'mlkn,mlnk' (the model's best)
        samples: tilings an order (60); explain: candidates drawn from MCFuser's pruned space
        truth: what the prediction is held against: 'simulator' (default) or a meter
        min_r2: the least R² about y = x; below it the answer is refused
        beyond: tilings past half the capacity too, in a block of their own (False)
        spill: an intermediate that goes home and back (Chimera's Fig. 8 f)
        csv: a file for the points
        recorded: truth 'ncu', 'cuda-events': a file that experiments/gpu/counters has written, instead of a GPU
        reading: Chimera's Algorithm 1: 'observed' (default), 'literal', 'trip-one'
        edges: tiles at the edges: 'full' (default; validate: 'exact') or 'exact'
        memory: memory use: 'creq' (default), 'paper', 'sum'
        objective: with level='all', of the levels' costs: 'largest' (default), 'sum'
        write_weight: what an output's movement counts (1)
        min_tile: the smallest tile tried (1)
        stitch: FusionStitching's options (models() lists them): {'last-step': 'select', 'beam': 5}
        layout: tensors in memory: 'tiled' (default) or 'row-major'
        seed: of everything random (1)
        threads: threads (every core; run, simulate: 1)
        check: raise Refused where the outcome says no (False)
    """

def workloads(
    *, check: bool = ...
) -> Answer:
    """The built-in workloads and their parameters.

    Options:
        check: raise Refused where the outcome says no (False)
    """
