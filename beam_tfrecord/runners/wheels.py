"""Builds wheels for remote workers: of this package as installed here, and of the user's modules.

Wheels are made from installed files, not from sources, so that no worker needs a compiler. The same
files always make the same wheel, byte for byte, under the same path in the user's cache. So a wheel
that was staged once (sent to the workers) need not be staged again.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

from beam_tfrecord._version import __version__
from beam_tfrecord.errors import UsageError

CACHE_VARIABLE = "BEAM_TFRECORD_CACHE"

_DISTRIBUTION = "beam-tfrecord"
_PACKAGE = Path(__file__).parents[1]
_KERNEL_SUFFIX = ".abi3.so"
_SUFFIXES = (".py", ".pyi", ".jar", ".typed", _KERNEL_SUFFIX)
# The earliest time that a zip file can hold.
_TIME = (1980, 1, 1, 0, 0, 0)


class WheelOptions(PipelineOptions):
    """The pipeline option ``--worker_wheel``: where the wheel of this package comes from."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument(
            "--worker_wheel",
            default="auto",
            help="Wheel of beam_tfrecord for workers: a path; auto: made from what is installed "
            "here; none: they have it already.",
        )


def stage_wheels(options: PipelineOptions, modules: Iterable[str]) -> None:
    """Add the wheels that workers need to the extra packages in the options of a job."""
    setup = options.view_as(SetupOptions)
    wheels = [*(setup.extra_packages or ()), *staged_wheels(options, modules)]
    # With an empty list, Beam would stage a file that lists no packages.
    setup.extra_packages = list(dict.fromkeys(wheels)) or None


def staged_wheels(options: PipelineOptions, modules: Iterable[str] = ()) -> list[str]:
    """Return the paths of the wheels that workers need."""
    own = options.view_as(WheelOptions).worker_wheel
    wheels = []
    if own == "auto":
        wheels.append(package_wheel())
    elif own != "none":
        _check_wheel(own)
        wheels.append(own)
    return wheels + [wheel for name in modules if (wheel := module_wheel(name)) is not None]


def _check_wheel(path: str) -> None:
    start = f"{_DISTRIBUTION.replace('-', '_')}-{__version__}-"
    if not os.path.basename(path).startswith(start) or not path.endswith(".whl"):
        raise UsageError(
            f"worker wheel {path!r} is not one of this version: give one named {start}….whl"
        )
    if not os.path.isfile(path):
        raise UsageError(f"there is no worker wheel {path!r}")


def package_wheel() -> str:
    """Build a wheel of this package as it is installed here, and return its path."""
    files = dict(_contents(_PACKAGE))
    tag = "py3-none-any"
    if any(name.endswith(_KERNEL_SUFFIX) for name in files):
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        tag = f"{python}-abi3-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
    about = ""
    try:
        installed = metadata.distribution(_DISTRIBUTION)
        about = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""
    except metadata.PackageNotFoundError:
        pass
    # Only the headers: the description after the first empty line is the README.
    return _wheel(_DISTRIBUTION, __version__, tag, files, about.partition("\n\n")[0])


def module_wheel(name: str) -> str | None:
    """Build a wheel of a user's module, or of its top package, and return its path."""
    top = name.partition(".")[0]
    spec = util.find_spec(top)
    if spec is None or spec.origin is None or top == _PACKAGE.name:
        return None
    origin = Path(spec.origin)
    if origin.suffix != ".py" or _is_installed(origin):
        return None
    is_package = spec.submodule_search_locations is not None
    files = dict(_contents(origin.parent)) if is_package else {origin.name: origin.read_bytes()}
    return _wheel(top, "0+" + _digest(files)[:12], "py3-none-any", files)


def _contents(package: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of each file of a package that workers can use."""
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.name.endswith(_SUFFIXES):
            yield path.relative_to(package.parent).as_posix(), path.read_bytes()


def _is_installed(path: Path) -> bool:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    return any(path.is_relative_to(folder) for folder in folders)


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _wheel(
    distribution: str, version: str, tag: str, files: Mapping[str, bytes], about: str = ""
) -> str:
    """Write a wheel to the cache unless it is there, and return its path.

    The format is the binary distribution format of PyPA's specifications.
    """
    name = f"{re.sub(r'[-_.]+', '_', distribution)}-{version}"
    info = f"{name}.dist-info"
    about = about or f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}"
    files = {
        **files,
        f"{info}/METADATA": f"{about}\n".encode(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: beam_tfrecord {__version__}\n"
            f"Root-Is-Purelib: {str(tag.endswith('any')).lower()}\nTag: {tag}\n"
        ).encode(),
    }
    directory = cache_directory() / "wheels" / _digest(files)[:16]
    path = directory / f"{name}-{tag}.whl"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        # Renamed when complete, since another process may write or read the same wheel.
        temporary = directory / f".{path.name}.{os.getpid()}"
        temporary.write_bytes(_zipped(files, f"{info}/RECORD"))
        temporary.replace(path)
    return str(path)


def _zipped(files: Mapping[str, bytes], record: str) -> bytes:
    """Return the bytes of a zip file with `files` and, last, a record of their hashes and sizes."""
    ordered = dict(sorted(files.items()))
    lines = []
    for name, data in ordered.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    ordered[record] = "".join([*lines, f"{record},,\n"]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in ordered.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def cache_directory() -> Path:
    """Return the cache directory: ``$BEAM_TFRECORD_CACHE``, or one in the user's cache."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / _DISTRIBUTION
