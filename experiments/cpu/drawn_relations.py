"""What must hold between two questions, for scripts/drawn-commands: other names, another order of declared loops and of operators that do
not read one another give the same prices; a machine that is twice as fast in everything takes half the time by the same plan; one with larger caches is no
slower; the same question twice has the same bytes; a workload that is written out and read again, is in a plan file, or is taken from
a file of ONNX by `import`, is the same workload.
"""
import math
import pathlib
import re

RATE = re.compile(r"(value: )([\d.]+)( (?:[GMT]B/s|[GM]Hz|[GMT]FLOP/s))")
CAPACITY = re.compile(r"(- name: (\w+)\n    kind: (?:cache|scratchpad)\n(?:    .*\n)*?    capacity: \{value: )(\d+)(B|K|M|G)")
WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w*\()")  # no number's exponent, no function
KEYWORDS = {"name", "dtype", "loops", "tensors", "operators", "outputs", "dtypes", "ranges", "values", "running", "rescale", "before", "after",
            "max", "min", "f16", "bf16", "f32", "f64", "i8", "i32", "to"}


def reads(text):
    return set(re.findall(r"(\w+)\[", text))


def in_other_order(rng, operators):
    """The operators, each after what writes the tensors that it reads, in an order that is drawn."""
    left, done = [(op, next(iter(op.values()))) for op in operators], []
    written = [set(re.findall(r"(?:^|;\s*)\s*(\w+)\[", text)) for _, text in left]
    while left:
        makers = set().union(*written)
        ready = [i for i, (_, text) in enumerate(left) if not (reads(text) - written[i]) & (makers - written[i])]
        if not ready:
            return operators  # a text that this does not read
        at = rng.choice(ready)
        done.append(left.pop(at)[0])
        written.pop(at)
    return done


def changed(rng, content, what):
    """The workload with other names, its loops and tensors declared in another order, or its operators in another order that is as right."""
    names = [*content["loops"], *content.get("tensors", {})]
    for one in content["operators"]:
        (name, text), = one.items()
        names += [name, *re.findall(r"(\w+)\[", text)]
    names = [n for n in dict.fromkeys(names) if n not in KEYWORDS]
    rng.shuffle(names)
    other = {n: f"q{i}" for i, n in enumerate(names)} if "names" in what else {}

    def of(text):
        return WORD.sub(lambda m: other.get(m[0], m[0]), str(text))

    def flow(pairs):
        return "{" + ", ".join(f'"{of(k)}": {flow_value(v)}' for k, v in pairs) + "}"

    def flow_value(v):
        if isinstance(v, list):
            return "[" + ", ".join(flow_value(x) for x in v) + "]"
        return of(v) if isinstance(v, str) else str(v)
    loops, operators = list(content["loops"].items()), content["operators"]
    if "loops" in what:
        rng.shuffle(loops)
    if "operators" in what:
        operators = in_other_order(rng, operators)
    lines = ["name: " + content["name"], "dtype: " + content["dtype"], "loops: " + flow(loops)]
    for key in ("tensors", "dtypes", "ranges", "values"):
        if content.get(key):
            pairs = list(content[key].items())
            if "loops" in what:
                rng.shuffle(pairs)
            lines.append(f"{key}: " + flow(pairs))
    lines.append("operators:")
    for one in operators:
        (name, text), = one.items()
        lines.append(f'  - {{"{of(name)}": "{of(text)}"}}')
    if content.get("outputs"):
        lines.append("outputs: [" + ", ".join(of(o) for o in content["outputs"]) + "]")
    return "\n".join(lines) + "\n"


def faster(text):
    """A machine file, twice as fast in everything, or None where it says times."""
    if re.search(r"value: [\d.]+ [mun]?s\b", text):
        return None
    return RATE.sub(lambda m: f"{m[1]}{2 * float(m[2]):.12g}{m[3]}", text)


def larger(text):
    """A machine file of which every cache and scratchpad has room for twice as much in as many ways."""
    return CAPACITY.sub(lambda m: f"{m[1]}{2 * int(m[3])}{m[4]}", text)


def prices(answer):
    found = {k: answer.get(k) for k in ("seconds", "exact_bytes", "bound_bytes", "volume_bytes")}
    return {k: v for k, v in found.items() if v is not None}


def differ(a, b):
    for key in a.keys() & b.keys():
        if not math.isclose(a[key], b[key], rel_tol=1e-9):
            return f"{key}: {a[key]} and {b[key]}"
    return ""


def write(tool, name, text):
    pathlib.Path(tool.folder, name).write_text(text)


def relations(Fault, machine, maker, own):
    """Steps for the menu. `own`: machine files that the seed may price, by name."""

    def other_names(tool, rng, subject, makers):
        content = tool("workloads", subject)["content"]
        what = rng.choice(("names", "loops", "operators", "names, loops and operators"))
        write(tool, "changed.yaml", changed(rng, content, what))
        on, model = machine(rng), maker(rng, makers)
        a, b = (tool("plan", s, "-m", on, *model) for s in (subject, "changed.yaml"))
        a, b = prices(a), prices(b)
        for figures in (a, b):  # what nothing chooses by may differ where two plans are as good
            for key in ("exact_bytes", "volume_bytes")[:2 if "seconds" in figures else "volume_bytes" in figures]:
                figures.pop(key, None)
        if bad := differ(a, b):
            raise Fault(f"by another order or other names ({what}) {bad}")

    def twice_as_fast(tool, rng, subject, makers):
        on = rng.choice(own)
        text = tool("machines", on)["file"]
        fast = faster(text)
        if fast is None:
            return
        write(tool, "fast.yaml", fast)
        model = maker(rng, makers)
        a, b = (tool("plan", subject, "-m", m, *model) for m in (on, "fast.yaml"))
        x, y = a.get("seconds"), b.get("seconds")
        if model or re.search(r"^kind: (gpu|npu)", text, re.M):  # launches take what they take
            if None not in (x, y) and not x / 2 <= y * 1.000001 <= x * 1.000002:
                raise Fault(f"{on}: {x} s, and {y} on a machine that is twice as fast in everything")
            return
        if a["plan"]["kernels"] != b["plan"]["kernels"]:
            raise Fault(f"{on}: another plan on a machine that is twice as fast in everything")
        if None not in (x, y) and not math.isclose(x, 2 * y, rel_tol=1e-6):
            raise Fault(f"{on}: {x} s, and {y} on a machine that is twice as fast in everything")

    def more_room(tool, rng, subject, _):
        on = rng.choice(own)
        write(tool, "larger.yaml", larger(tool("machines", on)["file"]))
        x, y = (tool("plan", subject, "-m", m).get("seconds") for m in (on, "larger.yaml"))
        if None not in (x, y) and y > 1.05 * x:
            raise Fault(f"{on}: {x} s, and {y} with twice the capacity")

    def twice_asked(tool, rng, subject, makers):
        on, model = machine(rng), maker(rng, makers)
        texts = []
        for out in ("one.yaml", "two.yaml"):
            tool("plan", subject, "-m", on, *model, "-o", out)
            texts.append(pathlib.Path(tool.folder, out).read_text())
        if texts[0] != texts[1]:
            raise Fault("two plan files of one question differ")
        for words in (["explain", subject, "-m", on, *model], ["predict", "one.yaml", "-m", on, "--model", "exact"]):
            tables = [re.sub(r"(?m)^(search|planning|written).*\n", "", tool(*words, table=True)) for _ in range(2)]
            if tables[0] != tables[1]:
                raise Fault("one question has two answers")

    def other_roads(tool, rng, subject, makers):
        """The workload as the command writes it, and the plan file, which has it, on its own."""
        on, model = machine(rng), maker(rng, makers)
        write(tool, "again.yaml", tool("workloads", subject)["file"])
        a = tool("plan", subject, "-m", on, *model, "-o", "one.yaml")
        b = tool("plan", "again.yaml", "-m", on, *model, "-o", "two.yaml")
        if bad := differ(prices(a), prices(b)):
            raise Fault(f"of the workload, written and read again, {bad}")
        if a["plan"]["kernels"] != b["plan"]["kernels"]:
            raise Fault("the workload, written and read again, has another plan")
        for by in ("exact", "tilewright"):
            said = [tool("predict", plan, "-m", on, "--model", by) for plan in ("one.yaml", "two.yaml")]
            if bad := differ(prices(said[0]), prices(said[1])):
                raise Fault(f"of two plan files, by {by}, {bad}")

    return {other_names: 3, twice_as_fast: 3, more_room: 2, twice_asked: 2, other_roads: 2}
