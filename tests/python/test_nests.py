"""Does a loop nest that runs move what `exact` says of its plan, and compute what NumPy says?"""

import random

import numpy as np
import pytest

tilewright = pytest.importorskip("tilewright")
from tilewright.nests import Memory, blocks  # noqa: E402


def memories(*names):
    line = [Memory("DRAM")]
    for name in names:
        line.append(Memory(name, outer=line[-1]))
    return line


def counted(document):
    return {(t["tensor"], t["boundary"]): (t["read_bytes"], t["written_bytes"]) for t in document["traffic"]
            if t["read_bytes"] or t["written_bytes"]}


def agree(report, workload, machine, tree, **options):
    """The report against `exact`, byte by byte. In an outer memory a nest holds tiles until its blocks end, `exact`
    until the last load from them."""
    exact = tilewright.predict(workload, machine, model="exact", tree=tree, **options)
    assert counted(report) == counted(exact), (workload, tree, options)
    assert report["memory"]["L1"] == exact["memory"]["L1"], (workload, tree, options)
    assert all(report["memory"][level] >= used for level, used in exact["memory"].items()), (workload, tree, options)


def walk(loops, tiles, sizes, at, body):
    """Runs `body` within `loops`, in order, each cut by its tile."""
    if not loops:
        return body(at)
    for tile in blocks(sizes[loops[0]], tiles[loops[0]]):
        walk(loops[1:], tiles, sizes, {**at, loops[0]: tile}, body)


SEED = 24112026


@pytest.mark.parametrize("case", range(30))
def test_products_move_what_exact_says(case):
    draw = random.Random(SEED + case)
    sizes = {d: draw.randint(1, 12) for d in "mnk"}
    tiles = {d: draw.randint(1, sizes[d]) for d in "mnk"}
    order = "".join(draw.sample("mnk", 3))
    dram, l1 = memories("L1")
    A, B = dram.array("A", (sizes["m"], sizes["k"])), dram.array("B", (sizes["k"], sizes["n"]))
    C = dram.zeros("C", (sizes["m"], sizes["n"]))

    def body(at):
        with l1.hold(A[at["m"], at["k"]]) as a, l1.hold(B[at["k"], at["n"]]) as b, l1.update(C[at["m"], at["n"]]) as c:
            c += a @ b

    walk(order, tiles, sizes, {}, body)
    agree(dram.report(), "gemm:" + ",".join(f"{d}={s}" for d, s in sizes.items()), "scratchpad:1M",
          f"{' '.join(order)} ( C.gemm )", tiles=tiles)
    np.testing.assert_allclose(C.values, A.values @ B.values, atol=1e-5)


# Orders of the loops around both products, with C's tile made anew inside them.
@pytest.mark.parametrize("case", range(30))
def test_chains_move_what_exact_says(case):
    draw = random.Random(SEED + 100 + case)
    sizes = {d: draw.randint(1, 12) for d in "mnkl"}
    tiles = {d: draw.randint(1, sizes[d]) for d in "mnkl"}
    outer = draw.choice(["ml", "lm", "m", "l", "mln", "nml"])
    first = "".join(draw.sample([d for d in "mkl" if d not in outer], 3 - len(set(outer) & set("mkl"))))
    second = "".join(draw.sample([d for d in "mln" if d not in outer], 3 - len(set(outer) & set("mln"))))
    dram, l1 = memories("L1")
    A, B = dram.array("A", (sizes["m"], sizes["k"])), dram.array("B", (sizes["k"], sizes["l"]))
    D, E = dram.array("D", (sizes["l"], sizes["n"])), dram.zeros("E", (sizes["m"], sizes["n"]))

    def body(at):
        box = [at.get(d, slice(0, sizes[d])) for d in "ml"]
        with l1.new("C", *box) as whole:
            def tile_of_c(inner):
                return whole[tuple(slice(inner[d].start - box[i].start, inner[d].stop - box[i].start)
                                   for i, d in enumerate("ml"))]

            def gemm1(inner):
                with l1.hold(A[inner["m"], inner["k"]]) as a, l1.hold(B[inner["k"], inner["l"]]) as b:
                    tile_of_c(inner)[...] += a @ b

            def gemm2(inner):
                with l1.hold(D[inner["l"], inner["n"]]) as d, l1.update(E[inner["m"], inner["n"]]) as e:
                    e += tile_of_c(inner) @ d

            walk(first, tiles, sizes, at, gemm1)
            walk(second, tiles, sizes, at, gemm2)

    walk(outer, tiles, sizes, {}, body)

    def within(loops, compute):
        return f"{' '.join(loops)} ( {compute} )" if loops else compute

    agree(dram.report(), "gemm-chain:" + ",".join(f"{d}={s}" for d, s in sizes.items()), "scratchpad:1M",
          within(outer, f"{within(first, 'C.gemm1')} {within(second, 'C.gemm2')}"), tiles=tiles)
    np.testing.assert_allclose(E.values, A.values @ B.values @ D.values, atol=1e-4)


def some(draw, dims, least=1):
    """Some of the dimensions, at least so many, in any order."""
    return "".join(draw.sample(dims, draw.randint(min(least, len(dims)), len(dims))))


def two_operators(draw):
    """Subscripts of T += X * Y and O += T * Z, drawn: by tensor the loops that index it."""
    t, summed = some(draw, "abc"), some(draw, "de", 0)
    x = some(draw, t + summed)
    y = some(draw, "".join(d for d in t + summed if d not in x) + x[:draw.randint(0, len(x))] or x)
    y += "".join(d for d in t + summed if d not in x + y)
    own = draw.choice(["", "f"])
    return {"T": t, "X": x, "Y": y, "Z": own + some(draw, t), "O": some(draw, t + own)}


@pytest.mark.parametrize("case", range(60))
def test_drawn_operators_move_what_exact_says(case):
    """Two operators with drawn subscripts, in drawn nests: how many loops surround both, and in which order, is drawn, too."""
    draw = random.Random(SEED + 300 + case)
    index = two_operators(draw)
    loops = sorted(set("".join(index.values())))
    sizes = {d: draw.randint(1, 7) for d in loops}
    tiles = {d: draw.randint(1, sizes[d]) for d in loops}
    of = {"T": sorted(set(index["X"] + index["Y"])), "O": sorted(set(index["T"] + index["Z"] + index["O"]))}
    outer = some(draw, [d for d in of["O"]], 0)
    first, second = ("".join(draw.sample([d for d in of[o] if d not in outer], len(set(of[o]) - set(outer)))) for o in "TO")
    dram, l1 = memories("L1")
    inputs = {t: dram.array(t, tuple(sizes[d] for d in index[t])) for t in "XYZ"}
    out = dram.zeros("O", tuple(sizes[d] for d in index["O"]))

    def of_tile(array, at):
        return array[tuple(at[d] for d in index[array.name])]

    def body(at):
        box = [at.get(d, slice(0, sizes[d])) for d in index["T"]]
        with l1.new("T", *box) as whole:
            def tile_of_t(inner):
                return whole[tuple(slice(inner[d].start - b.start, inner[d].stop - b.start) for d, b in zip(index["T"], box))]

            def producer(inner):
                with l1.hold(of_tile(inputs["X"], inner)) as x, l1.hold(of_tile(inputs["Y"], inner)) as y:
                    tile_of_t(inner)[...] += np.einsum(f"{index['X']},{index['Y']}->{index['T']}", x, y)

            def consumer(inner):
                with l1.hold(of_tile(inputs["Z"], inner)) as z, l1.update(of_tile(out, inner)) as o:
                    o += np.einsum(f"{index['T']},{index['Z']}->{index['O']}", tile_of_t(inner), z)

            walk(first, tiles, sizes, at, producer)
            walk(second, tiles, sizes, at, consumer)

    walk(outer, tiles, sizes, {}, body)

    def named(t):
        return f"{t}[{','.join(index[t])}]"

    workload = {"name": "drawn", "dtype": "f32", "loops": sizes,
                "operators": [f"{named('T')} += {named('X')} * {named('Y')}", f"{named('O')} += {named('T')} * {named('Z')}"]}
    inner = " ".join(f"{' '.join(o)} ( C.{name} )" if o else f"C.{name}" for o, name in ((first, "T"), (second, "O")))
    agree(dram.report(), workload, "scratchpad:1M", f"{' '.join(outer)} ( {inner} )" if outer else inner, tiles=tiles)
    t = np.einsum(f"{index['X']},{index['Y']}->{index['T']}", inputs["X"].values, inputs["Y"].values)
    np.testing.assert_allclose(out.values, np.einsum(f"{index['T']},{index['Z']}->{index['O']}", t, inputs["Z"].values), atol=1e-3)


@pytest.mark.parametrize("case", range(20))
def test_two_levels_move_what_exact_says(case):
    draw = random.Random(SEED + 200 + case)
    sizes = {d: draw.randint(2, 16) for d in "mnk"}
    large = {d: draw.randint(1, sizes[d]) for d in "mnk"}
    small = {d: draw.randint(1, large[d]) for d in "mnk"}
    orders = ["".join(draw.sample("mnk", 3)) for _ in range(2)]
    dram, l2, l1 = memories("L2", "L1")
    A, B = dram.array("A", (sizes["m"], sizes["k"])), dram.array("B", (sizes["k"], sizes["n"]))
    C = dram.zeros("C", (sizes["m"], sizes["n"]))

    def inner(at):
        with l1.hold(A[at["m"], at["k"]]) as a, l1.hold(B[at["k"], at["n"]]) as b, l1.update(C[at["m"], at["n"]]) as c:
            c += a @ b
        l1.store(C[at["m"], at["n"]])

    def outer(at):
        def go(loops, now):
            if not loops:
                return inner(now)
            for tile in blocks(at[loops[0]], small[loops[0]]):
                go(loops[1:], {**now, loops[0]: tile})

        c = C[at["m"], at["n"]]
        with l2.hold(A[at["m"], at["k"]]), l2.hold(B[at["k"], at["n"]]), l2.update(c):
            go(orders[1], {})
        l2.store(c)

    walk(orders[0], large, sizes, {}, outer)
    first, second = (" ".join(f"{d}/{t[d]}" for d in o) for o, t in zip(orders, (large, small)))
    agree(dram.report(), "gemm:" + ",".join(f"{d}={s}" for d, s in sizes.items()), "scratchpad:1M,2M",
          f"{first} ( L.A@L2 L.B@L2 {second} ( L.A@L1 L.B@L1 C.gemm S.C@L2 ) S.C )")
    np.testing.assert_allclose(C.values, A.values @ B.values, atol=1e-5)


@pytest.mark.parametrize("tile", [1, 2, 3, 8])
@pytest.mark.parametrize("sliding", [False, True])
def test_halos_move_what_exact_says(tile, sliding):
    """A one-dimensional convolution: tiles of the input overlap."""
    dram, l1 = memories("L1")
    image, filters = dram.array("I", (12,)), dram.array("W", (3,))
    out = dram.zeros("M", (10,))
    for y in blocks(10, tile):
        with l1.hold(image[y.start:y.stop + 2], sliding=sliding) as i, l1.hold(filters[:]) as w, l1.update(out[y]) as o:
            o += np.convolve(i, w[::-1], "valid")
    workload = {"name": "conv", "dtype": "f32", "loops": {"y": 10, "r": 3}, "operators": ["M[y] += I[y+r] * W[r]"]}
    flags = {"flags": {"I": ["sliding"]}} if sliding else {}
    plan = {"workload": workload, "machine": "scratchpad:1M",
            "kernels": [{"tree": f"y/{tile} ( C.M )", **flags}]}
    exact = tilewright.predict(plan, model="exact")
    assert counted(dram.report()) == counted(exact)
    np.testing.assert_allclose(out.values, np.convolve(image.values, filters.values[::-1], "valid"), atol=1e-5)


def test_tiles_of_an_intermediate_can_be_held_further_in():
    dram, l2, l1 = memories("L2", "L1")
    A, E = dram.array("A", (4, 4)), dram.zeros("E", (4, 4))
    with l2.new("C", 4, 4) as whole:
        for m in blocks(4, 2):
            with l1.hold(A[m, :]) as a, l1.update(l2["C"][m, 0:4]) as c:
                c[:] = 2 * a
        for m in blocks(4, 3):
            with l1.hold(l2["C"][m, 0:4]) as c, l1.update(E[m, :]) as e:
                e[:] = c + 1
        assert whole[3, 3] == 2 * A.values[3, 3]
    report = dram.report()
    np.testing.assert_allclose(E.values, 2 * A.values + 1)
    assert counted(report) == {("A", "DRAM/L2"): (64, 0), ("A", "L2/L1"): (64, 0), ("C", "L2/L1"): (64, 64),
                               ("E", "DRAM/L2"): (0, 64), ("E", "L2/L1"): (0, 64)}


def test_kernels_meet_at_home_and_too_much_is_said():
    dram = Memory("DRAM")
    l1 = Memory("L1", capacity=100, outer=dram)
    A, B, C = dram.array("A", (8,)), dram.zeros("B", (8,)), dram.zeros("C", (8,))
    for source, made in ((A, B), (B, C)):
        with l1.hold(source[:], copies=2) as x, l1.update(made[:]) as y:
            y[:] = x + 1
        dram.end_kernel()
    report = dram.report()
    np.testing.assert_allclose(C.values, A.values + 2, rtol=1e-6)
    assert counted(report)["B", "DRAM/L1"] == (32, 32)
    assert report["memory"]["L1"] == 96 and report["fits"]
    with l1.hold(A[:]), l1.update(C[:]), l1.hold(B[:]), l1.new("T", 8):
        pass
    assert not dram.report()["fits"] and "of 100: too much" in str(dram.report())


@pytest.mark.parametrize("do, said", [
    (lambda d, l, a: list(blocks(4, 0)), "step: 0; accepted"),
    (lambda d, l, a: list(blocks(0, 1)), "extent: 0; accepted"),
    (lambda d, l, a: a[0:2], "1 indices; accepted: 2"),
    (lambda d, l, a: a[0:2, 3:9], "index 1: 3 to 3; accepted"),
    (lambda d, l, a: a[0:2, ::2], "a step of 2"),
    (lambda d, l, a: d.hold(a[:, :]).__enter__(), "A lives here"),
    (lambda d, l, a: Memory("L0", outer=d), "DRAM has L1 inside"),
    (lambda d, l, a: Memory("L0", capacity=0), "capacity: 0; accepted"),
    (lambda d, l, a: l["C"], "no intermediate C"),
    (lambda d, l, a: l.store(a[0:1, 0:1]), "is not held"),
    (lambda d, l, a: l.hold(Memory("X").zeros("Y", (3,))[:]).__enter__(), "Y lives in X"),
])
def test_mistakes_get_one_line(do, said):
    dram, l1 = memories("L1")
    with pytest.raises(tilewright.InputError) as caught:
        do(dram, l1, dram.array("A", (3, 3)))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_held_to_be_read_cannot_be_changed():
    dram, l1 = memories("L1")
    with pytest.raises(ValueError, match="read-only"), l1.hold(dram.array("A", (3,))[:]) as a:
        a += 1
