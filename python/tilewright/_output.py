"""Files that are whole or not there."""

import os
import shutil
import tempfile


def write_whole(path, write, suffix=""):
    """Has ``write(name)`` write a file beside ``path`` and renames it over ``path``. Links stay links and
    permissions stay. What is no regular file (a device, a pipe), and a file with several names, is written
    through. Raises OSError."""
    path = os.fspath(path)
    try:
        there = os.stat(path)
    except FileNotFoundError:
        there = None
    if os.path.isdir(path):
        raise IsADirectoryError(21, "a folder", path)
    regular = os.path.isfile(path)
    through = there is not None and (not regular or there.st_nlink > 1)
    name = path if through else os.path.realpath(path)
    folder = None if through else os.path.dirname(name)
    handle, partial = tempfile.mkstemp(suffix=suffix, prefix=".tilewright-", dir=folder)
    os.close(handle)
    try:
        write(partial)
        if through:
            with open(partial, "rb") as made, open(path, "wb") as out:
                shutil.copyfileobj(made, out)
            return
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(partial, there.st_mode & 0o7777 if there else 0o666 & ~umask)
        os.replace(partial, name)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
