"""ATen operators that move elements, and those that make constants."""

import math

from .lower import FLOATS, NotCovered, Value, axis, broadcast, demand_short, lowers


@lowers("aten.view", "aten._unsafe_view", "aten.reshape", "aten.unsqueeze", "aten.squeeze", "aten.flatten",
        "aten.unflatten", args="self size end", moves=True)
def _view(l, n, a):
    return l.reshape(a["self"], n.value.shape)


@lowers("aten.permute", "aten.transpose", "aten.t", "aten.swapaxes", args="self dims dim1", moves=True)
def _permute(l, n, a):
    x, rank = a["self"], len(a["self"].shape)
    if isinstance(a["dims"], list):
        return l.permute(x, [axis(d, rank) for d in a["dims"]])
    if a["dims"] is None:  # t
        return x if rank < 2 else l.swapped(x, 0, 1)
    return l.swapped(x, axis(a["dims"], rank), axis(a["dim1"], rank)) if rank else x


@lowers("aten.as_strided", args="self size stride storage_offset", moves=True)
def _as_strided(l, n, a):
    """Of the elements as they lie, as adaptive average pooling to one point has it; other strides read other elements."""
    x, apart = a["self"], 1
    same = tuple(n.value.shape) == tuple(x.shape) and not a["storage_offset"]
    for size, stride in zip(reversed(n.value.shape), reversed(a["stride"])):
        same = same and (size == 1 or stride == apart)
        apart *= size
    if not same:
        raise NotCovered("elements at strides of their own")
    return x


@lowers("aten.expand", "aten.broadcast_to", args="self size implicit", moves=True)
def _expand(l, n, a):
    return l.expand(a["self"], n.value.shape)


def _place(at, size, otherwise):
    at = otherwise if at is None else at
    return max(0, min(size, at + size if at < 0 else at))


@lowers("aten.slice", args="self dim start end step", moves=True)
def _slice(l, n, a):
    x = a["self"]
    d = axis(a["dim"] or 0, len(x.shape))
    start, end = _place(a["start"], x.shape[d], 0), _place(a["end"], x.shape[d], x.shape[d])
    return l.slice(x, d, start, end, a["step"] or 1)


@lowers("aten.select", args="self dim index", moves=True)
def _select(l, n, a):
    x = a["self"]
    d = axis(a["dim"], len(x.shape))
    i = axis(a["index"], x.shape[d])
    return l.reshape(l.slice(x, d, i, i + 1), n.value.shape)


@lowers("aten.split", "aten.split_with_sizes", "aten.chunk", args="self split_size dim", moves=True)
def _split(l, n, a):
    x, at, out = a["self"], 0, []
    d = axis(a["dim"] or 0, len(x.shape))
    for meta in n.value:
        out.append(l.slice(x, d, at, at + meta.shape[d]) if l.wants(len(out)) else None)
        at += meta.shape[d]
    return out


@lowers("aten.unbind", args="self dim", moves=True)
def _unbind(l, n, a):
    x = a["self"]
    d = axis(a["dim"] or 0, len(x.shape))
    return [l.reshape(l.slice(x, d, i, i + 1), meta.shape) if l.wants(i) else None for i, meta in enumerate(n.value)]


@lowers("aten.cat", args="tensors dim", moves=True)
def _cat(l, n, a):
    parts = [l.cast(p, n.value.dtype) for p in a["tensors"] if 0 not in p.shape]
    return l.concat(parts, axis(a["dim"] or 0, len(n.value.shape)))


@lowers("aten.stack", args="tensors dim", moves=True)
def _stack(l, n, a):
    d = axis(a["dim"] or 0, len(n.value.shape))
    shape = [1 if i == d else e for i, e in enumerate(n.value.shape)]
    return l.concat([l.reshape(l.cast(p, n.value.dtype), shape) for p in a["tensors"]], d)


@lowers("aten.repeat", "aten.tile", args="self repeats", moves=True)
def _repeat(l, n, a):
    x, times = a["self"], a["repeats"]
    rank = max(len(times), len(x.shape))
    x = l.reshape(x, (*[1] * (rank - len(x.shape)), *x.shape))
    times = [1] * (rank - len(times)) + list(times)
    return x if set(times) <= {1} else l.emit("Tile", [x, l.integers(times)], n.value.shape)


@lowers("aten.flip", args="self dims", moves=True)
def _flip(l, n, a):
    x = a["self"]
    for d in a["dims"] if x.shape else ():
        d = axis(d, len(x.shape))
        x = l.slice(x, d, x.shape[d] - 1, -1, -1)
    return x


@lowers("aten.roll", args="self shifts dims", moves=True)
def _roll(l, n, a):
    x, shape = a["self"], a["self"].shape
    dims = a["dims"] or []
    if not dims:
        x, dims = l.reshape(x, (math.prod(shape),)), [0]
    for shift, d in zip([a["shifts"]] if isinstance(a["shifts"], int) else a["shifts"], dims):
        d = axis(d, len(x.shape))
        size = x.shape[d]
        if at := size - shift % size if shift % size else 0:
            x = l.concat([l.slice(x, d, at, size), l.slice(x, d, 0, at)], d)
    return l.reshape(x, shape)


@lowers("aten.slice_scatter", args="self src dim start end step", moves=True)
def _slice_scatter(l, n, a):
    x, d = a["self"], axis(a["dim"] or 0, len(a["self"].shape))
    start, end = _place(a["start"], x.shape[d], 0), _place(a["end"], x.shape[d], x.shape[d])
    if (step := a["step"] or 1) != 1:  # each element by its place in both
        places = list(range(x.shape[d]))
        for i, at in enumerate(range(start, end, step)):
            places[at] = x.shape[d] + i
        return l.emit("Gather", [l.concat([x, l.cast(a["src"], x.dtype)], d), l.integers(places)], x.shape, axis=d)
    parts = [l.slice(x, d, 0, start)] if start else []
    parts.append(l.cast(a["src"], x.dtype))
    return l.concat(parts + ([l.slice(x, d, end, x.shape[d])] if end < x.shape[d] else []), d)


@lowers("aten.select_scatter", args="self src dim index", moves=True)
def _select_scatter(l, n, a):
    x, d = a["self"], axis(a["dim"], len(a["self"].shape))
    at = axis(a["index"], x.shape[d])
    one = l.reshape(l.cast(a["src"], x.dtype), tuple(1 if i == d else e for i, e in enumerate(x.shape)))
    parts = [l.slice(x, d, 0, at)] if at else []
    return l.concat([*parts, one] + ([l.slice(x, d, at + 1, x.shape[d])] if at + 1 < x.shape[d] else []), d)


_PADS = {"constant_pad_nd": "constant", "reflection_pad1d": "reflect", "reflection_pad2d": "reflect",
         "replication_pad1d": "edge", "replication_pad2d": "edge"}


@lowers(*(f"aten.{p}" for p in _PADS), args="self pad value", moves=True)
def _pad(l, n, a):
    """Pads are said from the last dimension on."""
    x, pad = a["self"], a["pad"]
    before, after = ([0] * len(x.shape) for _ in range(2))
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    mode = _PADS[n.target.split(".")[1]]
    value = [l.constant(float(a["value"] or 0) if x.dtype in FLOATS else a["value"] or 0, x.dtype)]
    return l.emit("Pad", [x, l.integers(before + after)] + (value if mode == "constant" else []), n.value.shape,
                  mode=mode)


# ---- By index -------------------------------------------------------------------------------------------------------

@lowers("aten.embedding", args="weight indices padding_idx scale_grad_by_freq sparse")
def _embedding(l, n, a):
    return l.gather(a["weight"], a["indices"], 0, n.value.shape)


@lowers("aten.index_select", args="self dim index")
def _index_select(l, n, a):
    x, index = a["self"], a["index"]
    if not x.shape:
        x, index = l.reshape(x, (1,)), l.reshape(index, ())
    return l.gather(x, index, axis(a["dim"], len(x.shape)), n.value.shape)


def _is_grid(at, shapes):
    """Whether each index is along a dimension of its own, in the order of what is indexed: rows and columns of an image."""
    rank = len(at)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return (at == list(range(at[0], at[0] + rank)) and all(len(s) == rank for s in padded)
            and all(e == 1 for i, s in enumerate(padded) for d, e in enumerate(s) if d != i))


@lowers("aten.index", "aten._unsafe_index", args="self indices")
def _index(l, n, a):
    """x[:, i, j]: what is indexed comes first, or stays where it is if those dimensions are beside one another."""
    x, indices = a["self"], a["indices"]
    at = [d for d, i in enumerate(indices) if i is not None]
    if any(indices[d].dtype == "bool" for d in at):
        raise NotCovered("a mask as an index, whose number of elements is not known")
    if len(at) == 1:
        return l.gather(x, indices[at[0]], at[0], n.value.shape)
    shape = ()
    for d in at:
        shape = broadcast(shape, indices[d].shape)
    if _is_grid(at, [indices[d].shape for d in at]):
        for d in at:
            count = math.prod(indices[d].shape)
            x = l.gather(x, l.reshape(indices[d], (count,)), d, (*x.shape[:d], count, *x.shape[d + 1:]))
        return x
    for d in at:
        l.bound(indices[d], x.shape[d])
    rows = [l.reshape(l.expand(l.cast(indices[d], "int64"), shape), (*shape, 1)) for d in at]
    others = [d for d in range(len(x.shape)) if d not in at]
    out = l.emit("GatherND", [l.permute(x, at + others), l.concat(rows, len(shape))],
                 (*shape, *(x.shape[d] for d in others)))
    if at == list(range(at[0], at[-1] + 1)):  # back to where they were
        before, count = at[0], len(shape)
        out = l.permute(out, [*range(count, count + before), *range(count), *range(count + before, len(out.shape))])
    return out


def _is_at(l, index, dim, size):
    """Whether each position of a dimension is the one that `index`, of one element there, names."""
    shape = [1] * len(index.shape)
    shape[dim] = size
    return l.binary("Equal", index, l.constant(list(range(size)), "int64", shape), "int64", "bool")


@lowers("aten.gather", args="self dim index sparse_grad")
def _gather(l, n, a):
    """One element a row: the sum of the row where only that one is kept, unless it is looked up. Several: by index."""
    x, index, d = a["self"], a["index"], axis(a["dim"], len(a["self"].shape))
    if not x.shape:
        raise NotCovered("an element of a number")
    l.bound(index, x.shape[d])
    if index.shape[d] != 1 or l.looks_up:
        return l.emit("GatherElements", [x, index], n.value.shape, axis=d)
    for i, e in enumerate(index.shape):
        if i != d:
            x = l.slice(x, i, 0, e)
    zero = l.constant(0.0 if x.dtype in FLOATS else 0, x.dtype)
    kept = l.emit("Where", [_is_at(l, index, d, x.shape[d]), x, zero], x.shape, x.dtype)
    return l.reduce("ReduceSum", kept, [d], True)


@lowers("aten.scatter", args="self dim index src")
def _scatter(l, n, a):
    x, index, d = a["self"], a["index"], axis(a["dim"], len(a["self"].shape))
    source = a["src"] if a["src"] is not None else a.get("value")
    if not x.shape:
        raise NotCovered("an element of a number")
    l.bound(index, x.shape[d])
    if tuple(e for i, e in enumerate(index.shape) if i != d) != \
            tuple(e for i, e in enumerate(x.shape) if i != d) or index.shape[d] != 1:
        if not isinstance(source, Value):
            source = l.filled(float(source) if x.dtype in FLOATS else int(source), x.dtype, index.shape)
        for i, e in enumerate(index.shape):
            source = l.slice(source, i, 0, e)
        return l.emit("ScatterElements", [x, index, l.cast(source, x.dtype)], x.shape, axis=d)
    return l.emit("Where", [_is_at(l, index, d, x.shape[d]), l.operand(source, x.dtype), x], x.shape, x.dtype)


@lowers("aten.scatter_add", args="self dim index src")
def _scatter_add(l, n, a):
    x, index, source = a["self"], a["index"], a["src"]
    if not x.shape:
        raise NotCovered("an element of a number")
    l.bound(index, x.shape[axis(a["dim"], len(x.shape))])
    for i, e in enumerate(index.shape):
        source = l.slice(source, i, 0, e)
    demand_short(math.prod(x.shape), index.shape[axis(a["dim"], len(x.shape))])
    return l.emit("ScatterElements", [x, index, source], x.shape, axis=axis(a["dim"], len(x.shape)), reduction="add")


@lowers("aten.index_put", "aten._unsafe_index_put", args="self indices values accumulate")
def _index_put(l, n, a):
    """Of leading dimensions."""
    x, indices = a["self"], a["indices"]
    at = [d for d, i in enumerate(indices) if i is not None]
    if at != list(range(len(at))):
        raise NotCovered("indices of dimensions that are not the first")
    if any(indices[d].dtype == "bool" for d in at):
        raise NotCovered("a mask as an index, whose number of elements is not known")
    shape = ()
    for d in at:
        shape = broadcast(shape, indices[d].shape)
    demand_short(math.prod(x.shape), math.prod(shape))
    for d in at:
        l.bound(indices[d], x.shape[d])
    rows = [l.reshape(l.expand(l.cast(indices[d], "int64"), shape), (*shape, 1)) for d in at]
    values = l.expand(l.cast(a["values"], x.dtype), (*shape, *x.shape[len(at):]))
    return l.emit("ScatterND", [x, l.concat(rows, len(shape)), values], x.shape,
                  reduction="add" if a["accumulate"] else "none")


@lowers("aten.cumsum", args="self dim dtype")
def _cumsum(l, n, a):
    x = l.cast(a["self"], n.value.dtype)
    if x.shape:
        demand_short(math.prod(x.shape), x.shape[axis(a["dim"], len(x.shape))])
    return x if not x.shape else l.emit("CumSum", [x, l.constant(axis(a["dim"], len(x.shape)), "int64")], x.shape)


@lowers("aten.pixel_shuffle", "aten.pixel_unshuffle", args="self factor", moves=True)
def _pixels(l, n, a):
    x = a["self"]
    if len(x.shape) != 4:
        raise NotCovered("an image without a batch")
    if "unshuffle" not in n.target:
        return l.emit("DepthToSpace", [x], n.value.shape, blocksize=a["factor"], mode="CRD")
    f, (b, c, h, w) = a["factor"], x.shape
    cut = l.reshape(x, (b, c, h // f, f, w // f, f))
    return l.reshape(l.permute(cut, [0, 1, 3, 5, 2, 4]), n.value.shape)


@lowers("aten.tril", "aten.triu", args="self diagonal")
def _triangle(l, n, a):
    return l.emit("Trilu", [a["self"], l.constant(a["diagonal"] or 0, "int64")], n.value.shape,
                  upper=int(n.target.startswith("aten.triu")))


# ---- Constants ------------------------------------------------------------------------------------------------------

@lowers("aten.arange", args="start end step")
def _arange(l, n, a):
    start, end, step = a["start"], a["end"], a["step"] or 1
    if end is None:
        start, end = 0, start
    count = math.prod(n.value.shape)
    number = float if n.value.dtype in FLOATS else int
    return l.constant([number(start + i * step) for i in range(count)], n.value.dtype, n.value.shape)


_FILLS = {"zeros": 0, "ones": 1, "zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1}


@lowers(*(f"aten.{f}" for f in _FILLS), args="like size")
def _filled(l, n, a):
    return _fill(l, n, _FILLS[n.target.split(".")[1]])


@lowers("aten.full", "aten.full_like", "aten.fill", args="like value")
def _full(l, n, a):
    return _fill(l, n, a["value"] if a["value"] is not None else a.get("fill_value"))


@lowers("aten.new_full", args="like size value")
def _new_full(l, n, a):
    return _fill(l, n, a["value"])


@lowers("aten.scalar_tensor", args="value")
def _scalar(l, n, a):
    return _fill(l, n, a["value"])


def _fill(l, n, value):
    if isinstance(value, Value):
        return l.expand(l.cast(value, n.value.dtype), n.value.shape)
    return l.filled(float(value) if n.value.dtype in FLOATS else int(value), n.value.dtype, n.value.shape)
