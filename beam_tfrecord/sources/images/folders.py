"""Lists the images below directories, whose folders may name classes and splits.

Neighbouring images form a pack, to be read at once. A pack is one `InputFile` and one unit of the
source, so a job tracks far fewer entries than there are images. On an object store, the folders
follow from the names of the objects. `Folders` makes rows of what is listed.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import itertools
import os
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord import storage
from beam_tfrecord.base.text import counted, listed
from beam_tfrecord.errors import DataError, InputChanged, UsageError
from beam_tfrecord.features.feature import LABELS_FILE
from beam_tfrecord.images.headers import SUFFIXES
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit, version_and_state
from beam_tfrecord.sources.files import (
    counts_text,
    kind_of_name,
    not_there,
    refuse_zips,
    visible_matches,
)
from beam_tfrecord.sources.images.labels import classes_of_option, is_line
from beam_tfrecord.storage import is_hidden, is_remote, is_web, public_path

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


class FoundFile(NamedTuple):
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
        now = [FoundFile("", 0, 0) if isinstance(file, str) else file for file in files]
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
    found: Iterable[FoundFile | str], *, root: str, classes: tuple[str, ...]
) -> Iterator[Pack]:
    """Join files, in their order, into packs of at most `PACK_FILES` and about `PACK_BYTES`."""
    pending: list[FoundFile] = []
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


def _pack(
    found: list[FoundFile], root: str, classes: tuple[str, ...], skipped: Counter[str]
) -> Pack:
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
        last=found[-1].name,
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


def _version_and_state(found: Iterable[FoundFile]) -> tuple[str, str]:
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
    remote = [path for path in paths if is_remote(path)]
    if remote and (len(paths) > 1 or glob.has_magic(remote[0]) or is_web(remote[0])):
        raise UsageError(
            f"cannot read {public_path(remote[0])!r}: give one directory of images, without "
            "a pattern: web servers do not list their files: download these first"
        )
    tree = Tree(storage.absolute_path(remote[0]), ("",)) if remote else _local_tree(paths)
    outer, inner, metadata = _top_folders(tree)
    tree = dataclasses.replace(tree, metadata=tuple(sorted(metadata)))
    if layout == "auto":
        are = [name.lower() in SPLIT_NAMES for name in outer]
        # Several inputs may each hold the folders of classes.
        is_apart = bool(inner) and tree.starts != ("",) and not metadata
        if not all(are) and (any(are) or is_apart):
            raise UsageError(
                f"cannot tell whether the folders {listed(sorted(outer))} are splits, classes or "
                "neither: pass --layout class or split, leave some out, or name one directory"
            )
        layout = "class" if not all(are) else "split" if are else "flat"
    if layout == "flat":
        return tree
    has_splits = layout == "split"
    names = inner if has_splits else outer
    return dataclasses.replace(
        tree,
        has_splits=has_splits,
        has_labels=bool(names) or not has_splits,
        classes=tuple(sorted(filter(_is_utf8, names))),
    )


def _local_tree(paths: Iterable[str]) -> Tree:
    """Return what paths and patterns name, below a root that does not depend on what is there."""
    found: list[str] = []
    named: list[str] = []
    bases: list[str] = []
    for path in (path.removeprefix("file://") for path in paths):
        matches = list(map(os.path.abspath, visible_matches(path, is_hidden)))
        if not matches:
            raise UsageError(not_there(path))
        found += matches
        base = os.path.abspath(path)
        if not os.path.isdir(path):
            named += [base] if base in matches else []
            base = os.path.dirname(base)
        while glob.has_magic(base) and not os.path.lexists(base):
            base = os.path.dirname(base)
        bases.append(base)
    refuse_zips(named)
    root = os.path.commonpath(bases)
    starts = _outermost("" if path == root else os.path.relpath(path, root) for path in found)
    return Tree(root, starts, frozenset(os.path.relpath(path, root) for path in named))


def _outermost(starts: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are not below another of the paths, so that no file is listed twice."""
    outer: list[str] = []
    for start in sorted(starts, key=lambda start: os.path.join(start, "")):
        if not outer or not start.startswith(os.path.join(outer[-1], "")):
            outer.append(start)
    return tuple(outer)


def _top_folders(tree: Tree) -> tuple[set[str], set[str], list[str]]:
    """Return the names of the folders, of those in them, and the tables of metadata in both."""
    outer: set[str] = set()
    inner: set[str] = set()
    metadata: list[str] = []
    for path in _remote_top(tree.root) if is_remote(tree.root) else _local_names(tree, 2):
        *folders, file = path.split("/")
        if any(map(is_hidden, folders)):
            continue
        outer.update(folders[:1])
        inner.update(folders[1:2])
        if file in METADATA_NAMES:
            metadata.append(os.path.join(tree.root, path))
    return outer, inner, metadata


def _remote_top(root: str) -> Iterator[str]:
    """Yield the names of objects, and, with a slash at the end, of folders in folders."""
    for entry in storage.list_files(root):
        parts = entry.path[len(root) + 1 :].split("/")
        yield "/".join(parts) if len(parts) < 3 else f"{parts[0]}/{parts[1]}/"


def list_tree(tree: Tree) -> Iterator[FoundFile | str]:
    """Yield every image in order of its name, and what skipped files in between are."""
    if is_remote(tree.root):
        entries = storage.list_files(tree.root)
        if not tree.root.startswith(_SORTED_SCHEMES):
            entries = iter(sorted(entries, key=lambda entry: entry.path))
        for entry in entries:
            name = entry.path[len(tree.root) + 1 :]
            yield _skipped_as(name.split("/")) or FoundFile(name, entry.bytes, entry.version)
        return
    for name in _local_names(tree):
        last = name.rstrip("/").rpartition("/")[2]
        if name.endswith("/"):
            if is_hidden(last):
                yield _HIDDEN
        else:
            is_named = name in tree.named
            yield (None if is_named else _skipped_as([last])) or _file(tree.root, name)


def skipped_by_suffix(files: Iterable[InputFile]) -> dict[str, int]:
    """Return how many files the listing of packs skipped, by suffix."""
    counts = Counter[str]()
    for file in files:
        counts.update(dict(file.skipped) if isinstance(file, Pack) else {})
    return dict(sorted(counts.items()))


def _skipped_as(parts: Sequence[str]) -> str | None:
    """Return what a file is that is no image or hidden, given its folders and its name."""
    if any(map(is_hidden, parts)):
        return _HIDDEN
    return None if parts[-1].lower().endswith(SUFFIXES) else kind_of_name(parts[-1])


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


def _file(root: str, name: str) -> FoundFile | str:
    """Return a local file with its size and times, or why it is skipped."""
    if not _is_utf8(name):
        raise UsageError(f"the name of {name!r} in {root!r} is not utf-8: rename the file")
    try:
        status = os.stat(os.path.join(root, name))
    except OSError:
        return FoundFile(name, 0, 0)  # the error of reading it will be reported
    if not stat.S_ISREG(status.st_mode):
        return _NOT_REGULAR
    return FoundFile(name, status.st_size, status.st_mtime_ns, version_and_state(status)[1])


def _is_utf8(name: str) -> bool:
    """Return whether a name from the filesystem is UTF-8, that is, contains no surrogates."""
    return name.isascii() or name.encode("utf-8", "ignore").decode() == name


PATH, CLASS, BYTES = "path", "label", "bytes"
# Estimated bytes that the description of an image adds to a record.
_RECORD_EXTRA_BYTES = 300


@dataclasses.dataclass(frozen=True)
class Folders(Source):
    """The paths, sizes and classes of the images below directories.

    Attributes:
        tree: The directories.
        named: The directories as the user named them.
        labels: Names of the classes, or the file that has them; None means those of the folders.
    """

    tree: Tree
    named: Sequence[str]
    labels: str | os.PathLike[str] | Sequence[str] | None

    def files(self) -> Iterator[InputFile]:
        tree = self.tree
        classes = classes_of_option(self.labels)
        if classes is not None and not tree.has_labels:
            raise UsageError("labels are given, but no folder names a class: leave out --labels")
        if classes is None:
            classes = tree.classes
            if broken := [name for name in classes if not is_line(name)]:
                raise DataError(
                    f"class {broken[0]!r} cannot be one line of {LABELS_FILE}: rename the folder"
                )
        packs = pack_files(list_tree(tree), root=tree.root, classes=classes)
        first = next(packs, None)
        if first is None:
            there = (os.path.join(tree.root, name) for name in _local_names(tree))
            refuse_zips(self.named if is_remote(tree.root) else there)
            named = " ".join(map(repr, self.named))
            raise UsageError(f"no image in {named}: check the path, or pass --from")
        yield from itertools.chain([first], packs)

    def scan(self, chunk: Chunk) -> Scan:
        return Scan(chunk, None)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        packs = [scan.chunk.file for scan in scans]
        return [
            Unit(
                name=pack.name,
                file=pack,
                index=index,
                start=0,
                stop=pack.inside,
                rows=pack.inside,
                input_bytes=pack.bytes,
                encoded_bytes=pack.bytes + _RECORD_EXTRA_BYTES * pack.inside,
            )
            for index, pack in enumerate(packs)
        ]

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        del inferences
        return pa.schema(
            dict.fromkeys((PATH, CLASS) if self.tree.has_labels else (PATH,), pa.string())
        )

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        counts = skipped_by_suffix(files)
        skipped = f"skipped {counted(sum(counts.values()), 'file')}: {counts_text(counts)}"
        cure = f": to read other images, convert them to one of {', '.join(SUFFIXES)}"
        is_seen = bool(counts.keys() - {_HIDDEN, _NOT_REGULAR})
        return [skipped + cure * is_seen] if counts else []

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        pack: Any = unit.file
        names, sizes = pack.files()
        for start in range(0, len(names), batch_rows):
            files = slice(start, start + batch_rows)
            columns = {
                PATH: pa.array(names[files], pa.string()),
                BYTES: pa.array(sizes[files], pa.int64()),
            }
            if self.tree.has_labels:
                columns[CLASS] = pa.array(map(self._class_of, names[files]), pa.string())
            data = pa.RecordBatch.from_pydict(columns)
            yield Batch(data, Origin(unit.name, unit.index, start))

    def _class_of(self, name: str) -> str | None:
        """Return the folder that names the class of an image."""
        folders = name.split("/")[self.tree.has_splits : -1]
        return folders[0] if folders else None
