"""Random workloads for experiments/gpu/coverage: families with sizes drawn log-uniform, half of them rounded
down to a multiple of 8, 16 or 64, the others as odd as they come. A family is how its parameters are drawn,
which of them may be made smaller, its operations, and its text: a built-in's or a whole workload in YAML.
"""
import dataclasses
import math
import random
import typing


class Draw:
    def __init__(self, rng):
        self.rng = rng

    def size(self, low, high):
        x = round(math.exp(self.rng.uniform(math.log(low), math.log(high))))
        if self.rng.random() < .5:
            for q in (64, 16, 8):
                if x >= q:
                    return x // q * q
        return x

    def one(self, *values):
        return self.rng.choice(values)

    def type(self):
        return self.one("f16", "f16", "bf16", "f32")


@dataclasses.dataclass(frozen=True)
class Family:
    name: str
    draw: typing.Callable  # Draw -> {parameter: value}
    sizes: tuple           # parameters that may be made smaller
    work: typing.Callable  # parameters -> points of the operators, about
    text: typing.Optional[typing.Callable] = None  # parameters -> YAML; None: the built-in of that name


@dataclasses.dataclass(frozen=True)
class Drawn:
    family: Family
    parameters: dict

    @property
    def name(self):
        """As the command takes a built-in; of the others the family and its parameters alike."""
        return self.family.name + ":" + ",".join(f"{k}={v}" for k, v in self.parameters.items())

    @property
    def work(self):
        return self.family.work(self.parameters)

    def yaml(self):
        return None if self.family.text is None else self.family.text(self.parameters)

    def reduced(self, most):
        """The same with its largest sizes made smaller until the work is at most that. A size that was a
        multiple of 16 stays one, an odd one stays odd."""
        p = dict(self.parameters)
        while self.family.work(p) > most:
            name = max(self.family.sizes, key=lambda n: p[n])
            if p[name] <= 2:
                break
            smaller = int(p[name] * .7)
            if p[name] % 16 == 0 and smaller >= 16:
                smaller = smaller // 16 * 16
            elif p[name] % 2 == 1:
                smaller |= 1
            p[name] = min(smaller, p[name] - 1)
        return dataclasses.replace(self, parameters=p)


def workload(name, p, loops, operators, tensors="", outputs="", dtypes=""):
    extents = ", ".join(f'"{n}": {e}' for n, e in loops.items())
    lines = [f"name: {name}", f"dtype: {p['dtype']}", f"loops: {{{extents}}}"]
    lines += [f"tensors: {{{tensors}}}"] if tensors else []
    lines += [f"dtypes: {{{dtypes}}}"] if dtypes else []
    lines += ["operators:"] + [f'  - "{o}"' for o in operators]
    lines += [f"outputs: [{outputs}]"] if outputs else []
    return "\n".join(lines) + "\n"


def out_size(extent, window, stride, pad):
    return max(1, (extent + 2 * pad - window) // stride + 1)


def grouped_convolution(p):
    k, st, pad = p["k"], p["st"], p["pad"]
    loops = {"b": p["batch"], "g": p["groups"], "o": p["oc"], "c": p["ic"],
             "h": out_size(p["h"], k, st, pad), "w": out_size(p["w"], k, st, pad), "r": k, "s": k}
    shift = f" - {pad}" if pad else ""
    at = f"{st}*h + r{shift}, {st}*w + s{shift}"
    return workload("grouped-convolution", p, loops, [
        f"conv: C[b,g,o,h,w] += I[b,g,c,{at}] * W[g,o,c,r,s]",
        "bias: O[b,g,o,h,w] = relu(C[b,g,o,h,w] + B[g,o])"],
        tensors=f"I: [b, g, c, {p['h']}, {p['w']}]")


def depthwise_separable(p):
    k, st, pad = p["k"], p["st"], p["pad"]
    loops = {"b": p["batch"], "c": p["ic"], "o": p["oc"],
             "h": out_size(p["h"], k, st, pad), "w": out_size(p["w"], k, st, pad), "r": k, "s": k}
    shift = f" - {pad}" if pad else ""
    at = f"{st}*h + r{shift}, {st}*w + s{shift}"
    return workload("depthwise-separable", p, loops, [
        f"depthwise: D[b,c,h,w] += I[b,c,{at}] * V[c,r,s]",
        "relu: R[b,c,h,w] = relu(D[b,c,h,w])",
        "pointwise: O[b,o,h,w] += R[b,c,h,w] * W[o,c]"],
        tensors=f"I: [b, c, {p['h']}, {p['w']}]")


def padded_convolutions(p):
    loops = {"b": p["batch"], "c": p["ic"], "m": p["mid"], "o": p["oc"], "y": p["h"], "x": p["w"],
             "h": p["h"], "w": p["w"], "r": 3, "s": 3, "u": 3, "v": 3}
    return workload("padded-convolutions", p, loops, [
        "conv1: M[b,m,y,x] += I[b,c,y + r - 1,x + s - 1] * W[m,c,r,s]",
        "relu: R[b,m,y,x] = relu(M[b,m,y,x])",
        "conv2: O[b,o,h,w] += R[b,m,h + u - 1,w + v - 1] * V[o,m,u,v]"],
        tensors="I: [b, c, y, x]")


def projections(p):
    loops = {"m": p["m"], "n": p["n"], "k": p["k"]}
    return workload("projections", p, loops, [
        "qkv: Q[m,n] += X[m,k] * Wq[k,n]; K[m,n] += X[m,k] * Wk[k,n]; V[m,n] += X[m,k] * Wv[k,n]"],
        outputs="Q, K, V")


def masked_attention(p):
    loops = {"h": p["heads"], "m": p["m"], "l": p["l"], "k": p["k"], "n": p["k"]}
    return workload("masked-attention", p, loops, [
        "qk: S[h,m,l] += Q[h,m,k] * K[h,l,k]",
        f"scale: T[h,m,l] = S[h,m,l] * {p['k'] ** -.5:.6f} + M[m,l]",
        "rowmax: R[h,m] max= T[h,m,l]",
        "exp: P[h,m,l] = exp(T[h,m,l] - R[h,m])",
        "rowsum: Z[h,m] += P[h,m,l]",
        "pv: U[h,m,n] += P[h,m,l] * V[h,l,n]",
        "divide: O[h,m,n] = U[h,m,n] / Z[h,m]"])


def grouped_queries(p):
    loops = {"g": p["groups"], "h": p["heads"], "m": p["m"], "l": p["l"], "k": p["k"], "n": p["k"]}
    return workload("grouped-queries", p, loops, [
        "qk: S[g,h,m,l] += Q[g,h,m,k] * K[g,l,k]",
        "rowmax: R[g,h,m] max= S[g,h,m,l]",
        "exp: P[g,h,m,l] = exp(S[g,h,m,l] - R[g,h,m])",
        "rowsum: Z[g,h,m] += P[g,h,m,l]",
        "pv: U[g,h,m,n] += P[g,h,m,l] * V[g,l,n]",
        "divide: O[g,h,m,n] = U[g,h,m,n] / Z[g,h,m]"])


def embedding_norm(p):
    return workload("embedding-norm", p, {"r": p["rows"], "c": p["cols"]}, [
        "lookup: x[r,c] = table[ids[r],c]",
        "sum: s[r] += x[r,c]",
        f"centre: d[r,c] = x[r,c] - s[r] * {1 / p['cols']:.9f}",
        "squares: q[r] += d[r,c] * d[r,c]",
        f"norm: y[r,c] = d[r,c] * rsqrt(q[r] * {1 / p['cols']:.9f} + 0.001) * gain[c]"],
        tensors="ids: [r], table: [1000, c]", dtypes="ids: i32")


def cross_entropy(p):
    return workload("cross-entropy", p, {"r": p["rows"], "c": p["cols"]}, [
        "rowmax: m[r] max= x[r,c]",
        "exp: e[r,c] = exp(x[r,c] - m[r])",
        "sum: s[r] += e[r,c]",
        "loss: y[r] = log(s[r]) + m[r] - x[r,label[r]]"],
        tensors="x: [r, c], label: [r]", dtypes="label: i32", outputs="y")


def rms_norm(p):
    return workload("rms-norm", p, {"r": p["rows"], "c": p["cols"]}, [
        "squares: s[r] += x[r,c] * x[r,c]",
        f"norm: y[r,c] = x[r,c] * rsqrt(s[r] * {1 / p['cols']:.9f} + 0.00001) * g[c]"])


def swiglu(p):
    return workload("swiglu", p, {"m": p["m"], "k": p["k"], "f": p["f"], "n": p["n"]}, [
        "gate: G[m,f] += X[m,k] * W1[k,f]",
        "up: U[m,f] += X[m,k] * W2[k,f]",
        "act: H[m,f] = G[m,f] * sigmoid(G[m,f]) * U[m,f]",
        "down: Y[m,n] += H[m,f] * W3[f,n]"])


def rotary(p):
    half = p["d"]
    return workload("rotary", p, {"t": p["t"], "h": p["heads"], "d": half}, [
        f"low: a[t,h,d] = x[t,h,d] * c[t,d] - x[t,h,d + {half}] * s[t,d]",
        f"high: b[t,h,d] = x[t,h,d + {half}] * c[t,d] + x[t,h,d] * s[t,d]"],
        tensors=f"x: [t, h, {2 * half}]", outputs="a, b")


def column_norm(p):
    return workload("column-norm", p, {"r": p["rows"], "c": p["cols"]}, [
        "sum: s[c] += x[r,c]",
        f"centre: d[r,c] = x[r,c] - s[c] * {1 / p['rows']:.9f}",
        "squares: q[c] += d[r,c] * d[r,c]",
        f"norm: y[r,c] = d[r,c] * rsqrt(q[c] * {1 / p['rows']:.9f} + 0.001)"])


def transposed_add(p):
    return workload("transposed-add", p, {"r": p["rows"], "c": p["cols"]}, [
        "add: y[r,c] = x[c,r] + z[r,c]", "sum: s[r] += y[r,c]"], outputs="y, s")


def chain_work(p):
    return p.get("batch", 1) * p["m"] * p["l"] * (p["n"] + p["k"])


def attention_work(p):
    return p.get("groups", 1) * p["heads"] * p["m"] * p["l"] * (2 * p["k"] + 4)


def conv_chain_work(p):
    h, w = out_size(p["h"], p["k1"], p["st1"], 0), out_size(p["w"], p["k1"], p["st1"], 0)
    return p["batch"] * h * w * p["oc1"] * (p["ic"] * p["k1"] ** 2 + p["oc2"] * p["k2"] ** 2)


def conv_work(p):
    h, w = (out_size(p[n], p["k"], p["st"], p["pad"]) for n in ("h", "w"))
    return p["batch"] * h * w * p["ic"] * p["oc"] * p["groups"] * p["k"] ** 2


def separable_work(p):
    h, w = (out_size(p[n], p["k"], p["st"], p["pad"]) for n in ("h", "w"))
    return p["batch"] * h * w * p["ic"] * (p["oc"] + p["k"] ** 2)


def rows_work(operators):
    return lambda p: operators * p["rows"] * p["cols"]


def rows_family(name, operators, text=None, rows=16384, cols=8192):
    return Family(name, lambda d: dict(rows=d.size(1, rows), cols=d.size(8, cols), dtype=d.type()),
                  ("rows", "cols"), rows_work(operators), text)


def window(d, p):
    """Stride, padding and a tensor at least as large as the window."""
    p.update(st=d.one(1, 1, 2), pad=d.one(0, p["k"] // 2))
    return p


def head_size(d):
    return d.one(64, 80, 96, 128, 256, d.size(16, 256))


FAMILIES = {
    "products": [
        Family("gemm", lambda d: dict(m=d.size(1, 4096), n=d.size(1, 4096), k=d.size(1, 4096),
                                      batch=d.size(1, 16), dtype=d.type()),
               ("m", "n", "k", "batch"), lambda p: p["batch"] * p["m"] * p["n"] * p["k"]),
        Family("projections", lambda d: dict(m=d.size(1, 4096), n=d.size(8, 2048), k=d.size(8, 2048),
                                             dtype=d.type()),
               ("m", "n", "k"), lambda p: 3 * p["m"] * p["n"] * p["k"], projections)],
    "chains": [
        Family("gemm-chain", lambda d: dict(m=d.size(8, 4096), n=d.size(8, 512), k=d.size(8, 512),
                                            l=d.size(8, 2048), batch=d.size(1, 16), relu=d.one(0, 1),
                                            dtype=d.type()),
               ("m", "n", "k", "l", "batch"), chain_work),
        Family("gemm-chain3", lambda d: dict(m=d.size(8, 4096), n=d.size(8, 256), k=d.size(8, 256),
                                             l=d.size(8, 1024), p=d.size(8, 256), batch=d.size(1, 8),
                                             dtype=d.type()),
               ("m", "n", "k", "l", "p", "batch"),
               lambda p: chain_work(p) + p["batch"] * p["m"] * p["n"] * p["p"]),
        Family("swiglu", lambda d: dict(m=d.size(1, 2048), k=d.size(16, 1024), f=d.size(16, 2048),
                                        n=d.size(16, 1024), dtype=d.type()),
               ("m", "k", "f", "n"), lambda p: p["m"] * p["f"] * (2 * p["k"] + p["n"] + 3), swiglu)],
    "attention": [
        Family("attention", lambda d: dict(heads=d.size(1, 64), m=d.size(1, 4096), l=d.size(16, 4096),
                                           k=(k := head_size(d)), n=k, online=d.one(0, 1),
                                           scale=d.one(0, 1), dtype=d.type()),
               ("heads", "m", "l"), attention_work),
        Family("masked-attention", lambda d: dict(heads=d.size(1, 32), m=d.size(1, 2048),
                                                  l=d.size(16, 2048), k=head_size(d), dtype=d.type()),
               ("heads", "m", "l"), attention_work, masked_attention),
        Family("grouped-queries", lambda d: dict(groups=d.size(1, 8), heads=d.size(2, 8),
                                                 m=d.size(1, 2048), l=d.size(16, 2048), k=head_size(d),
                                                 dtype=d.type()),
               ("groups", "heads", "m", "l"), attention_work, grouped_queries)],
    "convolutions": [
        Family("conv-chain", lambda d: dict(ic=d.size(3, 256), h=d.size(12, 128), w=d.size(12, 128),
                                            oc1=d.size(8, 256), oc2=d.size(8, 256), st1=d.one(1, 2),
                                            st2=1, k1=d.one(1, 3, 5, 7), k2=d.one(1, 3),
                                            relu=d.one(0, 1), batch=d.size(1, 8), dtype=d.type()),
               ("ic", "oc1", "oc2", "batch"), conv_chain_work),
        Family("conv1d-chain", lambda d: dict(h=d.size(10, 4096), r=d.one(1, 3, 5), s=d.one(1, 3, 5),
                                              dtype=d.type()),
               ("h",), lambda p: p["h"] * (p["r"] + p["s"])),
        Family("grouped-convolution", lambda d: window(d, dict(
            batch=d.size(1, 4), groups=d.size(2, 8), ic=d.size(1, 32), oc=d.size(1, 32),
            h=d.size(7, 64), w=d.size(7, 64), k=d.one(1, 3, 5), dtype=d.type())),
            ("ic", "oc", "groups", "batch"), conv_work, grouped_convolution),
        Family("depthwise-separable", lambda d: window(d, dict(
            batch=d.size(1, 4), ic=d.size(8, 256), oc=d.size(8, 256), h=d.size(7, 64), w=d.size(7, 64),
            k=d.one(3, 5), dtype=d.type())),
            ("ic", "oc", "batch"), separable_work, depthwise_separable),
        Family("padded-convolutions", lambda d: dict(
            batch=d.size(1, 4), ic=d.size(3, 128), mid=d.size(8, 128), oc=d.size(8, 128),
            h=d.size(7, 64), w=d.size(7, 64), dtype=d.type()),
            ("ic", "mid", "oc", "batch"),
            lambda p: 9 * p["batch"] * p["h"] * p["w"] * p["mid"] * (p["ic"] + p["oc"]),
            padded_convolutions)],
    "graphs": [
        Family("random-graph", lambda d: dict(vertices=d.size(4, 24), rows=d.size(8, 8192),
                                              cols=d.size(8, 4096), seed=d.rng.randrange(1, 1000),
                                              dtype=d.type()),
               ("rows", "cols"), lambda p: p["vertices"] * p["rows"] * p["cols"]),
        rows_family("softmax", 3), rows_family("layernorm", 5), rows_family("layernorm-backward", 8),
        rows_family("gelu", 2), rows_family("residual-layernorm", 7),
        rows_family("rms-norm", 2, rms_norm), rows_family("embedding-norm", 4, embedding_norm),
        rows_family("cross-entropy", 3, cross_entropy), rows_family("column-norm", 4, column_norm),
        rows_family("transposed-add", 2, transposed_add, 4096, 4096),
        Family("rotary", lambda d: dict(t=d.size(1, 4096), heads=d.size(1, 32), d=d.one(16, 32, 40, 64),
                                        dtype=d.type()),
               ("t", "heads"), lambda p: 2 * p["t"] * p["heads"] * p["d"], rotary),
        Family("adam", lambda d: dict(size=d.size(1, 1 << 24), dtype=d.type()), ("size",),
               lambda p: 4 * p["size"]),
        Family("lstm-cell", lambda d: dict(batch=d.size(1, 4096), hidden=d.size(8, 2048),
                                           dtype=d.type()),
               ("batch", "hidden"), lambda p: 10 * p["batch"] * p["hidden"]),
        Family("masked-softmax", lambda d: dict(batch=d.size(1, 16), heads=d.size(1, 16),
                                                m=d.size(1, 1024), l=d.size(2, 2048), dtype=d.type()),
               ("batch", "heads", "m", "l"),
               lambda p: 4 * p["batch"] * p["heads"] * p["m"] * p["l"]),
        Family("squeeze-excite", lambda d: dict(batch=d.size(1, 64), channels=d.size(8, 512),
                                                size=d.size(1, 3136), squeezed=d.size(1, 64),
                                                dtype=d.type()),
               ("batch", "channels", "size"),
               lambda p: 2 * p["batch"] * p["channels"] * (p["size"] + p["squeezed"])),
        Family("attention-unit", lambda d: dict(batch=d.size(1, 256), items=d.size(1, 200),
                                                width=d.size(8, 128), dtype=d.type()),
               ("batch", "items", "width"),
               lambda p: 3 * p["batch"] * p["items"] * p["width"] ** 2),
        Family("transformer-block", lambda d: dict(tokens=d.size(16, 1024), heads=d.size(1, 16),
                                                   size=d.one(16, 32, 64, 80, 128),
                                                   hidden=d.size(16, 2048), dtype=d.type()),
               ("tokens", "heads", "hidden"),
               lambda p: p["tokens"] * p["heads"] * p["size"] * (2 * p["tokens"] + 4 * p["hidden"])),
        Family("batchnorm", lambda d: dict(batch=d.size(1, 64), channels=d.size(1, 256),
                                           size=d.size(2, 3136), dtype=d.type()),
               ("batch", "channels", "size"), lambda p: 5 * p["batch"] * p["channels"] * p["size"]),
        Family("groupnorm", lambda d: dict(batch=d.size(1, 64), groups=d.size(1, 32),
                                           channels=d.size(1, 16), size=d.size(2, 3136),
                                           dtype=d.type()),
               ("batch", "groups", "channels", "size"),
               lambda p: 5 * p["batch"] * p["groups"] * p["channels"] * p["size"])],
}


def drawn(seed, count):
    """`count` workloads: a group first, each alike, then a family of it."""
    draw = Draw(random.Random(seed))
    found = []
    for _ in range(count):
        family = draw.one(*FAMILIES[draw.one(*FAMILIES)])
        found.append(Drawn(family, family.draw(draw)))
    return found
