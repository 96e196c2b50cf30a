"""Which files below some directories are pictures, and which class and split their folders say."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_tfrecord import storage
from beam_tfrecord.errors import DataError, InputChanged, UsageError
from beam_tfrecord.images.formats import SUFFIXES
from beam_tfrecord.sources.base import InputFile, version_and_state
from beam_tfrecord.storage import is_hidden, is_remote

PACK_BYTES = 16 * 2**20
PACK_FILES = 4096

# Names are the bulk of a pack; the fastest level already takes away what they repeat.
_LEVEL = 1
_MAX_PATH_BYTES = 2**16


class Found(NamedTuple):
    """A file of a listing.

    Attributes:
        name: Posix path relative to the root of the listing, in the bytes of the filesystem.
        size: In bytes.
        version: Modification time in ns, or an etag.
        state: Of a local file, as `InputFile` has it.
    """

    name: bytes
    size: int
    version: int | str
    state: str = ""


@dataclasses.dataclass(frozen=True)
class Skipped:
    """How many files were passed over.

    Attributes:
        hidden: Those whose names begin with a dot, and files of operating systems.
        other: Those whose suffix is not that of a picture.
    """

    hidden: int = 0
    other: int = 0

    def __add__(self, more: Skipped) -> Skipped:
        return Skipped(self.hidden + more.hidden, self.other + more.other)


@dataclasses.dataclass(frozen=True)
class Pack(InputFile):
    """Neighbouring files of a listing; `path` is the root of their names.

    Attributes:
        names: Their names, each relative to the root, joined by NUL and compressed.
        sizes: Their sizes as little-endian uint64, compressed.
        classes: In the first pack of a listing: the names of all classes, in order.
        skipped: Files passed over on the way to its last one, or after it at the very end.
        has_splits: The first folder of every name is a split.
        has_labels: The next one is a class.
    """

    names: bytes = b""
    sizes: bytes = b""
    classes: tuple[str, ...] = ()
    skipped: Skipped = Skipped()
    has_splits: bool = False
    has_labels: bool = False

    def outline(self) -> InputFile:
        """Return the pack without the names."""
        return dataclasses.replace(self, names=b"", sizes=b"")

    def check(self) -> None:
        """Check that all local files are still those that were listed.

        Raises:
            InputChanged: One is not, or it is gone.
        """
        if not (self.state and self.names):
            return
        found = [found_at(os.path.join(self.path, name), b"") for name, _ in self.files()]
        if self.is_unchanged(*_version_and_state(found)):
            return
        for (name, size), now in zip(self.files(), found, strict=True):
            if now.size != size:
                raise _changed(name.encode("utf-8", "backslashreplace").decode())
        others = f" or one of the {self.inside - 1:,} files after it" if self.inside > 1 else ""
        raise _changed(f"{self.name}{others}")

    def files(self) -> list[tuple[str, int]]:
        """Return name and size of every file; a name that is not UTF-8 has surrogates in it.

        Raises:
            DataError: They are not those that were listed.
        """
        names = _unpacked(self.names, PACK_FILES * _MAX_PATH_BYTES)
        sizes = _unpacked(self.sizes, PACK_FILES * 8)
        if _digest(names, sizes, self.classes) != self.digest:
            raise DataError(f"the listing of {self.path!r} was changed: run the job again")
        listed = zip(names.split(b"\0"), np.frombuffer(sizes, "<u8").tolist(), strict=True)
        return [(os.fsdecode(name), size) for name, size in listed]


def pack_files(
    found: Iterable[Found | Skipped], *, root: str, classes: tuple[str, ...]
) -> Iterator[Pack]:
    """Join files, in their order, to packs of at most `PACK_FILES` and about `PACK_BYTES`."""
    pending: list[Found] = []
    skipped, size = Skipped(), 0
    for item in found:
        if isinstance(item, Skipped):
            skipped += item
            continue
        if pending and (len(pending) == PACK_FILES or size + item.size > PACK_BYTES):
            yield _pack(pending, root, classes, skipped)
            pending, classes, skipped, size = [], (), Skipped(), 0
        pending.append(item)
        size += item.size
    if pending:
        yield _pack(pending, root, classes, skipped)


def _pack(found: list[Found], root: str, classes: tuple[str, ...], skipped: Skipped) -> Pack:
    names = b"\0".join(file.name for file in found)
    sizes = _numbers([file.size for file in found])
    version, state = _version_and_state(found)
    return Pack(
        path=root,
        name=found[0].name.decode("utf-8", "backslashreplace"),
        bytes=int(sizes.sum()),
        version=version,
        state=state,
        inside=len(found),
        digest=_digest(names, sizes.tobytes(), classes),
        names=zlib.compress(names, _LEVEL),
        sizes=zlib.compress(sizes.tobytes(), _LEVEL),
        classes=classes,
        skipped=skipped,
    )


def _digest(names: bytes, sizes: bytes, classes: tuple[str, ...]) -> str:
    whole = b"\0\0".join((names, sizes, "\0".join(classes).encode()))
    return hashlib.sha256(whole).hexdigest()[:32]


def _unpacked(data: bytes, most_bytes: int) -> bytes:
    # A plan that was stored may be anyone's: a few bytes of it must not fill the memory.
    return zlib.decompressobj().decompress(data, most_bytes)


def found_at(path: str, name: bytes) -> Found:
    """Return a local file as it is now; one that cannot be looked at has no bytes."""
    try:
        status = os.stat(path)
    except OSError:
        return Found(name, 0, 0)
    return Found(name, status.st_size, status.st_mtime_ns, version_and_state(status)[1])


def _version_and_state(found: Iterable[Found]) -> tuple[str, str]:
    parts = [(str(file.version), *file.state.partition("-")[::2]) for file in found]
    version, times, inodes = (
        hashlib.sha256("\0".join(of).encode()).hexdigest()[:16] for of in zip(*parts, strict=True)
    )
    is_local = any(time for _, time, _ in parts)
    return version, f"{times}-{inodes}" if is_local else ""


def _changed(what: str) -> InputChanged:
    return InputChanged(
        f"{what} was changed while the pictures were read: run the job again once nothing writes "
        "to them"
    )


def _numbers(values: list[int]) -> npt.NDArray[np.uint64]:
    return np.array(values, "<u8")


# These list objects in the byte order of their names; of others nothing is known.
_SORTED_SCHEMES = ("gs://", "s3://")


def remote_root(paths: Sequence[str]) -> str | None:
    """Return the one remote directory among the inputs; None where all are local.

    Raises:
        UsageError: There are several inputs, or a pattern.
    """
    remote = [path for path in paths if storage.is_remote(path)]
    if not remote:
        return None
    if len(paths) > 1 or glob.has_magic(remote[0]):
        raise UsageError(
            f"cannot read {remote[0]!r} so: give one directory of pictures, without a pattern"
        )
    return storage.absolute_path(remote[0])


def remote_folders(root: str, depth: int) -> list[str]:
    """Return the names of all folders that are `depth` folders below `root`, sorted."""
    names = {
        parts[depth]
        for entry in storage.list_files(root)
        if len(parts := entry.path[len(root) + 1 :].split("/")) > depth + 1
    }
    return sorted(names)


def list_remote(root: str) -> Iterator[tuple[str, Found]]:
    """Yield path relative to `root`, and what is found there, in order of the paths."""
    entries = storage.list_files(root)
    if not root.startswith(_SORTED_SCHEMES):
        entries = iter(sorted(entries, key=lambda entry: entry.path))
    for entry in entries:
        name = entry.path[len(root) + 1 :]
        yield name, Found(name.encode(), entry.bytes, entry.version)


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
