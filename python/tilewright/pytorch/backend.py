"""The backend ``tilewright`` of ``torch.compile``: forward and backward graphs of Core ATen operators, cut into parts
that the CPU target takes, and the rest, which PyTorch runs."""

import json
import logging
import math
import threading
from dataclasses import dataclass, field

from .._tilewright import InputError, Network, TensorCall
from .export import import_bytes, reasons
from .graph import Graph, Meta, Node, Ref
from .lower import FLOATS, Lowering, lowering_of
from .record import decompositions, graph_of, node_of, target_of
from .whole import GIVEN, NOT_KNOWN

log = logging.getLogger("tilewright")

_MOST_SHAPES = 8  # programs of one graph with dynamic shapes
# Of the largest element: what `run` lets outputs of a whole network be off by.
_TOLERANCE = {"float32": 2.0**-12, "float64": 2.0**-26, "bfloat16": 2.0**-4}
_TYPES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16"}  # that kernels are made for, one type each
_lock = threading.Lock()
_reports = []


@dataclass
class Report:
    """What became of one graph: `programs` are ours, `in_torch` what PyTorch runs, "node: operator: why"."""
    graph: str
    programs: list = field(default_factory=list)  # {"nodes", "launches", "predicted_seconds", "notes"}
    in_torch: list = field(default_factory=list)

    def __str__(self):
        nodes, launches = (sum(p[key] for p in self.programs) for key in ("nodes", "launches"))
        lines = [f"{self.graph}: nodes in programs {nodes}, programs {len(self.programs)}, kernel launches {launches}, "
                 f"nodes in PyTorch {len(self.in_torch)}"]
        return "\n  ".join(lines + self.in_torch)


def reports():
    """A :class:`Report` for each graph that was compiled since the last clear_reports()."""
    with _lock:
        return list(_reports)


def clear_reports():
    with _lock:
        _reports.clear()


def compile_graph(gm, example_inputs, options=None, mode=None):
    """What ``torch.compile(f, backend="tilewright", options={...})`` calls.

    options: those of ``tilewright.run`` that plan and make kernels (machine, model, threads, isa, ...; by default
    the machine host and PyTorch's threads), and
    `verify`: every kernel is verified alone before it is used;
    `freeze`: in graphs without gradients and of one shape, parameters and buffers of modules are read once, when a
    graph is compiled. What depends on them alone runs once, and operands are packed before the first call. A call
    that finds other tensors, or that one was written since, makes the program again with parameters as inputs.
    Writes through ``.data`` are not seen, as PyTorch does not count them.

    In its first call each program is held against PyTorch on the same inputs. One that is off by more than a whole
    network of ``run`` may be is not used: PyTorch runs its nodes, and the report says so.
    """
    import torch
    from torch._dynamo.backends.common import aot_autograd

    options = dict(options or {})
    verify, freeze = (bool(options.pop(key, False)) for key in ("verify", "freeze"))
    _check(options)

    programs = []

    def compiler(way):
        def compile_one(graph_module, inputs):
            kept = _kept(graph_module, example_inputs) if freeze and way == "inference" else {}
            made = _compiled(graph_module, way, options, verify, kept)
            if way == "inference" and hasattr(made, "program") and _is_plain(graph_module, example_inputs):
                programs.append(made.program)
            return _boxed(made)
        return compile_one

    whole = aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"),
                         inference_compiler=compiler("inference"),
                         decompositions=decompositions())(gm, example_inputs)
    return _shorter(programs[0], whole) if programs and isinstance(gm, torch.fx.GraphModule) else whole


def _is_plain(gm, example_inputs):
    """Whether the graph's inputs and results are those of the function that PyTorch traced: nothing is written in place, or is a
    view of something else, and aot_autograd has nothing to do before and after a call."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    context = torch._guards.TracingContext.try_get()
    meta = context.fw_metadata if context else None
    fresh = ("non_alias", "unsafe_view_alias")
    return (meta is not None and sum(n.op == "placeholder" for n in gm.graph.nodes) == len(example_inputs)
            and not any(map(is_traceable_wrapper_subclass, example_inputs))
            and all(o.output_type.name in fresh for o in meta.output_info)
            and not (meta.num_mutated_inp_runtime_indices or meta.num_intermediate_bases or meta.tokens))


def _shorter(program, whole):
    """`whole` (of aot_autograd) without what it runs around each call, 1 us: most that a call of few elements takes. What the
    program does not take, `whole` does."""
    def call(*args):
        made = program.at_once and program.at_once(args)
        return made or whole(*args)
    return call


def _check(options):
    from .. import _RECORDS

    known = {o["key"] for o in _RECORDS["run"]["options"]}
    for key in options:
        if key not in known:
            raise InputError(f"torch.compile: option '{key}' is not accepted; accepted: verify, freeze and those of run")


def _kept(gm, example_inputs):
    """By placeholder: the parameters and buffers of modules, which aot_autograd says where they are."""
    import torch

    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    context = torch._guards.TracingContext.try_get()
    static = context.fw_metadata.static_input_indices if context and context.fw_metadata else []
    if len(names) != len(example_inputs):
        return {}
    return {names[i]: example_inputs[i] for i in static if isinstance(example_inputs[i], torch.Tensor)}


def _boxed(f):
    from functorch.compile import make_boxed_func
    return f if getattr(f, "_boxed_call", False) else make_boxed_func(f)


def _is_symbolic(gm):
    import torch

    def symbolic(value):
        if isinstance(value, (list, tuple)):
            return any(map(symbolic, value))
        if isinstance(value, torch.Tensor):
            return not all(type(d) is int for d in value.shape)
        return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
    return any(symbolic(n.meta.get("val")) for n in gm.graph.nodes)


def _compiled(gm, way, options, verify, kept):
    if _is_symbolic(gm):
        return _ByShape(gm, way, options, verify)
    return _covered(gm, way, options, verify, kept)


class _ByShape:
    """A graph with dynamic shapes: traced again and compiled for each, up to some; PyTorch runs further ones."""

    def __init__(self, gm, way, options, verify):
        self.gm, self.way, self.options, self.verify = gm, way, options, verify
        self.made = {}

    def __call__(self, *args):
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        key = tuple((tuple(a.shape), a.stride(), a.dtype) if isinstance(a, torch.Tensor) else a for a in args)
        if key not in self.made:
            if len(self.made) == _MOST_SHAPES:
                log.warning("tilewright: more than %d shapes of one graph: PyTorch runs further ones", _MOST_SHAPES)
            if len(self.made) >= _MOST_SHAPES:
                self.made.setdefault(None, None)  # said once
                return self.gm(*args)
            fixed = make_fx(self.gm, tracing_mode="fake")(*args)
            self.made[key] = _boxed(_covered(fixed, self.way, self.options, self.verify, {}))
        return self.made[key](list(args))


# ---- Which nodes are covered ----------------------------------------------------------------------------------------

def _metas(node):
    value = node_of(node).value
    return [m for m in (value if isinstance(value, list) else [value]) if m is not None]


def _used_results(node):
    """The node, or those of its several results that are read."""
    several = isinstance(node_of(node).value, list)
    return [u for u in node.users if target_of(u) == "getitem" and u.users] if several else [node]


class _Coverage:
    """Which nodes of a graph have a lowering that the target takes, and why not the others."""

    def __init__(self, gm):
        self.why = {}
        self.constant = set()
        self.by_dtype = {dtype: set() for dtype in _TYPES}
        for node in gm.graph.nodes:
            if node.op == "call_function" and not node.all_input_nodes:
                self.constant.add(node.name)
            elif node.op == "call_function" and all(i.name in self.constant for i in node.all_input_nodes):
                self.constant.add(node.name)
            if node.op == "call_function" and target_of(node) != "getitem":
                self._judge(node)

    def _judge(self, node):
        target = target_of(node)
        why = self._refused(node, target)
        if why:
            self.why[node.name] = f"{target}: {why}"
            return
        floats = {m.dtype for i in [node, *node.all_input_nodes] for m in _metas(i) if m.dtype in FLOATS}
        for dtype, nodes in self.by_dtype.items():
            if floats <= {dtype}:
                nodes.update([node.name, *(u.name for u in node.users if target_of(u) == "getitem")])

    def _refused(self, node, target):
        entry = lowering_of(target)
        if entry is None:
            return "the operator is not supported"
        used = _used_results(node)
        metas = [m for i in [*used, *node.all_input_nodes] for m in _metas(i)]
        if not _metas(node) or any(not _metas(i) for i in node.all_input_nodes):
            return "what is not a tensor"
        if any(math.prod(m.shape) == 0 for m in metas):
            return "a tensor without elements"
        floats = {m.dtype for m in metas if m.dtype in FLOATS}
        if len(floats) > 1:
            return f"types {' and '.join(sorted(floats))} in one operator"
        if floats - set(_TYPES):
            return f"the cpu target emits {', '.join(_TYPES)}; not {floats.pop()}"
        return None if node.name in self.constant else self._alone(node)

    def _alone(self, node):
        """Why it cannot be lowered and imported by itself."""
        one = node_of(node)
        used = [node_of(u) for u in _used_results(node) if u is not node]
        if isinstance(one.value, list) and not used:
            return "no result that is used"
        ends = used or [one]
        ins = [Node(i.name, "placeholder", "", [], {}, node_of(i).value) for i in node.all_input_nodes]
        for i in ins:
            if not isinstance(i.value, Meta):
                return "an input that is several tensors"
        out = Node("output", "output", "output", [[Ref(e.name) for e in ends]], {}, None)
        lowering, lines, _ = _check_import(Graph("node", [*ins, one, *used, out]))
        # What is too large in one graph may be small enough in another.
        unknown = NOT_KNOWN if NOT_KNOWN in lowering.doubts.values() else None
        return lines[0].split(": ", 2)[2] if lines else unknown


def _check_import(graph, orders=None):
    """(Lowering, what is not covered, the model's bytes)"""
    lowering = Lowering(graph, orders, looks_up=True)
    problems = lowering.run()
    lines = [f"{name}: {why}" for name, why in problems.items()]
    data = lowering.model.to_bytes()
    if not lines:
        try:
            skipped = import_bytes(data, "graph.onnx", True)["skipped"]
            lines = reasons(skipped, {}, {n.name: n.target for n in graph.nodes})
        except InputError as e:
            lines = [f"{graph.nodes[-2].name}: graph: {e}"]
    return lowering, lines, data


def _lies(value):
    """A tensor's dimensions as they lie in memory, outermost first; None: its elements are apart, or one is there for several."""
    long = [d for d, extent in enumerate(value.shape) if extent != 1]
    order = sorted(range(len(value.shape)), key=lambda d: (d in long, -value.stride(d)))
    inside = 1
    for d in reversed([d for d in order if d in long]):
        if value.stride(d) != inside:
            return None
        inside *= value.shape[d]
    return order


def _results_of(fx_graph):
    """(its results' values, whether there are several)"""
    returned = [n for n in fx_graph.nodes if n.op == "output"][0].args[0]
    several = isinstance(returned, (list, tuple))
    return [n.meta["val"] for n in (returned if several else [returned])], several


def _orders(fx_graph):
    """Of floating inputs by name and results by position, whose dimensions lie in another order than they are in. None of a
    graph with windows: their kernels are for channels that lie outermost, and a copy takes less than other kernels do."""
    import torch

    if any(word in target_of(n) for n in fx_graph.nodes if n.op == "call_function" for word in ("conv", "pool", "upsample", "grid")):
        return {}
    ends = [(n.name, n.meta.get("val")) for n in fx_graph.nodes if n.op == "placeholder"]
    ends += enumerate(_results_of(fx_graph)[0])
    return {name: _lies(x) for name, x in ends if isinstance(x, torch.Tensor) and x.is_floating_point() and not x.is_contiguous()
            and x.numel() and _lies(x)}


# ---- Parts and the rest ---------------------------------------------------------------------------------------------

def _partitioned(gm, coverage, excluded):
    """Fuses covered nodes of one type, as many as may stand together; returns names of the submodules."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    names = []
    for dtype, nodes in coverage.by_dtype.items():
        def covered(_, node, nodes=nodes):
            of = node.args[0] if node.op == "call_function" and target_of(node) == "getitem" else node
            return node.op == "call_function" and node.name in nodes and of.name not in excluded

        partitioner = CapabilityBasedPartitioner(gm, create_op_support(covered), allows_single_node_partition=True)
        worth = [p for p in partitioner.propose_partitions() if any(
            _computes(n, coverage) and any(m.dtype == dtype for i in [n, *n.all_input_nodes] for m in _metas(i)) for n in p.nodes)]
        prefix = f"tilewright_{_TYPES[dtype]}_"
        partitioner.fuse_partitions(worth, prefix)
        names += [n.target for n in gm.graph.nodes if n.op == "call_module" and str(n.target).startswith(prefix)]
    return names


def _computes(node, coverage):
    entry = lowering_of(target_of(node))
    return entry is not None and not entry.moves and node.name not in coverage.constant


def _covered(gm, way, options, verify, kept):
    """The graph with programs in place of what is covered."""
    import copy

    import torch

    report = Report(way)
    coverage = _Coverage(gm)
    excluded = {}
    while True:
        # Constants are shared: within PyTorch's tracing of shapes a tensor with values cannot be copied.
        work = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
        checked, again = {}, False
        for name in _partitioned(work, coverage, excluded):
            part = getattr(work, name).graph
            graph = graph_of(part, name)
            lowering, lines, data = _check_import(graph, _orders(part))
            checked[name] = (lowering, data)
            targets = {n.name: n.target for n in graph.nodes}
            problems = dict(line.split(": ", 1) for line in lines)
            problems.update({node: f"{targets[node]}: {why}" for node, why in lowering.doubts.items()})
            again = again or not set(problems) <= set(excluded)
            excluded.update(problems)
        if not again:
            break
    in_torch = {**coverage.why, **excluded}
    for name, (lowering, data) in checked.items():
        part = getattr(work, name)
        call = next(n for n in work.graph.nodes if n.op == "call_module" and n.target == name)
        inside = [n.name for n in part.graph.nodes if n.op == "placeholder"]
        of_part = {i: kept[a.name] for i, a in zip(inside, call.args) if a.name in kept}
        try:
            program = _Program(part, lowering, data, options, verify, report, of_part)
        except (InputError, RuntimeError) as e:
            calls = [n for n in part.graph.nodes if n.op == "call_function" and target_of(n) != "getitem"]
            in_torch.update({n.name: f"{target_of(n)}: {str(e).splitlines()[0]}" for n in calls})
            continue
        setattr(work, name, _called(program))
        report.programs.append(program.summary)
    report.in_torch = [f"{name}: {why}" for name, why in in_torch.items()]
    work.recompile()
    log.info("%s", report)
    with _lock:
        _reports.append(report)
    return _direct(work) or work


def _called(program):
    """A program as a module, as graphs call it."""
    import torch

    class Tilewright(torch.nn.Module):
        def forward(self, *args):
            return program(*args)

    module = Tilewright()
    module.program = program
    return module


def _direct(gm):
    """A graph that one program is, without PyTorch's call of a graph and of a module around it; None: it is more."""
    nodes = list(gm.graph.nodes)
    calls = [n for n in nodes if n.op == "call_module"]
    given = [n for n in nodes if n.op == "placeholder"]
    returned = nodes[-1].args[0]
    results = [n for n in nodes if n.op == "call_function" and target_of(n) == "getitem"]
    if len(calls) != 1 or len(given) + len(results) + 2 != len(nodes) or not isinstance(returned, (list, tuple)):
        return None
    program = getattr(getattr(gm, calls[0].target), "program", None)
    places = {n: i for i, n in enumerate(given)}
    taken = all(a in places for a in calls[0].args) and all(n in results or n == calls[0] for n in returned)
    if program is None or calls[0].kwargs or not taken:
        return None
    order = [places[a] for a in calls[0].args]
    of_results = [n.args[1] if n in results else 0 for n in returned]
    as_they_are = of_results == list(range(len(program.results)))

    def run(args):
        made = program.results_of([args[i] for i in order])
        args.clear()
        return made if as_they_are else [made[i] for i in of_results]
    if as_they_are and order == list(range(len(given))):
        run.program = program
    run._boxed_call = True
    return run


# ---- A program ------------------------------------------------------------------------------------------------------

class _Program:
    """One part, loaded: called with tensors, returns tensors. `kept`: those that are the same in every call."""

    def __init__(self, part, lowering, data, options, verify, report, kept):
        import torch

        if any(v is None for v in lowering.outputs):
            raise RuntimeError("a result that is not a tensor")
        asked = json.dumps({"machine": "host", "threads": torch.get_num_threads(), **options})
        self.part, self.report = part, report
        self.checked, self.wrong = False, False
        self.at_once = None  # what is called with tensors, once it is checked, where nothing is done before and after
        self.summary = {"nodes": sum(n.op == "call_function" for n in part.graph.nodes)}
        self.types = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "i32": torch.int32,
                      "i8": torch.int8}
        self.positions = {n.name: i for i, n in enumerate(n for n in part.graph.nodes if n.op == "placeholder")}
        self.made_from = (data, asked, verify)
        self.bounds, self.orders = lowering.bounds, lowering.orders
        kept = {name: x for name, x in kept.items() if str(x.dtype).removeprefix("torch.") in _TYPES}
        self.results = []
        self.loaded = self._load(kept)

    def _say_results(self, network):
        import torch

        values, self.several = _results_of(self.part.graph)
        order = {e.name: i for i, e in enumerate(network.outputs)}
        stored = [network.outputs[order[f"output/{i}"]].dtype for i in range(len(values))]
        # By result: shape, strides, type of its elements in the program; what PyTorch has in place of these, where it is another
        self.others = []
        for i, (v, s) in enumerate(zip(values, stored)):
            lies = v.is_contiguous() or i in self.orders
            self.results.append((tuple(v.shape), v.stride() if lies else torch.empty(v.shape, device="meta").stride(), self.types[s]))
            if not lies or v.dtype != self.types[s]:
                self.others.append((i, v.stride(), v.dtype))
        self.order = [int(e.name.split("/")[1]) for e in network.outputs]

    def _load(self, kept):
        """(what is called, the network's inputs, what it has kept)"""
        import torch
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():  # PyTorch is tracing
            elements = {name: self._as_it_lies(x.detach(), name).contiguous() for name, x in kept.items()}
        where = {name: (x.data_ptr(), x.numel() * x.element_size()) for name, x in elements.items()}
        network = Network(*self.made_from, where)
        self.summary.update(json.loads(network.describe()))
        if not self.results:
            self._say_results(network)
        inputs = [(self.types[e.dtype], self._bound(e.name)) for e in network.inputs]
        given = []
        for e, (dtype, bound) in zip(network.inputs, inputs):
            as_it_lies = [dtype] + [torch.bool] * (dtype == torch.int8)
            whole = (torch.int64, *bound[:2]) if bound and dtype == torch.int32 else None
            given.append((self.positions[e.name], [] if bound else as_it_lies, self.orders.get(e.name), whole))
        # Of shape, strides and type. What Inductor's programs use, where it is there, takes a fifth of the time.
        empty = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None) or (
            lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype))
        call = TensorCall(network, given, self.results, self.order, empty, lambda x, i: _given(x, *inputs[i]))
        return call, inputs, [(self.positions[name], x, x.data_ptr(), _version(x)) for name, x in kept.items()]

    def _bound(self, name):
        """Of an input of whole numbers: between what they must lie, and which others they may be."""
        import torch

        value = next(n for n in self.part.graph.nodes if n.name == name).meta["val"]
        whole = (-GIVEN, GIVEN, ()) if value.dtype in (torch.int32, torch.int64) else None
        return self.bounds.get(name, whole)

    def _as_it_lies(self, x, name):
        return x.permute(self.orders[name]) if name in self.orders else x

    def __call__(self, *args):
        made = self.results_of(args)
        return tuple(made) if self.several else made[0]

    def results_of(self, args):
        """A list, also where there is one."""
        made = None if self.wrong else self._run(args)
        if made is not None and self.checked:
            return made
        want = self.part(*args)
        want = list(want) if self.several else [want]
        if made is None:  # an index that PyTorch takes from the end, or refuses, is none of the program's
            return want
        why = _differs(made, want, args)
        self.checked = True
        if not why:
            self.at_once = None if self.others or self.loaded[2] else self.loaded[0]
            return made
        self._give_up(why)
        return want

    def _give_up(self, why):
        log.warning("tilewright: a program of %d nodes is not used: %s", self.summary["nodes"], why)
        self.wrong = True
        with _lock:
            self.report.programs.remove(self.summary)
            self.report.in_torch += [f"{n.name}: {target_of(n)}: in a program that is wrong: {why}"
                                     for n in self.part.graph.nodes
                                     if n.op == "call_function" and target_of(n) != "getitem"]

    def _run(self, args):
        call, _, kept = self.loaded
        if kept and any(args[at].data_ptr() != where or _version(args[at]) != version for at, _, where, version in kept):
            log.info("tilewright: parameters have changed: they are inputs from here on")
            call, *_ = self.loaded = self._load({})
        outs = call(args)
        for i, stride, dtype in self.others if outs else []:
            outs[i] = _returned(outs[i], stride, dtype)
        return outs


def _version(x):
    """How often it was written; tensors made in inference mode do not count."""
    return 0 if x.is_inference() else x._version


def _largest(x):
    """Of the finite elements."""
    x = x.detach().double().abs()
    x = x[x.isfinite()]
    return float(x.max()) if x.numel() else 0.0


def _differs(made, want, args):
    """Why results are wrong; None: they are right. What cancels to nothing is held against its operands' size."""
    import torch

    floats = [x for x in [*args, *want] if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    least = max(map(_largest, floats), default=0.0) * 2.0**-6
    for i, (got, right) in enumerate(zip(made, want)):
        name = str(right.dtype).removeprefix("torch.")
        if name in _TOLERANCE:
            most = _TOLERANCE[name] * max(_largest(right), least)
            same = torch.isclose(got.double(), right.double(), rtol=0, atol=most, equal_nan=True)
            wrong = int((~same).sum())
        else:  # what a comparison makes of values that rounding moved may differ here and there
            wrong = int((got != right).sum())
            wrong = 0 if wrong <= right.numel() // 100 else wrong
        if wrong:
            return f"{wrong} of {right.numel()} elements of result {i} are not what PyTorch makes"
    return None


def _given(x, dtype, bound):
    """The tensor as the program reads it: itself, or a copy. None where PyTorch must see it."""
    import torch

    if x.dtype == torch.bool:
        x = x.view(torch.int8) if dtype == torch.int8 else x
    elif bound is not None:
        low, high = (int(end) for end in torch.aminmax(x))
        least, most, others = bound
        if low < least or high > most:
            outside = x[(x < least) | (x > most)]
            if not torch.isin(outside, torch.tensor(sorted(others), dtype=x.dtype)).all():
                return None
    return x.to(dtype).contiguous()


def _returned(out, stride, dtype):
    """Of the type and strides that the graph says."""
    import torch

    if out.dtype != dtype:
        out = out != 0 if dtype == torch.bool else out.to(dtype)
    if out.stride() == stride:
        return out
    once = out
    for dim, step in enumerate(stride):
        if step == 0:  # the same element again and again
            once = once.narrow(dim, 0, 1)
    return torch.empty_strided(once.shape, stride, dtype=dtype).copy_(once).expand(out.shape)
