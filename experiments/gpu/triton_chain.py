"""A fused chain of two matrix products in Triton: E = (A B) D, f16 with float sums. A block has a tile of
rows of E and of its columns; A B is made tile by tile and never leaves the chip. Compared with ours, so
it is given the same freedom: block sizes, warps and stages are tried and the fastest is taken.
"""
import random
import time

import torch
import triton
import triton.language as tl


@triton.jit
def chain_kernel(A, B, D, E, M, N, K, L, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                 BL: tl.constexpr):
    batch = tl.program_id(1)
    columns = tl.cdiv(N, BN)
    rows = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    cols = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    A += batch * M * K
    B += batch * K * L
    D += batch * L * N
    E += batch * M * N
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for l0 in range(0, L, BL):
        ls = l0 + tl.arange(0, BL)
        c = tl.zeros((BM, BL), dtype=tl.float32)
        for k0 in range(0, K, BK):
            ks = k0 + tl.arange(0, BK)
            a = tl.load(A + rows[:, None] * K + ks[None, :],
                        mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
            b = tl.load(B + ks[:, None] * L + ls[None, :],
                        mask=(ks[:, None] < K) & (ls[None, :] < L), other=0.0)
            c = tl.dot(a, b, c)
        d = tl.load(D + ls[:, None] * N + cols[None, :],
                    mask=(ls[:, None] < L) & (cols[None, :] < N), other=0.0)
        total = tl.dot(c.to(tl.float16), d, total)
    tl.store(E + rows[:, None] * N + cols[None, :], total.to(tl.float16),
             mask=(rows[:, None] < M) & (cols[None, :] < N))


def _power(n):
    return max(16, triton.next_power_of_2(n))


def configurations(m, n, k, l):
    """Block sizes that can fit, likeliest first: the larger grids before the smaller."""
    bk = min(_power(k), 128)
    bns = sorted({min(_power(n), w) for w in (64, 128, 256)})
    found = []
    for bm in (16, 32, 64, 128):
        for bl in (32, 64, 128):
            for bn in bns:
                for warps, stages in ((4, 2), (4, 3), (8, 2)):
                    shared = 2 * (stages * (bm * bk + bk * bl + bl * bn) + bm * bl)
                    if bm > _power(m) or bl > _power(l) or shared > 200 * 1024:
                        continue
                    if bm * bn > 128 * 128 * warps // 4 or (warps == 8 and bm < 32):
                        continue
                    found.append({"BM": bm, "BN": bn, "BK": bk, "BL": bl, "num_warps": warps,
                                  "num_stages": stages})
    return found


def chain(a, b, d, e, config):
    """Launches the kernel; a [batch, M, K], b [batch, K, L], d [batch, L, N], e [batch, M, N]."""
    batch, m, k = a.shape
    l, n = d.shape[1:]
    options = dict(config)
    grid = (triton.cdiv(m, options["BM"]) * triton.cdiv(n, options["BN"]), batch)
    chain_kernel[grid](a, b, d, e, m, n, k, l, **options)
    return e


def best_configuration(a, b, d, e, seconds, time_graph):
    """The fastest within `seconds`, compiled and timed one by one, with its seconds and how many were
    tried; None where none runs."""
    m, k = a.shape[1:]
    l, n = d.shape[1:]
    start, best, tried = time.monotonic(), None, 0
    wanted = configurations(m, n, k, l)
    random.Random(1).shuffle(wanted)  # so that a short budget is no narrow one
    for config in wanted:
        if time.monotonic() - start > seconds:
            break
        try:
            took = time_graph(lambda: chain(a, b, d, e, config), quick=True)
        except Exception as error:  # a configuration that does not fit or does not compile
            if "CUDA error" in str(error):
                raise
            continue
        tried += 1
        if best is None or took < best[0]:
            best = (took, config)
    return None if best is None else {"seconds": best[0], "config": best[1], "tried": tried,
                                      "of": len(wanted)}


def compile_only(config):
    """Into Triton's cache on disk: every row's sizes are multiples of 16, so one build serves all."""
    pointers = [torch.float16] * 4
    try:
        chain_kernel.warmup(*pointers, 512, 64, 64, 512, grid=(1, 1), **config)
        return True
    except Exception:
        return False
