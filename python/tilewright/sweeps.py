"""``tilewright sweep SPEC``: one question asked of every combination of workloads, machines, models,
orders and tiles, on all cores or on a Dask cluster.

Rows are appended to a file of JSON lines as they come, flushed to the disk before they count. A sweep that
was killed, asked for again, goes on where it was: points that the file has are not asked again.

>>> import os, tempfile, tilewright
>>> spec = '''
... name: orders
... workloads: ["gemm-chain:m=64,n=32,k=32,l=64"]
... machines: [scratchpad:8K]
... orders: [mlkn, mlnk]
... '''
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "orders.jsonl")
...     said = tilewright.sweep(spec, path)
...     rows = tilewright.read_rows(path)
>>> said["rows"], len(rows)
({'done': 2}, 2)
"""

import argparse as _argparse
import collections as _collections
import concurrent.futures as _futures
import fcntl as _fcntl
import json as _json
import os as _os
import stat as _stat
import queue as _queue
import sys as _sys
import time as _time
import typing as _typing

from . import _tilewright
from ._tilewright import InputError
from ._values import plain as _plain

if _typing.TYPE_CHECKING:
    import pandas

_Point = _typing.Tuple[str, str]  # its name, and what it asks as JSON
_Progress = _typing.Callable[[int, int], None]

# A chunk of points takes about so long: long enough that handing it out costs nothing, short enough that
# little is lost with a process and that the bar moves.
_CHUNK_SECONDS = 0.25
_CHUNK_MOST = 2000


def _answer(points: str) -> str:
    """The rows of a chunk. Runs in a thread here, or on a worker of a cluster."""
    return _typing.cast(str, _tilewright.sweep_rows(points))


class _Rows:
    """The file of rows. One process at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Asked before it is opened: opening a pipe waits for its other end.
        if _os.path.exists(path) and not _stat.S_ISREG(_os.stat(path).st_mode):
            raise InputError(f"--out: {path}: is not a regular file, and a sweep goes on with its rows; accepted: "
                             "a file in a folder that can be written")
        try:
            self._file = open(path, "a+b")
        except OSError as e:
            raise InputError(f"--out: {path}: cannot be written: {e.strerror or e}; accepted: a file in a "
                             "folder that can be written") from None
        try:
            _fcntl.flock(self._file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise InputError(f"--out: {path}: is being written by another process; accepted: a file of its "
                             "own for each sweep") from None

    def begin(self, build: str) -> _typing.Set[str]:
        """The names of the points that are there. Cuts off a last line that a crash has torn."""
        known: _typing.Set[str] = set()
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                row = _json.loads(line)
                name, by = row["point"], row["build"]
                known.add(name)
            except (ValueError, TypeError, KeyError, RecursionError):
                raise InputError(f"--out: {self.path}:{number}: is not a row of a sweep; accepted: a new file, or "
                                 "one that a sweep has written") from None
            if by != build:
                raise InputError(f"--out: {self.path}:{number}: was written by another build of tilewright; "
                                 "accepted: a new file, or one of this build")
            end += len(line)
        self._file.truncate(end)
        return known

    def append(self, lines: str) -> None:
        self._file.write(lines.encode())
        self._file.flush()
        _os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _Here:
    """The cores of this machine: threads, since answering lets other threads run."""

    name = "threads"

    def __init__(self, threads: int) -> None:
        self.lanes = threads
        self._pool = _futures.ThreadPoolExecutor(threads)

    def submit(self, points: str) -> _typing.Any:
        return self._pool.submit(_answer, points)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Dask:
    """The workers of a cluster. Points of a worker that is lost are answered by another one."""

    name = "dask"

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ModuleNotFoundError:
            raise InputError("--dask: distributed is not installed; accepted: pip install "
                             "'tilewright[dask]'") from None
        try:
            self._client = Client(address, timeout="10s", set_as_default=False)
        except (OSError, TimeoutError, ValueError) as e:
            raise InputError(f"--dask: {address}: no scheduler answers ({type(e).__name__}); accepted: its "
                             "address, as tcp://HOST:8786") from None
        threads = sum(self._client.nthreads().values())
        if threads == 0:
            self._client.close()
            raise InputError(f"--dask: {address}: the scheduler has no worker; accepted: one with workers")
        self.lanes = threads

    def submit(self, points: str) -> _typing.Any:
        return self._client.submit(_answer, points, pure=False)

    def close(self) -> None:
        self._client.close()


def _chunk(points: "_collections.deque[_Point]", count: int) -> str:
    return "[" + ",".join(points.popleft()[1] for _ in range(min(count, len(points)))) + "]"


def _run(points: "_collections.deque[_Point]", workers: _typing.Union[_Here, _Dask],
         take: _typing.Callable[[str], int]) -> None:
    """Hands all points out, twice as many chunks as there are lanes, and gives `take` their rows."""
    finished: "_queue.SimpleQueue[_typing.Any]" = _queue.SimpleQueue()
    started: _typing.Dict[int, _typing.Tuple[_typing.Any, float, int]] = {}
    size, running = 1, 0
    while points or running:
        while points and running < 2 * workers.lanes:
            # The end is handed out in small pieces, so that all lanes have work to the last.
            count = min(size, max(1, len(points) // (2 * workers.lanes)))
            future = workers.submit(_chunk(points, count))
            started[id(future)] = (future, _time.monotonic(), count)
            running += 1
            future.add_done_callback(finished.put)
        future = finished.get()
        entry = started.pop(id(future), None)
        done = take(future.result())
        running -= 1
        if entry is not None:
            # Half of the time a chunk waits behind another.
            each = (_time.monotonic() - entry[1]) / 2 / max(done, 1)
            size = max(1, min(_CHUNK_MOST, 4 * size, int(_CHUNK_SECONDS / max(each, 1e-9))))


def _text_of(spec: "str | _os.PathLike[str]") -> _typing.Tuple[str, str]:
    """A spec's text, and what to call it in errors."""
    if isinstance(spec, str) and "\n" in spec:
        return _plain("SPEC", spec), "sweep"
    path = _plain("SPEC", spec)
    try:
        with open(path, encoding="utf-8") as f:
            return f.read(), path
    except OSError as e:
        raise InputError(f"SPEC: {path}: cannot be read: {e.strerror}; accepted: a sweep's file") from None
    except UnicodeDecodeError:
        raise InputError(f"SPEC: {path}: is not a text; accepted: a sweep's file") from None


def _check_machines(points: _typing.Sequence[_Point]) -> None:
    for _, text in points:
        if '"machine":"host"' in text:
            raise InputError("--dask: the machine host is another one on every worker; accepted: machines by "
                             "name or file")


def sweep(spec: "str | _os.PathLike[str]", out: "str | _os.PathLike[str] | None" = None, *,
          threads: "int | None" = None, dask: "str | None" = None,
          progress: "_typing.Callable[[int, int], None] | None" = None) -> "dict[str, _typing.Any]":
    """Asks every point of a sweep that the file `out` does not have yet, and appends its row.

    Args:
        spec: a sweep's file, or its text (docs/sweeps.md).
        out: the file of rows, JSON lines (default: the sweep's name with .jsonl).
        threads: here, how many (default: every core); not with `dask`.
        dask: the address of a Dask scheduler whose workers have this package; rows still come here.
        progress: called with the points that are there and the points in all, as rows come.

    Returns:
        {"schema", "name", "file", "points", "already_there", "rows" (of this call, by status), "seconds",
        "points_per_second", "by" ("threads" or "dask"), "lanes"}.

    Raises:
        InputError: for a spec that is wrong (nothing is written then), a file that is none of this
        build's rows or is being written, a scheduler that does not answer.
    """
    text, where = _text_of(spec)
    name, points = _tilewright.sweep_points(text, where)
    if dask is not None and threads is not None:
        raise InputError("--threads: is for this machine; accepted: --dask without it")
    if threads is not None and not 1 <= threads <= 1024:
        raise InputError(f"--threads: {threads} is not accepted; accepted: a whole number from 1 to 1024")
    if dask is not None:
        _check_machines(points)
    build = _tilewright.build_hash()
    path = _os.fspath(out) if out is not None else name + ".jsonl"
    begin = _time.monotonic()
    workers: _typing.Union[_Here, _Dask] = (
        _Dask(dask) if dask is not None else _Here(threads or len(_os.sched_getaffinity(0))))
    counts: _typing.Dict[str, int] = {}
    try:
        rows = _Rows(path)
        try:
            known = rows.begin(build)
            left = _collections.deque(p for p in points if p[0] not in known)
            there = len(points) - len(left)
            have = there

            def take(lines: str) -> int:
                nonlocal have
                said = [_json.loads(line) for line in lines.splitlines()]
                if said and said[0]["build"] != build:
                    raise InputError("--dask: a worker has another build of tilewright; accepted: workers with "
                                     "this one")
                rows.append(lines)
                for row in said:
                    counts[row["status"]] = counts.get(row["status"], 0) + 1
                have += len(said)
                if progress is not None:
                    progress(have, len(points))
                return len(said)

            _run(left, workers, take)
        finally:
            rows.close()
    finally:
        workers.close()
    seconds = _time.monotonic() - begin
    return {"schema": 1, "name": name, "file": path, "points": len(points), "already_there": there,
            "rows": counts, "seconds": seconds,
            "points_per_second": (len(points) - there) / seconds if seconds > 0 else None,
            "by": workers.name, "lanes": workers.lanes}


def read_rows(path: "str | _os.PathLike[str]") -> "pandas.DataFrame":
    """A sweep's file as one pandas DataFrame, a row a point: what it asks (``workload``, ``machine``,
    ``model``, ``order``, ``tile_m``, options), ``status`` and ``reason``, bytes, elements and seconds as the
    names of the columns say. A line that is being written is left out. Needs pandas."""
    import io

    import pandas
    with open(path, "rb") as f:
        text = f.read()
    whole = text[:text.rfind(b"\n") + 1]
    return pandas.read_json(io.BytesIO(whole), lines=True) if whole else pandas.DataFrame()


class _Bar:
    """A line on a terminal with how far it is and how long it will take."""

    def __init__(self) -> None:
        self._begin = self._shown = _time.monotonic()
        self._first: _typing.Optional[int] = None

    def __call__(self, have: int, points: int) -> None:
        now = _time.monotonic()
        if self._first is None:
            self._first = have
        if now - self._shown < 0.1 and have < points:
            return
        self._shown = now
        rate = (have - self._first) / max(now - self._begin, 1e-9)
        left = f"{(points - have) / rate:.0f} s left" if rate > 0 else "?"
        full = 30 * have // points
        _sys.stderr.write(f"\r[{'#' * full}{'.' * (30 - full)}] {have}/{points} {left}   ")
        _sys.stderr.flush()

    def end(self) -> None:
        if self._first is not None:
            _sys.stderr.write("\r" + " " * 78 + "\r")


class _Parser(_argparse.ArgumentParser):
    def error(self, message: str) -> _typing.NoReturn:
        raise InputError(message)


def _parse(arguments: "list[str] | None") -> _argparse.Namespace:
    parser = _Parser(prog="tilewright sweep", description="One question asked of every combination of workloads, "
                     "machines, models, orders and tiles. Killed and asked for again, it goes on where it was.")
    parser.add_argument("spec", metavar="SPEC", help="a sweep's file, .yaml")
    parser.add_argument("-o", "--out", metavar="FILE", help="the rows, JSON lines (default: NAME.jsonl)")
    parser.add_argument("--threads", type=int, metavar="N", help="default: every core")
    parser.add_argument("--dask", metavar="ADDRESS", help="the scheduler of a Dask cluster, as tcp://HOST:8786")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    return parser.parse_args(arguments)


def main(arguments: "list[str] | None" = None) -> int:
    """The console script. Returns the exit status: 0 done, 2 bad input, 3 no point is done, 130 stopped."""
    bar = _Bar() if _sys.stderr.isatty() else None
    try:
        options = _parse(arguments)
        said = sweep(options.spec, options.out, threads=options.threads, dask=options.dask, progress=bar)
    except InputError as e:
        print(f"tilewright sweep: {' '.join(str(e).split())}", file=_sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ntilewright sweep: stopped; the same command goes on from here", file=_sys.stderr)
        return 130
    if bar is not None:
        bar.end()
    if options.json:
        print(_json.dumps(said, indent=2))
    else:
        asked = said["points"] - said["already_there"]
        by_status = ", ".join(f"{n} {status}" for status, n in said["rows"].items()) or "nothing left to ask"
        print(f"{said['name']}: {said['points']} points, {said['already_there']} of them already there; {asked} "
              f"asked in {said['seconds']:.2f} s ({said['points_per_second']:.0f}/s on {said['lanes']} "
              f"{said['by']}): {by_status}; rows in {said['file']}")
    done = said["rows"].get("done", 0) > 0 or said["already_there"] > 0
    if not done:
        print("tilewright sweep: no point is done; the rows say why", file=_sys.stderr)
    return 0 if done else 3


if __name__ == "__main__":
    _sys.exit(main())
