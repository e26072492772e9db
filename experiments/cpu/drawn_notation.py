"""Workloads that use all that index notation allows, for scripts/drawn-commands --notation: any affine form in any
dimension, the same tensor at several places of one operator, gathers by two indices or by one tensor twice, targets with
constants and in any order, several statements an operator, running sums, every type, known values, masks by expressions of
indices, twelve loops. Few look like what anybody computes. A draw is a family's name and a whole workload in YAML.
"""
import math
import random
import re

FLOATS = ("f32", "f32", "f64", "f16", "bf16")
WRITES = re.compile(r"(\w+)\[([^\]]*)\] ((?:[+*]|max|min)?=) ")


class Draw:
    def __init__(self, seed, points):
        self.rng, self.most = random.Random(seed), points
        self.loops, self.shapes, self.types, self.ranges, self.values = {}, {}, {}, {}, {}
        self.lines, self.outputs = [], []
        self.made = {}  # tensor: extents
        self.longer = set()  # tensors that have rows longer than what is written
        self.inputs = {}
        self.dtype = self.rng.choice(FLOATS)

    def chance(self, p):
        return self.rng.random() < p

    def one(self, *values):
        return self.rng.choice(values)

    # Indices

    def bounds(self, terms, offset):
        """Least and largest value of an affine form."""
        low = high = offset
        for c, l in terms:
            reach = c * (self.loops[l] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    def text(self, terms, offset):
        parts = []
        for c, l in terms:
            sign = "-" if c < 0 else "+"
            word = l if abs(c) == 1 else self.one(f"{abs(c)}*{l}", f"{l}*{abs(c)}")
            parts.append((sign, word))
        if offset or not parts:
            parts.append(("-" if offset < 0 else "+", str(abs(offset))))
        self.rng.shuffle(parts)
        first = ("-" if parts[0][0] == "-" else "") + parts[0][1]
        return first + "".join(f" {s} {w}" for s, w in parts[1:])

    def affine(self, loops, must=None):
        """(terms, offset)"""
        kind = self.rng.random()
        first = must or (self.one(*loops) if loops else None)
        if first is None or (kind < .03 and not must):
            return [], self.rng.randint(0, 3)
        if kind < .5:
            return [(1, first)], 0
        if kind < .6:
            return [(1, first)], self.rng.randint(-3, 3)
        if kind < .68:
            return [(self.rng.randint(2, 4), first)], self.rng.randint(-2, 2)
        if kind < .76:
            return [(-self.one(1, 1, 2), first)], self.rng.randint(0, 2 * self.loops[first])
        others = [l for l in loops if l != first]
        terms = [(self.one(1, 1, 2, 3, -1), first)]
        for l in self.rng.sample(others, min(len(others), self.one(1, 1, 2))):
            terms.append((self.one(1, 1, 2, 3, -1, self.loops[first]), l))
        return terms, self.rng.randint(-3, 3)

    def fitting(self, loops, extent, must=None):
        """An index of a dimension that exists: some of it is inside."""
        for _ in range(8):
            terms, offset = self.affine(loops, must)
            low, high = self.bounds(terms, offset)
            if low < extent and high >= 0 and (must is None or any(l == must for _, l in terms)):
                return self.text(terms, offset)
        return must or "0"

    def new_dimension(self, loops, must=None):
        terms, offset = self.affine(loops, must)
        low, high = self.bounds(terms, offset)
        if high < 0:
            terms, offset = [(abs(c), l) for c, l in terms], abs(offset)
            low, high = self.bounds(terms, offset)
        extent = high + 1 + (self.rng.randint(-2, 3) if self.chance(.3) else 0)
        return self.text(terms, offset), max(1, low + 1, extent)

    def gathered(self, loops, rows):
        """An index that is a value: a new tensor of indices, or one that there is."""
        have = [t for t, s in self.inputs.items() if self.types.get(t) in ("i32", "i8") and t.startswith("n")]
        if have and self.chance(.4):
            name = self.one(*have)
            return f"{name}[{','.join(self.fitting(loops, e) for e in self.inputs[name])}]"
        name = f"n{len(self.inputs)}"
        shape, index = [], []
        for l in self.rng.sample(loops, self.rng.randint(min(1, len(loops)), min(2, len(loops)))):
            text, extent = self.new_dimension(loops, l)
            index.append(text)
            shape.append(extent)
        self.inputs[name] = self.shapes[name] = shape
        self.types[name] = self.one("i32", "i32", "i8")
        if self.chance(.5) and math.prod(shape) <= 200:
            few = self.rng.randint(1, rows)
            self.values[name] = [self.rng.randrange(few) for _ in range(math.prod(shape))]
        return f"{name}[{','.join(index)}]"

    # Values

    def access(self, loops, must=()):
        """A read with these loops in it, if it can be."""
        old = [t for t in self.made if self.chance(.9) or not self.chance(.5)]
        old += [t for t in self.inputs if not t.startswith("n")]
        if old and self.chance(.75):
            name = self.one(*old[-4:])
            shape = self.made.get(name, self.inputs.get(name))
            want, index = list(must), []
            for extent in shape:
                exact = [l for l in loops if self.loops[l] == extent]
                if name in self.longer:  # read where it is written alone
                    index.append(self.one(*exact) if exact else "0")
                    continue
                if self.chance(.05) and self.types.get(name) not in ("i8", "i32"):
                    index.append(self.gathered(loops, extent))
                elif want:
                    index.append(self.fitting(loops, extent, want.pop()))
                elif exact and self.chance(.7):
                    index.append(self.one(*exact))
                else:
                    index.append(self.fitting(loops, extent))
            return f"{name}[{', '.join(index)}]"
        name = f"i{len(self.inputs)}"
        index, shape = [], []
        for l in must or self.rng.sample(loops, self.rng.randint(0, min(4, len(loops)))):
            text, extent = self.new_dimension(loops, l)
            index.append(text)
            shape.append(extent)
        if self.chance(.07):
            rows = self.one(1, 5, 60)
            at = self.rng.randint(0, len(index))
            index.insert(at, self.gathered(loops, rows))
            shape.insert(at, rows)
        while math.prod(shape) > 3e5:
            at = max(range(len(shape)), key=lambda d: shape[d])
            index[at], shape[at] = "0", 1
        self.inputs[name] = self.shapes[name] = shape
        if self.chance(.12):
            self.types[name] = self.one("i8", "i32", "f16", "bf16", "f32")
            if self.types[name][0] == "i":
                self.ranges[name] = self.one(1, 3, "0 to 2")
        elif self.chance(.05):
            self.ranges[name] = self.one(.1, 2, "0.5 to 1")
        if self.chance(.05) and math.prod(shape) <= 100:
            self.values[name] = [self.one(0, 1, -1, .5, self.rng.randint(-2, 2)) for _ in range(math.prod(shape))]
            self.ranges.pop(name, None)
            if self.types.get(name, "f32")[0] == "i":
                self.values[name] = [round(v) for v in self.values[name]]
        return f"{name}[{', '.join(index)}]"

    def value(self, loops, must, deep):
        """An expression of about that depth; each of the loops of `must` indexes a read of it."""
        if deep <= 0:
            text = self.access(loops, must[:4])
            found = set(re.findall(r"\w+", " ".join(re.findall(r"\[(.*)\]", text))))
            for l in [l for l in must if l not in found]:
                text += f" * {self.access_of([l])}"
            return text
        kind = self.rng.random()
        part = self.rng.sample(must, self.rng.randint(0, len(must))) if must else []
        rest = [l for l in must if l not in part]
        if kind < .4:
            a, b = self.value(loops, part, deep - 1), self.value(loops, rest, deep - 1)
            return f"({a}) {self.one('+', '*', '-')} ({b})" if deep > 1 or self.chance(.3) else f"{a} {self.one('+', '*', '-')} {b}"
        if kind < .5:
            return f"{self.one('max', 'min', 'add', 'sub', 'mul')}({self.value(loops, part, deep - 1)}, {self.value(loops, rest, deep - 1)})"
        inner = self.value(loops, must, deep - 1)
        if kind < .8:
            return self.one("relu({})", "tanh({})", "sigmoid({})", "gelu({})", "exp(-abs({}))", "0.5 * ({})", "erf({})", "sin({})", "cos({})",
                            "neg({})", "abs({})", "({}) / 3", "recip(2 + abs({}))", "rsqrt(1.5 + square({}))", "sqrt(abs({}) + 0.01)",
                            "log(1.5 + abs({}))", "pow(abs({}) + 0.5, 1.5)", "div({}, 2)", "({})").format(inner)
        named = [l for l in loops if l not in self.made and l not in self.inputs]
        if kind < .95 and named:
            a, b = self.one(*named), self.one(*named)
            return self.one(f"select(lt({a}, {b}), {inner}, 0.25)", f"select(lt(2 * {a}, {b} + 3), 0.5, {inner})", f"({inner}) * (1 + 0.01 * {a})",
                            f"select(lt({a} - {b}, {self.rng.randint(-2, 4)}), {inner}, 0)", f"({inner}) + sin(0.3 * {a} * {b})",
                            f"select(lt(abs({a} - {b}), 2), {inner}, -0.5)")
        return f"select(lt({self.access_of(self.rng.sample(loops, min(1, len(loops))))}, 0.1), {inner}, 0.125)"

    def access_of(self, loops):
        name = f"i{len(self.inputs)}"
        index, shape = [], []
        for l in loops:
            text, extent = self.new_dimension(loops, l)
            index.append(text)
            shape.append(extent)
        self.inputs[name] = self.shapes[name] = shape
        return f"{name}[{', '.join(index)}]"

    # Operators

    def target(self, name, at):
        """Loops in any order, sometimes with a constant between."""
        order = self.rng.sample(at, len(at))
        shape = [self.loops[l] for l in order]
        if self.chance(.06):
            where = self.rng.randint(0, len(order))
            order.insert(where, "0")
            shape.insert(where, 1)
        return f"{name}[{','.join(order)}]", shape

    def operator(self, number):
        names = list(self.loops)
        loops = self.rng.sample(names, self.rng.randint(1, min(len(names), self.one(2, 3, 4, 12))))
        while math.prod(self.loops[l] for l in loops) > self.most:
            loops.remove(max(loops, key=lambda l: self.loops[l]))
        loops = loops or [min(names, key=lambda l: self.loops[l])]
        if self.loops[loops[0]] > self.most:
            return
        assign = self.chance(.4)
        at = loops if assign else self.rng.sample(loops, self.rng.randint(0, len(loops) - self.one(0, 1) if len(loops) > 1 else len(loops)))
        reduced = [l for l in loops if l not in at]
        statements, new, deep = [], {}, self.one(0, 1, 1, 2, 3)
        for s in range(self.one(1, 1, 1, 2, 3)):
            name = f"t{number}" + "abc"[s] * (s > 0)
            text, shape = self.target(name, at)
            combine = "=" if assign or (not reduced and self.chance(.5)) else self.one("+=", "+=", "+=", "max=", "min=", "*=")
            value = self.value(loops, loops if s == 0 else reduced if combine != "=" else [], deep)
            if combine == "*=":
                value = f"1 + 0.05 * tanh({value})"
            elif combine == "+=" and self.chance(.4):
                value = f"0.1 * ({value})"
            elif combine == "=" and self.chance(.4):
                value = f"tanh({value})"
            kind = None
            if self.chance(.06) and self.dtype in ("f32", "f64"):
                kind = self.one("i8", "i32")
                value = f"max(-100, min(100, round(4 * ({value}))))" if combine == "=" else f"round({value})"
                if combine in ("+=", "*="):
                    kind = "i32"
            elif self.chance(.06):
                kind = self.one("f16", "bf16", "f32") if self.dtype != "f64" else self.one("f32", "f64")
            if kind:
                self.types[name] = kind
            statements.append(f"{text} {combine} {value}")
            new[name] = shape
        if not at or not self.chance(.06):
            pass
        elif len(new) == 1 and shape[-1] > 1:  # rows longer than what is written of them
            self.shapes[name] = [*shape[:-1], shape[-1] + self.rng.randint(1, 7)]
            self.longer.add(name)
        self.lines.append((f"o{number}" if self.chance(.8) else f"t{number}", "; ".join(statements)))
        self.made.update(new)

    def running(self, number):
        """A row's exponentials and their sums, online, over any two loops."""
        if len(self.loops) < 2:
            return
        m, l = self.rng.sample(list(self.loops), 2)
        if self.loops[m] * self.loops[l] > self.most:
            return
        n = number
        source = self.access([m, l], [m, l])
        found = set(re.findall(r"\w+", source))
        if m not in found or l not in found:
            source = self.access_of([m, l])
        order = self.one(f"{m},{l}", f"{l},{m}")
        self.lines += [(f"s{n}", f"S{n}[{order}] = tanh({source})"),
                       (f"r{n}", f"R{n}[{m}] max= S{n}[{order}]; d{n}[{m}] = before(R{n}) - after(R{n}) running"),
                       (f"e{n}", f"E{n}[{order}] = exp(S{n}[{order}] - R{n}[{m}])"),
                       (f"z{n}", f"Z{n}[{m}] += E{n}[{order}] rescale(exp(d{n}[{m}])) running")]
        others = [o for o in self.loops if o not in (m, l) and self.loops[m] * self.loops[l] * self.loops[o] <= self.most]
        self.made[f"Z{n}"] = [self.loops[m]]
        if others and self.chance(.6):
            o = self.one(*others)
            right = self.access_of([l, o])
            self.lines += [(f"a{n}", f"A{n}[{m}] = exp(d{n}[{m}])"),
                           (f"p{n}", f"P{n}[{m},{o}] += E{n}[{order}] * {right} rescale(A{n}[{m}]) running"),
                           (f"q{n}", f"Q{n}[{m},{o}] = P{n}[{m},{o}] / Z{n}[{m}]")]
            self.made[f"Q{n}"] = [self.loops[m], self.loops[o]]

    def sizes(self, names):
        for name in names:
            kind = self.rng.random()
            self.loops[name] = 1 if kind < .12 else self.one(2, 3, 5, 7, 11, 13, 17, 31) if kind < .5 else self.one(
                2, 4, 8, 16, 32, 64) if kind < .75 else self.rng.randint(1, 90) if kind < .95 else self.one(127, 257, 1000, 4097)

    def yaml(self, name):
        texts = [text for _, text in self.lines]
        words = set(re.findall(r"\w+", " ".join(texts)))
        # A loop indexes a tensor.
        inside = set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"\[([^=]*?)\](?=[^\]]|$)", " ".join(texts)))))
        def flow(pairs):
            return "{" + ", ".join(f'"{k}": {v}' for k, v in pairs.items()) + "}"
        lines = [f"name: {name}", f"dtype: {self.dtype}", "loops: " + flow({l: e for l, e in self.loops.items() if l in inside})]
        shapes = {t: [*map(str, s)] for t, s in self.shapes.items() if t in words}
        if shapes:
            lines.append("tensors: " + flow({t: "[" + ", ".join(s) + "]" for t, s in shapes.items()}))
        for key, of in (("dtypes", self.types), ("ranges", self.ranges), ("values", self.values)):
            if of := {t: v for t, v in of.items() if t in words}:
                lines.append(f"{key}: {flow(of)}")
        lines.append("operators:")
        lines += [f'  - {{"{n}": "{text}"}}' for n, text in self.lines]
        if self.outputs:
            lines.append(f"outputs: [{', '.join(self.outputs)}]")
        return "\n".join(lines) + "\n"


def drawn(seed, points):
    """(name, YAML) of one draw."""
    d = Draw(f"{seed} notation", points)
    d.sizes("abcdefghjklm"[:d.one(1, 2, 3, 3, 4, 5, 6, 12)])
    for number in range(d.one(1, 1, 2, 3, 4, 6)):
        if d.chance(.08):
            d.running(number)
        else:
            d.operator(number)
    if not d.lines:
        d.loops["a"] = 7
        d.lines = [("o0", "t0[a] = tanh(i0[a])")]
        d.inputs["i0"] = d.shapes["i0"] = [7]
    # What only partial results are read of, and any others.
    written = [t for _, text in d.lines for t, _, _ in WRITES.findall(text)]
    read = {t for _, text in d.lines for part in re.split(r"; (?=\w+\[[^\]]*\] \S*=)", text) for t in re.findall(r"(\w+)[\[)]", part.split("= ", 1)[1])}
    for t in [t for t in d.longer if t not in read or re.search(rf"{t}\[[^\]]*[-+*]", " ".join(x for _, x in d.lines))]:
        del d.shapes[t]
    ends = [t for t in written if t not in read and not re.match(r"[dE]\d", t)]
    if d.chance(.2):
        ends += [t for t in written if t in read and t not in d.shapes and re.match(r"[tZQ]\d", t) and d.chance(.5)]
    d.outputs = ends if d.chance(.5) or len(ends) > 1 else []
    return "notation", d.yaml(f"notation-{seed}")
