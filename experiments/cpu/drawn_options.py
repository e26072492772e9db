"""Verbs with options in random combinations, for scripts/drawn-commands: what `--help all` lists for a verb, its models and targets.

Values are those that the help names; numbers are small or a few times the default. What an option does not fit is refused
in one line; what it does is held against what must not change: the simulator's bytes with and without --no-skip, with and
without --attribute, with any --threads; a kernel's rightness with any of its target's options.
"""
import re
import subprocess

SKIPPED = {"--json", "--help", "--machine", "--model", "--models", "--target", "--tree", "--tiles", "--out", "--csv", "--trace", "--save-trace",
           "--occupancy", "--batch", "--tune-log", "--cache", "--timeline", "--recorded", "--truth", "--beside", "--seconds", "--split", "--order",
           "--orders", "--stitch", "--expression", "--pin", "--flag", "--spill", "--part", "--meter", "--cold-only", "--min-r2", "--computes", "--curve",
           "--constant", "--schedules", "--samples", "--executed", "--explain", "--arch"}
SIZES = ["1B", "100B", "4096B", "1K", "100e", "40K", "1M", "1e"]


def options_of(binary, verb):
    """[(names of models or targets, or none: the verb's own; option; kind of value; help)]"""
    text = subprocess.run([binary, verb, "--help", "all"], capture_output=True, text=True, check=True).stdout
    found, owners = [], None
    for line in text.splitlines():
        if head := re.match(r"Options(?: of (.*))?:$", line):
            owners = head[1].replace("target ", "").split(", ") if head[1] else []
        elif owners is not None and (o := re.match(r"  (?:-\w, )?(--[\w-]+)(?: (\S+))?(?:, --\w+ \S+)? +(.*)", line)):
            found.append([owners, o[1], o[2] or "", o[3]])
        elif owners is not None and found and re.match(r" {20}", line):
            found[-1][3] += " " + line.strip()
        elif line and not line.startswith(" "):
            owners = None
    return found


def value(rng, option, kind, text):
    if option == "--level":
        return rng.choice(["all", "L1", "L2", "DRAM", "shared", "registers"])
    if option == "--capacity":
        return rng.choice(SIZES)
    if option == "--rewrite":
        return rng.choice(["online-softmax", "compose", "compose-gathers", "compose-all", "split-variance", f"split-running:{rng.randint(1, 40)}",
                           "share-loops", "scale-late", "materialise-gathers", "pad-results"])
    if option == "--micro-kernel" or option == "--isa":
        names = re.split(r", | or ", re.search(r"[:(] ?([^;(]*?)(?: \(|;)", text)[1])
        return rng.choice([n.strip() for n in names])
    if option == "--rules":
        return rng.choice(["none", "1", "2,4", "1,2,3,4", "3"])
    default = re.search(r"default ([\d.]+)", text)
    if kind == "N":
        about = int(float(default[1])) if default and "." not in default[1] else 2
        return str(rng.choice([1, 2, 3, 4, 5, 8, about, max(1, about // 2), 2 * about]))
    if kind == "NUMBER":
        about = float(default[1]) if default else 1
        return f"{about * rng.choice([0, .5, 1, 2, 10]):g}"
    if names := re.search(r"\(([\w., -]+ or [\w-]+)(?:;|\)|$)", text):
        return rng.choice(re.split(r", | or ", names[1]))
    return ""


class Options:
    def __init__(self, binary):
        self.binary, self.known = binary, {}

    def draw(self, rng, verb, model, target, most=3):
        """Words; of the verb, of that model and of that target."""
        if verb not in self.known:
            self.known[verb] = options_of(self.binary, verb)
        fits = [o for o in self.known[verb] if o[1] not in SKIPPED and
                (not o[0] or o[0] == ["every model"] or model in o[0] or target in o[0])]
        own = [o for o in fits if o[0]]
        words = []
        for _ in range(rng.randint(1, most)):
            _, name, kind, text = rng.choice(own if own and rng.random() < .6 else fits)
            if name in words or "--published" in words and name == "--ours" or "--ours" in words and name == "--published":
                continue
            if not kind:
                words.append(name)
            elif said := value(rng, name, kind, text):
                words += [name, said]
        return words

