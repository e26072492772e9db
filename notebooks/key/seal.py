"""What the exercises' answers are, asked of Tilewright; apart from what students get, who have digests of them
(../seals.json). `python seal.py` writes those again after an answer has changed; a test compares them."""

import json
import pathlib
import sys

import tilewright as tw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from checks import digest, SEALS

CHAIN = "gemm-chain:m=96,n=64,k=48,l=80"
XEON = "xeon-gold-6240"
HALO = "conv1d-chain:h=256,r=9,s=9"
NORM = "layernorm:rows=64,cols=128"
WORKED = "gemm-chain:m=10,n=6,k=7,l=9"


def moved(answer, tensor=None, side=None):
    """Bytes of a traffic answer, all or of one tensor, both directions or one."""
    sides = [side] if side else ["read_bytes", "written_bytes"]
    return sum(t[s] for t in answer["traffic"] if tensor in (None, t["tensor"]) for s in sides)


def nest(tree, workload="gemm:m=48,n=32,k=64", **tiles):
    return tw.predict(workload, "scratchpad:1M", model="exact", tree=tree, tiles=tiles)


def tile_without_reading_back():
    def back(tile):
        return moved(nest("m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "gemm-chain:m=48,n=32,k=64,l=64",
                          m=16, n=16, k=16, l=tile), "E", "read_bytes")
    return next(2 ** i for i in range(7) if back(2 ** i) == 0)


def xeon():
    machine = next(m for m in tw.machines()["machines"] if m["name"] == XEON)
    peak = machine["units"][0]["peak_flops_per_second"]["f32"]
    return peak, {level["name"]: level for level in machine["levels"]}


def gemm_intensity(n):
    name = f"gemm:m={n},n={n},k={n}"
    return tw.plan(name, XEON)["roofline"]["flops"] / tw.explain(name, curve=True)["compulsory_bytes"]


def ridge_extent():
    peak, levels = xeon()
    ridge = peak / levels["L3"]["bandwidth_bytes_per_second"]
    return next(2 ** i for i in range(1, 16) if gemm_intensity(2 ** i) >= ridge)


def order_ties():
    volumes = [o["volume_elements"] for o in tw.explain(CHAIN, "scratchpad:16K", model="chimera")["orders"]]
    return volumes.count(min(volumes))


def b_moves():
    return moved(tw.simulate(CHAIN, "scratchpad:16K", tree="m l ( k ( C.gemm1 ) n ( C.gemm2 ) )",
                             tiles={"m": 16, "l": 16, "k": 8, "n": 8}), "B")


def closed(key):
    return tw.explain("chimera/G2", XEON, order="mlkn")["closed_form"][key]


def rounding():
    said = tw.explain("chimera/G2", XEON, order="mlkn")
    return said["orders"][0]["volume_elements"] / said["closed_form"]["volume_real_elements"]


def conflict(layout, ways=8):
    return moved(tw.simulate("gemm-chain:m=256,n=64,k=256,l=256", f"cache:16K/{ways}",
                             tree="m l ( k ( C.gemm1 ) n ( C.gemm2 ) )",
                             tiles={"m": 24, "l": 24, "k": 24, "n": 24}, layout=layout), side="read_bytes")


def ways_needed():
    full = conflict("row-major", 256)
    return next(w for w in (1, 2, 4, 8, 16, 32, 64, 128, 256)
                if conflict("row-major", w) <= 1.05 * full)


def funnel():
    return tw.plan("mcfuser/G4", "a100", model="mcfuser")["candidates"]


def scores_buffer():
    said = tw.explain("attention:m=64,l=512", "scratchpad:256K", resolved=True,
                      tree="m ( l ( k ( C.qk ) C.rowmax ) l ( C.exp C.rowsum C.pv ) C.divide )",
                      tiles={"m": 16, "l": 16, "k": 64})
    return next(b["bytes"] for b in said["kernels"][0]["buffers"] if b["tensor"] == "S")


def online(m):
    return tw.simulate("attention:m=64,l=512,online=1", "scratchpad:64K",
                       tree="m ( l ( k ( C.qk ) C.rowmax C.exp C.rowsum C.rescale C.pv ) C.divide )",
                       tiles={"m": m, "l": 16, "k": 64})


def halo(tile, **more):
    return tw.simulate(HALO, "scratchpad:64K", tree="h ( C.conv1 C.conv2 )", tiles={"h": tile}, **more)


def halo_tile():
    once = halo(256)["operations"]["conv1"]
    return next(2 ** i for i in range(9) if halo(2 ** i)["operations"]["conv1"] <= 1.1 * once)


NORM_TREE = "r/1 ( L.x c ( C.sum ) C.mean c ( C.sub C.sq C.varsum ) C.rstd c ( C.norm ) )"


def norm(tile):
    return tw.simulate(NORM, "scratchpad:64K", tree=NORM_TREE, tiles={"c": tile})


def norm_apart():
    operators = ("sum", "mean", "sub", "sq", "varsum", "rstd", "norm")
    loops = {op: "r" if op in ("mean", "rstd") else "r c" for op in operators}
    plan = {"workload": NORM, "machine": "scratchpad:64K",
            "kernels": [{"tree": f"{loops[op]} ( C.{op} )", "tiles": {"r": 1, "c": 128}}
                        for op in operators]}
    return moved(tw.simulate(plan))


def xla_over_stitched():
    plans = tw.compare(NORM, "v100", models="fusionstitching,xla-rule")["plans"]
    moved_by = {row["model"]: row["exact_bytes"] for row in plans}
    return moved_by["xla-rule"] / moved_by["fusionstitching"]


def worked(model):
    return tw.predict(WORKED, "scratchpad:4096B", model=model, tree="m n l ( k ( C.gemm1 ) C.gemm2 )",
                      tiles={"m": 4, "n": 3, "k": 4, "l": 5})


def recomputed():
    plain = tw.predict(WORKED, "scratchpad:4096B", model="exact", tiles={"m": 4, "n": 3, "k": 4, "l": 5},
                       tree="m l ( k ( C.gemm1 ) n ( C.gemm2 ) )")
    return worked("exact")["operations"]["gemm1"] / plain["operations"]["gemm1"]


def memory_missed():
    return worked("exact")["memory"]["L1"] - worked("chimera")["memory_paper_bytes"]


def hoisted(hoist):
    said = tw.plan("mcfuser/G1", "a100", model="mcfuser", hoist=hoist)
    return said["volume_bytes"] / said["exact_bytes"]


def squeezed(drop):
    tree = (f"c/1@grid ( L.X C.sum C.mean S.p ) {drop} Y.grid "
            "j/1@grid ( L.p L.W1 L.b1 C.reduce C.biased1 C.swish S.a ) Y.grid "
            "c/1@grid ( L.a L.W2 L.b2 C.expand C.biased2 C.gate L.X C.scale S.Y )")
    pins = {"p": {"level": "DRAM"}, "a": {"level": "DRAM"}}
    return tw.predict({"workload": "se-module/M0", "machine": "h200",
                       "kernels": [{"tree": tree, "pins": pins}]}, model="exact")


def bytes_of_a_barrier():
    machine = next(m for m in tw.machines()["machines"] if m["name"] == "h200")
    levels = {level["name"]: level for level in machine["levels"]}
    seconds = [tw.plan("se-module/M0", "h200", model="souffle", **more)["seconds"] for more in ({}, {"sync_us": 1})]
    return (1e-6 + (seconds[0] - seconds[1]) / 2) * levels["L2"]["bandwidth_bytes_per_second"]


def shuffled():
    """The GIR of a ShuffleNet unit before rewriting and after it, in lines."""
    part = tw.explain("shuffle-unit", "h200", model="powerfusion", duplicate="no")["kernels"][0]["parts"][0]
    return [gir.splitlines() for gir in (part["gir_before"], part["rewrites"][-1]["gir"])]


def dram_instructions(lines):
    tier = {line.split()[1]: line[line.index("(") + 1:].split(",")[0] for line in lines if line.startswith("slice")}
    return sum("dram" in [tier.get(word) for word in line.split()] for line in lines if "->" in line)


def bytes_of(workload, model):
    plans = tw.compare(workload, "h200", models=model)["plans"]
    return plans[0]["exact_bytes"]


def mcfuser(**more):
    return tw.plan("mcfuser/G3", "a100", model="mcfuser", **more)


def slowdown(n):
    return tw.predict("mcfuser/G3", "a100", model="mcfuser", expression="mnlk",
                      tiles={"m": 64, "n": n, "k": 64, "l": 128})["slowdown"]


def loads_of_b():
    counted = tw.predict(mcfuser()["plan"], model="exact")
    return moved(counted, "B", "read_bytes") / (64 * 256 * 2)


def chosen_at_block_price():
    own = tw.predict(mcfuser()["plan"], model="mcfuser", hoist="block")["seconds"]
    return own / mcfuser(hoist="block")["seconds"]


def clusters():
    return tw.explain("flashfuser/G5:m=256", "h100", model="flashfuser")


def level_of(one, name):
    return next(level for level in one["by_level"] if level["level"] == name)


def fewer_bytes():
    said = clusters()
    return sum(sign * level_of(said[one], "global")["bytes"] for one, sign in (("without_clusters", 1), ("chosen", -1)))


def rate_of_balance(whole=True):
    chosen = clusters()["chosen"]
    seconds = level_of(chosen, "global")["seconds"]
    if not whole:
        return level_of(chosen, "dsm")["bytes"] / seconds / 1e12
    return clusters()["options"]["dsm_bandwidth"] * level_of(chosen, "dsm")["seconds"] / seconds


LAYER = "bert:layers=1,dtype=f16"
INPUT_BYTES = 384 * 768 * 2


def souffle(workload=LAYER, **more):
    return tw.plan(workload, "h200", model="souffle", **more)


def operations_an_element(tokens):
    said = tw.explain(f"{LAYER},seq={tokens}", "h200", model="souffle")["analysis"]["each"]
    product = next(each for each in said if each["operator"] == "q1")
    return product["operations"] / product["elements"]


def read_less():
    return souffle(step="V0")["read_bytes"] - souffle(step="V1")["read_bytes"]


def most_blocks(criterion):
    """Blocks of 256 threads and 110,592 B with which qk1 still shares its kernel with what precedes it."""
    def opens(blocks):
        made = souffle(criterion=criterion, schedules=f"qk={blocks}x256x32x110592")
        return any(part["first"] == "qk1" for part in made["subprograms"])
    fits, fails = 132, 396
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (fits, middle) if opens(middle) else (middle, fails)
    return fits


def cost_of_even_barriers():
    one = souffle(sync_us=1)
    return 1 + (souffle(step="V2")["seconds"] - one["seconds"]) * 1e6 / one["syncs"]


# exercise -> (truth, how far off an answer may be as a fraction of it, what to think of)
TRUTHS = {
    "0.1": (lambda: moved(nest("k m n ( C.gemm )", m=16, n=16, k=16), "A", "read_bytes"), 0,
            "while the innermost loop runs, does A's tile change?"),
    "0.2": (lambda: moved(nest("k m n ( C.gemm )", m=16, n=16, k=16), "C", "read_bytes"), 0,
            "C is walked once for each turn of k, and starts at zero the first time"),
    "0.3": (tile_without_reading_back, 0, "when is a tile of E complete before another one takes its place?"),
    "1.1": (lambda: gemm_intensity(512), 0.01, "2 m n k operations; each of three matrices moves once"),
    "1.2": (ridge_extent, 0, "where the intensity reaches peak / bandwidth"),
    "2.1": (order_ties, 0, "count equal volume_elements at the top of the ranking"),
    "2.2": (b_moves, 0, "B is not indexed by m: it comes again for every trip of m"),
    "3.1": (lambda: closed("tile_real"), 0.002, "the largest T with T² + 2 T = capacity, in elements"),
    "3.2": (rounding, 0.002, "integer optimum over real optimum"),
    "4.1": (lambda: conflict("row-major") / conflict("tiled"), 0.01, "simulate with layout='row-major'"),
    "4.2": (ways_needed, 0, "compare with 256 ways, which is every line of 16 KiB"),
    "5.1": (lambda: funnel()["expressions"]["generated"], 0, "orders of four loops, and the flat ones"),
    "5.2": (lambda: funnel()["generated"] / funnel()["after"]["rule4"], 0.01, "generated / after rule 4"),
    "6.1": (scores_buffer, 0, "a row of tiles of S must stay until its maximum is known"),
    "6.2": (lambda: moved(online(16), "K"), 0, "K is read again for every block of rows"),
    "7.1": (halo_tile, 0, "(T + s - 1) / T"),
    "7.2": (lambda: moved(halo(8, pins={"M": "dram"})) - moved(halo(8)), 0, "simulate both; pins={'M': 'dram'}"),
    "8.1": (lambda: next(c for c in (1, 2, 4, 8, 16, 32, 64, 128) if moved(norm(c), "gain") == 512), 0,
            "a buffer holds one tile: gain stays if its tile never changes"),
    "8.2": (lambda: norm_apart() / moved(norm(128)), 0.01, "bytes of a kernel for each operator over those of the fused one"),
    "8.3": (xla_over_stitched, 0.01, "compare() has exact_bytes of every plan"),
    "11.1": (recomputed, 0, "n encloses l here: what does gemm1 know of n?"),
    "11.2": (memory_missed, 0, "E's tile is alive while gemm1 runs"),
    "11.3": (lambda: hoisted("dag"), 0.01, "volume_bytes over exact_bytes"),
    "12.1": (lambda: moved(squeezed(""), "X", "read_bytes"), 0, "does a block still have its channel?"),
    "12.2": (lambda: moved(squeezed("D.X"), side="read_bytes") / moved(squeezed(""), side="read_bytes"), 0.01,
             "read_bytes of both frames"),
    "12.3": (bytes_of_a_barrier, 0.02, "cycles over clock is seconds"),
    "13.1": (lambda: tw.explain("shuffle-unit", "h200", model="powerfusion")["unfused_bytes"], 0,
             "left and right each read half of the channels"),
    "13.2": (lambda: dram_instructions(shuffled()[0]) - dram_instructions(shuffled()[1]), 0,
             "count the lines that say dram, before and after"),
    "13.3": (lambda: bytes_of("shuffle-unit", "xla-rule") / bytes_of("shuffle-unit", "powerfusion"), 0.01,
             "compare() has exact_bytes of every plan"),
    "14.1": (lambda: mcfuser()["candidates"]["tuples"]["generated"], 0,
             "every loop's tile is a multiple of 16 up to its extent; the loops are independent"),
    "14.2": (lambda: slowdown(32), 0.01, "(blocks + SMs) / blocks, with 108 SMs"),
    "14.3": (loads_of_b, 0, "does the block that runs next find the tile that the one before loaded?"),
    "14.4": (chosen_at_block_price, 0.01, "predict(plan, model='mcfuser', hoist='block') over plan(hoist='block')"),
    "15.1": (lambda: clusters()["cluster_shapes"]["whole groups"], 0,
             "loop over the sizes of all four dimensions; a cluster has m k l blocks, n is in none of them"),
    "15.2": (lambda: level_of(clusters()["chosen"], "dsm")["bytes"], 0,
             "each of the 4 clusters adds up 16 partial results of 256 x 4,096 numbers of 4 bytes"),
    "15.3": (fewer_bytes, 0, "E is added to home once a cluster, not once a block; its elements have 2 bytes there"),
    "15.4": (rate_of_balance, 0.01, "seconds of DSM fall as its bandwidth rises; set them equal to those of memory"),
    "16.1": (lambda: operations_an_element(1), 0.002, "2 n k operations over the elements of the row, the weights and the result"),
    "16.2": (read_less, 0, "of those that read a tensor together one reads it, and the others no more"),
    "16.3": (lambda: most_blocks("per-sm"), 0, "how many of the blocks does one SM hold?"),
    "16.4": (lambda: souffle("bert:layers=12,dtype=f16")["syncs"], 0, "what does a layer's first phase read?"),
    "16.5": (cost_of_even_barriers, 0.02, "one kernel's time is a line: 8 barriers, each of that cost"),
}

# exercise -> what students often answer instead, and what to tell them. Bytes given in elements and factors the
# other way round are found without being listed (units).
WRONG = {
    "0.1": [(lambda: 48 * 64 * 4 * 2, "A's tile is not loaded again for each turn of n: n is the innermost loop")],
    "0.2": [(lambda: 4 * 48 * 32 * 4, "the first turn of k starts at zero and reads nothing back")],
    "0.3": [(lambda: 16, "a tile of 16 is left after one turn of l, unfinished")],
    "1.1": [(lambda: gemm_intensity(512) / 2, "a multiplication and an addition are two operations"),
            (lambda: gemm_intensity(512) * 4, "that is by element; an element has 4 bytes")],
    "1.2": [(lambda: ridge_extent() * 2, "one power of two less is enough")],
    "2.1": [(lambda: 24, "that is all orders; how many have the first one's volume_elements?"),
            (lambda: 1, "the orders behind the first one may move as little")],
    "2.2": [(lambda: 48 * 80 * 4, "that is B once; m is outside, and B's tiles change while it runs")],
    "3.1": [(lambda: 8192 ** 0.5, "that leaves no room for the tiles of A and D, 2 T elements")],
    "4.2": [(lambda: 256, "that is the cache to compare with; within 5 % of it is enough"),
            (lambda: 8, "that is the cache of exercise 4.1, where lines still push each other out"),
            (lambda: ways_needed() * 2, "half as many are enough")],
    "5.1": [(lambda: 24, "those are the orders of four loops; in a flat expression two loops stand side by side")],
    "6.1": [(lambda: 16 * 16 * 4, "that is one tile; the maximum of a row is known after all of its tiles")],
    "6.2": [(lambda: 512 * 64 * 4, "that is K once; each block of rows reads it again")],
    "7.1": [(lambda: 128, "h = 256 has a halo of 8 rows as well: compare with its operations, not with 256"),
            (lambda: halo_tile() // 2, "that is more than 10 % more: (T + 8) / T over (256 + 8) / 256")],
    "8.1": [(lambda: 1, "with a tile of one element the buffer holds the last one when the next row begins")],
    "11.1": [(lambda: 1, "gemm1 stands inside n: it runs again for each of its tiles"),
             (lambda: 6, "n has 6 elements, but its loop runs once for each tile"),
             (lambda: 3, "that is n's tile; how many tiles does n have?")],
    "11.2": [(lambda: 0, "the published rule leaves a tensor out that is alive while another operator runs")],
    "12.2": [(lambda: TRUTHS["12.2"][0]() - 1, "that is what comes on top; the factor is all bytes over all bytes")],
    "12.3": [(lambda: bytes_of_a_barrier() / 1e6, "that is in megabytes; bytes are asked for")],
    "13.2": [(lambda: dram_instructions(shuffled()[0]), "those are all before rewriting; how many are gone after it?"),
             (lambda: dram_instructions(shuffled()[1]), "those are left; how many are gone?")],
    "14.1": [(lambda: 32 * 16 * 16, "k has tiles too, although rule 3 leaves few"),
             (lambda: 6 * 5 * 3 * 5, "tiles are multiples of 16, not powers of two")],
    "14.2": [(lambda: 108 / 64, "that is SMs over blocks; the paper adds it to 1"),
             (lambda: slowdown(64), "that is with 32 blocks")],
    "14.3": [(lambda: 1, "that is what MCFuser's price says of it; a block cannot read what another one loaded")],
    "15.1": [(lambda: clusters()["cluster_shapes"]["as counted"], "that is the paper's count, where l / shuffle need not be whole"),
             (lambda: 625, "those are all shapes, before the rule")],
    "15.2": [(lambda: level_of(clusters()["chosen"], "dsm")["bytes"] / 15 * 16, "one of the 16 blocks keeps its own part"),
             (lambda: level_of(clusters()["chosen"], "dsm")["bytes"] / 2, "partial results have 4 bytes an element")],
    "15.3": [(lambda: 2 * fewer_bytes(), "what goes home is f16: 2 bytes an element")],
    "15.4": [(lambda: rate_of_balance(whole=False), "only 64 of the 132 SMs have a block; they have so much of the bandwidth")],
    "16.1": [(lambda: operations_an_element(384), "that is with 384 tokens"),
             (lambda: operations_an_element(1) / 2, "a multiplication and an addition are two operations"),
             (lambda: 2, "nearly; the row and the result are elements, too: give two decimals")],
    "16.2": [(lambda: 2 * INPUT_BYTES, "that is q1, k1 and v1; the sums of both layer normalisations save a read each"),
             (lambda: 5 * INPUT_BYTES, "of three that read X0 one still does"),
             (lambda: read_less() / 2, "that is in elements of 2 bytes; bytes are asked for")],
    "16.3": [(lambda: most_blocks("total"), "that is the printed rule; a block lies on one SM, not across two"),
             (lambda: 132, "an SM has room for two of these blocks")],
    "16.4": [(lambda: 12 * 8, "a layer waits for the one before it, too"), (lambda: 12 * 9, "no barrier follows the last layer")],
    "16.5": [(lambda: cost_of_even_barriers() - 1, "that is what a barrier may cost above 1 us")],
}
UNITS = {"bytes": ("0.1 0.2 2.2 6.1 6.2 7.2 11.2 12.1 12.3 13.1 15.2 15.3".split(), lambda x: x / 4,
                   "that is in elements of 4 bytes; bytes are asked for"),
         "factor": ("3.2 4.1 5.2 8.2 8.3 11.3 12.2 13.3 14.4".split(), lambda x: 1 / x,
                    "that is the factor the other way round")}


def sealed():
    """What checks.py reads, by exercise."""
    seals = {}
    for exercise, (truth, tolerance, hint) in TRUTHS.items():
        right = truth()
        wrong = [(value(), why) for value, why in WRONG.get(exercise, [])]
        wrong += [(change(right), why) for of, change, why in UNITS.values() if exercise in of]
        seals[exercise] = {"tolerance": tolerance, "hint": hint, "digest": digest(exercise, right, tolerance),
                           "wrong": [[digest(exercise, value, tolerance), why] for value, why in wrong]}
    return seals


if __name__ == "__main__":
    SEALS.write_text(json.dumps(sealed(), indent=1) + "\n", encoding="utf-8")
