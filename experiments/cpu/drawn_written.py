"""Workloads as people write them by hand, for scripts/drawn-commands --written: textbook kernels of many fields, in loose
notation (strings or maps of operators, types of single tensors, ranges, known values). A draw is a family's name and a
whole workload in YAML.
"""
import math
import random
import re

TYPES = ("f32", "f32", "f32", "f64", "f16", "bf16")


class Text:
    """A workload on its way."""

    def __init__(self, rng, points):
        self.rng, self.most = rng, points
        self.loops, self.shapes, self.types, self.ranges, self.values, self.lines, self.outputs = {}, {}, {}, {}, {}, [], []
        self.dtype = rng.choice(TYPES)

    def chance(self, p):
        return self.rng.random() < p

    def one(self, *values):
        return self.rng.choice(values)

    def size(self, most, least=1):
        if self.chance(.1):
            return least
        return max(least, min(int(most), round(math.exp(self.rng.uniform(math.log(least), math.log(max(least, most)))))))

    def sizes(self, names, least=1):
        """Loops of these names, together about `most` iterations."""
        names = names.split()
        for i, name in enumerate(self.rng.sample(names, len(names))):
            done = math.prod(self.loops.get(n, 1) for n in names)
            left = max(1, self.most / done)
            self.loops[name] = self.size(left if i == len(names) - 1 else left ** (1.4 / (len(names) - i)), least)

    def add(self, *lines):
        self.lines += lines

    def yaml(self, name):
        def flow(pairs):
            return "{" + ", ".join(f'"{k}": {v}' for k, v in pairs.items()) + "}"
        said = [l.split(": ", 1)[1] for l in self.lines]
        self.loops = {l: e for l, e in self.loops.items() if any(re.search(rf"\[[^=]*\b{l}\b", s) for s in said)}
        for of in (self.shapes, self.types, self.ranges, self.values):
            for tensor in [t for t in of if not any(re.search(rf"\b{t}\[", s) for s in said)]:
                del of[tensor]
        lines = [f"name: {name}", f"dtype: {self.dtype}"]
        if self.chance(.5):
            lines.append("loops: " + flow(self.loops))
        else:
            lines += ["loops:"] + [f'  "{k}": {v}' for k, v in self.loops.items()]
        if self.shapes:
            lines.append("tensors: " + flow({t: "[" + ", ".join(map(str, s)) + "]" for t, s in self.shapes.items()}))
        for key, of in (("dtypes", self.types), ("ranges", self.ranges), ("values", self.values)):
            if of:
                lines.append(f"{key}: {flow(of)}")
        lines.append("operators:")
        for line in self.lines:
            if ": " in line and self.chance(.3):
                name_, text = line.split(": ", 1)
                lines.append(f'  - "{name_}": "{text}"')
            else:
                lines.append(f'  - "{line}"')
        if self.outputs:
            lines.append(f"outputs: [{', '.join(self.outputs)}]")
        return "\n".join(lines) + "\n"


# Attention

def attention(t):
    """Heads in groups, odd widths, any mask, caps, biases by distance, keys in pages, tensors in any layout."""
    t.loops.update(b=t.one(1, 1, 2, 3), h=t.one(1, 2, 3, 5), g=t.one(1, 1, 2, 4))
    left = max(16, t.most / math.prod(t.loops.values()) / 16)
    t.loops["q"] = t.size(math.sqrt(left) * 2)
    t.loops["s"] = t.size(math.sqrt(left) * 2)
    t.loops["d"], t.loops["e"] = t.one(1, 3, 8, 16, 20, 33, 64), t.one(1, 2, 8, 16, 24, 40)
    layout = t.one("bhgqd", "bqhgd", "qbhgd")
    q = "Q[" + ",".join(layout) + "]"
    keys = t.one("b,h,{},{}", "b,{},h,{}", "{},b,h,{}")
    place = "s"
    if t.chance(.2):  # pages
        t.loops["s"] = max(1, t.loops["s"])
        t.shapes["table"] = [t.loops["b"], t.loops["s"]]
        t.types["table"] = "i32"
        place = "table[b,s]"
        rows = t.one(5, 64, 257)
        of = {"b": t.loops["b"], "h": t.loops["h"]}
        order = [p for p in keys.replace("{}", "*").split(",")]
        for name, width in (("K", "d"), ("V", "e")):
            wide = iter([rows, t.loops[width]])
            t.shapes[name] = [of.get(p) or next(wide) for p in order]
    k, v = "K[" + keys.format(place, "d") + "]", "V[" + keys.format(place, "e") + "]"
    at, row = "b,h,g,q,s", "b,h,g,q"
    t.add(f"scores: S[{at}] += {q} * {k}")
    value = f"S[{at}] * {1 / math.sqrt(t.loops['d']):.6f}"
    if t.chance(.25):
        value = f"{t.one(30, 50)} * tanh({value} / {t.one(30, 50)})"
    if t.chance(.25):
        value = f"{value} - 0.{t.one(1, 25, 5)} * (q - s)" if t.chance(.5) else f"{value} + slope[h] * (s - q)"
    if t.chance(.2):
        n = t.loops["q"] + t.loops["s"] - 1
        t.shapes["near"] = [t.loops["h"], n]
        value = f"{value} + near[h, q - s + {t.loops['s'] - 1}]"
    mask = t.one("", "", "lt(q + {n}, s)", "lt(s + {n}, q)", "lt(mask[b,s], 0.0)", "lt(0.5, mask[q,s])")
    if mask:
        text = mask.format(n=t.rng.randint(0, max(0, t.loops["s"] - 1)))
        value = f"select({text}, {t.one('-inf', '-1e30', '-30000', '-10000') if t.dtype in ('f32', 'f64') else '-10000'}, {value})"
        if "inf" in value and "lt(q" not in mask:
            value = value.replace("-inf", "-30000")  # rows may be empty
    t.add(f"masked: A[{at}] = {value}")
    t.add(f"most: R[{row}] max= A[{at}]", f"exp: P[{at}] = exp(A[{at}] - R[{row}])", f"sum: Z[{row}] += P[{at}]")
    if t.chance(.5):
        t.add(f"soft: W[{at}] = P[{at}] / Z[{row}]", f"mix: O[{t.one('b,h,g,q,e', 'b,q,h,g,e')}] += W[{at}] * {v}")
    else:
        out = t.one("b,h,g,q,e", "b,q,h,g,e")
        sink = " + exp(sink[h,g] - R[" + row + "])" if t.chance(.3) else ""
        t.add(f"mix: U[{out}] += P[{at}] * {v}", f"soft: O[{out}] = U[{out}] / (Z[{row}]{sink})")
    if t.chance(.2):
        t.outputs = ["O", "R", "Z"]


def linear_attention(t):
    t.sizes("h q d e", 1)
    t.add("key: F[h,q,d] = exp(min(K[h,q,d], 2))", "state: S[h,d,e] += F[h,q,d] * V[h,q,e]", "norm: Z[h,d] += F[h,q,d]",
          "query: G[h,q,d] = exp(min(Q[h,q,d], 2))", "top: T[h,q,e] += G[h,q,d] * S[h,d,e]",
          "below: B[h,q] += G[h,q,d] * Z[h,d]", "out: O[h,q,e] = T[h,q,e] / B[h,q]")


def lora(t):
    t.sizes("m k n r")
    t.add("base: Y[m,n] += X[m,k] * W[n,k]", "down: D[m,r] += X[m,k] * A[r,k]", "up: U[m,n] += D[m,r] * B[n,r]",
          f"out: Z[m,n] = Y[m,n] + {t.one('0.5', '2', '16 / 8')} * U[m,n]" + t.one("", " + bias[n]"))


def experts(t):
    """A gate by softmax, all experts, their mix."""
    t.sizes("m k n e f")
    t.add("gate: L[m,e] += X[m,k] * G[k,e]", "most: M[m] max= L[m,e]", "exp: E[m,e] = exp(L[m,e] - M[m])", "sum: S[m] += E[m,e]",
          "up: H[e,m,f] += X[m,k] * U[e,k,f]", f"act: A[e,m,f] = {t.one('gelu', 'relu', 'tanh')}(H[e,m,f])",
          "down: D[e,m,n] += A[e,m,f] * V[e,f,n]", "mix: Y[m,n] += D[e,m,n] * E[m,e] / S[m]")


def chosen_expert(t):
    t.sizes("m k n")
    experts_ = t.one(2, 3, 8)
    t.shapes.update(pick=[t.loops["m"]], W=[experts_, t.loops["k"], t.loops["n"]])
    t.types["pick"] = "i32"
    if t.chance(.5):
        t.values["pick"] = "[" + ", ".join(str(t.rng.randrange(experts_)) for _ in range(t.loops["m"])) + "]"
    t.add("out: Y[m,n] += X[m,k] * W[pick[m],k,n]", "act: Z[m,n] = Y[m,n] * sigmoid(Y[m,n])")


# Convolutions

def convolution(t):
    """One to three dimensions, channels first or last, groups, multipliers, edges that differ, and what follows."""
    dims = t.one(1, 2, 2, 3)
    last, grouped, depthwise = t.chance(.4), t.chance(.25), t.chance(.25)
    t.loops.update(b=t.one(1, 1, 2), o=t.one(1, 2, 5, 8, 16), c=t.one(1, 3, 4, 8, 13))
    if grouped:
        t.loops["g"] = t.one(1, 2, 3)
    index, out, taps, size = [], [], [], []
    left = max(2, (t.most / 9 / math.prod(t.loops.values())) ** (1 / dims))
    for i in range(dims):
        y, r = "hwz"[i], "rst"[i]
        k, step, apart = t.one(1, 2, 3, 4, 7), t.one(1, 1, 2, 3), t.one(1, 1, 2)
        t.loops[r], t.loops[y] = k, t.size(left)
        before, after = t.rng.randint(0, apart * (k - 1)), t.rng.randint(0, apart * (k - 1))
        size.append(max(1, step * (t.loops[y] - 1) + apart * (k - 1) + 1 - before - after))
        index.append(f"{step if step > 1 else ''}{'*' if step > 1 else ''}{y} + {str(apart) + '*' if apart > 1 else ''}{r}" + (f" - {before}" if before else ""))
        out.append(y)
        taps.append(r)
    def at(name, channels, places):
        parts = ["b", *places, *channels] if last else ["b", *channels, *places]
        return f"{name}[{', '.join(parts)}]"
    g = ["g"] if grouped else []
    t.shapes["X"] = ["b", *size, *g, "c"] if last else ["b", *g, "c", *size]
    if depthwise:
        t.add(f"conv: {at('Y', g + ['c', 'o'], out)} += {at('X', g + ['c'], index)} * K[{', '.join(g + ['c', 'o'] + taps)}]")
        channels = g + ["c", "o"]
    else:
        w = t.one(g + ["o", "c"] + taps, taps + g + ["c", "o"])
        t.add(f"conv: {at('Y', g + ['o'], out)} += {at('X', g + ['c'], index)} * K[{', '.join(w)}]")
        channels = g + ["o"]
    name = "Y"
    if t.chance(.6):
        t.add(f"act: {at('Z', channels, out)} = {t.one('relu', 'tanh', 'gelu')}({at('Y', channels, out)} + bias[{','.join(channels)}])")
        name = "Z"
    kind = t.rng.randrange(5)
    if kind == 0:
        t.add(f"pool: P[b,{','.join(channels)}] += {at(name, channels, out)} * {1 / math.prod(t.loops[y] for y in out):.6g}")
    elif kind == 1 and not depthwise:  # a point-wise one behind
        t.loops["p"] = t.one(1, 4, 12)
        t.add(f"point: {at('P', ['p'], out)} += {at(name, channels, out)} * F[{','.join(channels)},p]")
    elif kind == 2 and t.loops[out[0]] > 1:
        t.loops.update(u=(t.loops[out[0]] + 1) // 2, v=t.one(2, 3))
        places = [f"2*u + v - {t.one(0, 1)}"] + out[1:]
        t.add(f"down: {at('P', channels, ['u'] + out[1:])} max= {at(name, channels, places)}")


def transposed(t):
    """A transposed convolution of stride 2, each phase alone."""
    t.sizes("o c h")
    t.loops["r"] = t.one(1, 2, 3)
    for phase in range(2):
        t.add(f"phase{phase}: P{phase}[o,h] += X[c,h - r] * W{phase}[c,o,r]")
    t.loops["y"] = 2 * t.loops["h"]
    t.types["half"], t.values["half"] = "i32", "[" + ", ".join(str(i // 2) for i in range(t.loops["y"])) + "]"
    t.types["odd"], t.values["odd"] = "f32", "[" + ", ".join(str(i % 2) for i in range(t.loops["y"])) + "]"
    t.shapes.update(half=[t.loops["y"]], odd=[t.loops["y"]])
    t.add("out: Y[o,y] = select(lt(odd[y], 0.5), P0[o,half[y]], P1[o,half[y]])")


def separable_filter(t):
    t.sizes("y x", 2)
    t.loops.update(r=t.one(3, 5), s=t.one(3, 5))
    t.add("rows: H[y,x] += I[y,x + s] * G[s]", f"columns: V[y,x] += H[y + r - {t.loops['r'] // 2},x] * G2[r]",
          "sharp: S[y,x] = max(0, min(1, H[y,x] + 1.5 * (H[y,x] - V[y,x])))")


def stencil(t):
    """Steps of Jacobi, heat or waves in one to three dimensions."""
    dims, steps = t.one(1, 2, 3), t.rng.randint(1, 4)
    names = "yxz"[:dims]
    t.sizes(" ".join(names), 2)
    at, before = ",".join(names), "u0"
    for i in range(1, steps + 1):
        near = " + ".join(f"{before}[{','.join(f'{n} {s} 1' if n == d else n for n in names)}]" for d in names for s in "+-")
        value = f"{before}[{at}] + 0.1 * ({near} - {2 * dims} * {before}[{at}])"
        if t.chance(.2) and i > 1:
            value += f" - 0.5 * u{i - 2}[{at}]"
        t.add(f"step{i}: u{i}[{at}] = {value}")
        before = f"u{i}"
    t.shapes["u0"] = list(names)
    if t.chance(.4):
        t.add(f"error: worst[] max= abs({before}[{at}] - u0[{at}])")


# Products

def matrices(t):
    kind = t.rng.randrange(14)
    t.sizes(("m k", "m k", "m k", "i j k r", "i j k l", "i j k r", "m n", "b i j", "i j k", "m n k", "i j", "m k n l", "i j k l m", "a b c d")[kind])
    n = t.loops
    if kind == 0:
        t.add("gram: G[m,n] += A[m,k] * A[n,k]")
        n["n"] = n["m"]
    elif kind == 1:
        t.shapes["A"] = ["m", "m"]
        n.update(k=n["m"], j=n["m"])
        t.add("square: B[m,k] += A[m,j] * A[j,k]", "cube: C[m,j] += B[m,k] * A[k,j]")
    elif kind == 2:
        n["k"] = n["m"]
        t.add("half: v[m] += A[m,k] * x[k]", "form: f[] += v[m] * x[m]")
    elif kind == 3:
        t.add("mttkrp: Y[i,r] += X[i,j,k] * B[j,r] * C[k,r]")
    elif kind == 4:
        t.add("core: Y[i,l] += X[i,j,k] * B[j,l] * C[k,l]", "norm: s[l] += Y[i,l] * Y[i,l]", "out: Z[i,l] = Y[i,l] * rsqrt(s[l] + 0.01)")
    elif kind == 5:
        t.add("rao: P[j,k,r] = B[j,r] * C[k,r]", "out: Y[i,r] += X[i,j,k] * P[j,k,r]")
    elif kind == 6:
        t.add("outer: A[m,n] = x[m] * y[n]", "update: B[m,n] = W[m,n] - 0.1 * A[m,n]", "row: s[m] += B[m,n]", "trace: t[] += s[m]")
    elif kind == 7:
        n["j"] = n["i"]
        t.add("product: C[b,i,j] += A[b,i,k] * A[b,k,j]", "trace: d[b] += C[b,i,i]")
        n["k"] = n["i"]
        t.outputs = ["C", "d"]
    elif kind == 8:
        n["k"] = n["i"]
        t.add("lower: C[i,j] += select(lt(i, k), 0, A[i,k]) * B[k,j]")
    elif kind == 9:
        t.add("product: C[m,n] += A[m,k] * B[k,n]", "norm: f[] += square(C[m,n])", "out: D[m,n] = C[m,n] * rsqrt(f[] + 1)")
    elif kind == 10:
        n["j"] = n["i"]
        t.add("symmetric: S[i,j] = 0.5 * (A[i,j] + A[j,i])", "skew: K[i,j] = A[i,j] - S[i,j]")
        t.outputs = ["S", "K"]
    elif kind == 11:
        t.add("a: C[m,n] += A[m,k] * B[k,n]", "b: D[m,l] += C[m,n] * E[l,n]", "c: F[m,k] += D[m,l] * G[l,k]", "add: Y[m,k] = F[m,k] + A[m,k]")
    elif kind == 12:
        t.add("four: Y[i,m] += A[i,j] * B[j,k] * C[k,l] * D[l,m]")
    else:
        t.add("p: P[a,d] += A[a,b] * B[b,d]", "q: Q[c,d] += A2[c,b] * B[b,d]", "r: R[a,c] += P[a,d] * Q[c,d]", "s: S[a,c] = sigmoid(R[a,c])")


def whole_numbers(t):
    """Products and images of 8 bits, as quantised networks have them."""
    t.dtype = "f32"
    t.sizes("m n k")
    t.types.update(A="i8", B="i8")
    for name in "AB":
        t.ranges[name] = t.one(1, 7, 127)
    kind = t.rng.randrange(4)
    if kind == 0:
        t.add("product: C[m,n] += A[m,k] * B[k,n]")
    elif kind == 1:
        t.add("product: C[m,n] += A[m,k] * B[n,k]", "scaled: D[m,n] = C[m,n] * s[n] * 0.01", "act: E[m,n] = relu(D[m,n] + b[n])")
    elif kind == 2:
        t.add("product: C[m,n] += (A[m,k] - 3) * B[k,n]", "scaled: D[m,n] = round(C[m,n] * 0.02)", "cut: E[m,n] = max(-128, min(127, D[m,n]))")
        if t.chance(.7):
            t.types["E"] = "i8"
    else:
        t.types["C"] = "i32"
        t.add("product: C[m,n] += A[m,k] * B[k,n]", "real: D[m,n] = 0.05 * C[m,n]", "soft: s[m] += exp(0 - abs(D[m,n]))")


def casts(t):
    """Tensors of different types between operators."""
    t.sizes("m n k")
    kinds = ["f16", "bf16", "f32"] if t.dtype != "f64" else ["f64", "f32"]
    t.types.update({name: t.one(*kinds) for name in "ABCDEX" if t.chance(.7)})
    t.add("product: C[m,n] += A[m,k] * B[k,n]", f"cast: D[m,n] = {t.one('C[m,n]', 'C[m,n] * 0.5')}", "row: X[m] += square(D[m,n])",
          f"out: E[m,n] = D[m,n] * rsqrt(X[m] * {1 / t.loops['n']:.6g} + 0.001)" + t.one("", " + C[m,n]"))


# Reductions

def rows(t):
    """What is computed of rows or columns, of any rank."""
    t.sizes("i j")
    at, other = t.one(("i", "j"), ("j", "i"))
    x, r, n = "X[i,j]", f"[{at}]", t.loops[other]
    kind = t.rng.randrange(14)
    if kind == 0:
        t.add(f"most: m{r} max= {x}", f"sum: s{r} += exp({x} - m{r})", f"out: y{r} = log(s{r}) + m{r}")
    elif kind == 1:
        t.add(f"most: m{r} max= {x}", f"first: a{r} min= select(lt({x}, m{r}), {n}, {other})")
    elif kind == 2:
        t.add(f"sum: s{r} += {x}; q{r} += {x} * {x}", f"out: Y[i,j] = ({x} - s{r} / {n}) * rsqrt(max(q{r} / {n} - square(s{r} / {n}), 0) + 0.1)")
    elif kind == 3:
        t.add(f"low: a{r} min= {x}; b{r} max= {x}", f"out: Y[i,j] = ({x} - a{r}) / (b{r} - a{r} + 1)")
    elif kind == 4:
        t.add(f"norm: s{r} += abs({x})", f"out: Y[i,j] = {x} / (s{r} + 0.001)", f"back: g[{other}] += Y[i,j]")
    elif kind == 5:  # running sums
        t.loops["l"] = n
        of = x.replace(other, "l")
        t.add(f"upto: C[i,j] += select(lt({other}, l), 0, {of})")
    elif kind == 6:
        t.add(f"product: p{r} *= 1 + 0.01 * {x}")
    elif kind == 7:
        t.add("all: a[] max= X[i,j]", "scale: Y[i,j] = X[i,j] / (abs(a[]) + 0.01)", f"row: s{r} += Y[i,j]", "mean: m[] += s" + r)
        t.outputs = ["Y", "m"]
    elif kind == 8:  # cosine of rows of two
        t.add(f"dot: d{r} += X[i,j] * W[i,j]; p{r} += X[i,j] * X[i,j]; q{r} += W[i,j] * W[i,j]", f"cos: c{r} = d{r} * rsqrt(p{r} * q{r} + 0.01)")
    elif kind == 9:  # entropy of a softmax
        t.add(f"most: m{r} max= {x}", f"exp: E[i,j] = exp({x} - m{r})", f"sum: s{r} += E[i,j]", f"p: P[i,j] = E[i,j] / s{r}",
              f"h: h{r} += 0 - P[i,j] * log(P[i,j] + 0.000001)", "all: l[] += h" + r)
    elif kind == 10:
        t.add(f"count: c{r} += select(lt(0.5, {x}), 1, 0)", f"mean: s{r} += select(lt(0.5, {x}), {x}, 0)", f"out: y{r} = s{r} / max(c{r}, 1)")
    elif kind == 11:
        t.add(f"most: m{r} max= {x}", f"least: k{r} min= {x}", f"mid: y{r} = (m{r} + k{r}) / 2", f"out: Y[i,j] = select(lt({x}, y{r}), floor({x} * 4), round({x} * 4))")
    elif kind == 12:
        t.add(f"log: L[i,j] = log(sigmoid({x}) + 0.00001)", f"sum: s{r} += T[i,j] * L[i,j] + (1 - T[i,j]) * log(1.00001 - sigmoid({x}))", "loss: l[] += 0 - s" + r)
    else:
        t.add(f"a: a{r} += {x}", f"b: b[] += a{r} * a{r}", f"c: c[{other}] += {x} * a{r}", f"d: D[i,j] = c[{other}] * a{r} / (b[] + 1)")


def grouped_norm(t):
    t.sizes("n g c s")
    part = 1 / (t.loops["c"] * t.loops["s"])
    t.add("sum: u[n,g] += X[n,g,c,s]", f"mean: v[n,g] = u[n,g] * {part:.7g}", "square: q[n,g] += square(X[n,g,c,s] - v[n,g])",
          f"out: Y[n,g,c,s] = (X[n,g,c,s] - v[n,g]) * rsqrt(q[n,g] * {part:.7g} + 0.00001) * w[g,c] + z[g,c]",
          f"act: A[n,g,c,s] = Y[n,g,c,s] * {t.one('sigmoid(Y[n,g,c,s])', 'min(max(Y[n,g,c,s] + 3, 0), 6) / 6', 'tanh(log(1 + exp(Y[n,g,c,s])))')}")


# Movements

def moved(t):
    """Element-wise graphs of gathers, slices, exchanged dimensions, reversals, concatenation by sums of shifted reads."""
    t.sizes("a b c", 2 if t.chance(.5) else 1)
    n = t.loops
    n["d"] = n["b"] + t.rng.randint(0, 5)
    t.shapes.update(X=[n["a"], n["b"], n["c"]], rows=[n["a"]], Y=[n["d"], "c"])
    t.types["rows"] = "i32"
    kind = t.rng.randrange(7)
    if kind == 5 and 1 in (n["a"], n["b"], n["c"]):
        kind = 0
    if kind == 0:
        t.add("flip: F[c,b,a] = X[a,b,c]", f"back: B[a,b,c] = F[c,b,{n['a'] - 1} - a] + X[a,b,c]")
    elif kind == 1:
        t.shapes["T"] = [t.one(3, 100), "c"]
        t.add("look: E[a,c] = T[rows[a],c]", "add: Z[a,b,c] = X[a,b,c] + E[a,c]", "sum: S[a,b] += Z[a,b,c]")
    elif kind == 2:
        n["e"] = n["b"] + n["d"]
        t.add(f"join: J[e,c] = select(lt(e, {n['b']}), X0[e,c], Y[e - {n['b']},c])")
        t.shapes["X0"] = [n["b"], "c"]
        if t.chance(.6):
            t.add("sum: s[c] += J[e,c]", "out: O[e,c] = J[e,c] - s[c] * 0.1")
    elif kind == 3:
        n["h"] = max(1, n["c"] // 2)
        t.shapes["X"] = ["a", "b", str(2 * n["h"])]
        t.add(f"left: L[a,b,h] = X[a,b,h] * C[b,h] - X[a,b,h + {n['h']}] * S[b,h]", f"right: R[a,b,h] = X[a,b,2*h] * sin(0.1 * b) + X[a,b,2*h + 1] * cos(0.1 * b)")
    elif kind == 4:
        t.shapes["other"] = [n["a"]]
        t.types["other"] = "i32"
        t.shapes["T"] = [11, 13, "c"]
        t.add("two: Z[a,c] = T[rows[a],other[a],c]", "out: O[a,c] = Z[a,c] * w[c]" + t.one("", " + Z[a,c]"))
    elif kind == 5:
        t.add("window: W[a,b,c] = X[a,b,c] + X[a - 1,b,c] + X[a,b + 1,c - 1]", "mean: m[b] += W[a,b,c]", "out: O[c,a] += W[a,b,c] * m[b]")
    else:
        t.shapes["T"] = [50, 6]
        n["f"] = 6
        t.shapes["bag"] = ["a", "b"]
        t.types["bag"] = "i32"
        t.add("bag: E[a,f] += T[bag[a,b],f] * X[a,b,0]", f"mean: M[a,f] = E[a,f] / {n['b']}", "out: O[a,f] = relu(M[a,f])")


def element_wise(t):
    """One expression of many functions."""
    names = "ijk"[:t.rng.randint(1, 3)]
    t.sizes(" ".join(names))
    at = ",".join(names)
    def value(depth):
        if depth == 0 or t.chance(.1):
            return t.one(f"x[{at}]", f"y[{at}]", f"b[{t.one(*names)}]", "0.5", "2", f"c[]", t.one(*names) + " * 0.01")
        v = value(depth - 1)
        w = value(depth - 1)
        return t.one(f"add({v}, {w})", f"sub({v}, {w})", f"mul({v}, {w})", f"div({v}, 1 + abs({w}))", f"max({v}, {w})", f"min({v}, {w})",
                     f"pow(abs({v}) + 0.1, 2)", f"select(lt({v}, {w}), {w}, {v})", f"neg({v})", f"sin({v})", f"cos({v})", f"-({v})",
                     f"({v}) * ({w})", f"({v}) - ({w})", f"({v}) / 4", f"sigmoid({v})", f"erf({v})", f"square(tanh({v}))", f"recip(1 + square({v}))",
                     f"floor({v} * 3)", f"round({v} * 3)", f"log(abs({v}) + 1)", f"sqrt(abs({v}))", f"exp(min({v}, 1))", f"gelu({v})")
    for i in range(t.rng.randint(1, 3)):
        t.add(f"o{i}: {'zuv'[i]}[{at}] = {value(t.rng.randint(1, 3))} + x[{at}]" + (f" * {'zuv'[i - 1]}[{at}]" if i else ""))


def recurrent(t):
    """Cells unrolled over steps: LSTM, GRU, or a state space."""
    steps, kind = t.rng.randint(1, 4), t.one("lstm", "gru", "scan")
    t.sizes("b i h")
    t.loops["j"] = t.loops["h"]
    before = "h0"
    for s in range(1, steps + 1):
        if kind == "scan":
            t.add(f"s{s}: h{s}[b,h] = exp(0 - abs(a[h])) * {before}[b,h] + x[{s - 1},b,h] * w[h]", f"y{s}: o{s}[b] += h{s}[b,h] * c[h]")
        elif kind == "gru":
            for g in "zrn":
                t.add(f"x{g}{s}: X{g}{s}[b,h] += x[{s - 1},b,i] * W{g}[h,i]", f"u{g}{s}: U{g}{s}[b,h] += {before}[b,j] * R{g}[h,j]")
            t.add(f"z{s}: z{s}[b,h] = sigmoid(Xz{s}[b,h] + Uz{s}[b,h])", f"r{s}: r{s}[b,h] = sigmoid(Xr{s}[b,h] + Ur{s}[b,h])",
                  f"h{s}: h{s}[b,h] = (1 - z{s}[b,h]) * tanh(Xn{s}[b,h] + r{s}[b,h] * Un{s}[b,h]) + z{s}[b,h] * {before}[b,h]")
        else:
            c = "c0" if s == 1 else f"c{s - 1}"
            for g in "ifgo":
                t.add(f"x{g}{s}: X{g}{s}[b,h] += x[{s - 1},b,i] * W{g}[h,i]", f"u{g}{s}: U{g}{s}[b,h] += {before}[b,j] * R{g}[h,j]")
            gate = {g: f"{'tanh' if g == 'g' else 'sigmoid'}(X{g}{s}[b,h] + U{g}{s}[b,h] + b{g}[h])" for g in "ifgo"}
            t.add(f"c{s}: c{s}[b,h] = {gate['f']} * {c}[b,h] + {gate['i']} * {gate['g']}", f"h{s}: h{s}[b,h] = {gate['o']} * tanh(c{s}[b,h])")
        before = f"h{s}"
    if kind == "scan":
        t.shapes["x"] = [steps, "b", "h"]
    else:
        t.shapes["x"] = [steps, "b", "i"]
    for l in ("i", "j"):
        if kind == "scan":
            t.loops.pop(l)


def gradients(t):
    kind = t.rng.randrange(4)
    if kind == 0:  # a step of Adam or momentum
        t.sizes("i")
        t.add("m: m1[i] = 0.9 * m0[i] + 0.1 * g[i]", "v: v1[i] = 0.999 * v0[i] + 0.001 * g[i] * g[i]",
              "p: p1[i] = p0[i] * 0.99 - 0.01 * (m1[i] / 0.1) / (sqrt(abs(v1[i]) / 0.001) + 0.00001)")
        t.outputs = ["m1", "v1", "p1"]
        t.ranges["g"] = 0.1
    elif kind == 1:  # a step of k-means
        t.sizes("n k d")
        t.add("d: D[n,k] += square(X[n,d] - C[k,d])", "least: l[n] min= D[n,k]", "who: A[n,k] = select(lt(l[n], D[n,k]), 0, 1)",
              "sum: S[k,d] += A[n,k] * X[n,d]", "count: c[k] += A[n,k]", "out: N[k,d] = S[k,d] / max(c[k], 1)")
    elif kind == 2:  # bodies
        t.sizes("i")
        t.loops["i"] = min(t.loops["i"], int(math.sqrt(t.most)) + 1)
        t.loops["j"] = t.loops["i"]
        t.add("r: R[i,j] = rsqrt(square(x[i] - x[j]) + square(y[i] - y[j]) + 0.1)", "f: F[i] += m[j] * (x[j] - x[i]) * pow(R[i,j], 3)")
    else:  # an MLP's loss
        t.sizes("m k n")
        t.loops["c"] = t.one(2, 10)
        t.add("a: A[m,n] += X[m,k] * W[k,n]", "b: B[m,n] = tanh(A[m,n])", "l: L[m,c] += B[m,n] * V[n,c]", "d: D[m,c] = L[m,c] - T[m,c]",
              "loss: e[] += D[m,c] * D[m,c]", "gv: GV[n,c] += B[m,n] * D[m,c]", "gb: GB[m,n] += D[m,c] * V[n,c]",
              "ga: GA[m,n] = GB[m,n] * (1 - square(B[m,n]))", "gw: GW[k,n] += X[m,k] * GA[m,n]")
        t.outputs = ["e", "GV", "GW"]


FAMILIES = {f.__name__: (f, weight) for f, weight in (
    (attention, 5), (linear_attention, 1), (lora, 1), (experts, 1), (chosen_expert, 1), (convolution, 5), (transposed, 1),
    (separable_filter, 1), (stencil, 2), (matrices, 4), (whole_numbers, 2), (casts, 2), (rows, 4), (grouped_norm, 1), (moved, 3),
    (element_wise, 3), (recurrent, 1), (gradients, 2))}


def drawn(seed, points, families=None):
    """(name, YAML) of one draw."""
    rng = random.Random(f"{seed} written")
    names = families or list(FAMILIES)
    name = rng.choices(names, [FAMILIES[n][1] for n in names])[0]
    t = Text(random.Random(f"{seed} {name}"), points)
    FAMILIES[name][0](t)
    return name, t.yaml(f"{name.replace('_', '-')}-{seed}")
