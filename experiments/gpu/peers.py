"""What ours is held against, in one process: PyTorch's pair of products, scaled_dot_product_attention's
flash and cuDNN backends, and a fused chain in Triton. Every contestant is captured in a CUDA graph of
20 runs, as ours is, and timed by events around launches of that graph; results are checked against
float64 first.

    peers.py compile ROWS.json             compiles Triton's configurations, in parallel
    peers.py time ROWS.json OUT.jsonl SECONDS

ROWS.json: {"mcfuser/G1": {"m": 512, "n": 64, "k": 64, "l": 256, "batch": 1}, ...}
"""
import concurrent.futures
import json
import multiprocessing
import os
import sys
import time

import torch

RUNS_A_GRAPH = 20
BATCH_SECONDS = 300e-6


def graph_of(run, runs=RUNS_A_GRAPH):
    """A graph of so many runs, after a few outside of it on a stream of their own."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(runs):
            run()
    return graph


def time_graph(run, quick=False, runs=RUNS_A_GRAPH):
    """The median over batches of the seconds a run."""
    graph = graph_of(run, runs)
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def batch(launches):
        before.record()
        for _ in range(launches):
            graph.replay()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) * 1e-3 / (launches * runs)

    start = time.monotonic()
    while True:
        once = batch(1)
        if time.monotonic() - start > (0.005 if quick else 0.02):
            break
    launches = max(1, int(BATCH_SECONDS / (once * runs)) + 1)
    times = sorted(batch(launches) for _ in range(7 if quick else 60))
    return times[len(times) // 2]


def error_of(got, reference):
    """The largest difference over the largest value; of several tensors the worst."""
    if isinstance(reference, (tuple, list)):
        return max(error_of(g, r) for g, r in zip(got, reference, strict=True))
    return ((got.double() - reference).abs().max() / reference.abs().max()).item()


TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


def inputs(*shapes, dtype="f16"):
    generator = torch.Generator(device="cuda").manual_seed(1)
    return [torch.rand(shape, device="cuda", generator=generator).mul_(2).sub_(1).to(getattr(torch, TYPES[dtype]))
            for shape in shapes]


def contest(name, run, reference, out):
    """One contestant's seconds and error, or why it has none."""
    try:
        error = error_of(run(), reference)
        out[name] = {"seconds": time_graph(run), "relative_error": error}
    except Exception as problem:  # a backend that does not take the shape
        if "CUDA error" in str(problem):
            raise
        out[name] = {"reason": str(problem).strip().splitlines()[0][:200]}


def products(size, seconds, out):
    batch, m, n, k, l = (size[x] for x in ("batch", "m", "n", "k", "l"))
    a, b, d = inputs((batch, m, k), (batch, k, l), (batch, l, n))
    reference = torch.bmm(torch.bmm(a.double(), b.double()), d.double())
    c, e = a.new_empty(batch, m, l), a.new_empty(batch, m, n)
    if batch == 1:  # a plain product, not a batch of one
        contest("eager", lambda: torch.mm(torch.mm(a[0], b[0], out=c[0]), d[0], out=e[0]),
                reference[0], out)
    else:
        contest("eager", lambda: torch.bmm(torch.bmm(a, b, out=c), d, out=e), reference, out)
    triton_product(size, seconds, out)


def triton_product(size, seconds, out):
    """The fused chain in Triton, the best of the configurations that are tried in so many seconds."""
    import triton_chain
    batch, m, n, k, l = (size[x] for x in ("batch", "m", "n", "k", "l"))
    a, b, d = inputs((batch, m, k), (batch, k, l), (batch, l, n))
    reference = torch.bmm(torch.bmm(a.double(), b.double()), d.double())
    e = a.new_empty(batch, m, n)
    best = triton_chain.best_configuration(a, b, d, e, seconds, time_graph)
    if best is None:
        out["triton"] = {"reason": "no configuration ran"}
        return
    contest("triton", lambda: triton_chain.chain(a, b, d, e, best["config"]), reference, out)
    out["triton"].update(config=best["config"], tried=best["tried"], of=best["of"])


def attention(size, out):
    """Optional: causal (row i reads columns up to i + l - m), groups (so many heads share keys and values; eager
    products have their rows together), dtype, and scale 1: by the root of k."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    heads, m, n, k, l = (size[x] for x in ("batch", "m", "n", "k", "l"))
    groups, causal = size.get("groups", 1), bool(size.get("causal", False)) and m > 1
    scale = k ** -0.5 if size.get("scale") else 1.0
    q, key, v = inputs((1, heads, m, k), (1, heads // groups, l, k), (1, heads // groups, l, n),
                       dtype=size.get("dtype", "f16"))
    later = torch.ones(m, l, device="cuda", dtype=torch.bool).triu(1 + l - m).repeat(groups, 1) if causal else None
    q3, k3, v3 = q.view(heads // groups, groups * m, k), key[0].transpose(-1, -2), v[0]
    scores = torch.matmul(q3.double(), k3.double()) * scale
    scores = scores.masked_fill_(later, float("-inf")) if causal else scores
    reference = torch.matmul(torch.softmax(scores, -1), v3.double())
    whole = reference.view(1, heads, m, n)
    del scores

    def eager():
        products = torch.bmm(q3, k3)
        products = products.mul_(scale) if scale != 1 else products
        return torch.bmm(torch.softmax(products.masked_fill_(later, float("-inf")) if causal else products, -1), v3)
    contest("eager", eager, reference, out)
    more = {"enable_gqa": True} if groups > 1 else {}
    mask = {"is_causal": causal}
    if causal and m != l:
        from torch.nn.attention.bias import causal_lower_right
        mask = {"attn_mask": causal_lower_right(m, l)}
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION),
                          ("efficient", SDPBackend.EFFICIENT_ATTENTION)):
        def run(backend=backend):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, key, v, scale=scale, **mask, **more)
        contest(name, run, whole, out)
        if "reason" in out[name] and "attn_mask" in mask:
            given = ~later[:m][None, None]

            def masked(backend=backend):
                with sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(q, key, v, scale=scale, attn_mask=given, **more)
            contest(name, masked, whole, out)


def compile_all(rows):
    import triton_chain
    wanted = {}
    for name, size in rows.items():
        if not name.startswith("mcfuser/S"):
            for c in triton_chain.configurations(*(size[x] for x in "mnkl")):
                wanted[json.dumps(c, sort_keys=True)] = c
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(12, (os.cpu_count() or 2) - 1))
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        done = sum(pool.map(triton_chain.compile_only, wanted.values(), chunksize=4))
    print(f"peers: {done} of {len(wanted)} Triton configurations compiled", file=sys.stderr)


def time_all(rows, path, seconds):
    import triton
    start = time.monotonic()
    with open(path, "w") as lines:
        print(json.dumps({"torch": torch.__version__, "triton": triton.__version__,
                          "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                          "device": torch.cuda.get_device_name()}), file=lines, flush=True)
        for i, (name, size) in enumerate(rows.items()):
            left = seconds - (time.monotonic() - start)
            if left <= 0:
                print(json.dumps({"row": name, "reason": "out of time"}), file=lines, flush=True)
                continue
            out = {}
            if size.get("attention", name.startswith("mcfuser/S")):
                attention(size, out)
            else:
                products(size, min(8.0, left / (len(rows) - i) * 0.7), out)
            print(json.dumps({"row": name, **out}), file=lines, flush=True)


def main():
    rows = json.load(open(sys.argv[2]))
    if sys.argv[1] == "compile":
        compile_all(rows)
    else:
        time_all(rows, sys.argv[3], float(sys.argv[4]))


if __name__ == "__main__":
    main()
