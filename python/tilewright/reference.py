"""The reference evaluator, which every generated kernel is held against, as NumPy arrays."""

import json as _json
import os as _os
import typing as _typing

from ._tilewright import evaluate as _evaluate
from ._values import plain as _plain


def evaluate(workload: "_typing.Union[str, _os.PathLike[str], _typing.Mapping[str, _typing.Any]]", *,
             seed: int = 1) -> "_typing.Dict[str, _typing.Any]":
    """What a workload computes, in float64, for the seeded inputs that kernels are verified on.

    workload: a built-in name with its parameters, the path of a workload file, or such a file as a dict.
    seed: of the inputs, uniform in [-1, 1) and rounded to their types; what indexes a gather is in range.

    Returns {name: array} of the workload's inputs and outputs, float64, in their shapes. Needs NumPy.
    Raises InputError for bad input. Cost: an expression evaluation a point of every operator, one thread;
    8 bytes an element of every tensor.

    >>> values = evaluate("softmax:rows=2,cols=8")
    >>> values["y"].shape, round(float(values["y"].sum()), 12)
    ((2, 8), 2.0)
    """
    import numpy

    asked = {"subject": _plain("workload", workload), "seed": _plain("seed", seed)}
    return {name: numpy.frombuffer(data).reshape(shape)
            for name, shape, data in _evaluate(_json.dumps(asked))}
