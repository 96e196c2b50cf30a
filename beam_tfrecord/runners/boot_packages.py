"""Packages that were sent to a worker: installed once per content, however many workers start."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from beam_tfrecord.private import private_directory

CACHE = "BEAM_TFRECORD_BOOT_CACHE"

_WHEEL, _SOURCES = ".whl", (".tar.gz", ".zip")
_KEPT_S = 7 * 24 * 3600
# Of Beam's own making, and no packages though they may look so.
_NOT_PACKAGES = ("submission_environment_dependencies.txt", "pickled_main_session")


class PackageFault(Exception):
    """A package cannot be installed; the text says why."""


def installed(paths: Sequence[str], cache: str | None = None) -> str | None:
    """Return the directory that packages are installed in, for `sys.path`.

    Workers that start at the same time wait for the one that came first. What nobody has used for
    a week is removed.

    Args:
        paths: Staged files; those that are no packages are left aside.
        cache: Directory of installed packages; None: that of this user.

    Returns:
        None where there is no package among them.

    Raises:
        PackageFault: A package cannot be installed here.
    """
    packages = sorted(path for path in paths if is_package(path))
    if not packages:
        return None
    root = cache or os.environ.get(CACHE) or _own_directory()
    os.makedirs(root, exist_ok=True)
    digest = hashlib.sha256(repr((sys.version, sys.platform)).encode())
    for path in packages:
        with open(path, "rb") as file:
            digest.update(os.path.basename(path).encode() + _sha256(file))
    site = os.path.join(root, digest.hexdigest()[:24])
    with _locked(f"{site}.lock"):
        if not os.path.isdir(site):
            _install(packages, site, root)
        os.utime(site)
    _sweep(root)
    return site


def _sha256(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while chunk := file.read(2**20):
        digest.update(chunk)
    return digest.digest()


def is_package(path: str) -> bool:
    """Tell whether a staged file is a package by its name."""
    name = os.path.basename(path)
    return name.endswith((_WHEEL, *_SOURCES)) and name not in _NOT_PACKAGES


def _install(packages: Sequence[str], site: str, root: str) -> None:
    made = tempfile.mkdtemp(dir=root, prefix="making-")
    try:
        for path in packages:
            if path.endswith(_WHEEL):
                _unpack_wheel(path, made)
            else:
                _build(path, made)
        # A worker that dies half way leaves no directory under this name.
        os.rename(made, site)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _unpack_wheel(path: str, into: str) -> None:
    """Lay out a wheel as an installer would: its files, without scripts and headers.

    The layout is that of the binary distribution format of PyPA's specifications.
    """
    name = os.path.basename(path)
    _check_tags(name)
    with zipfile.ZipFile(path) as wheel:
        for member in wheel.infolist():
            target = _place(member.filename)
            if target is None or member.is_dir():
                continue
            place = os.path.normpath(os.path.join(into, target))
            if not place.startswith(into + os.sep):
                raise PackageFault(f"wheel {name!r} has a file outside of itself: {target!r}")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with wheel.open(member) as source, open(place, "wb") as file:
                shutil.copyfileobj(source, file)


def _place(name: str) -> str | None:
    """Return where a file of a wheel belongs; None where a worker has no use for it."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    scheme, _, rest = rest.partition("/")
    return rest if scheme in ("purelib", "platlib") else None


def _check_tags(name: str) -> None:
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags = parse_wheel_filename(name)[3]
    except InvalidWheelFilename as error:
        raise PackageFault(f"{name!r} is no name of a wheel: {error}") from error
    if tags.isdisjoint(sys_tags()):
        wanted = ", ".join(sorted(map(str, tags)))
        raise PackageFault(f"wheel {name!r} is for {wanted}, which this machine is not")


def _build(path: str, into: str) -> None:
    if importlib.util.find_spec("pip") is None:
        raise PackageFault(
            f"{os.path.basename(path)!r} is a source package and there is no pip on this worker: "
            "pass a wheel, or install pip there"
        )
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", into, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if built.returncode:
        said = built.stdout.decode(errors="replace").strip().splitlines()
        raise PackageFault(f"pip cannot install {os.path.basename(path)!r}: {' '.join(said[-2:])}")


def _own_directory() -> str:
    """Return a directory for this user alone: another one must not be able to put code there."""
    path = os.path.join(tempfile.gettempdir(), f"beam-tfrecord-packages-{os.getuid()}")
    try:
        return private_directory(path)
    except OSError as error:
        raise PackageFault(
            f"cannot install packages in {path!r}: {error.strerror}: set {CACHE} to another "
            "directory"
        ) from error


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(root: str) -> None:
    """Remove what has not been used for long."""
    before_s = time.time() - _KEPT_S
    for entry in os.scandir(root):
        with contextlib.suppress(OSError):
            if entry.is_dir() and entry.stat().st_mtime < before_s:
                shutil.rmtree(entry.path, ignore_errors=True)
