"""The rows, and which plans are tried for each: what `tilewright run --batch` is asked.

The order in which plans are tried comes from a rough estimate (`estimate`); it decides nothing else.
Every one that is tried is verified and timed, and the fastest is reported.
"""
import itertools
import json
import math
import subprocess

ROWS = ([f"chimera/G{i}" for i in range(1, 13)] + [f"mcfuser/G{i}" for i in range(1, 13)]
        + [f"mcfuser/S{i}" for i in range(1, 10)])

# Of an H100 or H200, for the estimate: multiprocessors; FLOP/s that one reaches with mma; bytes/s
# from L2 and shared memory a block can have.
MULTIPROCESSORS, FLOPS, L2_BYTES, SHARED_BYTES = 132, 3e12, 40e9, 227 * 1024


def sizes_of(tilewright, names):
    """{"mcfuser/G1": {"m": 512, ..., "batch": 1}} as the command lists them; attention's heads are
    its batch."""
    listed = json.loads(subprocess.run([tilewright, "workloads", "--json"], check=True,
                                       capture_output=True, text=True).stdout)["workloads"]
    defaults = {w["name"]: dict(p.split("=") for p in w["defaults"].split(",")) for w in listed}
    rows = {}
    for name in names:
        values = defaults[name]
        size = {loop: int(values[loop]) for loop in "mnkl"}
        size["batch"] = int(values.get("batch", values.get("heads", 1)))
        rows[name] = size
    return rows


def subject(row):
    """The row in f16, as Chimera's tables have it on GPUs."""
    return row + ":dtype=f16" if row.startswith("chimera/") else row


def is_attention(row):
    return row.startswith("mcfuser/S")


def estimate(row, size, expression, t):
    """Seconds, roughly; infinity where the tiles do not fit shared memory. A block's steps over l cost a
    latency each, its loads and its products what L2 and the tensor cores give one multiprocessor."""
    blocks = size["batch"] * math.ceil(size["m"] / t["m"])
    if expression == "mnlk":
        blocks *= math.ceil(size["n"] / t["n"])
    n = t["n"] if expression == "mnlk" else size["n"]
    loads = t["m"] * t["k"] + 2 * (t["k"] * t["l"] + t["l"] * t["n"])
    wide = size["l"] if is_attention(row) else 0
    shared = 2 * (loads + t["m"] * wide)
    if shared > SHARED_BYTES:
        return math.inf
    steps = math.ceil(size["l"] / t["l"]) * math.ceil(size["k"] / t["k"])
    flops = 2 * t["m"] * size["l"] * (size["k"] + n)
    moved = 2 * (t["m"] * size["k"] + size["l"] * (size["k"] + n) + t["m"] * n)
    # Fewer rows than four warps have, or narrow columns, leave tensor cores idle.
    busy = min(1.0, t["m"] / 64) * (1 if n >= 64 else 0.7)
    a_block = max(flops / (FLOPS * busy), moved / L2_BYTES) + 0.2e-6 * steps
    together = max(1, min(SHARED_BYTES // shared, 3))
    waves = math.ceil(blocks / (MULTIPROCESSORS * together))
    crowd = max(1.0, min(together, blocks / MULTIPROCESSORS) * 0.7)
    return waves * a_block * crowd


def tilings(size, attention):
    def options(extent, wanted):
        return sorted({min(extent, w) for w in wanted})
    m = options(size["m"], (16, 32, 48, 64, 96, 128))
    l = options(size["l"], (32, 64, 128, 256))
    k = options(size["k"], (64, 128, 256) if not attention else (size["k"],))
    n = options(size["n"], (32, 64, 128, 256) if not attention else (size["n"],))
    for values in itertools.product(m, l, k, n):
        yield dict(zip("mlkn", values))


def online(row, size, most):
    """Attention in one pass over l, its sums rescaled, after the model's own plan (which has whole rows
    of scores)."""
    batch = "b/1@grid " if size["batch"] > 1 else ""
    tree = (batch + "m@grid ( L.Q l ( L.K C.qk C.rowmax C.exp C.rowsum C.rescale L.V C.pv ) C.divide S.E )")
    asked = [{"workload": row, "model": "mcfuser", "name": f"{row} mcfuser"}]
    blocks = {m: size["batch"] * math.ceil(size["m"] / m) for m in (32, 48, 64, 96, 128)}
    # Those whose last wave of blocks is fullest first.
    order = sorted((m for m in blocks if m <= size["m"]),
                   key=lambda m: math.ceil(blocks[m] / MULTIPROCESSORS) * (m + 24))[:3]
    variants = [(l, options) for options in ({}, {"stages": 3}, {"warps": 8}) for l in (64, 128, 32)]
    for (l, options), m in itertools.product(variants, order):
        if l > size["l"] or len(asked) >= most:
            continue
        tiles = f"m={m},l={l}"
        extra = " ".join(f"{k}={v}" for k, v in options.items())
        asked.append({"workload": f"{row}:online=1", "tree": tree, "tiles": tiles, **options,
                      "name": f"{row} online {tiles} {extra}".strip()})
    return asked


def pairs(row, size):
    """Both products, one after the other: in one kernel whose blocks wait for one another between them,
    so that what the fused plans are worth is told from what fewer launches are."""
    batch = "b/1@grid " if size["batch"] > 1 else ""
    k = next(step for step in (64, 128, size["k"]) if size["k"] % step == 0)
    trees = (f"( {batch}m@grid l@grid ( k ( L.A L.B C.gemm1 ) S.C ) Y.grid "
             f"{batch}m/{{m2}}@grid n/{{n2}}@grid ( l/64 ( L.C L.D C.gemm2 ) S.E ) )")
    asked = []
    for m, l, m2, n2 in ((64, 64, 64, 32), (64, 64, 32, 32), (32, 64, 32, 32), (128, 64, 64, 64),
                         (64, 128, 64, 64), (128, 128, 128, 64)):
        tiles = (min(m, size["m"]), min(l, size["l"]), min(m2, size["m"]), min(n2, size["n"]))
        first = size["batch"] * math.ceil(size["m"] / tiles[0]) * math.ceil(size["l"] / tiles[1])
        second = size["batch"] * math.ceil(size["m"] / tiles[2]) * math.ceil(size["n"] / tiles[3])
        if max(first, second) > 2 * MULTIPROCESSORS:
            continue  # all blocks must be resident
        for stages in (4, 3):
            asked.append({"workload": subject(row), "tree": trees.format(m2=tiles[2], n2=tiles[3]),
                          "tiles": f"m={tiles[0]},l={tiles[1]},k={k}", "pins": ["C=DRAM"], "stages": stages,
                          "name": f"{row} unfused, one kernel m={tiles[0]},l={tiles[1]},k={k} "
                                  f"m={tiles[2]},n={tiles[3]},l=64 stages={stages}"})
    return asked


def two_kernels(row, size, folder):
    """The pair as two kernels, each with tiles of its own: no fusion."""
    batch = "b/1@grid " if size["batch"] > 1 else ""
    k = next(step for step in (64, 128, size["k"]) if size["k"] % step == 0)
    asked = []
    for m, l, m2, n2 in ((128, 128, 128, 64), (64, 128, 64, 128), (64, 64, 64, 64), (128, 64, 128, 128)):
        t = (min(m, size["m"]), min(l, size["l"]), min(m2, size["m"]), min(n2, size["n"]))
        name = f"{row} unfused m={t[0]},l={t[1]},k={k} m={t[2]},n={t[3]},l=64"
        path = folder / (name.replace("/", "_").replace(" ", "_") + ".yaml")
        path.write_text(f"""workload: "{subject(row)}"
machine: h200
kernels:
  - {{tree: "{batch}m@grid l@grid ( k ( L.A L.B C.gemm1 ) S.C )", tiles: {{m: {t[0]}, l: {t[1]}, k: {k}}}}}
  - {{tree: "{batch}m@grid n@grid ( l ( L.C L.D C.gemm2 ) S.E )", tiles: {{m: {t[2]}, "n": {t[3]}, l: 64}}}}
""")
        asked.append({"plan": str(path), "stages": 3, "name": name})
    return asked


def candidates(row, size, most, folder):
    """Requests for one row: both models' plans, then a grid of tiles, stages and warps by estimate."""
    if is_attention(row):
        return online(row, size, most)
    base = {"workload": subject(row), "model": "mcfuser"}
    asked = [{**base, "name": f"{row} mcfuser"}, {**base, "model": "chimera", "name": f"{row} chimera"}]
    ranked = []
    for t in tilings(size, is_attention(row)):
        for expression in ("mnlk",) if is_attention(row) else ("mnlk", "ml(k,n)"):
            if expression == "ml(k,n)" and (t["n"] == size["n"] or t["n"] < 64):
                continue  # the same plan as mnlk with the whole of n; many small products
            ranked.append((estimate(row, size, expression, t), expression, t))
    ranked = [r for r in sorted(ranked, key=lambda r: r[0]) if r[0] < math.inf]

    def add(expression, t, **options):
        tiles = ",".join(f"{loop}={v}" for loop, v in t.items())
        extra = " ".join(f"{k}={v}" for k, v in options.items())
        asked.append({**base, "expression": expression, "tiles": tiles, **options,
                      "name": f"{row} {expression} {tiles} {extra}".strip()})

    asked += pairs(row, size)[:most // 4] + two_kernels(row, size, folder)[:most // 8]
    plain = max(1, (most - len(asked)) * 2 // 3)
    for _, expression, t in ranked[:plain]:
        add(expression, t)
    variants = ({"warps": 8}, {"stages": 3}, {"warps": 4}, {"warps": 2})
    for (_, expression, t), options in itertools.product(ranked[:max(1, plain // 3)], variants):
        if len(asked) >= most:
            break
        add(expression, t, **options)
    return asked[:most]
