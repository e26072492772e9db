"""Contractions of two tensors for experiments/cpu/contractions and experiments/gpu/contractions."""
import math
import random


def draw(seed):
    """(dimensions of both operands and the result as letters, extent by letter); None: too few or too many multiplications."""
    rng, names = random.Random(seed), iter("abcdefghijklmnop")

    def loops(total, count):
        extents = []
        for i in range(count):
            extents.append(max(1, round(total)) if i == count - 1 else max(2, round(total ** rng.uniform(0.15, 0.85))))
            total /= extents[-1]
        return {next(names): extent for extent in extents}

    count = rng.choice([0, 0, 0, 1, 2])
    batch = loops(rng.uniform(2, 32), count) if count else {}
    rows, columns = loops(2 ** rng.uniform(5, 11), rng.choice([1, 2, 2, 3])), loops(2 ** rng.uniform(5, 11), rng.choice([1, 1, 2, 2]))
    depth = loops(2 ** rng.uniform(4, 10), rng.choice([1, 2, 2, 3]))

    def dimensions(*roles):
        all_of = [name for role in roles for name in role]
        if rng.random() < 0.7:
            rng.shuffle(all_of)
        return "".join(all_of)
    tensors = dimensions(batch, rows, depth), dimensions(batch, depth, columns), dimensions(batch, rows, columns)
    extents = {**batch, **rows, **columns, **depth}
    return (tensors, extents) if 1e6 <= math.prod(extents.values()) <= 4e9 else None


def workload(tensors, extents):
    a, b, c = (",".join(t) for t in tensors)
    return (f"name: contraction\ndtype: f32\nloops: {{{', '.join(f'{name}: {extent}' for name, extent in extents.items())}}}\n"
            f"tensors: {{A: [{a}], B: [{b}]}}\noperators:\n  - \"C[{c}] += A[{a}] * B[{b}]\"\n")
