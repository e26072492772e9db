"""Plan files as people write them by hand, for scripts/drawn-commands --written: any cut of the operators into kernels, some computed
again, loop trees with tiles that do not divide, loads, stores, drops and barriers at any level, pins, flags, launches. Most are
legal in part only; the command says of the others why not.
"""
import re

LOOP = re.compile(r"[A-Za-z_]\w*")


class Plan:
    """One plan of a workload, `content` as `workloads W --json` gives it, on a machine with these levels, home first."""

    def __init__(self, rng, content, levels):
        self.rng, self.loops, self.levels, self.dtype = rng, content["loops"], levels, content["dtype"]
        self.ops, self.used, self.reads, self.makes, self.target = [], {}, {}, {}, {}
        for one in content["operators"]:
            (name, text), = one.items()
            self.ops.append(name)
            self.used[name] = [l for l in self.loops if l in LOOP.findall(text)]
            parts = [re.split(r"\s(?:[+*]|max|min)?=\s", s, maxsplit=1) for s in text.split(";")]
            self.makes[name] = [t.split("[")[0].strip() for t, _ in parts]
            self.target[name] = {l for t, _ in parts for l in LOOP.findall(t[t.index("["):])}
            self.reads[name] = sorted({r for t, v in parts for r in re.findall(r"(\w+)\[", v)} - set(self.makes[name]))
        self.outputs = content.get("outputs", [])
        self.units = rng.random() < .25
        self.movements = rng.choice([0, 0, .15, .4])

    def chance(self, p):
        return self.rng.random() < p

    def level(self):
        return self.rng.choice(self.levels[1:] or self.levels)

    def step(self, size):
        kind = self.rng.random()
        if kind < .25:
            return size
        if kind < .5:
            return max(1, size // self.rng.randint(2, 5))
        return self.rng.randint(1, size)

    def kernels(self):
        """Which operators each has; what an earlier one has may be computed again."""
        kernels, rest = [], list(self.ops)
        while rest:
            count = self.rng.choice([1, 1, 2, 3, len(rest)])
            own, rest = rest[:count], rest[count:]
            for made in [o for k in kernels for o in k if o not in own]:
                if self.chance(.15) and any(set(self.makes[made]) & set(self.reads[o]) for o in own) and made not in own:
                    own.insert(0, made)
            kernels.append(own)
        return kernels

    def movement(self, name, before):
        if not self.chance(self.movements):
            return ""
        if before:
            tensor = self.rng.choice(self.reads[name] or self.makes[name])
            copies = self.rng.choice(["", "", "", "x2"])
            return f"L.{tensor}@{self.level()}{copies} " if self.chance(.8) else f"L.{tensor} "
        tensor = self.rng.choice(self.makes[name] + self.reads[name][:1])
        if tensor in self.reads[name]:
            return f" D.{tensor}" + (f"@{self.level()}" if self.chance(.5) else "")
        return f" S.{tensor}" + self.rng.choice(["", "", f"@{self.rng.choice(self.levels[:-1])}", "!atomic"])

    def compute(self, name):
        once = "!once" if self.chance(.05) else ""
        return self.movement(name, True) + f"C.{name}{once}" + self.movement(name, False)

    def nest(self, ops, ranges, depth):
        """A tree of these operators; a range is what is left of a loop."""
        shared = [l for l in ranges if all(l in self.used[o] for o in ops) and (ranges[l] > 1 or self.chance(.1))]
        if len(ops) > 1 and (not shared or depth > 6 or self.chance(.4)):
            cut = self.rng.randint(1, len(ops) - 1)
            return self.nest(ops[:cut], ranges, depth) + " " + self.nest(ops[cut:], ranges, depth)
        if not shared or depth > 6 or self.chance(.15):
            return " ".join(self.compute(o) for o in ops)
        loop = self.rng.choice(shared)
        step = self.step(ranges[loop])
        bound = ""
        if self.units and self.chance(.35):
            bound = self.rng.choice(["@grid", "@grid", "@thread", "@vector", "@unroll", "@warp", "@lane"])
        inside = self.nest(ops, {**ranges, loop: step}, depth + 1)
        around = ""
        if self.chance(self.movements / 2):
            tensor = self.rng.choice(self.reads[ops[0]] or self.makes[ops[0]])
            around = f"L.{tensor}@{self.level()} "
        barrier = self.rng.choice([" Y.block", " Y.grid"]) if self.units and self.chance(.1) else ""
        return f"{loop}/{step}{bound} ( {around}{inside}{barrier} )"

    def tree(self, ops):
        """One nest, or two side by side on blocks of their own."""
        def nest(some):
            return self.nest(some, {l: self.loops[l] for o in some for l in self.used[o]}, 0)
        if len(ops) > 1 and self.chance(.1):
            cut = self.rng.randint(1, len(ops) - 1)
            first = self.rng.choice(["", "", f"{self.rng.randint(0, 9)}: "])
            return f"( {nest(ops[:cut])} | {first}{nest(ops[cut:])} )"
        return nest(ops)

    def kernel(self, number, ops):
        tree = self.tree(ops)
        lines = [f"  - name: {'kab'[number % 3]}{number}", f'    tree: "{tree}"']
        if self.chance(.4):
            lines.append(f"    level: {self.level()}")
        used = sorted({l for o in ops for l in self.used[o]})
        if self.chance(.3):
            cut = {l: self.step(self.loops[l]) for l in used if self.chance(.8)}
            once = [l for l in cut if len(re.findall(rf"(?<![.\w]){l}/\d", tree)) == 1]  # others are nested in themselves, or may be
            lines[1] = '    tree: "' + re.sub(r"(?<![.\w])(\w+)/\d+", lambda m: m[1] if m[1] in once else m[0], tree) + '"'
            lines.append("    tiles: {" + ", ".join(f'"{l}": {s}' for l, s in cut.items()) + "}")
        if self.chance(.25):
            lines.append("    operators: [" + ", ".join(ops) + "]")
        tensors = sorted({t for o in ops for t in self.makes[o] + self.reads[o]})
        pins = {}
        for tensor in tensors:
            if self.chance(.12):
                between = any(tensor in self.makes[o] for o in ops) and any(tensor in self.reads[o] for o in ops)
                where = self.rng.choice(self.levels if between or self.chance(.03) else self.levels[1:])
                pins[tensor] = f"{{level: {where}, at: {self.rng.choice(used)}}}" if used and self.chance(.3) else where
        if pins:
            lines.append("    pins: {" + ", ".join(f"{t}: {p}" for t, p in pins.items()) + "}")
        if self.chance(.08):
            lines.append(f"    flags: {{{self.rng.choice(tensors)}: [sliding]}}")
        if self.chance(.1):
            lines.append(f"    launch: {{warps: {self.rng.randint(1, 16)}, stages: {self.rng.randint(1, 8)}, ahead: 1}}")
        return lines

    def yaml(self, workload, machine):
        lines = ["schema: 1", f'workload: "{workload}"']
        if self.chance(.5):
            lines.append(f'machine: "{machine}"')
        lines.append("kernels:")
        for i, ops in enumerate(self.kernels()):
            lines += self.kernel(i, ops)
        return "\n".join(lines) + "\n"


def drawn(rng, content, workload, machine, levels):
    return Plan(rng, content, levels).yaml(workload, machine)


class Anywhere(Plan):
    """A plan of the whole space that a model for caches has: any cut of the operators into kernels, any order of the loops that a
    kernel's operators share, and steps of which each size from 1 to the loop's is as likely by its logarithm."""

    def __init__(self, rng, content, levels):
        super().__init__(rng, content, levels)
        self.units, self.movements = False, 0
        self.apart = rng.random() < .5

    def step(self, size):
        step = round(size ** self.rng.random())
        return (step + 4) // 8 * 8 if step > 8 and self.chance(.5) else step

    def nest(self, ops, ranges, depth):
        shared = [l for l in ranges if all(l in self.used[o] for o in ops) and ranges[l] > 1]
        if len(ops) > 1 and (not shared or self.chance(.2)):
            cut = self.rng.randint(1, len(ops) - 1)
            return self.nest(ops[:cut], ranges, depth) + " " + self.nest(ops[cut:], ranges, depth)
        if not shared:
            return self.compute(ops[0])
        loop = self.rng.choice(shared)
        step = min(self.step(ranges[loop]), ranges[loop])
        # Few plans cut a loop twice; a loop of one iteration is none.
        inside = {**ranges, loop: step if self.chance(.2) else 0}
        whole = step == ranges[loop] or self.chance(.25)
        return self.nest(ops, {**ranges, loop: 0}, depth) if whole else f"{loop}/{step} ( {self.nest(ops, inside, depth)} )"

    def kernels(self):
        kernels = [[self.ops[0]]]
        for op in self.ops[1:]:
            if self.apart and self.chance(.6):
                kernels.append([op])
            else:
                kernels[-1].append(op)
        return kernels

    def compute(self, name):
        return f"C.{name}"

    def kernel(self, number, ops):
        ranges = {l: self.loops[l] for o in ops for l in self.used[o]}
        return [f"  - name: k{number}", f"    level: {self.level()}", f'    tree: "{self.nest(ops, ranges, 0)}"']

    def yaml(self, workload, machine):
        lines = ["schema: 1", f'workload: "{workload}"', f'machine: "{machine}"', "kernels:"]
        for i, ops in enumerate(self.kernels()):
            lines += self.kernel(i, ops)
        return "\n".join(lines) + "\n"
