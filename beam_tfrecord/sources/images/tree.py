"""Which files below some directories are pictures, and which class and split their folders say."""

from __future__ import annotations

import dataclasses
import glob
import os
import stat
from collections.abc import Iterator, Sequence

from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import SUFFIXES
from beam_tfrecord.sources.base import version_and_state
from beam_tfrecord.sources.images.pack import Found, Skipped
from beam_tfrecord.sources.images.remote import list_remote, remote_folders, remote_root
from beam_tfrecord.storage import is_hidden, is_remote

LAYOUTS = ("auto", "class", "split", "flat")
SPLIT_NAMES = frozenset(
    ("train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "holdout")
)

_OTHER, _HIDDEN = Skipped(other=1), Skipped(hidden=1)


@dataclasses.dataclass(frozen=True)
class Tree:
    """What is listed, and what its folders mean.

    Attributes:
        root: Directory that all names are relative to.
        starts: Directories and files to list, relative to the root, sorted; ``""`` is the root.
        given: Those of them that a user named one by one: they are taken whatever their suffix.
        has_splits: The first folder names the split.
        has_labels: The next one names the class.
    """

    root: str
    starts: tuple[str, ...]
    given: frozenset[str] = frozenset()
    has_splits: bool = False
    has_labels: bool = False

    @property
    def is_remote(self) -> bool:
        """True where the root is a URL."""
        return is_remote(self.root)

    def classes(self) -> tuple[str, ...]:
        """Return the names of all classes, sorted, those of empty folders too."""
        if not self.has_labels:
            return ()
        return tuple(name for name in _folders(self, int(self.has_splits)) if is_utf8(name))


def find_tree(paths: Sequence[str], layout: str = "auto") -> Tree:
    """Find what some paths, globs and directories hold, by their folders alone.

    Args:
        paths: What a user gives.
        layout: ``class``: the first folder is the class. ``split``: it is the split, and the next
            one, if there is any, the class. ``flat``: folders mean nothing. ``auto``: ``split``
            where all first folders are named like splits, else ``class``, or ``flat`` where there
            is no folder.

    Raises:
        UsageError: A path does not exist, or nothing matches.
    """
    if (url := remote_root(paths)) is not None:
        return _laid_out(Tree(url, ("",)), layout)
    found: dict[str, bool] = {}
    bases: list[str] = []
    for path in paths:
        matches, base = _resolve(path)
        bases.append(base)
        found |= matches
    root = os.path.commonpath(bases)
    starts = sorted(os.path.relpath(path, root) if path != root else "" for path in found)
    given = frozenset(os.path.relpath(path, root) for path, is_given in found.items() if is_given)
    return _laid_out(Tree(root, _outermost(starts), given), layout)


def _laid_out(tree: Tree, layout: str) -> Tree:
    """Return the tree with what its folders mean."""
    top = _folders(tree, 0)
    if layout == "auto":
        are_splits = bool(top) and all(name.lower() in SPLIT_NAMES for name in top)
        layout = "split" if are_splits else "class" if top else "flat"
    if layout == "flat":
        return tree
    if layout == "class":
        return dataclasses.replace(tree, has_labels=True)
    return dataclasses.replace(tree, has_splits=True, has_labels=bool(_folders(tree, 1)))


def _resolve(path: str) -> tuple[dict[str, bool], str]:
    """Return absolute paths, each with whether it was named itself, and a directory above all."""
    path = path.removeprefix("file://")
    absolute = os.path.abspath(path)
    if os.path.isdir(path):
        return {absolute: False}, absolute
    if os.path.lexists(path):
        return {absolute: True}, os.path.dirname(absolute)
    if not glob.has_magic(path):
        raise UsageError(f"cannot read {path!r}: no such file or directory: check the path")
    parts = absolute.split(os.sep)
    literal = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    matches = {
        os.path.abspath(hit): False
        for hit in glob.iglob(path, recursive=True)
        if not any(is_hidden(part) for part in os.path.abspath(hit).split(os.sep)[literal:])
    }
    if not matches:
        raise UsageError(f"cannot read {path!r}: no file matches this pattern: check the path")
    return matches, os.sep.join(parts[:literal]) or os.sep


def _outermost(starts: Sequence[str]) -> tuple[str, ...]:
    """Leave out what lies below another one, so that no file is listed twice."""
    if "" in starts:
        return ("",)
    kept: list[str] = []
    for start in sorted(starts, key=lambda start: start + "/"):
        if not kept or not start.startswith(kept[-1] + "/"):
            kept.append(start)
    return tuple(kept)


def _folders(tree: Tree, depth: int) -> list[str]:
    """Return the names of all folders that are `depth` folders below the root, sorted."""
    if tree.is_remote:
        return [name for name in remote_folders(tree.root, depth) if not is_hidden(name)]
    names: set[str] = set()
    for start in tree.starts:
        parts = start.split("/") if start else []
        path = os.path.join(tree.root, start)
        if os.path.isdir(path):
            names |= _folders_below(path, parts, depth)
        elif len(parts) > depth + 1:
            names.add(parts[depth])
    return sorted(names)


def _folders_below(path: str, parts: Sequence[str], depth: int) -> set[str]:
    if len(parts) > depth:
        return {parts[depth]}
    names = [name for name, is_folder in _scan(path) if is_folder and not is_hidden(name)]
    if len(parts) == depth:
        return set(names)
    below = (_folders_below(os.path.join(path, name), [*parts, name], depth) for name in names)
    return set().union(*below)


def list_tree(tree: Tree) -> Iterator[Found | Skipped]:
    """Yield every picture in order of its name, and what is passed over on the way.

    One directory at a time is held in memory. A link to a directory above is not followed.

    Raises:
        UsageError: A directory cannot be read.
    """
    if tree.is_remote:
        yield from _list_remote(tree.root)
        return
    for start in tree.starts:
        path = os.path.join(tree.root, start)
        if os.path.isdir(path):
            prefix = os.fsencode(start) + b"/" if start else b""
            yield from _walk(path, prefix, (_identity(os.stat(path)),))
        elif start in tree.given or _is_picture(start):
            yield _found(path, os.fsencode(start))
        else:
            yield _OTHER


def _list_remote(root: str) -> Iterator[Found | Skipped]:
    for name, found in list_remote(root):
        if any(map(is_hidden, name.split("/"))):
            yield _HIDDEN
        else:
            yield found if _is_picture(name) else _OTHER


def _walk(
    directory: str, prefix: bytes, above: tuple[tuple[int, int], ...]
) -> Iterator[Found | Skipped]:
    # Put together by hand: there may be millions, and a join takes as long as a look at the file.
    base = os.path.join(directory, "")
    for name in _sorted_names(directory):
        path = base + name
        if is_hidden(name.rstrip("/")):
            yield _HIDDEN
        elif name.endswith("/"):
            here = _identity(os.stat(path))
            if here not in above:
                yield from _walk(path, prefix + os.fsencode(name), (*above, here))
        elif _is_picture(name):
            yield _found(path, prefix + os.fsencode(name))
        else:
            yield _OTHER


def _sorted_names(directory: str) -> list[str]:
    """Return the names in a directory, sorted so that a walk gives whole paths in their order.

    Those of directories, and of links to them, end in a slash.
    """
    return sorted(name + "/" if is_directory else name for name, is_directory in _scan(directory))


def _scan(directory: str) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield entry.name, _is_directory(entry)
    except OSError as error:
        raise UsageError(f"cannot read directory {directory!r}: {error.strerror}") from error


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False


def _found(path: str, name: bytes) -> Found | Skipped:
    """Return a file as it is now; one that cannot be looked at is told when it is read."""
    try:
        status = os.stat(path)
    except OSError:
        return Found(name, 0, 0)
    if not stat.S_ISREG(status.st_mode):
        return _OTHER
    return Found(name, status.st_size, status.st_mtime_ns, version_and_state(status)[1])


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def is_utf8(name: str) -> bool:
    """Tell whether a name that the filesystem gave is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
