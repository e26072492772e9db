"""Models written in Python: subclass :class:`Model`, :func:`register` an instance, and every verb takes
its name as it takes a built-in model's.

>>> import tilewright
>>> class Compulsory(tilewright.Model):
...     "Every input read once, every output written once, whatever the plan."
...     name = "compulsory"
...     def predict(self, question):
...         w = question.workload
...         return tilewright.Price(
...             read_bytes={t: w.tensors[t].bytes for t in w.inputs},
...             written_bytes={t: w.tensors[t].bytes for t in w.outputs})
>>> tilewright.register(Compulsory())
>>> chain = "gemm-chain:m=96,n=64,k=48,l=80"
>>> said = tilewright.predict(chain, "scratchpad:16K", model="compulsory", order="mlkn")
>>> said["volume_bytes"] == 4 * (96 * 48 + 48 * 80 + 80 * 64 + 96 * 64)
True
>>> tilewright.unregister("compulsory")
"""

import dataclasses as _dataclasses
import json as _json
import math as _math
import typing as _typing

from ._tilewright import InputError, add_model as _add_model, remove_model as _remove_model


class Infeasible(Exception):
    """Raised by a model that has no plan, or no price for one: an outcome, shown with its reason."""


@_dataclasses.dataclass(frozen=True)
class Access:
    """How an operator indexes a tensor: per dimension of the tensor an affine form of loops.

    ``index`` holds, for each dimension, the coefficients by loop and the constant:
    ``2*h + r - 1`` is ``({"h": 2, "r": 1}, -1)``.
    """

    tensor: str
    index: _typing.Tuple[_typing.Tuple[_typing.Mapping[str, int], int], ...]

    @property
    def loops(self) -> _typing.FrozenSet[str]:
        """The loops that move through the tensor."""
        return frozenset(loop for form, _ in self.index for loop, c in form.items() if c)


@_dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor: its shape in elements, the bytes of an element, and of the whole."""

    name: str
    shape: _typing.Tuple[int, ...]
    dtype: str
    element_bytes: int

    @property
    def elements(self) -> int:
        return _math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes


@_dataclasses.dataclass(frozen=True)
class Operator:
    """An operator: what it reads and writes, the loops it walks, and those it reduces over."""

    name: str
    notation: str
    reads: _typing.Tuple[Access, ...]
    writes: _typing.Tuple[Access, ...]

    @property
    def loops(self) -> _typing.FrozenSet[str]:
        return frozenset().union(*(a.loops for a in self.reads + self.writes))

    @property
    def reduces(self) -> _typing.FrozenSet[str]:
        return self.loops - frozenset().union(*(a.loops for a in self.writes))


@_dataclasses.dataclass(frozen=True)
class Workload:
    """What is computed. ``loops`` are extents by name, in the workload's order."""

    name: str
    dtype: str
    loops: _typing.Mapping[str, int]
    tensors: _typing.Mapping[str, Tensor]
    operators: _typing.Tuple[Operator, ...]
    outputs: _typing.Tuple[str, ...]
    flops: float

    @property
    def inputs(self) -> _typing.Tuple[str, ...]:
        """Tensors that no operator writes."""
        written = {a.tensor for op in self.operators for a in op.writes}
        return tuple(t for t in self.tensors if t not in written)

    @property
    def intermediates(self) -> _typing.Tuple[str, ...]:
        return tuple(t for t in self.tensors if t not in self.inputs and t not in self.outputs)

    def footprint(self, access: Access, tiles: _typing.Mapping[str, int]) -> int:
        """Elements of the box that a tile touches: per dimension 1 + sum abs(c_j) (T_j - 1), clipped to the
        tensor. A loop that ``tiles`` does not name is whole."""
        shape = self.tensors[access.tensor].shape
        size = 1
        for extent, (form, _) in zip(shape, access.index):
            reach = 1 + sum(abs(c) * (tiles.get(loop, self.loops[loop]) - 1)
                            for loop, c in form.items())
            size *= min(extent, reach)
        return size


@_dataclasses.dataclass(frozen=True)
class Level:
    """A memory level; numbers that the machine file does not have are None."""

    name: str
    managed: str
    capacity_bytes: _typing.Optional[int]
    bandwidth_bytes_per_second: _typing.Optional[float]
    instances: int
    line_bytes: _typing.Optional[int] = None
    ways: _typing.Optional[int] = None


@_dataclasses.dataclass(frozen=True)
class Machine:
    """Where it is computed: levels outermost first, peak rates by type of the whole machine."""

    name: str
    kind: str
    levels: _typing.Tuple[Level, ...]
    peak_flops_per_second: _typing.Mapping[str, float]

    def level(self, name: str) -> Level:
        return next(level for level in self.levels if level.name == name)


@_dataclasses.dataclass(frozen=True)
class Node:
    """A node of a kernel's resolved loop tree (docs, "Files"): ``kind`` is loop, sequence, load, compute,
    store, sync or pack. A loop has ``step``, the elements of one iteration, and ``trips``, how many there
    are at most; a load has ``bytes``, its first tile's."""

    kind: str
    name: str
    step: int = 0
    trips: int = 1
    binding: str = ""
    level: str = ""
    bytes: _typing.Optional[int] = None
    children: _typing.Tuple["Node", ...] = ()

    def walk(self, around: _typing.Tuple["Node", ...] = ()
             ) -> _typing.Iterator[_typing.Tuple["Node", _typing.Tuple["Node", ...]]]:
        """Every node with the loops around it, outermost first."""
        yield self, around
        inner = around + (self,) if self.kind == "loop" else around
        for child in self.children:
            yield from child.walk(inner)


@_dataclasses.dataclass(frozen=True)
class Buffer:
    """Where a tensor's tile is held: bytes of its first tile, all copies together."""

    tensor: str
    level: str
    role: str
    copies: int
    bytes: _typing.Optional[int]


@_dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel of a plan: the tree as the user wrote it, its tiles, its resolved tree as nodes, the
    buffers that hold tiles, and the blocks that its grid loops make (1 without any)."""

    tree: str
    tiles: _typing.Mapping[str, int]
    nodes: Node
    buffers: _typing.Tuple[Buffer, ...] = ()
    blocks: int = 1

    def loops_around(self, operator: str) -> _typing.Tuple[Node, ...]:
        """The loops around an operator's compute, outermost first."""
        for node, around in self.nodes.walk():
            if node.kind == "compute" and node.name == operator:
                return around
        raise KeyError(operator)


@_dataclasses.dataclass(frozen=True)
class Question:
    """What a model is asked about. ``level`` is planned for; ``capacity_bytes`` of it may be used;
    ``kernels`` is the plan (empty where :meth:`Model.optimise` is to make one)."""

    workload: Workload
    machine: Machine
    level: Level
    boundary: str
    capacity_bytes: int
    seed: int
    kernels: _typing.Tuple[Kernel, ...] = ()


@_dataclasses.dataclass(frozen=True)
class Price:
    """What a model says a plan moves into and out of the level, in bytes by tensor, and, where it says
    so, the bytes of the level that the plan needs and the seconds that it takes."""

    read_bytes: _typing.Mapping[str, float] = _dataclasses.field(default_factory=dict)
    written_bytes: _typing.Mapping[str, float] = _dataclasses.field(default_factory=dict)
    memory_bytes: _typing.Optional[int] = None
    seconds: _typing.Optional[float] = None


@_dataclasses.dataclass(frozen=True)
class Choice:
    """A model's plan of one kernel: a loop tree, its tiles, and tensors pinned to levels."""

    tree: str
    tiles: _typing.Mapping[str, int] = _dataclasses.field(default_factory=dict)
    pins: _typing.Mapping[str, str] = _dataclasses.field(default_factory=dict)


class Model:
    """A cost model. Set ``name`` (letters, digits, - and _), and ``summary``, ``source`` and
    ``assumptions`` for those who read its numbers; write :meth:`predict`, and :meth:`optimise` if the
    model makes plans. Both may raise :class:`Infeasible`; whatever else they raise leaves the verb that
    asked. They are called one at a time, perhaps from another thread."""

    name: str = ""
    summary: str = ""
    source: str = "a model written in Python"
    assumptions: _typing.Sequence[str] = ()

    def predict(self, question: Question) -> Price:
        """The price of ``question.kernels``."""
        raise NotImplementedError

    def optimise(self, question: Question) -> Choice:
        """The best plan that the model finds, for at most ``question.capacity_bytes``. The plan is
        checked: an illegal one, or one that does not fit, is shown with the reason."""
        raise NotImplementedError


def register(model: Model) -> None:
    """Adds a model to those of :func:`models`; one of the same name that was added before is replaced.

    Raises :class:`InputError` for a built-in model's name or no name, TypeError for what is no Model.
    """
    if not isinstance(model, Model):
        raise TypeError(f"register() takes a tilewright.Model, not {type(model).__name__}")
    makes_plans = type(model).optimise is not Model.optimise
    summary = model.summary or (model.__doc__ or "").strip().split("\n")[0]
    if summary == (Model.__doc__ or "").strip().split("\n")[0]:
        summary = ""
    record = {"name": str(model.name), "summary": summary, "source": str(model.source),
              "assumptions": [str(a) for a in model.assumptions]}
    _add_model(_json.dumps(record),
               (lambda text: _optimised(model, _json.loads(text))) if makes_plans else None,
               lambda text: _priced(model, _json.loads(text)))


def unregister(name: str) -> None:
    """Removes a model that :func:`register` added. Raises :class:`InputError` where there is none."""
    _remove_model(name)


def _access(said: _typing.Any) -> Access:
    return Access(said["tensor"], tuple((terms, constant) for terms, constant in said["index"]))


def _operator(said: _typing.Any) -> Operator:
    return Operator(said["name"], said["notation"], tuple(_access(a) for a in said["reads"]),
                    tuple(_access(a) for a in said["writes"]))


def _workload(said: _typing.Any, q: _typing.Any) -> Workload:
    tensors = {t["name"]: Tensor(t["name"], tuple(t["shape"]), t["dtype"],
                                 q["element_bytes"][t["name"]]) for t in said["tensors"]}
    return Workload(name=said["name"], dtype=said["dtype"],
                    loops={loop["name"]: loop["extent"] for loop in said["loops"]},
                    tensors=tensors, operators=tuple(_operator(o) for o in said["operators"]),
                    outputs=tuple(said["outputs"]), flops=q["flops"])


def _machine(said: _typing.Any) -> Machine:
    keys = [f.name for f in _dataclasses.fields(Level)]
    peak: _typing.Dict[str, float] = {}
    for unit in said["units"]:
        for dtype, rate in unit["peak_flops_per_second"].items():
            peak[dtype] = max(rate, peak.get(dtype, 0))
    return Machine(said["name"], said["kind"],
                   tuple(Level(**{k: level[k] for k in keys if k in level})
                         for level in said["levels"]), peak)


def _node(said: _typing.Any) -> Node:
    return Node(said["kind"], said["name"], said.get("step", 0), said.get("trips", 1),
                said.get("binding", ""), said.get("level", ""), said.get("bytes"),
                tuple(_node(c) for c in said["children"]))


def _kernel(said: _typing.Any) -> Kernel:
    keys = [f.name for f in _dataclasses.fields(Buffer)]
    return Kernel(said["tree"], said.get("tiles", {}), _node(said["nodes"]),
                  tuple(Buffer(**{k: b[k] for k in keys}) for b in said["buffers"]),
                  said["blocks"])


def _question(said: _typing.Any) -> Question:
    machine = _machine(said["machine"])
    return Question(workload=_workload(said["workload"], said), machine=machine,
                    level=machine.level(said["level"]), boundary=said["boundary"],
                    capacity_bytes=said["capacity_bytes"], seed=said["seed"],
                    kernels=tuple(_kernel(k) for k in said.get("kernels", [])))


def _bad(model: Model, field: str, value: object, accepted: str) -> InputError:
    return InputError(f"model {model.name}: {field}: {value!r} is not accepted; accepted: {accepted}")


def _number(model: Model, field: str, value: _typing.Any) -> float:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _math.isfinite(value) \
            or value < 0:
        raise _bad(model, field, value, "a finite number, 0 or more")
    return value


def _priced(model: Model, said: _typing.Any) -> str:
    question = _question(said)
    try:
        price = model.predict(question)
    except Infeasible as e:
        return _json.dumps({"reason": f"{model.name}: {e}"})
    if not isinstance(price, Price):
        raise _bad(model, "predict", price, "a tilewright.Price")
    moved: _typing.Dict[str, _typing.List[int]] = {}
    for i, (field, side) in enumerate((("read_bytes", price.read_bytes),
                                       ("written_bytes", price.written_bytes))):
        for tensor, value in side.items():
            if tensor not in question.workload.tensors:
                raise _bad(model, field, tensor, ", ".join(question.workload.tensors))
            moved.setdefault(tensor, [0, 0])[i] = round(_number(model, f"{field}[{tensor!r}]", value))
    answer: _typing.Dict[str, _typing.Any] = {
        "source": "predicted", "by": model.name, "machine": question.machine.name,
        "traffic": [{"tensor": t, "boundary": question.boundary, "read_bytes": r, "written_bytes": w}
                    for t, (r, w) in moved.items() if r or w],
        "counts": {"write_allocate": False, "write_back": True, "prefetch": False},
        "memory": {}, "volume_bytes": sum(r + w for r, w in moved.values()), "seconds": None}
    if price.memory_bytes is not None:
        answer["memory"] = {question.level.name:
                            round(_number(model, "memory_bytes", price.memory_bytes))}
    if price.seconds is not None:
        answer["seconds"] = _number(model, "seconds", price.seconds)
    return _json.dumps(answer)


def _optimised(model: Model, said: _typing.Any) -> str:
    question = _question(said)
    try:
        choice = model.optimise(question)
    except Infeasible as e:
        return _json.dumps({"reason": f"{model.name}: {e}"})
    if not isinstance(choice, Choice):
        raise _bad(model, "optimise", choice, "a tilewright.Choice")
    tiles = {}
    for loop, size in choice.tiles.items():
        size = size.item() if hasattr(size, "item") else size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise _bad(model, f"tiles[{loop!r}]", size, "a whole number above 0")
        tiles[loop] = size
    kernel: _typing.Dict[str, _typing.Any] = {"name": "fused", "tree": choice.tree, "tiles": tiles}
    if choice.pins:
        kernel["pins"] = dict(choice.pins)
    return _json.dumps({"plan": {"kernels": [kernel]}})
