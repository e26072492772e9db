"""How much data will a plan for fused tensor kernels move, and is that true?

Each verb of the ``tilewright`` command is a function here. It takes what the command line takes and
returns the same JSON document, as an :class:`Answer`: a dict that is also a table (``frame()`` for
pandas, ``arrays()`` for NumPy) and a picture (``plot()``):

>>> import tilewright
>>> best = tilewright.plan("gemm-chain:m=512,n=64,k=64,l=512", "scratchpad:32K")
>>> best["exact_bytes"], best["plan"]["kernels"][0]["tree"]
(2621440, 'm n l ( k ( C.gemm1 ) C.gemm2 )')
>>> true = tilewright.simulate(best)
>>> int(true.arrays()["read_bytes"].sum() + true.arrays()["written_bytes"].sum())
2621440
>>> list(true.frame().columns[:4])
['tensor', 'boundary', 'read_bytes', 'written_bytes']
>>> report = tilewright.validate("gemm-chain", "cache:32K/8", orders=["mlkn"], samples=20, seed=1)
>>> report["valid"], len(report["points"])
(20, 20)

A workload is a built-in name, the path of a workload file, or what such a file says as a dict. A
plan is the path of a plan file, such a file as a dict, the answer of :func:`plan`, or a workload
with ``tree`` and ``tiles``. A machine is a name, the path of a machine file, or such a file as a
dict.

Bad input raises :class:`InputError`, a ``ValueError`` of one line that names what, where and what
is accepted. A negative result (nothing fits, not available, below the R² asked for) is an
answer like any other, with its ``"reason"``; with ``check=True`` it raises :class:`Refused`. Verbs let
other Python threads run. Models written in Python (:class:`Model`, :func:`register`) are asked like the
built-in ones.
"""

import difflib as _difflib
import inspect as _inspect
import json as _json
import keyword as _keyword
import re as _re

from ._tilewright import InputError, call as _call, verbs as _verbs
from ._values import plain as _plain
from .answer import Answer
from .model import (Access, Buffer, Choice, Infeasible, Kernel, Level, Machine, Model, Node, Operator, Price,
                    Question, Tensor, Workload, register, unregister)
from .pytorch import TorchWorkload, from_torch
from .sweeps import read_rows, sweep

__version__ = "0.1.0"


class Refused(RuntimeError):
    """A negative result, raised with ``check=True``; ``answer`` is the whole document."""

    def __init__(self, reason, answer):
        super().__init__(reason)
        self.answer = answer

    def __reduce__(self):
        return Refused, (self.args[0], self.answer)


# The command's own records: each verb with its options. The functions below are made of them.
_RECORDS = {record["name"]: record for record in _json.loads(_verbs())["verbs"]}
# What a verb's subject is called here.
_SUBJECTS = {"W": "workload", "[W]": "workload", "[M]": "machine", "PLAN": "subject", "W|PLAN": "subject", "ID": "id"}


def _subject(value):
    """The answer of plan() stands for its plan."""
    return value["plan"] if isinstance(value, dict) and isinstance(value.get("plan"), dict) else value


# The command line's names of options by what they are called here; verbs share them.
_KEYS = {"-m": "machine", "-o": "out",
         **{option["name"]: option["key"] for record in _RECORDS.values() for option in record["options"]}}


def _as_python(text, more=()):
    """A text of the command line with Python's names of options, of `more` records too, and of verbs."""
    keys = {**_KEYS, **{option["name"]: option["key"] for option in more}}
    text = _re.sub(r"(?<![\w-])--?[a-z][a-z0-9-]*", lambda m: keys.get(m.group(), m.group()), text)
    return _re.sub(r"\btilewright ([a-z]+)\b", lambda m: f"tilewright.{m[1]}()" if m[1] in _RECORDS else m[0], text)


def _ask(verb, options, check):
    asked = {name: _plain(name, value) for name, value in options.items() if value is not None}
    try:
        document, done = _call(verb, _json.dumps(asked))
    except InputError as e:
        raise InputError(_as_python(str(e))) from None
    answer = Answer(_json.loads(document))
    if check and not done:
        raise Refused(answer.get("reason", "refused"), answer)
    return answer


_CHECK = {"name": "--check", "key": "check", "of": "", "kind": "flag",
          "text": "raise Refused where the outcome says no (default False)"}


def _docstring(record, options):
    """The summary, what is returned, and each option under whose it is."""
    options = sorted([*options, _CHECK], key=lambda option: option["of"] != "")
    text = record["summary"][0].upper() + record["summary"][1:] + "."
    if record["returns"]:
        text += "\n\n" + record["returns"]
    group = None
    for option in options:
        if option["of"] != group:
            group = option["of"]
            text += f"\n\nOptions of {group}:" if group else "\n\nOptions:"
        text += f"\n    {option['key']}: {_as_python(option['text'], options)}"
    return text + "\n"


def _python_name(verb):
    """A verb's name here: import is a word of the language, and import_ its function."""
    return verb + "_" if _keyword.iskeyword(verb) else verb


def _function(record):
    """The function of a verb, with a signature and a docstring made of its record."""
    name, parameter = record["name"], _inspect.Parameter
    options = [o for o in record["options"] if o["key"] != "machine"]
    positional = [_SUBJECTS[record["subject"]]] if record["subject"] else []
    if len(options) < len(record["options"]):
        positional.append("machine")
    signature = _inspect.Signature(
        [parameter(p, parameter.POSITIONAL_OR_KEYWORD,
                   default=None if p in ("machine", "id") or record["subject"][0] == "[" else parameter.empty) for p in positional]
        + [parameter(key, parameter.KEYWORD_ONLY, default=None)
           for key in dict.fromkeys(option["key"] for option in options)]
        + [parameter("check", parameter.KEYWORD_ONLY, default=False)])

    def function(*args, **kwargs):
        unknown = [k for k in kwargs if k not in signature.parameters]
        if unknown:
            near = _difflib.get_close_matches(unknown[0], signature.parameters, 1)
            raise TypeError(f"{name}() has no option '{unknown[0]}'"
                            + (f"; did you mean '{near[0]}'?" if near else ""))
        given = signature.bind(*args, **kwargs).arguments
        check = given.pop("check", False)
        if record["subject"]:
            given["subject"] = _subject(given.pop(positional[0], None))
        return _ask(name, given, check)

    function.__name__ = function.__qualname__ = _python_name(name)
    function.__signature__ = signature
    function.__module__ = __name__
    function.__doc__ = _docstring(record, options)
    return function


def _one(verb, name, **options):
    """The answer about one subject of a verb that otherwise lists all."""
    if name is None or (isinstance(name, str) and not name):
        raise InputError(f"{verb[:-1]}: {name!r} is no name; accepted: what tilewright.{verb}() lists, or the path of a file")
    return _ask(verb, {"subject": name, **options}, False)


def machine(name):
    """A machine as its file says it: a dict to read, to change and to give to any verb as ``machine``.

    >>> import tilewright
    >>> h200 = tilewright.machine("h200")
    >>> h200["levels"][2]["capacity"]["value"]
    '228K'
    >>> h200["levels"][2]["capacity"] = {"value": "100K", "source": "half as much, to see"}
    >>> tilewright.plan("chimera/G2", h200)["memory"]["shared"] <= 100 * 1024
    True

    ``name`` is what verbs take: a name, ``"scratchpad:32K"``, ``"host"``, or the path of a machine file. As a table:
    the levels, home first. Raises :class:`InputError`.
    """
    return Answer(_one("machines", name)["content"])


def workload(name, rewrite=None, **parameters):
    """A workload as its file says it: a dict to read, to change and to give to any verb.

    >>> import tilewright
    >>> tilewright.workload("attention", m=64, l=32)["operators"][0]
    {'qk': 'S[m,l] += Q[m,k] * K[l,k]'}

    ``name`` is built in (:func:`workloads` lists them), or the path of a file; ``parameters`` are a built-in one's. As a
    table: the operators. Raises :class:`InputError`.
    """
    if parameters:
        name = f"{name}{',' if ':' in name else ':'}" + ",".join(f"{k}={v}" for k, v in parameters.items())
    return Answer(_one("workloads", name, rewrite=rewrite)["content"])


globals().update({_python_name(_name): _function(_record) for _name, _record in _RECORDS.items()})

__all__ = sorted([
    "Access", "Answer", "Buffer", "Choice", "Infeasible", "InputError", "Kernel", "Level", "Machine", "Model",
    "Node", "Operator", "Price", "Question", "Refused", "Tensor", "TorchWorkload", "Workload", "from_torch",
    "machine", "read_rows", "register", "sweep", "unregister", "workload", *map(_python_name, _RECORDS)])
