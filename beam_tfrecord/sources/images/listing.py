"""Lists the images below directories, and groups neighbouring ones into packs to read at once.

A pack is one `InputFile` and one unit of the source, so a job tracks far fewer entries than there
are images. The names of the folders become classes and splits. On an object store, the folders
follow from the names of the objects.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import hashlib
import itertools
import os
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from beam_tfrecord import storage
from beam_tfrecord.errors import DataError, InputChanged, UsageError
from beam_tfrecord.images.formats import SUFFIXES
from beam_tfrecord.sources.base import InputFile, version_and_state
from beam_tfrecord.sources.files import is_pattern, kind_of_name, with_zips
from beam_tfrecord.storage import is_hidden, is_remote, is_web, shown_path

LAYOUTS = ("auto", "class", "split", "flat")
SPLIT_NAMES = frozenset(
    ("train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "holdout")
)

# Tables of metadata beside images.
METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")

PACK_BYTES = 16 * 2**20
PACK_FILES = 4096

# Level of zlib: a pack consists mostly of names, whose repetitions even the fastest level removes.
_LEVEL = 1
_MAX_PATH_BYTES = 2**16
# Listings of these schemes are in the byte order of names; the order of other schemes is unknown.
_SORTED_SCHEMES = ("gs://", "s3://")


class Found(NamedTuple):
    """A file of a listing."""

    name: str
    size: int
    version: int | str
    state: str = ""


# What a file is that a listing skips: its suffix, or one of these.
_HIDDEN = "hidden or of the operating system"
_NOT_REGULAR = "not a regular file"


@dataclasses.dataclass(frozen=True)
class Pack(InputFile):
    """Neighbouring files of a listing, below the directory `path`."""

    names: bytes = b""
    sizes: bytes = b""
    classes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, int], ...] = ()

    def outline(self) -> InputFile:
        """Return the pack without the names and sizes."""
        return dataclasses.replace(self, names=b"", sizes=b"")

    def check(self) -> None:
        """Check that no local file has changed since it was listed."""
        if not (self.state and self.names):
            return
        names, _ = self.files()
        files = [_file(self.path, name) for name in names]
        now = [Found("", 0, 0) if isinstance(file, str) else file for file in files]
        if self.is_unchanged(*_version_and_state(now)):
            return
        others = f" or another of its {self.inside:,} files" if self.inside > 1 else ""
        raise InputChanged(
            f"{self.name}{others} was changed while the images were read: run the job again once "
            "nothing writes to them"
        )

    def files(self) -> tuple[list[str], list[int]]:
        names = _unpacked(self.names, PACK_FILES * _MAX_PATH_BYTES)
        sizes = _unpacked(self.sizes, PACK_FILES * 8)
        if _digest(names, sizes, self.classes) != self.digest:
            raise DataError(f"the listing of {self.path!r} was changed: run the job again")
        return names.decode().split("\0"), np.frombuffer(sizes, "<u8").tolist()


def pack_files(
    found: Iterable[Found | str], *, root: str, classes: tuple[str, ...]
) -> Iterator[Pack]:
    """Join files, in their order, into packs of at most `PACK_FILES` and about `PACK_BYTES`."""
    pending: list[Found] = []
    skipped, size = Counter[str](), 0
    for item in found:
        if isinstance(item, str):
            skipped[item] += 1
            continue
        if pending and (len(pending) == PACK_FILES or size + item.size > PACK_BYTES):
            yield _pack(pending, root, classes, skipped)
            pending, classes, skipped, size = [], (), Counter(), 0
        pending.append(item)
        size += item.size
    if pending:
        yield _pack(pending, root, classes, skipped)


def _pack(found: list[Found], root: str, classes: tuple[str, ...], skipped: Counter[str]) -> Pack:
    names = "\0".join(file.name for file in found).encode()
    sizes = np.array([file.size for file in found], "<u8")
    version, state = _version_and_state(found)
    return Pack(
        path=root,
        name=found[0].name,
        bytes=int(sizes.sum()),
        version=version,
        state=state,
        inside=len(found),
        digest=_digest(names, sizes.tobytes(), classes),
        names=zlib.compress(names, _LEVEL),
        sizes=zlib.compress(sizes.tobytes(), _LEVEL),
        classes=classes,
        skipped=tuple(skipped.items()),
    )


def _digest(names: bytes, sizes: bytes, classes: tuple[str, ...]) -> str:
    text = b"\0\0".join((names, sizes, "\0".join(classes).encode()))
    return hashlib.sha256(text).hexdigest()[:32]


def _unpacked(data: bytes, max_bytes: int) -> bytes:
    # A stored plan may be manipulated, and few compressed bytes must not fill the memory.
    return zlib.decompressobj().decompress(data, max_bytes)


def _version_and_state(found: Iterable[Found]) -> tuple[str, str]:
    parts = [(str(file.version), *file.state.partition("-")[::2]) for file in found]
    version, times, inodes = (
        hashlib.sha256("\0".join(of).encode()).hexdigest()[:16] for of in zip(*parts, strict=True)
    )
    is_local = any(time for _, time, _ in parts)
    return version, f"{times}-{inodes}" if is_local else ""


@dataclasses.dataclass(frozen=True)
class Tree:
    """The directories and files to list, and the meaning of their folders."""

    root: str
    starts: tuple[str, ...]
    named: frozenset[str] = frozenset()
    has_splits: bool = False
    has_labels: bool = False
    classes: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()


def find_tree(paths: Sequence[str], layout: str = "auto") -> Tree:
    """Return the directories and files to list, after reading only the names of their folders."""
    paths = with_zips(paths)
    remote = [path for path in paths if is_remote(path)]
    if remote and (len(paths) > 1 or is_pattern(remote[0]) or is_web(remote[0])):
        raise UsageError(
            f"cannot read {shown_path(remote[0])!r}: give one directory of images, without "
            "a pattern: web servers do not list their files: download these first"
        )
    if remote:
        root = storage.absolute_path(remote[0])
        folders, metadata = _remote_folders(root)
        return _laid_out(Tree(root, ("",), metadata=metadata), layout, folders.__getitem__)
    found: dict[str, bool] = {}
    bases: list[str] = []
    for path in paths:
        matches, base = _resolve(path)
        bases.append(base)
        found |= matches
    root = os.path.commonpath(bases)
    starts = {os.path.relpath(path, root) if path != root else "": path for path in found}
    named = frozenset(start for start, path in starts.items() if found[path])
    outermost = _outermost(starts)
    tree = Tree(root, outermost, named, metadata=tuple(_local_metadata(root, outermost)))
    return _laid_out(tree, layout, functools.partial(_local_folders, tree))


def _laid_out(tree: Tree, layout: str, folders: Callable[[int], set[str]]) -> Tree:
    """Return the tree with `has_splits`, `has_labels` and `classes` for a layout."""
    names = folders(0)
    if layout == "auto":
        are_splits = bool(names) and all(name.lower() in SPLIT_NAMES for name in names)
        layout = "split" if are_splits else "class" if names else "flat"
    if layout == "flat":
        return tree
    has_splits = layout == "split"
    if has_splits:
        names = folders(1)
    return dataclasses.replace(
        tree,
        has_splits=has_splits,
        has_labels=bool(names) or not has_splits,
        classes=tuple(sorted(filter(_is_utf8, names))),
    )


def _resolve(path: str) -> tuple[dict[str, bool], str]:
    """Return absolute paths, with True for a file that is named without a glob, and their root."""
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


def _outermost(starts: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are not below another of the paths, so that no file is listed twice."""
    outer: list[str] = []
    for start in sorted(starts, key=lambda start: os.path.join(start, "")):
        if not outer or not start.startswith(os.path.join(outer[-1], "")):
            outer.append(start)
    return tuple(outer)


def _remote_folders(root: str) -> tuple[tuple[set[str], set[str]], tuple[str, ...]]:
    """Return what a single listing of a URL shows."""
    names: tuple[set[str], set[str]] = (set(), set())
    metadata: list[str] = []
    for entry in storage.list_files(root):
        *folders, file = entry.path[len(root) + 1 :].split("/")
        visible = list(itertools.takewhile(lambda name: not is_hidden(name), folders))
        for found, name in zip(names, visible, strict=False):
            found.add(name)
        if file in METADATA_NAMES and len(folders) == len(visible) < 2:
            metadata.append(entry.path)
    return names, tuple(sorted(metadata))


def _local_metadata(root: str, starts: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the tables of metadata in directories and in their folders."""
    for directory in (os.path.join(root, start) for start in starts):
        if os.path.isdir(directory):
            found = sorted(name for name, is_folder in _scan(directory) if is_folder)
            for folder in ("", *(name for name in found if not is_hidden(name))):
                paths = (os.path.join(directory, folder, name) for name in METADATA_NAMES)
                yield from filter(os.path.isfile, paths)


def _local_folders(tree: Tree, depth: int) -> set[str]:
    """Return the names of all folders that are `depth` levels below the root."""
    paths = (name.split("/")[:-1] for name in _local_names(tree, depth + 1))
    return {path[depth] for path in paths if len(path) > depth and not is_hidden(path[depth])}


def list_tree(tree: Tree) -> Iterator[Found | str]:
    """Yield every image in order of its name, and what skipped files in between are."""
    if is_remote(tree.root):
        for entry in _objects(tree.root):
            name = entry.path[len(tree.root) + 1 :]
            yield _skipped_as(name.split("/")) or Found(name, entry.bytes, entry.version)
        return
    for name in _local_names(tree):
        last = name.rstrip("/").rpartition("/")[2]
        if name.endswith("/"):
            if is_hidden(last):
                yield _HIDDEN
        else:
            is_named = name in tree.named
            yield (None if is_named else _skipped_as([last])) or _file(tree.root, name)


def _skipped_as(parts: Sequence[str]) -> str | None:
    """Return what a file is that is no image or hidden, given its folders and its name."""
    if any(map(is_hidden, parts)):
        return _HIDDEN
    return None if parts[-1].lower().endswith(SUFFIXES) else kind_of_name(parts[-1])


def _objects(root: str) -> Iterator[storage.Entry]:
    """Yield all objects below a URL in the order of their paths."""
    entries = storage.list_files(root)
    if not root.startswith(_SORTED_SCHEMES):
        entries = iter(sorted(entries, key=lambda entry: entry.path))
    return entries


def _local_names(tree: Tree, levels: int = sys.maxsize) -> Iterator[str]:
    """Yield the names of files and, with a slash at the end, of folders, in order.

    Only one directory at a time is in memory. A link to a parent directory is not followed.
    """
    for start in tree.starts:
        path = os.path.join(tree.root, start)
        if os.path.isdir(path):
            prefix = os.path.join(start, "")
            yield from _walk(tree.root, prefix, (os.path.realpath(path),), levels)
        else:
            yield start


def _walk(root: str, prefix: str, above: tuple[str, ...], levels: int) -> Iterator[str]:
    # With a slash after the names of folders, the names sort like the complete paths.
    found = _scan(os.path.join(root, prefix))
    for name in sorted(name + "/" if is_folder else name for name, is_folder in found):
        yield prefix + name
        if name.endswith("/") and len(above) < levels and not is_hidden(name[:-1]):
            here = os.path.realpath(os.path.join(root, prefix + name))
            if here not in above:
                yield from _walk(root, prefix + name, (*above, here), levels)


def _scan(directory: str) -> Iterator[tuple[str, bool]]:
    """Yield each name in a directory, and whether it is a directory or a link to one."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                is_link = entry.is_symlink()
                yield entry.name, os.path.isdir(entry.path) if is_link else entry.is_dir()
    except OSError as error:
        raise UsageError(f"cannot read directory {directory!r}: {error.strerror}") from error


def _file(root: str, name: str) -> Found | str:
    """Return a local file with its size and times, or why it is skipped."""
    if not _is_utf8(name):
        raise UsageError(f"the name of {name!r} in {root!r} is not utf-8: rename the file")
    try:
        status = os.stat(os.path.join(root, name))
    except OSError:
        return Found(name, 0, 0)  # the error of reading it will be reported
    if not stat.S_ISREG(status.st_mode):
        return _NOT_REGULAR
    return Found(name, status.st_size, status.st_mtime_ns, version_and_state(status)[1])


def _is_utf8(name: str) -> bool:
    """Return whether a name from the filesystem is UTF-8, that is, contains no surrogates."""
    return name.isascii() or name.encode("utf-8", "ignore").decode() == name
