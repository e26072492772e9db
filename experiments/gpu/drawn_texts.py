"""Workloads in YAML by parameters: what drawn_workloads.py draws beside the built-ins."""
import random
import re


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


def convolution(p):
    """One window over a plane: stride, dilation and padding, groups, either layout, with an epilogue."""
    st, di, pad, k, j = p["st"], p["di"], p["pad"], p["k"], p["j"]
    loops = {"b": p["batch"], "g": p["groups"], "o": p["oc"], "c": p["ic"],
             "h": out_size(p["h"], di * (k - 1) + 1, st, pad), "w": out_size(p["w"], di * (j - 1) + 1, st, pad),
             "r": k, "s": j}
    y, x = (f"{st}*{at} + {di}*{of}" + (f" - {pad}" if pad else "") for at, of in (("h", "r"), ("w", "s")))
    last = p["last"]
    o, i = ("b,h,w,g,o", f"b,{y},{x},g,c") if last else ("b,g,o,h,w", f"b,g,c,{y},{x}")
    shape = f"b, {p['h']}, {p['w']}, g, c" if last else f"b, g, c, {p['h']}, {p['w']}"
    lines = [f"conv: C[{o}] += I[{i}] * W[g,o,c,r,s]"]
    lines += {"none": [], "bias": [f"bias: O[{o}] = relu(C[{o}] + B[g,o])"],
              "residual": [f"add: O[{o}] = C[{o}] * B[g,o] + X[{o}]"],
              "pool": [f"mean: O[b,g,o] += C[{o}]"],
              "statistics": [f"sum: M[g,o] += C[{o}]", f"square: V[g,o] += C[{o}] * C[{o}]"]}[p["then"]]
    return workload("convolution", p, loops, lines, tensors=f"I: [{shape}]",
                    outputs="C, M, V" if p["then"] == "statistics" else "")


def weight_gradient(p):
    k, pad = p["k"], p["k"] // 2
    loops = {"b": p["batch"], "o": p["oc"], "c": p["ic"], "h": p["h"], "w": p["w"], "r": k, "s": k}
    shift = f" - {pad}" if pad else ""
    return workload("weight-gradient", p, loops, [
        f"gradient: W[o,c,r,s] += G[b,o,h,w] * I[b,c,h + r{shift},w + s{shift}]", "bias: B[o] += G[b,o,h,w]"],
        tensors="I: [b, c, h, w], G: [b, o, h, w]", outputs="W, B")


def pooled_convolution(p):
    k = p["k"]
    loops = {"b": p["batch"], "c": p["ic"], "o": p["oc"], "y": p["h"], "x": p["w"], "h": max(1, p["h"] // k),
             "w": max(1, p["w"] // k), "r": k, "s": k}
    return workload("pooled-convolution", p, loops, [
        "conv: C[b,o,y,x] += I[b,c,y,x] * W[o,c]",
        f"pool: P[b,o,h,w] max= C[b,o,{k}*h + r,{k}*w + s]"])


def causal_convolution(p):
    k = p["k"]
    return workload("causal-convolution", p, {"b": p["batch"], "t": p["t"], "c": p["c"], "r": k}, [
        f"conv: y[b,t,c] += x[b,t + r - {k - 1},c] * w[r,c]", "gate: z[b,t,c] = y[b,t,c] * sigmoid(y[b,t,c])"],
        tensors="x: [b, t, c]")


def laid_out_product(p):
    a = "A[b,k,m]" if p["ta"] else "A[b,m,k]"
    w = {"shared": "W[k,n]", "transposed": "W[n,k]", "each": "W[b,k,n]"}[p["weights"]]
    lines = [f"product: C[b,m,n] += {a} * {w}"]
    lines += {"none": [], "gelu": ["gelu: O[b,m,n] = gelu(C[b,m,n] + B[n])"],
              "residual": ["add: O[b,m,n] = (C[b,m,n] + B[n]) * 0.5 + X[b,m,n]"],
              "rows": ["most: R[b,m] max= C[b,m,n]", "exp: P[b,m,n] = exp(C[b,m,n] - R[b,m])",
                       "sum: Z[b,m] += P[b,m,n]", "divide: O[b,m,n] = P[b,m,n] / Z[b,m]"],
              "columns": ["sum: Z[n] += C[b,m,n]", "centre: O[b,m,n] = C[b,m,n] - Z[n] * 0.01"]}[p["then"]]
    return workload("laid-out-product", p, {n: p[n] for n in ("b", "m", "n", "k")}, lines)


def perceptron(p):
    """Three layers with biases, each with its own activation."""
    return workload("perceptron", p, {n: p[n] for n in ("m", "k", "f", "g", "n")}, [
        "one: H[m,f] += X[m,k] * W1[k,f]", "relu: A[m,f] = relu(H[m,f] + b1[f])",
        "two: J[m,g] += A[m,f] * W2[f,g]", "tanh: T[m,g] = tanh(J[m,g] + b2[g])",
        "three: Y[m,n] += T[m,g] * W3[g,n]", "sigmoid: Z[m,n] = sigmoid(Y[m,n] + b3[n])"])


def index_masked_attention(p):
    """Causal, a window of the last columns, or all; keys and values shared by groups, wide or narrow ones."""
    l, late = p["l"], p["l"] - p["m"]
    first = f"m + {late}" if late > 0 else "m"
    masks = {"all": "S[g,h,m,l]", "causal": f"select(lt({first}, l), -30000, S[g,h,m,l])",
             "window": f"select(lt(l, {first} - {p['window']}), -30000, S[g,h,m,l])"}
    loops = {"g": p["groups"], "h": p["heads"], "m": p["m"], "l": l, "k": p["k"], "n": p["n"]}
    return workload("index-masked-attention", p, loops, [
        "qk: S[g,h,m,l] += Q[g,h,m,k] * K[g,l,k]",
        f"mask: T[g,h,m,l] = {masks[p['mask']]} * {p['k'] ** -.5:.6f}",
        "rowmax: R[g,h,m] max= T[g,h,m,l]", "exp: P[g,h,m,l] = exp(T[g,h,m,l] - R[g,h,m])",
        "rowsum: Z[g,h,m] += P[g,h,m,l]", "pv: U[g,h,m,n] += P[g,h,m,l] * V[g,l,n]",
        "divide: O[g,h,m,n] = U[g,h,m,n] / Z[g,h,m]"])


def paged_attention(p):
    """Keys and values looked up by a table of rows."""
    loops = {"h": p["heads"], "m": p["m"], "l": p["l"], "k": p["k"], "n": p["k"]}
    return workload("paged-attention", p, loops, [
        "qk: S[h,m,l] += Q[h,m,k] * K[rows[l],h,k]", "rowmax: R[h,m] max= S[h,m,l]",
        "exp: P[h,m,l] = exp(S[h,m,l] - R[h,m])", "rowsum: Z[h,m] += P[h,m,l]",
        "pv: U[h,m,n] += P[h,m,l] * V[rows[l],h,n]", "divide: O[h,m,n] = U[h,m,n] / Z[h,m]"],
        tensors=f"rows: [l], K: [{2 * p['l']}, h, k], V: [{2 * p['l']}, h, n]", dtypes="rows: i32")


def gathered_product(p):
    return workload("gathered-product", p, {n: p[n] for n in ("b", "d", "e")}, [
        "product: y[b,e] += T[ids[b],d] * W[d,e]", "act: a[b,e] = relu(y[b,e] + c[e])"],
        tensors=f"ids: [b], T: [{p['table']}, d]", dtypes="ids: i32")


def embedding_bag(p):
    return workload("embedding-bag", p, {n: p[n] for n in ("b", "t", "d")}, [
        "bag: y[b,d] += T[ids[b,t],d] * w[b,t]", "mean: s[b] += y[b,d] * y[b,d]",
        "norm: z[b,d] = y[b,d] * rsqrt(s[b] + 0.01)"],
        tensors=f"ids: [b, t], T: [{p['table']}, d]", dtypes="ids: i32")


def softmax_over(p):
    """Along any one of three dimensions, or two, or all; of logarithms too."""
    over = p["over"]
    kept = ",".join(x for x in "abc" if x not in over)
    lines = [f"most: m[{kept}] max= x[a,b,c]", f"exp: e[a,b,c] = exp(x[a,b,c] - m[{kept}])",
             f"sum: s[{kept}] += e[a,b,c]"]
    lines += [f"log: y[a,b,c] = x[a,b,c] - m[{kept}] - log(s[{kept}])" if p["log"] else
              f"divide: y[a,b,c] = e[a,b,c] / s[{kept}]"]
    return workload("softmax-over", p, {n: p[n] for n in "abc"}, lines)


def norm_over(p):
    """Mean and variance over any dimensions, gain and bias along others, of a sum with a residual."""
    over, along = p["over"], p["along"]
    kept = ",".join(x for x in "abc" if x not in over)
    size = 1
    for x in over:
        size *= p[x]
    return workload("norm-over", p, {n: p[n] for n in "abc"}, [
        "add: t[a,b,c] = x[a,b,c] + z[a,b,c]", f"sum: s[{kept}] += t[a,b,c]",
        f"centre: d[a,b,c] = t[a,b,c] - s[{kept}] * {1 / size:.9f}", f"squares: q[{kept}] += d[a,b,c] * d[a,b,c]",
        f"norm: y[a,b,c] = d[a,b,c] * rsqrt(q[{kept}] * {1 / size:.9f} + 0.001) * gain[{along}] + bias[{along}]"],
        outputs="t, y")


def loss(p):
    """Sums to a scalar, and a gradient that reads it."""
    return workload("loss", p, {"r": p["rows"], "c": p["cols"]}, [
        "error: e[r,c] = x[r,c] - y[r,c]", "sum: s[] += e[r,c] * e[r,c]",
        f"gradient: g[r,c] = e[r,c] * rsqrt(s[] * {1 / (p['rows'] * p['cols']):.12f} + 0.01)"], outputs="s, g")


def stencil(p):
    return workload("stencil", p, {"y": p["rows"], "x": p["cols"]}, [
        "blur: B[y,x] = I[y,x + 1] * 0.2 + I[y + 1,x] * 0.2 + I[y + 1,x + 1] * 0.2 + I[y + 1,x + 2] * 0.2 + "
        "I[y + 2,x + 1] * 0.2",
        "edge: E[y,x] = abs(I[y + 1,x + 1] - B[y,x])", "rows: R[y] max= E[y,x]"],
        tensors=f"I: [{p['rows'] + 2}, {p['cols'] + 2}]", outputs="B, R")


def slices(p):
    """Thirds of one tensor, one of them backwards; every second element of another."""
    c = p["cols"]
    return workload("slices", p, {"r": p["rows"], "c": c}, [
        f"gate: g[r,c] = x[r,c] * sigmoid(x[r,c + {c}]) + x[r,{3 * c - 1} - c]",
        "pairs: h[r,c] = g[r,c] * z[2*r,c] - z[2*r + 1,c]", "sum: s[r] += h[r,c]"],
        tensors=f"x: [r, {3 * c}], z: [{2 * p['rows']}, c]", outputs="h, s")


def interleaved_rotary(p):
    return workload("interleaved-rotary", p, {"t": p["t"], "h": p["heads"], "d": p["d"]}, [
        "low: a[t,h,d] = x[t,h,2*d] * c[t,d] - x[t,h,2*d + 1] * s[t,d]",
        "high: b[t,h,d] = x[t,h,2*d + 1] * c[t,d] + x[t,h,2*d] * s[t,d]"],
        tensors=f"x: [t, h, {2 * p['d']}]", outputs="a, b")


def running_sum(p):
    return workload("running-sum", p, {"r": p["rows"], "c": p["cols"], "k": p["cols"]}, [
        "sum: y[r,c] += select(lt(c, k), 0, x[r,k]) * w[k]", "act: z[r,c] = tanh(y[r,c])"])


def any_graph(p):
    """A seeded graph over four loops: products, sums along any of them, broadcasts, transposed reads,
    slices, looked-up rows, indices."""
    rng = random.Random(p["seed"])
    extent = {n: p[n] for n in "abcd"}
    tensors, types, made, lines = {}, {}, [], []

    def read(loops):
        """What was made or a new input, at points of an operator's loops."""
        kind = rng.random()
        fit = [(t, at) for t, at in made if set(at) <= set(loops)]
        if fit and kind < .65:
            t, at = rng.choice(fit[-4:] if rng.random() < .7 else fit)
            return f"{t}[{','.join(at)}]"
        at = rng.sample(loops, rng.randint(1, min(3, len(loops))))
        name = f"i{len(tensors)}"
        index, shape = list(at), list(at)
        if kind > .93 and len(at) > 1:
            types[f"n{name}"] = "i32"
            tensors[f"n{name}"] = at[:1]
            index[0], shape[0] = f"n{name}[{at[0]}]", "50"
        elif kind > .86:
            offset = rng.randint(1, 5)
            index[-1], shape[-1] = f"{at[-1]} + {offset}", str(extent[at[-1]] + offset)
        elif kind > .8:
            index[-1], shape[-1] = f"2*{at[-1]}", str(2 * extent[at[-1]])
        tensors[name] = shape
        return f"{name}[{','.join(index)}]"

    for o in range(p["operators"]):
        loops = rng.sample("abcd", rng.randint(1, 3))
        kind = rng.random()
        if kind < .4:
            at, combine = loops, "="
            value = rng.choice(["tanh({})", "relu({})", "sigmoid({})", "exp(0 - abs({}))", "{} * 0.5", "max({}, 0.1)"])
            value = value.format(read(loops)) + rng.choice(["", " + ", " * ", " - "])
            value += read(loops) if value[-1] == " " else ""
            if rng.random() < .1:
                value = f"select(lt({loops[0]}, 7), {value}, 0)"
                value += f" * {read(loops)}"
        else:
            at = loops[:rng.randint(0, len(loops) - 1)]
            combine = "max=" if kind < .55 else "+="
            value = read(loops) + (" * " + read(loops) if kind > .65 else "")
            if kind > .65 and len(loops) == 3:
                at = rng.sample(loops, 2)
            left = set(loops) - set(re.findall(r"\b[a-d]\b", value)) - set(at)
            value += "".join(f" * u{o}{n}[{n}]" for n in sorted(left))
        if combine == "=":  # each loop is one that something reads, or that a value is spread over
            at = list(at)
        lines.append(f"o{o}: t{o}[{','.join(at)}] {combine} {value}")
        made.append((f"t{o}", tuple(at)))
    used = {n: e for n, e in extent.items() if re.search(rf"\b{n}\b", " ".join(l.split(": ")[1] for l in lines))}
    return workload("any-graph", p, used, lines,
                    tensors=", ".join(f"{t}: [{', '.join(s)}]" for t, s in tensors.items()),
                    dtypes=", ".join(f"{t}: {d}" for t, d in types.items()))


def points(text):
    """Of all operators together: each runs over the loops that it names."""
    extents = {n: int(e) for n, e in re.findall(r'"(\w+)": (\d+)', text)}
    total = 0
    for line in re.findall(r'  - "(\w+: .*)"', text):
        names = set(re.findall(r"\w+", line.split(": ", 1)[1]))
        one = 1
        for n in names & set(extents):
            one *= extents[n]
        total += one
    return total
