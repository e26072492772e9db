"""Depthwise convolutions and poolings that a seed draws, as workloads: taps 3, 5 or 7, strides, padding, images of 7 to 112 points a
side, and what may follow (a bias, an activation, a residual, a sum over channels or over the image)."""
import random

TYPES = ("f16", "f32", "bf16")
AFTER = ("nothing", "bias", "silu", "residual", "channels", "image")
POOLED = ("nothing", "bias")


def draw(seed, small=False):
    """A row: what was drawn. `small`: for emulation."""
    r = random.Random(seed)
    kind = r.choice(("depthwise", "depthwise", "depthwise", "max", "mean"))
    taps, stride = r.choice((3, 5, 7)), r.choice((1, 1, 1, 2))
    high = r.choice((7, 9, 10, 14, 17, 20) if small else (7, 10, 14, 15, 20, 28, 32, 38, 42, 56, 64, 80, 112))
    wide = r.choice((high, high, r.choice((8, 11, 14, 18) if small else (8, 14, 24, 28, 36, 48, 56, 75, 96))))
    batch = r.choice((1, 2) if small else (1, 2, 4, 8, 16, 32))
    channels = r.choice((1, 3, 6) if small else (16, 24, 40, 64, 96, 144, 240, 384))
    after = r.choice(AFTER if kind == "depthwise" else POOLED)
    if stride == 2 and after == "residual":
        after = "silu"
    return {"seed": seed, "kind": kind, "dtype": r.choice(TYPES), "taps": taps, "stride": stride, "batch": batch, "channels": channels,
            "high": high, "wide": wide, "after": after}


def products(row):
    return row["batch"] * row["channels"] * row["high"] * row["wide"] * row["taps"] ** 2 / row["stride"] ** 2


def shape(row):
    return "{kind} {dtype} {batch}x{channels}x{high}x{wide} taps {taps} stride {stride}, then {after}".format(**row)


def workload(row):
    taps, stride, pad = row["taps"], row["stride"], row["taps"] // 2
    down, across = (row["high"] - 1) // stride + 1, (row["wide"] - 1) // stride + 1

    def index(loop, tap):
        return f"{stride}*{loop}+{tap}-{pad}" if stride > 1 else f"{loop}+{tap}-{pad}"
    image = f"X[b,c,{index('y', 'r')},{index('x', 's')}]"
    tensors = [f"X: [b, c, {row['high']}, {row['wide']}]"]
    if row["kind"] == "depthwise":
        lines = [f"Y[b,c,y,x] += {image} * W[c,r,s]"]
        tensors.append("W: [c, r, s]")
    elif row["kind"] == "max":
        lines = [f"Y[b,c,y,x] max= {image}"]
    else:
        lines = [f"P[b,c,y,x] += {image}", f"Y[b,c,y,x] = P[b,c,y,x] * {1 / taps ** 2!r}"]
    outputs = ["Y"]
    more, made = {"bias": (["Z[b,c,y,x] = relu(Y[b,c,y,x] + B[c])"], ["Z"]), "silu": (["Z[b,c,y,x] = Y[b,c,y,x] * sigmoid(Y[b,c,y,x])"], ["Z"]),
                  "residual": (["Z[b,c,y,x] = Y[b,c,y,x] + X[b,c,y,x]"], ["Z"]), "channels": (["S[b,y,x] += Y[b,c,y,x]"], ["Y", "S"]),
                  "image": (["S[b,c] += Y[b,c,y,x]"], ["Y", "S"])}.get(row["after"], ([], outputs))
    text = [f"name: windows{row['seed']}", f"dtype: {row['dtype']}",
            f"loops: {{b: {row['batch']}, c: {row['channels']}, y: {down}, x: {across}, r: {taps}, s: {taps}}}", "operators:"]
    text += [f"  - {line}" for line in lines + more]
    return "\n".join(text + [f"tensors: {{{', '.join(tensors)}}}", f"outputs: [{', '.join(made)}]"]) + "\n"
