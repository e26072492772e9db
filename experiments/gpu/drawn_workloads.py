"""Random workloads for experiments/gpu/coverage: families with sizes drawn log-uniform, half of them rounded
down to a multiple of 8, 16 or 64, the others as odd as they come. A family is how its parameters are drawn,
which of them may be made smaller, its operations, and its text: a built-in's or a whole workload in YAML.
"""
import dataclasses
import math
import random
import typing

import drawn_texts as texts


class Draw:
    def __init__(self, rng, rounded=.5):
        self.rng, self.rounded = rng, rounded

    def size(self, low, high):
        """One in twelve is the least; half of the others, or the part that was asked for, are rounded down."""
        if self.rng.random() < 1 / 12:
            return low
        x = round(math.exp(self.rng.uniform(math.log(low), math.log(high))))
        if self.rng.random() < self.rounded:
            for q in (64, 16, 8):
                if x >= q:
                    return x // q * q
        return x

    def one(self, *values):
        return self.rng.choice(values)

    def type(self):
        return self.one("f16", "f16", "f16", "bf16", "bf16", "f32", "f32", "f32", "f64")


@dataclasses.dataclass(frozen=True)
class Family:
    name: str
    draw: typing.Callable  # Draw -> {parameter: value}
    sizes: tuple           # parameters that may be made smaller
    work: typing.Optional[typing.Callable] = None  # parameters -> points of the operators, about; None: the text's
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
        return self.work_of(self.parameters)

    def work_of(self, p):
        return self.family.work(p) if self.family.work else texts.points(self.family.text(p))

    def yaml(self):
        return None if self.family.text is None else self.family.text(self.parameters)

    def reduced(self, most):
        """The same with its largest sizes made smaller until the work is at most that. A size that was a
        multiple of 16 stays one, an odd one stays odd."""
        p = dict(self.parameters)
        while self.work_of(p) > most:
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


def chain_work(p):
    return p.get("batch", 1) * p["m"] * p["l"] * (p["n"] + p["k"])


def attention_work(p):
    return p.get("groups", 1) * p["heads"] * p["m"] * p["l"] * (2 * p["k"] + 4)


def conv_chain_work(p):
    h, w = texts.out_size(p["h"], p["k1"], p["st1"], 0), texts.out_size(p["w"], p["k1"], p["st1"], 0)
    return p["batch"] * h * w * p["oc1"] * (p["ic"] * p["k1"] ** 2 + p["oc2"] * p["k2"] ** 2)


def rows_family(name, operators, rows=16384, cols=8192):
    return Family(name, lambda d: dict(rows=d.size(1, rows), cols=d.size(8, cols), dtype=d.type()),
                  ("rows", "cols"), lambda p: operators * p["rows"] * p["cols"])


def written(text, sizes, draw):
    """A family that is a text, and named as its function. `sizes`: those that may be made smaller."""
    return Family(text.__name__.replace("_", "-"), lambda d: dict(draw(d), dtype=d.type()), tuple(sizes.split()),
                  text=text)


def written_rows(text, rows=16384, cols=8192):
    return written(text, "rows cols", lambda d: dict(rows=d.size(1, rows), cols=d.size(8, cols)))


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
        written(texts.projections, "m n k", lambda d: dict(
            m=d.size(1, 4096), n=d.size(8, 2048), k=d.size(8, 2048))),
        written(texts.laid_out_product, "b m n k", lambda d: dict(
            b=d.size(1, 16), m=d.size(1, 2048), n=d.size(1, 2048), k=d.size(1, 2048), ta=d.one(0, 1),
            weights=d.one("shared", "transposed", "each"),
            then=d.one("none", "gelu", "residual", "rows", "columns"))),
        written(texts.gathered_product, "b d e", lambda d: dict(
            b=d.size(1, 4096), d=d.size(1, 512), e=d.size(1, 1024), table=d.size(1, 5000)))],
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
        written(texts.swiglu, "m k f n", lambda d: dict(
            m=d.size(1, 2048), k=d.size(16, 1024), f=d.size(16, 2048), n=d.size(16, 1024))),
        written(texts.perceptron, "m k f g n", lambda d: dict(
            m=d.size(1, 4096), k=d.size(1, 512), f=d.size(1, 1024), g=d.size(1, 512), n=d.size(1, 256)))],
    "attention": [
        Family("attention", lambda d: dict(heads=d.size(1, 64), m=d.size(1, 4096), l=d.size(16, 4096),
                                           k=(k := head_size(d)), n=k, online=d.one(0, 1),
                                           scale=d.one(0, 1), dtype=d.type()),
               ("heads", "m", "l"), attention_work),
        Family("attention", lambda d: dict(heads=(g := d.one(1, 2, 4)) * d.size(1, 8), groups=g,
                                           m=(m := d.size(1, 1024)), l=m + d.size(1, 1024) - 1,
                                           k=d.size(1, 256), n=d.size(1, 256), online=d.one(0, 1),
                                           scale=d.one(0, 1), causal=d.one(0, 1), dtype=d.type()),
               ("m", "k", "n"), lambda p: attention_work(dict(p, groups=1))),
        written(texts.masked_attention, "heads m l", lambda d: dict(
            heads=d.size(1, 32), m=d.size(1, 2048), l=d.size(16, 2048), k=head_size(d))),
        written(texts.grouped_queries, "groups heads m l", lambda d: dict(
            groups=d.size(1, 8), heads=d.size(2, 8), m=d.size(1, 2048), l=d.size(16, 2048), k=head_size(d))),
        written(texts.index_masked_attention, "groups heads m l", lambda d: dict(
            groups=d.size(1, 8), heads=d.size(1, 8), m=d.size(1, 2048), l=d.size(1, 4096), k=head_size(d),
            n=head_size(d), mask=d.one("all", "causal", "window"), window=d.size(1, 512))),
        written(texts.paged_attention, "heads m l", lambda d: dict(
            heads=d.size(1, 16), m=d.size(1, 256), l=d.size(1, 2048), k=head_size(d)))],
    "convolutions": [
        Family("conv-chain", lambda d: dict(ic=d.size(3, 256), h=d.size(12, 128), w=d.size(12, 128),
                                            oc1=d.size(8, 256), oc2=d.size(8, 256), st1=d.one(1, 2),
                                            st2=1, k1=d.one(1, 3, 5, 7), k2=d.one(1, 3),
                                            relu=d.one(0, 1), batch=d.size(1, 8), dtype=d.type()),
               ("ic", "oc1", "oc2", "batch"), conv_chain_work),
        Family("conv1d-chain", lambda d: dict(h=d.size(10, 4096), r=d.one(1, 3, 5), s=d.one(1, 3, 5),
                                              dtype=d.type()),
               ("h",), lambda p: p["h"] * (p["r"] + p["s"])),
        written(texts.grouped_convolution, "ic oc groups batch", lambda d: window(d, dict(
            batch=d.size(1, 4), groups=d.size(2, 8), ic=d.size(1, 32), oc=d.size(1, 32),
            h=d.size(7, 64), w=d.size(7, 64), k=d.one(1, 3, 5)))),
        written(texts.depthwise_separable, "ic oc batch", lambda d: window(d, dict(
            batch=d.size(1, 4), ic=d.size(8, 256), oc=d.size(8, 256), h=d.size(7, 64), w=d.size(7, 64),
            k=d.one(3, 5)))),
        written(texts.padded_convolutions, "ic mid oc batch", lambda d: dict(
            batch=d.size(1, 4), ic=d.size(3, 128), mid=d.size(8, 128), oc=d.size(8, 128),
            h=d.size(7, 64), w=d.size(7, 64))),
        written(texts.convolution, "groups oc ic batch h w", lambda d: dict(
            batch=d.size(1, 8), groups=d.one(1, 1, d.size(2, 256)), ic=(c := d.one(1, d.size(1, 128))),
            oc=d.one(1, c, d.size(1, 128)), h=d.size(1, 128), w=d.size(1, 128), k=(k := d.one(1, 2, 3, 5, 7)),
            j=d.one(1, k, k, 3), st=d.one(1, 1, 2, 3), di=d.one(1, 1, 1, 2, 3), pad=d.one(0, k // 2, k),
            last=d.one(0, 1), then=d.one("none", "bias", "residual", "pool", "statistics"))),
        written(texts.weight_gradient, "ic oc batch h w", lambda d: dict(
            batch=d.size(1, 8), ic=d.size(1, 128), oc=d.size(1, 128), h=d.size(1, 64), w=d.size(1, 64),
            k=d.one(1, 3, 5))),
        written(texts.pooled_convolution, "ic oc batch h w", lambda d: dict(
            batch=d.size(1, 8), ic=d.size(1, 256), oc=d.size(1, 256), h=d.size(4, 64), w=d.size(4, 64),
            k=d.one(2, 3))),
        written(texts.causal_convolution, "batch t c", lambda d: dict(
            batch=d.size(1, 8), t=d.size(1, 4096), c=d.size(1, 1024), k=d.one(2, 3, 4)))],
    "graphs": [
        Family("random-graph", lambda d: dict(vertices=d.size(4, 24), rows=d.size(8, 8192),
                                              cols=d.size(8, 4096), seed=d.rng.randrange(1, 1000),
                                              dtype=d.type()),
               ("rows", "cols"), lambda p: p["vertices"] * p["rows"] * p["cols"]),
        rows_family("softmax", 3), rows_family("layernorm", 5), rows_family("layernorm-backward", 8),
        rows_family("gelu", 2), rows_family("residual-layernorm", 7), rows_family("rmsnorm-backward", 8),
        written_rows(texts.rms_norm), written_rows(texts.embedding_norm), written_rows(texts.cross_entropy),
        written_rows(texts.column_norm), written_rows(texts.transposed_add, 4096, 4096),
        written_rows(texts.loss), written_rows(texts.stencil, 4096, 4096), written_rows(texts.slices, 4096, 2048),
        written_rows(texts.running_sum, 1024, 1024),
        *(written(text, "t heads", lambda d: dict(t=d.size(1, 4096), heads=d.size(1, 32), d=d.one(16, 32, 40, 64)))
          for text in (texts.rotary, texts.interleaved_rotary)),
        written(texts.softmax_over, "a b c", lambda d: dict(
            a=d.size(1, 256), b=d.size(1, 256), c=d.size(1, 1024), log=d.one(0, 1),
            over=d.one("a", "b", "c", "ab", "bc", "ac", "abc"))),
        written(texts.norm_over, "a b c", lambda d: dict(
            a=d.size(1, 256), b=d.size(1, 256), c=d.size(1, 1024), along=d.one("c", "b", "b,c"),
            over=d.one("b", "c", "bc", "ac", "ab"))),
        written(texts.embedding_bag, "b t d", lambda d: dict(
            b=d.size(1, 2048), t=d.size(1, 100), d=d.size(1, 512), table=d.size(1, 5000))),
        *(written(texts.any_graph, "a b c d", lambda d: dict(
            a=d.size(1, 128), b=d.size(1, 128), c=d.size(1, 128), d=d.size(1, 64), operators=d.rng.randint(2, 9),
            seed=d.rng.randrange(10000))) for _ in range(12)),
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
