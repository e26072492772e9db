"""Attention that a seed draws: odd sizes, few rows of queries, long pasts, shared keys, windows, masks, biases, soft caps.

A row is {"batch" (all heads), "groups" (so many share keys and values), "m", "l", "k", "n", "dtype", "causal" (row i reads keys up to
i + l - m), "window" (so many keys before that; 0: all), "bias" ("none", "mask": [m, l], "bias": of each head too, "alibi": slopes,
"relative": a number for each difference of row and key, of each head), "cap" (a soft cap of scores; 0: none), and, where it is so,
"residual" (a tensor is added to the results)}. KINDS are drawn where nobody asks for others; BESIDE are two more. `text` is the workload in YAML; `scores` are the same in PyTorch.
"""
import random

import drawn_texts as texts
from drawn_workloads import Draw

KINDS = ("odd", "decode", "cross", "offset", "long", "window", "bias", "cap", "value")
BESIDE = ("relative", "residual")
WIDTHS = (16, 32, 40, 48, 64, 64, 64, 72, 80, 96, 112, 128, 128, 128, 160, 192, 256)


def draw_one(draw, kind, dtype):
    """One row of a kind, or none where it is too large or too small."""
    groups = draw.one(1, 1, 1, 2, 4, 8)
    heads, width = groups * draw.one(1, 2, 4, 5, 8, 12, 16, 32, 64), draw.one(*WIDTHS)
    size = {"batch": heads, "groups": groups, "m": 0, "l": 0, "k": width, "n": width, "scale": 1, "causal": 0,
            "window": 0, "bias": "none", "cap": 0, "kind": kind, "dtype": dtype or draw.one("f16", "bf16")}
    size["m"] = size["l"] = draw.size(128, 8192)
    if kind == "odd":
        size["causal"] = draw.one(0, 1)
    elif kind == "decode":
        size.update(m=draw.one(1, 1, draw.size(1, 16)), l=draw.size(512, 65536), causal=draw.one(0, 1))
    elif kind == "cross":
        size.update(m=draw.size(16, 8192), l=draw.size(16, 16384))
    elif kind == "offset":
        size.update(m=draw.size(16, 2048), causal=1)
        size["l"] = size["m"] + draw.size(16, 16384)
    elif kind == "long":
        size.update(batch=draw.one(1, 1, 2), groups=1, m=draw.one(draw.size(64, 1024), draw.size(1024, 16384)), causal=draw.one(0, 1))
        size["l"] = size["m"] + draw.one(0, draw.size(1024, 32768))
    elif kind == "window":
        size.update(causal=1, window=draw.size(64, 2048))
    elif kind == "bias":
        size.update(bias=draw.one("mask", "bias", "alibi"), causal=draw.one(0, 1))
    elif kind == "relative":
        size.update(bias="relative", causal=draw.one(0, 1))
    elif kind == "residual":
        size.update(residual=1, bias=draw.one("none", "relative"), causal=draw.one(0, 1))
    elif kind == "cap":
        size.update(cap=draw.one(20, 30, 50), causal=draw.one(0, 1))
    elif kind == "value":
        size.update(n=draw.one(*WIDTHS), causal=draw.one(0, 1))
        if size["n"] == size["k"]:
            return None
    work = size["batch"] * size["m"] * size["l"]
    if size["batch"] > 64 or work > 2 ** 28 or not 2 ** 22 < work * size["k"] < 2 ** 34:
        return None
    if size["batch"] // groups * size["l"] * width > 2 ** 26:
        return None
    return size


def drawn(count, seed, rounded=.5, dtype=None, kinds=KINDS):
    """{name: size}, kinds in turn."""
    draw, rows = Draw(random.Random(seed), rounded), {}
    while len(rows) < count:
        size = draw_one(draw, kinds[len(rows) % len(kinds)], dtype)
        if size:
            rows[name(size)] = size
    return rows


def name(size):
    return "attention:" + ",".join(f"{k}={v}" for k, v in size.items() if k in ("kind", "batch", "m", "l", "k", "n", "dtype") or v not in (0, "none"))


def text(size):
    """The workload: one operator for each step, as a program has them."""
    late = size["l"] - size["m"]
    here = f"m + {late}" if late > 0 else f"m - {-late}" if late < 0 else "m"
    grouped = size["groups"] > 1
    head, all_ = ("b,h", "b,h,m,l") if grouped else ("b", "b,m,l")
    loops = {"b": size["batch"] // size["groups"], **({"h": size["groups"]} if grouped else {}),
             **{n: size[n] for n in "mlkn"}}
    steps, at = [f"qk: S[{all_}] += Q[{head},m,k] * K[b,l,k]"], "S"

    def step(label, to, expression):
        nonlocal at
        steps.append(f"{label}: {to}[{all_}] = {expression.replace('@', f'{at}[{all_}]')}")
        at = to
    step("scaled", "T", f"@ * {size['k'] ** -.5:.9g}")
    if size["cap"]:
        step("capped", "C", f"tanh(@ * {1 / size['cap']:.9g}) * {size['cap']}")
    if size["bias"] == "alibi":
        step("biased", "A", f"@ + slope[{head}] * (l - ({here}))")
    elif size["bias"] == "relative":
        step("biased", "A", f"@ + B[{head},m - l + {size['l'] - 1}]")
    elif size["bias"] != "none":
        step("biased", "A", f"@ + B[{all_ if size['bias'] == 'bias' else 'm,l'}]")
    if size["causal"]:
        step("masked", "U", f"select(lt({here}, l), -inf, @)")
    if size["window"]:
        step("windowed", "W", f"select(lt(l, {here} - {size['window']}), -inf, @)")
    steps += [f"rowmax: R[{head},m] max= {at}[{all_}]", f"exp: P[{all_}] = exp({at}[{all_}] - R[{head},m])",
              f"rowsum: Z[{head},m] += P[{all_}]", f"pv: O[{head},m,n] += P[{all_}] * V[b,l,n]",
              f"divide: E[{head},m,n] = O[{head},m,n] / Z[{head},m]"]
    if size.get("residual"):
        steps.append(f"added: F[{head},m,n] = E[{head},m,n] + X[{head},m,n]")
    return texts.workload("drawn-attention", size, loops, steps, outputs="F" if size.get("residual") else "E")


def positions(torch, size):
    """Keys less the last key that a row may read, [m, l]."""
    m, l = (torch.arange(size[n], device="cuda") for n in "ml")
    return l[None, :] - (m[:, None] + size["l"] - size["m"])


def bias(torch, size, more):
    """What is added to scores, [1 or heads, m, l] in float64, or none. `more`: "B" or "slope"."""
    added = None
    if size["bias"] == "alibi":
        added = more["slope"].double().view(-1, 1, 1) * positions(torch, size).double()
    elif size["bias"] == "relative":
        m, l = (torch.arange(size[n], device="cuda") for n in "ml")
        added = more["B"].double().view(size["batch"], -1)[:, m[:, None] - l[None, :] + size["l"] - 1]
    elif size["bias"] != "none":
        added = more["B"].double().view(-1, size["m"], size["l"])
    if size["causal"] or size["window"]:
        far = positions(torch, size)
        hidden = torch.zeros_like(far, dtype=torch.bool)
        hidden = hidden | (far > 0) if size["causal"] else hidden
        hidden = hidden | (far < -size["window"]) if size["window"] else hidden
        added = (torch.zeros((1, size["m"], size["l"]), device="cuda", dtype=torch.float64) if added is None else added).masked_fill(
            hidden, float("-inf"))
    return added


def inputs(peers, torch, size):
    """Tensors by name."""
    heads, m, n, k, l, groups = (size[x] for x in ("batch", "m", "n", "k", "l", "groups"))
    q, key, v = peers.inputs((1, heads, m, k), (1, heads // groups, l, k), (1, heads // groups, l, n), dtype=size["dtype"])
    made = {"Q": q, "K": key, "V": v}
    if size["bias"] in ("mask", "bias"):
        made["B"] = peers.inputs((heads, m, l) if size["bias"] == "bias" else (m, l), dtype=size["dtype"])[0]
    elif size["bias"] == "relative":
        made["B"] = peers.inputs((heads, m + l - 1), dtype=size["dtype"])[0]
    elif size["bias"] == "alibi":
        made["slope"] = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)], device="cuda", dtype=q.dtype)
    if size.get("residual"):
        made["X"] = peers.inputs((heads, m, n), dtype=size["dtype"])[0]
    return made


def reference(torch, size, made):
    """In float64, one head at a time: scores are large."""
    heads, m, n, groups = (size[x] for x in ("batch", "m", "n", "groups"))
    out = torch.empty((heads, m, n), device="cuda", dtype=torch.float64)
    plain = dict(size, bias="none") if size["bias"] == "bias" else size
    added = bias(torch, plain, made)
    for head in range(heads):
        scores = made["Q"][0, head].double() @ made["K"][0, head // groups].double().T * size["k"] ** -.5
        scores = torch.tanh(scores / size["cap"]) * size["cap"] if size["cap"] else scores
        scores = scores if added is None else scores + added[head if added.shape[0] > 1 else 0]
        scores = scores + made["B"][head].double() if size["bias"] == "bias" else scores
        out[head] = torch.softmax(scores, -1) @ made["V"][0, head // groups].double()
        if size.get("residual"):
            out[head] += made["X"].view(heads, m, n)[head].double()
        del scores
    return out


def libraries(torch, size, made):
    """{name: a function}: flash, cuDNN and the efficient kernel, with a tensor of what is added where they need one, and
    PyTorch's own operators where none of these has soft caps."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, key, v, groups, m, l = made["Q"], made["K"], made["V"], size["groups"], size["m"], size["l"]
    scale = size["k"] ** -.5
    more = {"enable_gqa": True} if groups > 1 else {}
    causal = size["causal"] and m > 1
    given = None
    if size["bias"] != "none" or size["window"] or size["cap"] and causal:
        given = bias(torch, size, made)[None].to(q.dtype)
    if size["cap"]:
        heads, k = size["batch"], size["k"]
        q3, k3, v3 = q.view(heads // groups, groups * m, k), key[0].transpose(-1, -2), v[0]
        mask = None if given is None else given[0].repeat(1, groups, 1)

        def eager():
            scores = torch.bmm(q3, k3).mul_(scale / size["cap"]).tanh_().mul_(size["cap"])
            scores = scores if mask is None else scores.add_(mask)
            return torch.bmm(torch.softmax(scores, -1), v3).view(heads, m, size["n"])
        return {"eager": eager}
    mask = {"attn_mask": given} if given is not None else {"is_causal": bool(causal)}
    if given is None and causal and m != l:
        from torch.nn.attention.bias import causal_lower_right
        mask = {"attn_mask": causal_lower_right(m, l)}
    found = {}
    for label, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION),
                           ("efficient", SDPBackend.EFFICIENT_ATTENTION)):
        def run(backend=backend):
            with sdpa_kernel(backend):
                out = torch.nn.functional.scaled_dot_product_attention(q, key, v, scale=scale, **mask, **more)[0]
                return out.add_(made["X"].view_as(out)) if size.get("residual") else out
        found[label] = run
    return found
