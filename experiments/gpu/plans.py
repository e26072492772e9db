"""Which plans are counted and timed by `counters`: seeded, so that a second run asks for the same.

(a) A chain whose intermediate is four times the L2 of an H200, in the three expressions that MCFuser's
    rules leave, with drawn tiles: bytes into the SMs.
(b) Products and chains from a tenth of that L2 to ten times it: bytes from memory.
"""
import random

# C = A B and E = C D, f16: C has 256 MiB and stays on chip; A, B, D and E have 6 MiB.
CHAIN = "gemm-chain:m=16384,l=8192,k=64,n=64,dtype=f16"
# The inner loops of a block: l k (n bound to blocks); l n k (C again for every n); l (k, n) (E's row kept).
EXPRESSIONS = ("mnlk", "mlnk", "ml(k,n)")
L2_MEGABYTES = 60
SIZES = (6, 10, 16, 25, 40, 60, 100, 160, 250, 400, 600)  # MB that must move: a tenth to ten times


def drawn_tilings(seed):
    """Endless tiles of the chain, no two the same: rows multiples of 16; of three in a row two whose rows
    in memory are a power of two, and one of any multiples of 16. (A counter of bytes into an SM counts what
    a request fetches of a line, which for rows of 96 or 160 bytes is more than was asked for.)"""
    choose, seen, number = random.Random(seed), set(), 0
    while True:
        number += 1
        if number % 3:
            t = (choose.randrange(16, 257, 16), choose.choice((16, 32, 64, 128, 256)),
                 choose.choice((16, 32, 64)), choose.choice((16, 32, 64)))
        else:
            t = (choose.randrange(16, 257, 16), choose.randrange(16, 257, 16),
                 choose.randrange(16, 65, 16), choose.randrange(16, 65, 16))
        # Twice what one block's shared memory holds is not worth asking for.
        if t in seen or 2 * (t[0] * t[2] + t[1] * (t[2] + t[3]) + t[0] * t[1]) > 2 * 227 * 1024:
            continue
        seen.add(t)
        yield dict(zip("mlkn", t))


def chain(expression, tiles, number):
    text = ",".join(f"{loop}={size}" for loop, size in tiles.items())
    return {"name": f"{expression} {text}", "workload": CHAIN, "model": "mcfuser",
            "expression": expression, "tiles": text,
            "prefix": f"a{EXPRESSIONS.index(expression)}x{number}"}


def gemm(kind, m, n, k, dtype, tiles, extra=None):
    return {"name": f"{kind} m={m},n={n},k={k},{dtype} {tiles[0]}x{tiles[1]}x{tiles[2]}",
            "workload": f"gemm:m={m},n={n},k={k},dtype={dtype}",
            "tree": f"m/{tiles[0]}@grid n/{tiles[1]}@grid ( k/{tiles[2]} ( L.A L.B C.gemm ) S.C )",
            **(extra or {})}


def rounded(x, step):
    return max(step, int(round(x / step)) * step)


def memory_plans(sizes=SIZES, plain=True):
    """By size: a product with a large output, one with large inputs, and a chain, each in two tilings,
    rows of blocks outermost and squarer ones; and products with blocks of 16 x 16 in CUDA cores, the plain
    tiled product."""
    plans = [gemm("plain", n, n, n, "f32", (16, 16, 16), {"micro_kernel": "simt"})
             for n in (1024, 2048, 4096) if plain]
    for size in sizes:
        elements = size * 1e6 / 4  # f32
        side = rounded(elements ** 0.5 * 0.92, 128)
        for tiles in ((64, 64, 16), (128, 64, 16)):
            plans.append(gemm("output", side, side, 256 if size < 300 else 128, "f32", tiles))
        side = rounded((elements / 2 / 4) ** 0.5, 64)  # A and B of side x 4 side
        for tiles in ((64, 64, 32), (128, 128, 32)):
            plans.append(gemm("inputs", side, side, 4 * side, "f16",
                              tiles) if size <= 100 else
                         gemm("inputs", 1024, 1024, rounded(size * 1e6 / 4 / 1024, 64), "f16", tiles))
        rows = rounded(size * 1e6 / 2 / 256, 128)  # A and E of rows x 128, f16
        for m, l in ((64, 64), (128, 128)):
            plans.append({"name": f"chain m={rows},l=128,k=128,n=128,f16 {m}x{l}",
                          "workload": f"gemm-chain:m={rows},l=128,k=128,n=128,dtype=f16",
                          "model": "mcfuser", "expression": "mnlk",
                          "tiles": f"m={m},l={l},k=64,n=128"})
    for i, plan in enumerate(plans):
        plan["prefix"] = f"b{i}"
    return plans


def largest_plan():
    """The plain product whose reference takes longest."""
    return {**gemm("plain", 8192, 8192, 8192, "f32", (16, 16, 16), {"micro_kernel": "simt"}),
            "prefix": "b999"}
