"""Random workloads in index notation for experiments/cpu/trials: sums of products over any loops and what stands
behind them, gradients, with strides, dilations, padding, reversed and diagonal reads, gathers, masks by index,
several outputs, any type, sizes of 1 and primes. A draw is a family's name and a whole workload in YAML.
"""
import math
import random

PRIMES = (2, 3, 5, 7, 11, 13, 17, 31, 37, 61, 67, 127, 131, 257)


class Maker:
    """One workload: loops with their extents, tensors, operators."""

    def __init__(self, seed, points):
        self.rng, self.most = random.Random(seed), points
        self.loops, self.shapes, self.types, self.lines, self.outputs = {}, {}, {}, [], []
        self.made = []  # (tensor, loops by dimension) of what operators have written plainly
        self.dtype = self.rng.choice(("f32", "f32", "f32", "f64", "bf16", "f16"))

    def chance(self, p):
        return self.rng.random() < p

    def size(self, most):
        kind = self.rng.random()
        if kind < .12:
            return 1
        if kind < .45:
            return self.rng.choice([p for p in PRIMES if p <= most] or [1])
        if kind < .65:
            return 2 ** self.rng.randint(0, max(0, int(math.log2(most))))
        return max(1, round(math.exp(self.rng.uniform(0, math.log(most)))))

    def loop(self, name, most):
        self.loops[name] = self.size(max(1, most))
        return name

    def draw_loops(self, names):
        """Sizes in any order, so that any loop may be the long one; together about `most` points."""
        left = self.most
        for i, name in enumerate(self.rng.sample(names, len(names))):
            rest = len(names) - 1 - i
            most = left if rest == 0 or self.chance(.3) else left ** (1.3 / (rest + 1))
            self.loop(name, min(600 if rest or self.chance(.9) else 20000, most))
            left = max(1, left // self.loops[name])

    def extent(self, terms, offset=0):
        """The smallest dimension that holds coefficient * loop + ... + offset; at least one."""
        return max(1, offset + 1 + sum(c * (self.loops[l] - 1) for c, l in terms if c > 0))

    def index(self, loop, loops):
        """(text, extent) of a dimension that a loop, one of these, moves, mostly plainly."""
        kind, size = self.rng.random(), self.loops[loop]
        if kind < .74:
            return loop, size
        if kind < .80:
            step = self.rng.randint(2, 5)
            return f"{step}*{loop}", step * (size - 1) + 1
        if kind < .86:
            offset = self.rng.randint(1, 4)
            return f"{loop} + {offset}", size + offset
        if kind < .91:
            return f"{size - 1} - {loop}", size
        if kind < .96:
            offset = self.rng.randint(1, 3)
            return (f"{loop} - {offset}", max(1, size - self.rng.randint(0, 4))) if size > offset else (loop, size)
        other = self.rng.choice(loops)
        step = self.rng.randint(1, 3)
        if other == loop:
            return loop, size
        return f"{step}*{loop} + {other}", step * (size - 1) + self.loops[other]

    def input(self, loops, name=None, gathers=True):
        """A new input with these loops in some order, as an access."""
        name = name or f"i{len(self.shapes)}"
        index, shape = [], []
        for l in self.rng.sample(loops, len(loops)):
            text, size = self.index(l, loops)
            index.append(text)
            shape.append(size)
        if index and self.chance(.04):  # a diagonal
            at = self.rng.randrange(len(index))
            index.append(index[at])
            shape.append(shape[at])
        if self.chance(.04):
            index.insert(self.rng.randint(0, len(index)), "0")
            shape.insert(index.index("0"), 1)
        if gathers and index and self.chance(.07):
            at = self.rng.randrange(len(index))
            by = self.rng.sample(loops, self.rng.randint(1, min(2, len(loops))))
            self.shapes[f"n{name}"] = [self.loops[l] for l in by]
            self.types[f"n{name}"] = "i32"
            index[at] = f"n{name}[{','.join(by)}]"
            shape[at] = self.rng.choice((3, 50, 101))
        if math.prod(shape) > 4e6:  # strides of strides
            if math.prod(self.loops[l] for l in loops) > 4e6:  # the loops alone are as many
                index, shape = list(loops), [self.loops[l] for l in loops]
            else:
                return self.input(loops, name, False)
        self.shapes[name] = shape
        if self.chance(.06):
            self.types[name] = self.rng.choice(("f16", "bf16", "f32"))
        return f"{name}[{','.join(index)}]"

    def read(self, loops):
        """What was made, else a new input, at points of these loops."""
        fit = [m for m in self.made if set(m[1]) <= set(loops)]
        if fit and self.chance(.7):
            tensor, at = self.rng.choice(fit[-3:])
            index = list(at)
            if index and self.chance(.1):
                i = self.rng.randrange(len(index))
                size = self.loops[at[i]]
                index[i] = self.rng.choice([f"{size - 1} - {at[i]}"] + [f"{at[i]} {sign} 1" for sign in "+-" if size > 1])
            return f"{tensor}[{','.join(index)}]"
        return self.input(self.rng.sample(loops, self.rng.randint(min(1, len(loops)), min(4, len(loops)))))

    def function(self, value):
        return self.rng.choice(("relu({})", "tanh({})", "sigmoid({})", "gelu({})", "exp(0 - abs({}))", "0.5 * {}",
                                "square({})", "erf({})", "max({}, 0.1)", "min(0.25, {})", "rsqrt(1.5 + square({}))",
                                "{} / 3", "-{}", "sqrt(abs({}) + 0.01)", "log(1.5 + abs({}))", "recip(2 + abs({}))",
                                "pow(abs({}) + 0.5, 0.75)")).format(value)

    def masked(self, value, loops):
        if not loops or not self.chance(.15):
            return value
        a, b = self.rng.choice(loops), self.rng.choice(loops)
        return self.rng.choice((f"select(lt({a}, {b}), 0.25, {value})", f"select(lt({a}, {self.loops[a] // 2}), {value}, 0.01 * {b})",
                                f"{value} + 0.001 * {a}", f"select(lt({b} + 2, {a}), {value}, -0.5)"))

    def cover(self, value, loops, number):
        """Each loop stands in the value."""
        return value + "".join(f" * c{number}{l}[{l}]" for l in loops if l not in token(value))

    def operator(self, number, names):
        loops = self.rng.sample(names, self.rng.randint(1, len(names)))
        while math.prod(self.loops[l] for l in loops) > 2 * self.most:
            loops.pop()
        loops = loops or [names[0]]
        kind, out = self.rng.random(), f"t{number}"
        if kind < .4:
            at = self.rng.sample(loops, len(loops))
            value = self.function(self.read(loops))
            for _ in range(self.rng.choice((0, 1, 1, 2))):
                value += self.rng.choice((" + ", " * ", " - ")) + self.read(loops)
            value, combine = self.masked(value, loops), "="
        else:
            at = self.rng.sample(loops, self.rng.randint(0, len(loops) - 1))
            combine = self.rng.choice(("+=", "+=", "+=", "+=", "max=", "min="))
            value = " * ".join(self.read(loops) for _ in range(self.rng.choice((1, 2, 2, 2, 3))))
            value = self.cover(value, [l for l in loops if l not in at], number)
            value = self.masked(self.function(value) if self.chance(.15) else value, loops)
        line = f"o{number}: {out}[{','.join(at)}] {combine} {value}"
        if combine != "=" and self.chance(.12):  # a second result over the same points
            second = self.rng.choice(("+=", "max="))
            line += f"; s{number}[{','.join(at)}] {second} {self.cover(self.read(loops), [l for l in loops if l not in at], str(number) + 's')}"
            self.made.append((f"s{number}", tuple(at)))
        self.lines.append(line)
        self.made.append((out, tuple(at)))

    def text(self, name):
        def flow(pairs):
            return "{" + ", ".join(f'"{k}": {v}' for k, v in pairs) + "}"
        used = {l: e for l, e in self.loops.items()
                if any(l in token(line.split(": ", 1)[1]) for line in self.lines)}
        lines = [f"name: {name}", f"dtype: {self.dtype}", "loops: " + flow(used.items())]
        shapes = {t: s for t, s in self.shapes.items() if any(t in token(l) for l in self.lines)}
        if shapes:
            lines.append("tensors: " + flow((t, "[" + ", ".join(map(str, s)) + "]") for t, s in shapes.items()))
        types = {t: d for t, d in self.types.items() if any(t in token(l) for l in self.lines)}
        if types:
            lines.append("dtypes: " + flow(types.items()))
        lines.append("operators:")
        lines += [f'  - "{l}"' for l in self.lines]
        if self.outputs:
            lines.append(f"outputs: [{', '.join(self.outputs)}]")
        return "\n".join(lines) + "\n"


def token(text):
    """The names in a text."""
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def einsum(m):
    names = list("abcdef")[:m.rng.randint(1, 6)]
    m.draw_loops(names)
    for number in range(m.rng.choice((1, 1, 2, 3, 4, 6))):
        m.operator(number, names)
    if m.chance(.15):  # what others read, too
        read = set().union(*(token(line.split("= ", 1)[1]) for line in m.lines))
        m.outputs = sorted({t for t, _ in m.made if t not in read or m.chance(.5)})


def product_epilogue(m):
    """A batched product in any layout, and element-wise operators with operands along any of its loops."""
    m.draw_loops(["b", "m", "n", "k"])
    batch = ["b"] if m.chance(.5) else []
    left, right = batch + ["m", "k"], (batch if m.chance(.5) else []) + ["k", "n"]
    at = m.rng.sample(batch + ["m", "n"], len(batch) + 2)
    def plain(name, loops):
        order = m.rng.sample(loops, len(loops))
        m.shapes[name] = [m.loops[l] for l in order]
        return f"{name}[{','.join(order)}]"
    m.lines.append(f"product: C[{','.join(at)}] += {plain('A', left)} * {plain('B', right)}")
    before = "C"
    for number in range(m.rng.randint(1, 3)):
        value = m.function(f"{before}[{','.join(at)}]")
        for i in range(m.rng.randint(1, 2)):
            operand = m.rng.sample(at, m.rng.randint(0, len(at)))
            value += m.rng.choice((" + ", " * ", " - ")) + plain(f"e{number}{i}", operand)
        m.lines.append(f"after{number}: E{number}[{','.join(at)}] = {m.masked(value, at)}")
        before = f"E{number}"
    if m.chance(.5):
        kept = m.rng.sample(at, m.rng.randint(0, len(at) - 1))
        m.lines.append(f"rows: R[{','.join(kept)}] {m.rng.choice(('+=', 'max='))} {before}[{','.join(at)}]")
        if m.chance(.5):
            m.lines.append(f"last: Z[{','.join(at)}] = {before}[{','.join(at)}] - 0.1 * R[{','.join(kept)}]")


def product_gradient(m):
    m.draw_loops(["b", "m", "n", "k"])
    m.lines += ["forward: C[b,m,n] += A[b,m,k] * B[k,n]", "act: G[b,m,n] = T[b,m,n] * (1 - square(tanh(C[b,m,n])))",
                "left: DA[b,m,k] += G[b,m,n] * B[k,n]", "right: DB[k,n] += G[b,m,n] * A[b,m,k]",
                "bias: DC[n] += G[b,m,n]"]
    m.outputs = ["DA", "DB", "DC"]


def convolution_gradient(m):
    """Of the weights for any stride, dilation and padding; of the input for stride 1."""
    planes = m.rng.choice((1, 2, 2))
    k, dilation, stride = m.rng.choice((1, 2, 3, 3, 5)), m.rng.choice((1, 1, 2, 3)), m.rng.choice((1, 1, 2, 3))
    pad, grouped = m.rng.randint(0, dilation * (k - 1)), m.chance(.3)
    for l, most in (("n", 4), ("o", 24), ("c", 24), ("g", 4)):
        m.loop(l, most)
    sides = "hw"[:planes]
    for l in sides:
        m.loop(l, 30)
    for l in "rs"[:planes]:
        m.loops[l] = k
    x = [max(1, stride * (m.loops[l] - 1) + dilation * (k - 1) + 1 - 2 * pad) for l in sides]
    g = "g," if grouped else ""
    inp = ",".join(f"{stride}*{l} + {dilation}*{t} - {pad}" for l, t in zip(sides, "rs"))
    out, taps = ",".join(sides), ",".join("rs"[:planes])
    head = ["n"] + (["g"] if grouped else [])
    m.shapes["I"] = [m.loops[l] for l in head] + [m.loops["c"], *x]
    m.shapes["D"] = [m.loops[l] for l in head] + [m.loops["o"]] + [m.loops[l] for l in sides]
    kind = m.rng.choice(("weights", "weights", "forward", "input"))
    if kind == "weights":
        m.lines += [f"weights: W[{g}o,c,{taps}] += D[n,{g}o,{out}] * I[n,{g}c,{inp}]", f"bias: B[{g}o] += D[n,{g}o,{out}]"]
        m.outputs = ["W", "B"]
    elif kind == "forward":
        m.lines += [f"conv: C[n,{g}o,{out}] += I[n,{g}c,{inp}] * W[{g}o,c,{taps}]",
                    f"act: Y[n,{g}o,{out}] = {m.function(f'C[n,{g}o,{out}]')} + B[{g}o]"]
    else:
        back = ",".join(f"{l} - {dilation}*{t} + {pad}" for l, t in zip(sides, "rs"))
        m.lines += [f"input: X[n,{g}c,{out}] += D[n,{g}o,{back}] * W[{g}o,c,{taps}]"]


def softmax_gradient(m):
    names = list("abc")
    m.draw_loops(names)
    over = m.rng.sample(names, m.rng.randint(1, 3))
    kept = ",".join(l for l in names if l not in over)
    at = ",".join(m.rng.sample(names, 3))
    m.lines += [f"most: M[{kept}] max= X[{at}]", f"exp: E[{at}] = exp(X[{at}] - M[{kept}])", f"sum: S[{kept}] += E[{at}]",
                f"soft: Y[{at}] = E[{at}] / S[{kept}]", f"dot: D[{kept}] += T[{at}] * Y[{at}]",
                f"gradient: G[{at}] = Y[{at}] * (T[{at}] - D[{kept}])"]
    m.outputs = ["Y", "G"] if m.chance(.5) else ["G"]


def norm_gradient(m):
    names = list("abc")
    m.draw_loops(names)
    over = m.rng.sample(names, m.rng.randint(1, 2))
    kept = ",".join(l for l in names if l not in over)
    part = 1 / math.prod(m.loops[l] for l in over)
    along, at = ",".join(over), "a,b,c"
    m.lines += [f"sum: s[{kept}] += x[{at}]", f"centre: d[{at}] = x[{at}] - s[{kept}] * {part:.9f}",
                f"squares: q[{kept}] += d[{at}] * d[{at}]", f"scale: r[{kept}] = rsqrt(q[{kept}] * {part:.9f} + 0.01)",
                f"norm: y[{at}] = d[{at}] * r[{kept}]", f"gain: dg[{along}] += t[{at}] * y[{at}]",
                f"bias: db[{along}] += t[{at}]", f"inner: u[{at}] = t[{at}] * g[{along}]", f"mean: v[{kept}] += u[{at}]",
                f"dot: w[{kept}] += u[{at}] * y[{at}]",
                f"gradient: dx[{at}] = r[{kept}] * (u[{at}] - {part:.9f} * (v[{kept}] + y[{at}] * w[{kept}]))"]
    m.outputs = ["dg", "db", "dx"]


def attention_gradient(m):
    m.draw_loops(["h", "m", "l", "k"])
    m.loops["m"], m.loops["l"] = min(m.loops["m"], 200), min(m.loops["l"], 200)
    mask = m.chance(.4)
    score = "select(lt(m, l), -30000, S[h,m,l])" if mask else "S[h,m,l]"
    m.lines += ["qk: S[h,m,l] += Q[h,m,k] * K[h,l,k]", f"mask: A[h,m,l] = 0.2 * {score}", "most: R[h,m] max= A[h,m,l]",
                "exp: E[h,m,l] = exp(A[h,m,l] - R[h,m])", "sum: Z[h,m] += E[h,m,l]", "soft: P[h,m,l] = E[h,m,l] / Z[h,m]",
                "dv: DV[h,l,k] += P[h,m,l] * DO[h,m,k]", "dp: DP[h,m,l] += DO[h,m,k] * V[h,l,k]",
                "dot: D[h,m] += DP[h,m,l] * P[h,m,l]", "ds: DS[h,m,l] = 0.2 * P[h,m,l] * (DP[h,m,l] - D[h,m])",
                "dq: DQ[h,m,k] += DS[h,m,l] * K[h,l,k]", "dk: DK[h,l,k] += DS[h,m,l] * Q[h,m,k]"]
    m.outputs = ["DV", "DQ", "DK"]


def mixed_chain(m, most=None, back=0):
    """Two to six operators, each of what the one before made: products, windows with stride, dilation and padding (with
    channels, of each channel alone, of maxima), reductions that are broadcast back, gathers, slices, masks, exchanged
    dimensions, element-wise operators with broadcast operands. `most`: that many operators instead. `back`: how often the next reads what
    any one before has made."""
    count = 0

    def new(extent):
        nonlocal count
        name = "abcdefghijklmnopqrstuvw"[count] if count < 23 else f"l{count}"  # x is a tensor
        count += 1
        m.loops[name] = extent
        return name

    def plain(loops):
        name = f"i{len(m.shapes)}"
        m.shapes[name] = [m.loops[l] for l in loops]
        return f"{name}[{','.join(loops)}]"

    def made(at, combine, value):
        name = f"t{len(m.lines)}"
        if combine == "=" and set(at) != {l for l in at if l in token(value)}:
            value += " + " + plain([l for l in at if l not in token(value)])
        m.lines.append(f"o{len(m.lines)}: {name}[{','.join(at)}] {combine} {value}")
        m.made.append((name, tuple(at)))
        return name

    def read(tensor, at):
        return f"{tensor}[{','.join(at)}]"

    side = max(1, m.most ** (1 / 3))
    at = [new(m.size(max(1, side))) for _ in range(m.rng.randint(1, 4))]
    tensor, first = "x", list(at)
    m.shapes["x"] = [m.loops[l] for l in at]
    for _ in range(most or m.rng.randint(2, 6)):
        if back and m.made and m.chance(back):
            tensor, at = m.rng.choice(m.made)
            tensor, at = (tensor, list(at)) if at else ("x", first)
        kind, d = m.rng.randrange(9), m.rng.choice(at)
        e, rest = m.loops[d], [l for l in at if l != d]
        points = math.prod(m.loops[l] for l in at)
        if kind == 0 and len(at) > 1:
            n = new(m.size(max(1, min(side, 2 * m.most / points))))
            shared = [l for l in rest if m.chance(.2)]
            to = m.rng.sample(rest + [n], len(rest) + 1)
            tensor, at = made(to, "+=", f"{read(tensor, at)} * {plain(m.rng.sample(shared + [d, n], len(shared) + 2))}"), to
        elif kind in (1, 2):
            k, step, apart = m.rng.choice((1, 2, 3, 3, 5)), m.rng.choice((1, 1, 2, 3)), m.rng.choice((1, 1, 2))
            pad = m.rng.randint(0, apart * (k - 1))
            out = (e + 2 * pad - apart * (k - 1) - 1) // step + 1
            if out < 1 or e + 2 * pad < apart * (k - 1) + 1:
                continue
            y, r = new(out), new(k)
            index = {d: f"{step}*{y} + {apart}*{r} - {pad}"}
            value = read(tensor, [index.get(l, l) for l in at])
            to = [y if l == d else l for l in at]
            if kind == 2:
                tensor = made(to, m.rng.choice(("max=", "min=")), value) if m.chance(.4) else made(to, "+=", f"0.3 * {value} * {plain([r])}")
            elif rest and m.chance(.7):
                c = m.rng.choice(rest)
                o = new(m.size(max(1, min(side, 2 * m.most / points))))
                to = [o if l == c else l for l in to]
                tensor = made(to, "+=", f"{value} * {plain([o, c, r])}")
            else:
                tensor = made(to, "+=", f"{value} * {plain([*m.rng.sample(rest, len(rest) and 1), r])}")
            at = to
        elif kind == 3:
            over = m.rng.sample(at, m.rng.randint(1, len(at)))
            kept = [l for l in at if l not in over]
            row = made(kept, m.rng.choice(("+=", "max=", "min=")), m.function(read(tensor, at)) if m.chance(.3) else read(tensor, at))
            if not kept or m.chance(.3):
                if kept:
                    tensor, at = row, kept
                continue
            tensor = made(at, "=", f"{read(tensor, at)} {m.rng.choice('+-')} 0.1 * {read(row, kept)}")
        elif kind == 4:
            j = new(m.size(max(1, min(side, 2 * m.most * e / points))))
            ids = f"ids{len(m.types)}"
            m.shapes[ids], m.types[ids] = [m.loops[j]], "i32"
            to = [j if l == d else l for l in at]
            tensor, at = made(to, "=", read(tensor, [f"{ids}[{j}]" if l == d else l for l in at])), to
        elif kind == 5 and e > 1:
            skipped = m.rng.randint(0, e - 1)
            y = new(m.rng.randint(1, e - skipped))
            to = [y if l == d else l for l in at]
            tensor, at = made(to, "=", m.function(read(tensor, [f"{y} + {skipped}" if l == d else l for l in at]))), to
        elif kind == 6:
            other = m.rng.choice(at)
            tensor = made(at, "=", f"select(lt({d}, {other} + {m.rng.randint(0, 3)}), {read(tensor, at)}, {m.rng.choice(('0', '-1.5'))})")
        elif kind == 7:
            to = m.rng.sample(at, len(at))
            tensor, at = made(to, "=", read(tensor, at)), to
        else:
            value = m.function(read(tensor, at))
            for _ in range(m.rng.randint(0, 2)):
                value += m.rng.choice((" + ", " * ", " - ")) + plain(m.rng.sample(at, m.rng.randint(0, len(at))))
            tensor = made(at, "=", value)
    if not m.lines:
        made(at, "=", f"tanh({read(tensor, at)})")
    if m.chance(.3):
        read_by = set().union(*(token(line.split("= ", 1)[1]) for line in m.lines))
        m.outputs = sorted({t for t, _ in m.made if t not in read_by or m.chance(.4)})


def long_graph(m):
    """Ten to a thousand operators of the same kinds, with branches."""
    mixed_chain(m, round(10 * 100 ** m.rng.random()), m.rng.choice((0, 0.05, 0.3)))


FAMILIES = {f.__name__: (f, weight) for f, weight in (
    (einsum, 10), (product_epilogue, 5), (product_gradient, 1), (convolution_gradient, 4), (softmax_gradient, 1),
    (norm_gradient, 1), (attention_gradient, 1))}

# Drawn where they are named: others' seeds stay what they are.
LATER = {f.__name__: (f, 1) for f in (mixed_chain, long_graph)}


def drawn(seed, points, families=None):
    """(name, YAML) of one draw."""
    rng = random.Random(f"{seed} family")
    names = families or list(FAMILIES)
    known = {**FAMILIES, **LATER}
    name = rng.choices(names, [known[n][1] for n in names])[0]
    m = Maker(f"{seed} {name}", points)
    known[name][0](m)
    return name, m.text(f"{name.replace('_', '-')}-{seed}")
