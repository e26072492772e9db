"""Loop nests that run and count what they move.

For a first lecture, before any notation: an ordinary Python loop nest holds tiles in a memory, computes on them with
NumPy, and the memories count. Software decides what is held, as on a scratchpad; what a nest moves is what the model
``exact`` says of the plan that has the same loops, to the byte.

>>> from tilewright.nests import Memory, blocks
>>> dram = Memory("DRAM")
>>> l1 = Memory("L1", capacity=4096, outer=dram)
>>> A, B, D = dram.array("A", (10, 7)), dram.array("B", (7, 9)), dram.array("D", (9, 6))
>>> E = dram.zeros("E", (10, 6))
>>> for m in blocks(10, 4):
...     for l in blocks(9, 5):
...         with l1.new("C", m, l) as c:
...             for k in blocks(7, 4):
...                 with l1.hold(A[m, k]) as a, l1.hold(B[k, l]) as b:
...                     c += a @ b
...             for n in blocks(6, 3):
...                 with l1.hold(D[l, n]) as d, l1.update(E[m, n]) as e:
...                     e += c @ d
>>> print(dram.report())
boundary  tensor  read B  written B
DRAM/L1   A          560          0
DRAM/L1   B          756          0
DRAM/L1   D          648          0
DRAM/L1   E          240        480
<BLANKLINE>
memory in L1  224 B of 4,096
>>> bool(abs(E.values - A.values @ B.values @ D.values).max() < 1e-4)
True

The rules are the loop tree's (rules 4 to 12 of the plan notation):

- A memory has one buffer for each tensor. It holds one tile, and is as large as the largest tile that it ever held.
- Holding the tile that is there already moves nothing. Another one is read whole from the next outer memory that has it.
- A tile that is updated starts at zero where nothing was written before. Otherwise it is read back, unless it is there.
- What was changed is written when another tile takes its place, or at the kernel's end (:meth:`Memory.end_kernel`),
  or when the nest says so (:meth:`Memory.store`).
- A buffer takes room from when its tile comes until the end of the last block that holds it. (For a memory that is
  not the innermost one ``exact`` may say less: there a tile's last use is the last load from it.)
"""

import contextlib as _contextlib
import typing as _typing

import numpy as _numpy

from ._tilewright import InputError
from .answer import Answer

if _typing.TYPE_CHECKING:
    _Array = _numpy.ndarray[_typing.Any, _typing.Any]


def blocks(of: "int | slice", step: int) -> "_typing.Iterator[slice]":
    """The tiles of a range, in order, as slices; the last is shorter where ``step`` does not divide. ``of`` is an
    extent, or a tile of an outer loop. Raises :class:`InputError` for a step or an extent below 1."""
    begin, end = (of.start or 0, of.stop) if isinstance(of, slice) else (0, of)
    for name, value in (("step", step), ("extent", end - begin)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"blocks: {name}: {value!r}; accepted: integers of at least 1")
    return (slice(b, min(b + step, end)) for b in range(begin, end, step))


def _elements(box):
    count = 1
    for begin, end in box:
        count *= end - begin
    return count


def _inside(box, whole):
    return all(b >= wb and e <= we for (b, e), (wb, we) in zip(box, whole))


def _common(a, b):
    """Elements that two boxes share."""
    return _elements([(max(x, u), max(min(y, v), max(x, u))) for (x, y), (u, v) in zip(a, b)])


class Region:
    """A box of a tensor: what indexing an :class:`Array` with slices and integers gives."""

    def __init__(self, array: "Array", box):
        self.array, self.box = array, tuple(box)

    def _within(self, box):
        """This region's slices within an array that holds ``box``."""
        return tuple(slice(b - wb, e - wb) for (b, e), (wb, _) in zip(self.box, box))


class Array:
    """A tensor in the memory where it lives. ``values`` is its NumPy array; indexing with slices, or with integers
    for single rows, gives a :class:`Region`. Coordinates are the whole tensor's, at every level."""

    def __init__(self, name, memory, values, origin=None):
        self.name, self.memory, self.values = name, memory, values
        self.origin = origin or (0,) * values.ndim
        self._written = _numpy.zeros(values.shape, bool)

    def __getitem__(self, index) -> Region:
        index = index if isinstance(index, tuple) else (index,)
        if len(index) != self.values.ndim:
            raise InputError(f"{self.name}: {len(index)} indices; accepted: {self.values.ndim}, one for each dimension")
        box = []
        for i, at, extent, origin in zip(range(len(index)), index, self.values.shape, self.origin):
            if isinstance(at, slice):
                begin = origin if at.start is None else at.start
                end = origin + extent if at.stop is None else min(at.stop, origin + extent)
                if at.step not in (None, 1):
                    raise InputError(f"{self.name}: index {i}: a step of {at.step}; accepted: slices without a step")
            else:
                begin, end = at, at + 1
            if begin < origin or end <= begin or end > origin + extent:
                raise InputError(f"{self.name}: index {i}: {begin} to {end}; "
                                 f"accepted: not empty, within {origin} to {origin + extent}")
            box.append((begin, end))
        return Region(self, box)

    def _whole(self):
        return tuple((o, o + e) for o, e in zip(self.origin, self.values.shape))

    def _at(self, region):
        return region._within(self._whole())


class _Buffer:
    """One tensor's tile in one memory."""

    def __init__(self, array, copies):
        self.array, self.copies = array, copies
        self.box, self.values, self.dirty = None, None, False
        self.largest, self.begin, self.last = 0, 0, 0
        self.lives = []  # (from, to) of tiles that were here, in the memory's clock

    def close(self):
        if self.box is not None:
            self.lives.append((self.begin, self.last))
        self.box, self.values, self.dirty = None, None, False

    def open(self, box, now):
        self.box, self.begin, self.last, self.dirty = box, now, now, False
        self.largest = max(self.largest, _elements(box))

    def bytes(self):
        return self.largest * self.copies * self.array.values.itemsize


class Memory:
    """A memory level. ``capacity`` in bytes (None: unlimited), ``outer`` the next level further out (None: home,
    where inputs and outputs live). Levels form one line: a memory is the outer one of at most one other."""

    def __init__(self, name: str, capacity: "int | None" = None, outer: "Memory | None" = None):
        if capacity is not None and (not isinstance(capacity, int) or capacity < 1):
            raise InputError(f"memory {name}: capacity: {capacity!r}; accepted: bytes, at least 1, or None")
        if outer is not None and outer._inner is not None:
            raise InputError(f"memory {name}: outer: {outer.name} has {outer._inner.name} inside; accepted: the innermost memory")
        self.name, self.capacity, self.outer, self._inner = name, capacity, outer, None
        if outer is not None:
            outer._inner = self
        self._buffers, self._moved, self._use = {}, {}, []  # use: (time, bytes from then on)
        self._clock = outer._clock if outer else [0]

    # Tensors at home.

    def array(self, name: str, values: "_typing.Any", dtype: str = "float32", seed: int = 0) -> Array:
        """An input: NumPy values, or a shape (values are then drawn with ``seed``, between -1 and 1)."""
        if isinstance(values, tuple):
            drawn = _numpy.random.default_rng([seed, *name.encode()]).uniform(-1, 1, values)
            values = drawn.astype(dtype)
        made = Array(name, self, _numpy.array(values))
        made._written[...] = True
        return made

    def zeros(self, name: str, shape: "tuple[int, ...]", dtype: str = "float32") -> Array:
        """An output: nothing of it has been written yet."""
        return Array(name, self, _numpy.zeros(shape, dtype))

    # Tiles.

    @_contextlib.contextmanager
    def hold(self, region: Region, copies: int = 1, sliding: bool = False) -> "_typing.Iterator[_Array]":
        """The region's values in this memory, to be read only. ``copies=2`` for double buffering, which takes twice
        the room and moves no less. ``sliding``: where one coordinate alone has moved, only the new part is read."""
        buffer = self._place(region, copies, sliding, read=True)
        view = buffer.values.view()
        view.flags.writeable = False
        yield view
        self._used(buffer)

    @_contextlib.contextmanager
    def update(self, region: Region, copies: int = 1) -> "_typing.Iterator[_Array]":
        """The region's values in this memory, to be changed in place (``tile += ...``, ``tile[:] = ...``)."""
        written = region.array._written[region.array._at(region)]
        buffer = self._place(region, copies, False, read=bool(written.any()))
        yield buffer.values
        buffer.dirty = True
        written[...] = True
        self._used(buffer)

    def store(self, region: Region) -> None:
        """Writes the region's tile to the next outer memory that has it now, if it was changed. It stays held. Raises
        :class:`InputError` where another tile is held."""
        buffer = self._buffers.get(region.array.name)
        if buffer is None or buffer.box != region.box:
            raise InputError(f"memory {self.name}: {region.array.name}{list(region.box)} is not held; accepted: held tiles")
        self._write_back(buffer)
        self._used(buffer)

    @_contextlib.contextmanager
    def new(self, name: str, *box: "slice | int", dtype: str = "float32", copies: int = 1) -> "_typing.Iterator[_Array]":
        """An intermediate that lives in this memory only, of zeros at first: it moves nothing, takes room until the
        block's end, and is empty when the block is entered again. ``box`` are the slices or extents that it covers. Tiles
        of it can be held further in: ``memory[name][m, l]`` is such a region."""
        spans = [(b.start or 0, b.stop) if isinstance(b, slice) else (0, b) for b in box]
        if name in self._buffers and self._buffers[name].box is not None:
            raise InputError(f"memory {self.name}: {name} is there already; accepted: one tile of a tensor at a time")
        values = _numpy.zeros([e - b for b, e in spans], dtype)
        array = Array(name, self, values, tuple(b for b, _ in spans))
        buffer = self._buffers.setdefault(name, _Buffer(array, copies))
        buffer.array, buffer.values, buffer.copies = array, values, copies
        buffer.open(tuple(spans), self._tick())
        yield values
        for memory in self._inward():  # what is further in goes with it
            if memory is not self and name in memory._buffers:
                memory._buffers[name].close()
        self._used(buffer)
        buffer.close()

    def __getitem__(self, name: str) -> Array:
        """The intermediate of that name which :meth:`new` holds here now."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.box is None or buffer.array.memory is not self:
            raise InputError(f"memory {self.name}: no intermediate {name} here now; accepted: what new() holds")
        return buffer.array

    def end_kernel(self) -> None:
        """Writes what was changed, from the innermost memory outwards, and empties this memory and all further in."""
        for memory in reversed(list(self._inward())):
            for buffer in memory._buffers.values():
                memory._write_back(buffer)
                buffer.close()
            memory._use += memory._changes()
            for buffer in memory._buffers.values():
                buffer.largest, buffer.lives = 0, []

    def report(self) -> "Report":
        """Ends the kernel and says what has crossed each boundary from here inwards, and how much memory was in use at
        most. A document as :func:`tilewright.predict` gives it, with ``traffic``, ``memory`` and ``fits``, and
        ``occupancy``: for each memory the bytes in use from each step on, in order."""
        self.end_kernel()
        inward = list(self._inward())
        traffic = [{"tensor": tensor, "boundary": f"{m.outer.name}/{m.name}", "read_bytes": r, "written_bytes": w}
                   for m in inward if m.outer is not None for tensor, (r, w) in sorted(m._moved.items())]
        levels = [m for m in inward if m.outer is not None]
        memory = {m.name: max((b for _, b in m._use), default=0) for m in levels}
        return Report({"traffic": traffic, "memory": memory,
                       "occupancy": {m.name: list(m._use) for m in levels},
                       "capacity": {m.name: m.capacity for m in levels},
                       "fits": all(m.capacity is None or memory[m.name] <= m.capacity for m in levels)})

    # How it is done.

    def _inward(self):
        memory = self
        while memory is not None:
            yield memory
            memory = memory._inner

    def _tick(self):
        self._clock[0] += 1
        return self._clock[0]

    def _used(self, buffer):
        buffer.last = self._tick()

    def _place(self, region, copies, sliding, read):
        array = region.array
        if array.memory is self:
            raise InputError(f"memory {self.name}: {array.name} lives here; accepted: tensors of a memory further out")
        outward = self.outer
        while outward is not None and outward is not array.memory:
            outward = outward.outer
        if outward is None:
            raise InputError(f"memory {self.name}: {array.name} lives in {array.memory.name}; "
                             "accepted: tensors of a memory further out")
        if copies < 1:
            raise InputError(f"memory {self.name}: copies: {copies!r}; accepted: integers of at least 1")
        buffer = self._buffers.setdefault(array.name, _Buffer(array, copies))
        if buffer.box is not None and buffer.array is not array:
            raise InputError(f"memory {self.name}: another tensor {array.name} is here; accepted: one of a name")
        buffer.array, buffer.copies = array, max(copies, buffer.copies)
        if buffer.box == region.box:
            return buffer
        was = buffer.box
        self._write_back(buffer)
        kept = 0
        if sliding and was is not None and sum(a != b for a, b in zip(was, region.box)) == 1:
            kept = _common(was, region.box)
        buffer.close()
        buffer.open(region.box, self._tick())
        values, outer = self._beyond(region)
        buffer.values = _numpy.array(values)
        if read:
            self._count(array.name, outer, (_elements(region.box) - kept) * values.itemsize, 0)
        return buffer

    def _beyond(self, region):
        """A view of the region's values in the next outer memory that has them, and that memory."""
        memory = self.outer
        while memory is not region.array.memory:
            buffer = memory._buffers.get(region.array.name)
            if buffer is not None and buffer.box is not None and _inside(region.box, buffer.box):
                return buffer.values[region._within(buffer.box)], memory
            memory = memory.outer
        return region.array.values[region.array._at(region)], memory

    def _count(self, name, outer, read, written):
        """Bytes count at every boundary on the way to the memory that they come from or go to."""
        memory = self
        while memory is not outer:
            counts = memory._moved.setdefault(name, [0, 0])
            counts[0] += read
            counts[1] += written
            memory = memory.outer

    def _write_back(self, buffer):
        if buffer.box is None:
            return
        for memory in self._inward():  # tiles further in are parts of this one
            inner = memory._buffers.get(buffer.array.name)
            if memory is not self and inner is not None and inner.dirty and _inside(inner.box, buffer.box):
                memory._write_back(inner)
        if not buffer.dirty:
            return
        name = buffer.array.name
        values, outer = self._beyond(Region(buffer.array, buffer.box))
        values[...] = buffer.values
        if outer is not buffer.array.memory:
            outer._buffers[name].dirty = True
        self._count(name, outer, 0, values.nbytes)
        buffer.dirty = False

    def _changes(self):
        """(time, bytes in use from then on): the sum of the buffers that are alive together."""
        changes = sorted((at, sign * buffer.bytes()) for buffer in self._buffers.values()
                         for life in buffer.lives for at, sign in zip(life, (1, -1)))
        used = 0
        return [(at, used := used + change) for at, change in changes]


class Report(Answer):
    """What a nest moved and held; printed, the table that ``tilewright predict`` prints."""

    def __str__(self):
        rows = [("boundary", "tensor", "read B", "written B")]
        rows += [(t["boundary"], t["tensor"], f"{t['read_bytes']:,}", f"{t['written_bytes']:,}") for t in self["traffic"]]
        width = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join(v.ljust(w) if i < 2 else v.rjust(w) for i, (v, w) in enumerate(zip(row, width))) for row in rows]
        lines.append("")
        for level, used in self["memory"].items():
            capacity = self["capacity"][level]
            of = "" if capacity is None else f" of {capacity:,}" + (": too much" if used > capacity else "")
            lines.append(f"memory in {level}  {used:,} B{of}")
        return "\n".join(lines)
