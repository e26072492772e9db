"""Machine files for scripts/drawn-commands: hierarchies that nobody sells, and the files of core/machine/files with other numbers."""
import pathlib
import random
import re

FILES = sorted((pathlib.Path(__file__).resolve().parents[2] / "core" / "machine" / "files").glob("*.yaml"))


def changed(seed):
    """YAML of a machine whose numbers are some of them up to ten times others, or odd: capacities, rates, lines, ways, cycles, units."""
    rng = random.Random(f"{seed} changed machine")
    part = rng.choice([.05, .2, .5])

    def other(found):
        if rng.random() > part:
            return found[0]
        number = float(found[2])
        if rng.random() < .8:
            new = number * rng.choice([.5, 2, 3, 1 / 3, .1, 10, .9, 1.1])
        else:
            new = rng.choice([0, 1, 2, 3, 7, 1e-3, 1e6, 13])
        if number.is_integer() and rng.random() < .95:
            new = max(1, round(new))
        return found[1] + (str(int(new)) if float(new).is_integer() else f"{new:g}") + found[3]
    return re.sub(r"(value: )([\d.]+)([^\d.,}]*,)", other, rng.choice(FILES).read_text())


def written(seed):
    """YAML of a machine that nobody sells: odd sizes, one level or six, any policy, with and without rates."""
    rng = random.Random(f"{seed} machine")
    kind = rng.choice(["cpu", "cpu", "cpu", "pads"])
    def value(x):
        return "{value: " + str(x) + ", source: " + rng.choice(['assumed', '"assumed: what if"']) + "}"
    def capacity(x):
        return rng.choice([f"{x}B", str(x) + "B", f"{max(1, x // 1024)}K"])
    lines = [f"name: {rng.choice(['mine', 'my-box', 'x1', 'what-if'])}", "kind: cpu", "levels:", "  - name: " + rng.choice(["DRAM", "HBM", "main", "Mem"]), "    kind: home"]
    if rng.random() < .3:
        lines += [f"    row_buffer: {value('8K')}", f"    banks: {value(rng.choice([1, 4, 16]))}"]
    depth = rng.choice((1, 1, 2, 2, 3, 3, 4, 6))
    size = rng.choice([1, 3]) * 2 ** rng.randint(14, 26)
    rates = rng.random() < .6
    rate = rng.choice([20, 131, 900])
    cores = rng.choice([1, 1, 2, 6, 64])
    names = [lines[3].split()[-1]]
    for i in range(depth):
        name = f"L{depth - i}" if rng.random() < .8 else ["buf", "near", "mid", "far", "tiny", "own"][i]
        pad = kind == "pads" or rng.random() < .1
        names.append(name)
        lines += [f"  - name: {name}", f"    kind: {'scratchpad' if pad else 'cache'}"]
        if not pad:
            line = rng.choice((32, 64, 64, 64, 128, 256))
            ways = rng.choice((0, 1, 2, 3, 5, 8, 12, 16, 20))
            size = max(size // line, ways or 1, 2) * line
            if ways:
                size = max(1, size // (line * ways)) * line * ways
            lines += [f"    capacity: {value(f'{size}B')}", f"    line: {value(line)}"] + ([f"    ways: {value(ways)}"] if ways else [])
            if rng.random() < .3 and 0 < ways <= 64:
                lines.append("    policy: " + rng.choice(["fifo", "random", "tree_plru", "bit_plru", "srrip", "brrip", "qlru_h00_m1_r0_u1"]))
            if rng.random() < .2:
                lines.append("    inclusion: " + rng.choice(["inclusive", "exclusive", "victim"] if i < depth - 1 else ["inclusive"]))
            if rng.random() < .2:
                lines.append("    write: through")
            if rng.random() < .2:
                lines.append("    write_miss: " + rng.choice(["validate", "around"]))
            if rng.random() < .1:
                lines.append("    index: " + rng.choice(["folded", f"slices\n    slices: {value(rng.choice([2, 4, 8]))}"]))
            if rng.random() < .1:
                lines.append(f"    sector: {value(rng.choice([line // 2, line // 4, line]))}")
            if rng.random() < .15:
                lines.append("    prefetch: [{kind: " + rng.choice(["next_line", "adjacent", "stride"]) + "}]")
        else:
            lines.append(f"    capacity: {value(capacity(size))}")
        if rates:
            lines.append(f"    bandwidth: {value(f'{rate} GB/s')}")
        if pad and i > 0 and rng.random() < .2:
            lines.append("    filled_by: [" + ", ".join(rng.sample(names[:i], rng.randint(1, min(2, i)))) + "]")
        if cores > 1 and i > 0 and rng.random() < .8:
            lines += ["    private_to: grid", f"    instances: {value(cores)}"]
        size = max(64, size // rng.choice((2, 3, 8, 13, 40)))
        rate = rate * rng.choice((2, 3))
    if rng.random() < .6:
        lines += ["units:", "  - name: core", f"    count: {value(cores)}"]
        if rng.random() < .7:
            lines.append(f"    clock: {value('2.1 GHz')}")
        if rng.random() < .7:
            peaks = [f"{d}: {value(p + ' GFLOP/s')}" for d, p in (("f32", "150"), ("f64", "75"), ("f16", "300")) if rng.random() < .7]
            if peaks:
                lines.append("    peak: {" + ", ".join(peaks) + "}")
        if rng.random() < .6:
            lines.append(f"    vector_width: {value(rng.choice([16, 32, 64]))}")
        if rng.random() < .3:
            lines.append(f"    registers: {value(rng.choice([16, 32]))}")
    return "\n".join(lines) + "\n"


def less(seed):
    """YAML of a machine of which some numbers are not known: their lines and entries are left out, as `changed` left them."""
    rng = random.Random(f"{seed} less of a machine")
    part = rng.choice([.03, .1, .3])
    entry = re.compile(r",?\s*\w+: \{value: [^{}]*\}")
    lines = []
    for line in (changed(seed) if rng.random() < .3 else rng.choice(FILES).read_text()).split("\n"):
        if re.match(r" +(?!name|kind)\w+: \{value: .*\}$", line) and rng.random() < part:
            continue
        if re.match(r" +\w+: \{\w+: \{value:", line) or (entry.match(line.strip()) and line.rstrip().endswith(",")):
            cut = entry.sub(lambda m: "" if rng.random() < part else m[0], line)
            line = re.sub(r"\{\s*,\s*", "{", cut)
        lines.append(line)
    return "\n".join(lines)


def drawn(seed):
    """YAML of one of them."""
    rng = random.Random(f"{seed} which machine")
    return (changed if rng.random() < .4 else less if rng.random() < .3 else written)(seed)
