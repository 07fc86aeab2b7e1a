"""Which files anyone wants to hear of: from what a quench tells, to what is to be looked at."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

FILE_COUNT_MAX = 10_000
"""A subscription that names more files than this has their directories watched instead."""

OPERATORS = ("==", "in", "begins-with")
"""What is made use of; any other condition of a subscription only narrows what it wants."""

Signature = tuple[int, int, int]
"""When a file was modified (in ns), its size, and its inode: another one is another file."""


class Tree(Struct, frozen=True):
    """Files below a directory whose path begins with `prefix`; of these names, if any are given."""

    directory: str
    prefix: str = ""
    names: frozenset[str] | None = None

    def has(self, path: str) -> bool:
        """Whether a file of this path is meant."""
        return (
            path.startswith(self.prefix)
            and is_inside(self.directory, path)
            and (self.names is None or os.path.basename(path) in self.names)
        )

    def may_have_below(self, directory: str) -> bool:
        """Whether a file in `directory`, or below it, can be meant."""
        inner = os.path.join(directory, "")
        return inner.startswith(self.prefix) or self.prefix.startswith(inner)


class Targets(Struct, frozen=True):
    """Single files, directories of which every file is meant, and trees."""

    files: frozenset[str] = frozenset()
    directories: frozenset[str] = frozenset()
    trees: frozenset[Tree] = frozenset()

    def have(self, path: str) -> bool:
        """Whether a file of this path is meant."""
        return (
            path in self.files
            or os.path.dirname(path) in self.directories
            or any(tree.has(path) for tree in self.trees)
        )


def targets(subscriptions: Iterable[Sequence[tuple[Any, ...]]], root: str) -> Targets:
    """What subscriptions mean below `root`, each being conditions that must all hold.

    A condition is (attribute, operator, value); the attributes are those of `FileChanged`.

    >>> sorted(targets([[("directory", "==", "/log"), ("filename", "in", ("a", "b"))]], "/").files)
    ['/log/a', '/log/b']
    >>> targets([[("path", "begins-with", "/log/sys")]], "/").trees
    frozenset({Tree(directory='/log', prefix='/log/sys', names=None)})
    """
    files: set[str] = set()
    directories: set[str] = set()
    trees: set[Tree] = set()
    for conditions in subscriptions:
        paths = _values(conditions, "path")
        places, names = _values(conditions, "directory"), _values(conditions, "filename")
        if paths is not None:
            files |= paths
        elif places is None:
            found = None if names is None else frozenset(names)
            trees.update(Tree(at, prefix, found) for at, prefix in _roots(conditions, root))
        elif names is None or len(places) * len(names) > FILE_COUNT_MAX:
            directories |= places
        else:
            files.update(os.path.join(place, name) for place in places for name in names)
    return Targets(
        files=frozenset(path for path in files if path != root and _is_below(root, path)),
        directories=frozenset(path for path in directories if _is_below(root, path)),
        trees=frozenset(trees),
    )


def is_inside(directory: str, path: str) -> bool:
    """Whether `path` is the directory, or below it."""
    return path == directory or path.startswith(os.path.join(directory, ""))


def _is_below(root: str, path: str) -> bool:
    # No event has a path that is spelled in any other way, or that cannot be spelled at all.
    return is_inside(root, path) and os.path.normpath(path) == path and is_speakable(path)


def is_speakable(path: str) -> bool:
    """Whether a path is text, which not everything is that file systems take for a name."""
    return "\0" not in path and not any("\ud800" <= letter <= "\udfff" for letter in path)


def _values(conditions: Sequence[tuple[Any, ...]], attribute: str) -> set[str] | None:
    """The values that an attribute may have; None if any other will do, too."""
    found: set[str] | None = None
    for name, operator, value in conditions:
        if name == attribute and operator in ("==", "in"):
            values = {text for text in _several(value) if isinstance(text, str)}
            found = values if found is None else found & values
    return found


def _roots(conditions: Sequence[tuple[Any, ...]], root: str) -> Iterator[tuple[str, str]]:
    """Where to begin, and how paths begin there, if neither files nor directories are named."""
    # The path of a file begins as its directory does.
    prefixes = [
        _several(value)
        for name, operator, value in conditions
        if name in ("path", "directory") and operator == "begins-with"
    ]
    for prefix in max(prefixes, key=lambda some: min(map(len, some)), default=("",)):
        directory = os.path.dirname(prefix)
        if _is_below(root, directory):
            yield directory, prefix
        elif os.path.join(root, "").startswith(prefix):
            yield root, ""


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class View(Struct, frozen=True):
    """What was found on disk.

    `watched` is what has to be watched to learn of any change: directories in which files may
    come and go, and single files in others.
    """

    files: dict[str, Signature]
    watched: frozenset[str]


def look(wanted: Targets, root: str) -> View:
    """Look for the targets on disk. Symbolic links below `root` are not followed."""
    files: dict[str, Signature] = {}
    directories: set[str] = set()
    for directory in wanted.directories:
        if is_real(directory, root) and os.path.isdir(directory):
            directories.add(directory)
            files.update(_files_in(directory))
        else:
            directories.update(_where_it_will_be(directory, root))
    for tree in wanted.trees:
        for directory in _directories_below(tree, root):
            directories.add(directory)
            files.update(found for found in _files_in(directory) if tree.has(found[0]))
    single: set[str] = set()
    for path in wanted.files:
        signature = signature_of(path, root)
        if signature is None:
            directories.update(_where_it_will_be(path, root))
        else:
            files[path] = signature
            single.add(path)
    alone = {path for path in single if os.path.dirname(path) not in directories}
    return View(files, frozenset(directories | alone))


def signature_of(path: str, root: str) -> Signature | None:
    """Tell one state of a file from another; None if there is no such file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return _signature(found) if stat.S_ISREG(found.st_mode) and is_real(path, root) else None


def _signature(found: os.stat_result) -> Signature:
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_real(path: str, root: str) -> bool:
    """Whether no link is followed on the way from `root` to `path`."""
    inner = os.path.relpath(path, root)
    return os.path.realpath(path) == os.path.normpath(os.path.join(os.path.realpath(root), inner))


def _where_it_will_be(path: str, root: str) -> Iterator[str]:
    """The nearest directory in which something must appear before `path` can."""
    while path != root:
        path = os.path.dirname(path)
        if os.path.isdir(path) and is_real(path, root):
            yield path
            return


def _files_in(directory: str) -> Iterator[tuple[str, Signature]]:
    for entry in _entries(directory):
        if entry.is_file(follow_symlinks=False):
            try:
                yield entry.path, _signature(entry.stat(follow_symlinks=False))
            except OSError:  # gone in the meantime
                continue


def _directories_below(tree: Tree, root: str) -> Iterator[str]:
    if not (os.path.isdir(tree.directory) and is_real(tree.directory, root)):
        yield from _where_it_will_be(tree.directory, root)
        return
    left = [tree.directory]
    while left:
        directory = left.pop()
        yield directory
        left.extend(
            entry.path
            for entry in _entries(directory)
            if entry.is_dir(follow_symlinks=False) and tree.may_have_below(entry.path)
        )


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if is_speakable(entry.name)]
    except OSError:  # gone, or not for us to read
        return []
