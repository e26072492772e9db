"""What Python gives, as JSON says it."""

import math
import operator
import os

from ._tilewright import InputError

_DEEPEST = 100  # lists and dicts within each other


def _bad(name, value, accepted):
    said = " ".join(repr(value).split()) if not isinstance(value, int) else f"a whole number of {value.bit_length()} bits"
    return InputError(f"{name}: {said[:80]} is not accepted; accepted: {accepted}")


def plain(name, value, deep=0):
    """Whole numbers (what has ``__index__``) and numbers of other libraries become Python's, paths become text, arrays
    lists of their elements, row-major whatever their strides.

    Raises InputError, which names the option ``name``, for what JSON cannot say.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _bad(name, value, "text that UTF-8 can say") from None
        return str(value)
    if isinstance(value, (dict, list, tuple)) and deep == _DEEPEST:
        raise InputError(f"{name}: lists and dicts within each other are not accepted; accepted: {_DEEPEST} deep")
    if isinstance(value, dict):
        return {_key(name, key): plain(name, item, deep + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(name, item, deep + 1) for item in value]
    if isinstance(value, os.PathLike):
        return plain(name, os.fsdecode(value))
    if getattr(value, "shape", ()) == ():
        if hasattr(value, "__index__"):
            value = operator.index(value)
            if not -2**63 <= value < 2**64:
                raise _bad(name, value, "a whole number of at most 64 bits")
            return value
        if hasattr(value, "item"):  # a number or a flag of NumPy
            value = value.item()
    elif hasattr(value, "reshape") and hasattr(value, "tolist"):
        return [plain(name, int(item) if isinstance(item, bool) else item, deep + 1) for item in value.reshape(-1).tolist()]
    if isinstance(value, bool):
        return value
    if not isinstance(value, float):
        raise _bad(name, value, "a number, a text, a path, True or False, or a list, an array or a dict of such")
    if not math.isfinite(value):
        raise _bad(name, value, "a finite number")
    return value


def _key(name, key):
    if not isinstance(key, str):
        raise _bad(name, key, "a text as the key of a dict")
    return plain(name, key)
