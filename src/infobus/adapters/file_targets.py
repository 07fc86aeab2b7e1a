"""Which files subscribers want: from the conditions of a quench to paths on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

FILE_COUNT_MAX = 10_000
"""If a subscription names more files than this, their directories are watched instead."""

OPERATORS = ("==", "in", "begins-with")
"""The operators used here; any other condition only narrows what a subscription wants."""

Signature = tuple[int, int, int]
"""A file's time of modification (in ns), its size, and its inode, which tells files apart."""


class Tree(Struct, frozen=True):
    """Files below a directory whose path begins with `prefix`, and whose name is in `names`."""

    directory: str
    prefix: str = ""
    names: frozenset[str] | None = None

    def has(self, path: str) -> bool:
        """Whether a file with this path is wanted."""
        return (
            path.startswith(self.prefix)
            and is_inside(self.directory, path)
            and (self.names is None or os.path.basename(path) in self.names)
        )

    def may_have_below(self, directory: str) -> bool:
        """Whether a file in or below `directory` can be wanted."""
        inner = os.path.join(directory, "")
        return inner.startswith(self.prefix) or self.prefix.startswith(inner)


class Targets(Struct, frozen=True):
    """Single files, directories in which every file is wanted, and trees."""

    files: frozenset[str] = frozenset()
    directories: frozenset[str] = frozenset()
    trees: frozenset[Tree] = frozenset()

    def have(self, path: str) -> bool:
        """Whether a file with this path is wanted."""
        return (
            path in self.files
            or os.path.dirname(path) in self.directories
            or any(tree.has(path) for tree in self.trees)
        )


def targets(subscriptions: Iterable[Sequence[tuple[Any, ...]]], root: str) -> Targets:
    """The files below `root` that subscriptions want; all conditions of one must hold.

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
    """Whether `path` is the directory or below it."""
    return path == directory or path.startswith(os.path.join(directory, ""))


def _is_below(root: str, path: str) -> bool:
    # No event has a path in another spelling, or one that is not text.
    return is_inside(root, path) and os.path.normpath(path) == path and is_speakable(path)


def is_speakable(path: str) -> bool:
    """Whether a path is text; file systems allow names that are not."""
    return "\0" not in path and not any("\ud800" <= letter <= "\udfff" for letter in path)


def _values(conditions: Sequence[tuple[Any, ...]], attribute: str) -> set[str] | None:
    """The values that an attribute may have; None if it may have any value."""
    found: set[str] | None = None
    for name, operator, value in conditions:
        if name == attribute and operator in ("==", "in"):
            values = {text for text in _several(value) if isinstance(text, str)}
            found = values if found is None else found & values
    return found


def _roots(conditions: Sequence[tuple[Any, ...]], root: str) -> Iterator[tuple[str, str]]:
    """Directories and prefixes to search if the conditions name no files or directories."""
    # The path of a file begins with the path of its directory.
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

    `watched` are the paths to watch in order to learn of any change: directories in which files
    may come and go, and single files elsewhere.
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
    """The signature of a file, to tell one state from another; None if there is no file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return _signature(found) if stat.S_ISREG(found.st_mode) and is_real(path, root) else None


def _signature(found: os.stat_result) -> Signature:
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_real(path: str, root: str) -> bool:
    """Whether the way from `root` to `path` follows no symbolic link."""
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
    except OSError:  # gone, or not readable
        return []
