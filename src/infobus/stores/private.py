"""Folders and files for their owner alone, whatever the umask: what is kept may be secret.

A folder of mode 0700 already shuts others out of everything in it. Files get 0600 all the same, in
case they are moved, or lie in a folder that somebody else has made.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

_log = logging.getLogger("infobus.stores")

_OTHERS = 0o077
_FOLDER, _FILE = 0o700, 0o600


def make_private_folder(folder: Path) -> list[Path]:
    """Make a folder and its parents; return those that were missing, the innermost first.

    One that was there is left as it is: it may be shared on purpose.
    """
    missing = []
    for one in (folder, *folder.parents):
        if one.exists():
            break
        missing.append(one)
    for one in reversed(missing):
        try:
            one.mkdir(mode=_FOLDER)
        except FileExistsError:  # another process was faster
            continue
        one.chmod(_FOLDER)  # a strange umask can take away too much, too
    if not missing and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    return missing


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: a file that this makes is for its owner alone."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, _FILE)
    if flags & os.O_CREAT:
        repair(path, descriptor)
    return descriptor


def make_private_file(path: Path) -> None:
    """Make a file, if it is missing, and see to it that it is for its owner alone."""
    try:
        descriptor = private_opener(os.fspath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        # Without opening it: who closes a file loses all locks on it that the process has.
        repair(path)
    else:
        os.close(descriptor)


def repair(path: str | Path, descriptor: int | None = None) -> None:
    """Shut others out of a file or folder of ours, with a warning if they were let in."""
    found = os.stat(path) if descriptor is None else os.fstat(descriptor)
    mode = stat.S_IMODE(found.st_mode)
    right = _FOLDER if stat.S_ISDIR(found.st_mode) else _FILE
    if found.st_uid != os.getuid() or (not mode & _OTHERS and mode & right == right):
        return
    os.chmod(path if descriptor is None else descriptor, right)
    if mode & _OTHERS:
        _log.warning("%s was open to other users (mode %03o); it is private now", path, mode)


def repair_tree(folder: Path) -> None:
    """Shut others out of a folder of ours and of all that is in it, with one warning.

    Nothing is done if the folder itself is private already.
    """
    try:
        found = folder.lstat()
    except OSError:
        return
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or not mode & _OTHERS:
        return
    folder.chmod(_FOLDER)
    count = sum(_shut(Path(at), [*folders, *files]) for at, folders, files in os.walk(folder))
    _log.warning(
        "%s was open to other users (mode %03o); it is private now, with %d entries in it",
        folder,
        mode,
        count,
    )


def _shut(at: Path, names: Iterable[str]) -> int:
    count = 0
    for name in names:
        path = at / name
        try:
            found = path.lstat()
            if stat.S_IMODE(found.st_mode) & _OTHERS and not stat.S_ISLNK(found.st_mode):
                path.chmod(_FOLDER if stat.S_ISDIR(found.st_mode) else _FILE)
                count += 1
        except OSError:  # gone meanwhile, or somebody else's
            continue
    return count
