"""What a verb answers: its JSON document as a dict, which knows its tables.

>>> import tilewright
>>> said = tilewright.simulate("gemm-chain:m=10,n=6,k=7,l=9", "scratchpad:4096B",
...                            tree="m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", tiles="m=4,n=3,k=4,l=5")
>>> said["traffic"][0]["tensor"], said["traffic"][0]["read_bytes"]
('A', 560)
>>> said.arrays()["read_bytes"]
array([560, 756, 648, 240])
"""

import html as _html
import json as _json
import os as _os
import typing as _typing

from ._output import write_whole as _write_whole

if _typing.TYPE_CHECKING:
    import matplotlib.figure
    import numpy
    import pandas


def _records(document):
    """The rows of a document's main table, as dicts of plain values."""
    if "points" in document:
        return [_point(p) for p in document["points"]]
    if "orders" in document:
        return [{**{k: v for k, v in o.items() if not isinstance(v, (dict, list))},
                 **{f"tile_{n}": t for n, t in (o.get("tiles") or {}).items()}}
                for o in document["orders"]]
    if "plans" in document:
        return [_priced(row, price) for row in document["plans"]
                for price in row.get("prices") or [{}]]
    if "curve" in document:
        return [_curve(row) for row in document["curve"]]
    if "levels" in document and "kind" in document:  # a machine file
        return [{k: _value(v) for k, v in level.items()} for level in document["levels"]]
    if "operators" in document and "loops" in document:  # a workload file
        return [{"operator": name, "notation": notation}
                for o in document["operators"] for name, notation in (o if isinstance(o, dict) else {"": o}).items()]
    for key in ("traffic", "results", "panels", "rows", "kernels", "models", "machines", "workloads",
                "targets", "meters", "experiments"):
        if isinstance(document.get(key), list):
            return [{k: v for k, v in row.items() if not isinstance(v, (dict, list))}
                    for row in document[key]]
    return [{k: v for k, v in document.items() if not isinstance(v, (dict, list))}]


def _value(said):
    """A number of a machine file, without its source; names as one text."""
    if isinstance(said, dict):
        return said.get("value")
    return ", ".join(map(str, said)) if isinstance(said, list) else said


def _point(p):
    row = {k: v for k, v in p.items() if not isinstance(v, (dict, list))}
    tiles = p.get("tiles")
    if isinstance(tiles, dict):
        row.update({f"tile_{name}": size for name, size in tiles.items()})
    for tensor, moved in (p.get("tensors") or {}).items():
        row.update({f"{tensor}_{key}": value for key, value in moved.items()})
    return row


def _priced(row, price):
    kept = ("model", "tree", "exact_bytes", "simulated_bytes", "memory_bytes", "fits", "gap", "reason")
    said = {k: row.get(k) for k in kept}
    return {**said, "priced_by": price.get("by"), "volume_bytes": price.get("volume_bytes"),
            "difference_bytes": price.get("difference_bytes"), "price_reason": price.get("reason")}


def _curve(row):
    out = {"buffer_bytes": row.get("buffer_bytes")}
    for kernels in ("unfused", "fused"):
        for key, value in (row.get(kernels) or {}).items():
            if not isinstance(value, (dict, list)):
                out[f"{kernels}_{key}"] = value
    return out


_SHOWN = 60  # rows of a table in a notebook


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else _html.escape(str(value))


class Answer(_typing.Dict[str, _typing.Any]):
    """A verb's JSON document. A dict in every way; equal to one with the same entries."""

    def _repr_html_(self) -> str:
        """The document's main table, as notebooks show it."""
        rows = _records(self)
        names = [k for k in dict.fromkeys(k for row in rows for k in row)
                 if any(row.get(k) is not None for row in rows)]
        head = "".join(f"<th>{_html.escape(k)}</th>" for k in names)
        body = "".join("<tr>" + "".join(f"<td>{_cell(row.get(k))}</td>" for k in names) + "</tr>"
                       for row in rows[:_SHOWN])
        left = f"<p>{len(rows) - _SHOWN} more rows</p>" if len(rows) > _SHOWN else ""
        reason = f"<p>{_html.escape(str(self['reason']))}</p>" if self.get("reason") else ""
        if isinstance(self.get("loops"), dict):
            reason += f"<p>loops: {_html.escape(', '.join(f'{k} {v}' for k, v in self['loops'].items()))}</p>"
        return f"{reason}<table><tr>{head}</tr>{body}</table>{left}"

    def frame(self) -> "pandas.DataFrame":
        """The document's main table as a pandas DataFrame: traffic by tensor and boundary, points of a
        validation, ranked orders, priced plans, rows of a curve or a list; units are in the names of
        the columns. What is nested in a row is left out, but tiles are columns ``tile_m`` and a point's
        tensors ``A_predicted_bytes``. Needs pandas (``pip install 'tilewright[frames]'``)."""
        import pandas
        return pandas.DataFrame.from_records(_records(self))

    def arrays(self) -> "_typing.Dict[str, numpy.ndarray[_typing.Any, _typing.Any]]":
        """The columns of :meth:`frame` as a dict of one-dimensional NumPy arrays; what is missing in
        some row is NaN in numbers and None elsewhere. Needs NumPy."""
        import numpy
        rows = _records(self)
        columns = {}
        for name in dict.fromkeys(key for row in rows for key in row):
            values = [row.get(name) for row in rows]
            known = [v for v in values if v is not None]
            numbers = known and all(isinstance(v, (int, float)) and not isinstance(v, bool)
                                    for v in known)
            if numbers and len(known) < len(values):
                values = [float("nan") if v is None else float(v) for v in values]
            plain = numbers or (known and all(isinstance(v, bool) for v in values))
            columns[name] = numpy.array(values, dtype=None if plain else object)
        return columns

    def save(self, path: "str | _os.PathLike[str]") -> None:
        """Writes the document, whole or not at all, for ``tilewright plot`` and others to read."""
        def write(name):
            with open(name, "w", encoding="utf-8") as f:
                _json.dump(self, f, ensure_ascii=False, indent=1)

        _write_whole(path, write)

    def plot(self, path: "str | _os.PathLike[str] | None" = None, kind: "str | None" = None,
             scale: str = "auto") -> "matplotlib.figure.Figure":
        """The document as a matplotlib figure, as ``tilewright plot`` draws it; with ``path`` also
        saved there. ``kind`` is one of those that it can be drawn as (the first by default).
        Raises :class:`InputError` where there is none. Needs matplotlib."""
        from . import plot
        from ._tilewright import InputError
        try:
            figure = plot.figure_of(self, "answer", kind, scale)
            if path is not None:
                plot.save(figure, _os.fspath(path))
        except plot.BadInput as e:
            raise InputError(str(e)) from None
        return figure
