"""Reads the members of zip files as files, by URLs such as ``zip:///data/a.zip!/train/1.csv``.

The file itself may lie on any filesystem: ``zip+gs://bucket/a.zip!/1.csv``. A compressed member can
only be read from its start. So the first jump back in one makes a temporary copy, which is not in
memory if it is large. A wrong CRC is an error in both cases.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import struct
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import IO, Any, BinaryIO, cast

from beam_tfrecord.errors import DataError, InputChanged, StorageError
from beam_tfrecord.storage.paths import Entry, ListedFilesystem, is_plain_name, public_path

_END = "!"
# Archives that a process keeps open, which hold about 1 kB for each of their members.
_MOST_OPEN = 8
_BUFFER_BYTES = 2**20
_IN_MEMORY_BYTES = 8 * 2**20
# Of the other methods, `zipfile` has all in memory that some bytes become: gigabytes of bzip2.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_OTHER_METHODS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
_ENCRYPTED = 1
# DOS, NTFS and VFAT.
_OF_WINDOWS = (0, 10, 14)
# What `zipfile` raises for damage; NotImplementedError is a RuntimeError.
_FAULTS = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, OverflowError),
)


def zip_url(archive: str, inside: str = "") -> str:
    """Return the URL of a zip file, or of a name or pattern inside."""
    url = f"zip+{archive}" if "://" in archive else f"zip://{archive}"
    return f"{url}{_END}/{inside}" if inside else f"{url}{_END}"


def is_in_zip(path: str) -> bool:
    """Return whether a path is a URL of `zip_url`."""
    return path.partition("://")[0].partition("+")[0] == "zip" and "://" in path


def split_zip_url(path: str) -> tuple[str, str]:
    """Return the path or URL of the zip file, and the name or pattern inside.

    Any other path is returned as it is, with nothing inside.
    """
    if not is_in_zip(path):
        return path, ""
    path = path.removeprefix("zip+" if path.startswith("zip+") else "zip://")
    at = path.lower().index(f".zip{_END}") + len(".zip")
    return path[:at], path[at + len(_END) :].removeprefix("/")


def shown_path(path: str) -> str:
    """Return a path or URL for messages, such as ``/data/a.zip/train/1.csv``, without secrets."""
    archive, name = split_zip_url(path)
    return "/".join(filter(None, (public_path(archive), name)))


def _is_of_system(error: Exception) -> bool:
    # A damaged offset is negative, which no file has.
    return getattr(error, "errno", None) not in (None, errno.EINVAL)


class _Archive:
    """An open zip file."""

    def __init__(self, key: Hashable, shown: str, raw: BinaryIO) -> None:
        self.key = key
        # Members that are still read refer to it, so nobody else knows when it can be closed.
        weakref.finalize(self, raw.close)
        try:
            self.zip = _directory(raw)
            self.members = dict(_members(self.zip, shown))
        except _FAULTS as error:
            if _is_of_system(error):
                raise
            raise DataError(
                f"{shown!r} is not a complete zip file ({error}): copy it again, or leave it out"
            ) from error
        self.lock = threading.RLock()


def _directory(raw: BinaryIO) -> zipfile.ZipFile:
    try:
        # Programs of macOS write UTF-8 without saying so.
        return zipfile.ZipFile(raw, metadata_encoding="utf-8")
    except UnicodeDecodeError:
        return zipfile.ZipFile(raw)


def _members(archive: zipfile.ZipFile, shown: str) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the regular files of an archive, sorted by name."""
    infos = {info: _name_of(info) for info in archive.infolist()}
    files = [(name, info) for info, name in infos.items() if not name.endswith("/")]
    if len(dict(files)) < len(files):
        (name, _), *_ = Counter(name for name, _ in files).most_common(1)
        raise DataError(f"{shown!r} has two members named {name!r}: unpack it, and keep one")
    for name, info in sorted(files, key=lambda file: file[0]):
        if not is_plain_name(name) or "\\" in name:
            raise DataError(
                f"{shown!r} has a member named {name!r}, which is not a plain name of a file "
                "inside: unpack it, and give the directory"
            )
        if stat.S_ISLNK(info.external_attr >> 16):
            raise DataError(f"{name!r} in {shown!r} is a link: unpack it, and give the directory")
        yield name, info


def _name_of(info: zipfile.ZipInfo) -> str:
    # Some programs of Windows separate folders so, against the standard.
    name = info.filename
    return name.replace("\\", "/") if info.create_system in _OF_WINDOWS else name


class ZipFilesystem(ListedFilesystem):
    """A read-only filesystem of the members of zip files."""

    def __init__(self, filesystem_of: Callable[[str], Any]) -> None:
        self._filesystem_of = filesystem_of
        self._opened: dict[Hashable, _Archive] = {}
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # Parent and child would move one and the same position in a file.
        self._opened, self._lock = {}, threading.Lock()

    def status(self, path: str) -> Entry | None:
        """Return size and CRC of a member, or None if there is none."""
        archive, name = split_zip_url(path)
        try:
            info = self._archive(archive).members.get(name)
        except FileNotFoundError:
            return None
        return None if info is None else _entry(archive, name, info)

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all members below a directory, sorted by name."""
        archive, name = split_zip_url(directory)
        above = f"{name}/" if name else ""
        for member, info in self._archive(archive).members.items():
            if member.startswith(above):
                yield _entry(archive, member, info)

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of a member from `start`."""
        with self.open(path, 0, version) as file:
            file.seek(start)
            count = cast(Any, file).readinto(out)
        if count < len(out):
            raise EOFError(f"{shown_path(path)!r} ends {len(out) - count} bytes early")

    def open(self, path: str, buffer_bytes: int | None = None, version: str = "") -> BinaryIO:
        """Open a member for reading."""
        archive, name = split_zip_url(path)
        shown = shown_path(path)
        try:
            opened = self._archive(archive)
            info = opened.members[name]
        except (FileNotFoundError, KeyError) as error:
            if version:
                raise InputChanged(
                    f"{shown!r} was removed while it was read: put it back, or leave it out, and "
                    "run the job again"
                ) from error
            raise FileNotFoundError(f"no such file: {shown!r}") from error
        if version and _version(info) != version:
            raise _changed(shown)
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{shown!r} is encrypted: unpack the zip file with its password")
        if (method := info.compress_type) not in _METHODS:
            how = _OTHER_METHODS.get(method, f"method {method}")
            raise DataError(
                f"{shown!r} is compressed by {how}, which is not read: unpack the zip file"
            )

        def is_same() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return self._key(archive) == opened.key
            return False

        file = _Member(opened, info, shown, is_same)
        if buffer_bytes == 0:
            return cast(BinaryIO, file)
        return io.BufferedReader(file, buffer_bytes or _BUFFER_BYTES)

    def _archive(self, path: str) -> _Archive:
        """Return an open archive, which is read anew if it has changed."""
        key = self._key(path)
        with self._lock:
            if key in self._opened:
                self._opened[key] = self._opened.pop(key)
            else:
                while len(self._opened) >= _MOST_OPEN:
                    del self._opened[next(iter(self._opened))]
                self._opened[key] = _Archive(key, path, self._filesystem_of(path).open(path))
            return self._opened[key]

    def _key(self, path: str) -> Hashable:
        if "://" not in path:
            status = os.stat(path)
            return path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        entry: Entry | None = self._filesystem_of(path).status(path)
        if entry is None:
            raise FileNotFoundError(f"no such file: {path!r}")
        return entry


def _entry(archive: str, name: str, info: zipfile.ZipInfo) -> Entry:
    return Entry(zip_url(archive, name), info.file_size, _version(info))


def _version(info: zipfile.ZipInfo) -> str:
    return f"crc32-{info.CRC:08x}"


def _changed(shown: str) -> InputChanged:
    return InputChanged(
        f"{shown!r} was changed while it was read: run the job again once nothing writes to its "
        "zip file"
    )


class _Member(io.RawIOBase):
    """A member that is open for reading."""

    def __init__(
        self, archive: _Archive, info: zipfile.ZipInfo, shown: str, is_same: Callable[[], bool]
    ) -> None:
        self._archive, self._info = archive, info
        self._shown, self._is_same = shown, is_same
        self._at = 0
        # The member as `zipfile` reads it, or its copy.
        self._file: IO[bytes] | None = None
        self._is_copy = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, which the next read reaches, and return it."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._info.file_size}[whence]
        if origin + offset < 0:
            raise ValueError(f"position {origin + offset} is negative")
        self._at = origin + offset
        return self._at

    def readinto(self, out: Any) -> int:
        """Fill a buffer up to the end of the member, and return the number of bytes."""
        view = memoryview(out).cast("B")
        with self._described():
            file = self._file_at_position()
            piece = file.read(len(view))
            if len(piece) < len(view) and file.tell() < self._info.file_size:
                raise EOFError("it is cut off")
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _file_at_position(self) -> IO[bytes]:
        file = self._file = self._file or self._opened()
        if self._at != file.tell():
            if 0 < self._at < file.tell() and not self._is_copy:
                self._file, self._is_copy = self._copied(), True
                self._close(file)
                file = self._file
            file.seek(self._at)
        return file

    def _opened(self) -> IO[bytes]:
        with self._archive.lock:
            return self._archive.zip.open(self._info)

    def _copied(self) -> IO[bytes]:
        """Copy the complete member, so that its CRC is compared before a byte is used."""
        size, directory = self._info.file_size, tempfile.gettempdir()
        if size > _IN_MEMORY_BYTES and size > (free := shutil.disk_usage(directory).free):
            raise StorageError(
                f"{self._shown!r} has {size:,} bytes unpacked, and {directory!r} has space for "
                f"{free:,}: set TMPDIR to a larger disk, or unpack the zip file"
            )
        copy = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        try:
            member = self._opened()
            shutil.copyfileobj(member, copy, _BUFFER_BYTES)
            self._close(member)
        except BaseException:
            copy.close()
            raise
        return cast(IO[bytes], copy)

    @contextlib.contextmanager
    def _described(self) -> Iterator[None]:
        """Raise the faults of a member as errors without an errno, unless they are the system's."""
        try:
            yield
        except _FAULTS as error:
            if _is_of_system(error):
                raise
            if not self._is_same():
                raise _changed(self._shown) from error
            raise OSError(str(error) or "it is damaged") from error

    def close(self) -> None:
        """Close the member, and remove its copy."""
        if self._file is not None:
            self._close(self._file)
            self._file = None
        super().close()

    def _close(self, file: IO[bytes]) -> None:
        with self._archive.lock:
            file.close()
