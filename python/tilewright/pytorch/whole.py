"""Between which values the whole numbers of a graph lie. PyTorch computes them in 64 bits and programs in f32, so that a
program may have only those that f32 has; and no kernel may read outside of a tensor that computed numbers index."""

import math
from collections import namedtuple

MOST = 1 << 24   # in f32 each whole number up to there is one
GIVEN = 1 << 22  # inputs of a program: some may be added before they are too large
NOT_KNOWN, BEYOND = "whole numbers of any size", "whole numbers that may be above 2^24"
_TYPES = {"bool": (0, 1), "int8": (-128, 127), "uint8": (0, 255), "int16": (-(1 << 15), (1 << 15) - 1)}

# How a value was made: ONNX operator, inputs' names ("" where none is given) and shapes, its own, and which result it is.
Made = namedtuple("Made", "op inputs shapes shape dtype place attributes")


def within(of, bounds):
    return of is not None and bounds[0] <= of[0] and of[1] <= bounds[1]


def _union(ranges):
    return None if any(r is None for r in ranges) else (min(r[0] for r in ranges), max(r[1] for r in ranges))


def _known(condition, other):
    """Of a comparison: always, never or either."""
    return (1, 1) if condition else (0, 0) if other else (0, 1)


def _compared(op, a, b):
    if a is None or b is None:
        return (0, 1)
    if op == "Equal":
        return _known(a[0] == a[1] == b[0] == b[1], a[1] < b[0] or b[1] < a[0])
    if op in ("Greater", "GreaterOrEqual"):
        a, b, op = b, a, op.replace("Greater", "Less")
    return _known(a[1] < b[0], a[0] >= b[1]) if op == "Less" else _known(a[1] <= b[0], a[0] > b[1])


def _corners(a, b):
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _extent(made):
    """Of the dimension that a node runs along."""
    shape = made.shapes[0]
    return shape[made.attributes["axis"]] if shape else 1


_MOVES = ("Cast Reshape Transpose Expand Slice Unsqueeze Squeeze Identity Tile Gather GatherElements GatherND Flatten Split "
          "DepthToSpace SpaceToDepth ReduceMax ReduceMin").split()
_COMPARES = "Equal Less LessOrEqual Greater GreaterOrEqual".split()
_LOGIC = "And Or Xor Not IsNaN IsInf".split()


def range_of(made, of):
    """Of a value, where `of` has the ranges of the node's inputs; None: it is not known."""
    op, first = made.op, of[0] if of else None
    if op in _COMPARES:
        return _compared(op, of[0], of[1])
    if op in _LOGIC:
        return (1 - first[1], 1 - first[0]) if op == "Not" and first else (0, 1)
    if made.dtype == "bool" and op == "Cast":
        return (0, 1) if first is None else (1, 1) if first[0] > 0 or first[1] < 0 else first if first == (0, 0) else (0, 1)
    if op in ("ArgMax", "ArgMin") or (op == "TopK" and made.place == 1):
        return 0, _extent(made) - 1
    if op == "Where":
        return of[1] if of[0] == (1, 1) else of[2] if of[0] == (0, 0) else _union(of[1:3])
    if first is None:
        return None
    if op in _MOVES or (op == "TopK" and made.place == 0):
        return first
    if op == "Concat":
        return _union(of)
    if op in ("Add", "Sub", "Mul", "Max", "Min", "Mod") and None in of:
        return None
    if op == "Mod":
        return (0, of[1][1] - 1) if of[1][0] > 0 and not made.attributes["fmod"] else None
    if op in ("Trilu", "Pad"):
        filled = (0, 0) if op == "Trilu" or len(of) < 3 or not made.inputs[2] else of[2]
        return _union([first, filled])
    if op == "Add":
        return first[0] + of[1][0], first[1] + of[1][1]
    if op == "Sub":
        return first[0] - of[1][1], first[1] - of[1][0]
    if op == "Mul":
        return _corners(first, of[1])
    if op == "Neg":
        return -first[1], -first[0]
    if op == "Abs":
        return max(first[0], -first[1], 0), max(-first[0], first[1])
    if op in ("Max", "Min"):
        pick = max if op == "Max" else min
        return pick(r[0] for r in of), pick(r[1] for r in of)
    if op == "ReduceSum":
        count = math.prod(made.shapes[0]) // math.prod(made.shape)
        return first[0] * count, first[1] * count
    if op == "CumSum":  # of one to so many; the dimension is an operand
        most = max(made.shapes[0], default=1)
        return min(first[0], first[0] * most), max(first[1], first[1] * most)
    return None


class WholeNumbers:
    """Of a graph's values, in the order in which they are made."""

    def __init__(self):
        self.made = {}      # by value
        self.ranges = {}    # by value; None: it is not known
        self.fixed = set()  # values of any type that no input changes

    def given(self, name, dtype):
        """An input, or what PyTorch computes. Whoever calls the program holds them against GIVEN."""
        self.ranges[name] = _TYPES.get(dtype, (-GIVEN, GIVEN))

    def constant(self, name, values):
        self.fixed.add(name)
        if values and all(isinstance(v, int) for v in values):
            self.ranges[name] = (min(values), max(values))

    def computed(self, name, made, whole):
        """Of a node's result. `whole`: it has whole numbers. Why a program may not compute them, if so."""
        if all(i in self.fixed for i in made.inputs if i):
            self.fixed.add(name)
        if not whole:
            return None
        self.made[name] = made
        of = range_of(made, [self.ranges.get(i) for i in made.inputs])
        if name in self.fixed:
            self.ranges[name] = of
            return None
        most = _TYPES.get(made.dtype, (-MOST, MOST))
        fits = within(of, most)
        self.ranges[name] = of if fits else most  # then PyTorch computes it
        return None if fits else NOT_KNOWN if of is None else BEYOND

    def within(self, name):
        """The values that it is made of, in the order in which they are made, and itself."""
        found, stack = set(), [name]
        while stack:
            at = stack.pop()
            if at not in found and at in self.ranges:
                found.add(at)
                stack += self.made[at].inputs if at in self.made else []
        return [v for v in self.ranges if v in found]

    def sources(self, name):
        """The inputs that it is made of."""
        return [v for v in self.within(name) if v not in self.made and v not in self.fixed]

    def range(self, name, given):
        """Of it where inputs lie between what `given` has."""
        ranges = dict(given)
        for v in self.within(name):
            if v in self.made and v not in self.fixed:
                ranges[v] = range_of(self.made[v], [ranges.get(i, self.ranges.get(i)) for i in self.made[v].inputs])
        return ranges.get(name, self.ranges.get(name))

    def compared_with(self, name):
        """The constants that what it is made of is compared with."""
        found = set()
        for v in self.within(name):
            made = self.made.get(v)
            for i in made.inputs if made and made.op in _COMPARES else []:
                if i in self.fixed and self.ranges.get(i) and self.ranges[i][0] == self.ranges[i][1]:
                    found.add(self.ranges[i][0])
        return found
