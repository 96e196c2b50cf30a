"""Wheels for workers elsewhere: this package as it is installed here, and a user's own module.

They are made from the installed files, not from sources, so that no worker needs a compiler. The
same files give the same wheel, byte for byte, kept in the user's cache under a name that tells
its content: what was staged once need not be staged again.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions

import beam_tfrecord
from beam_tfrecord._version import __version__
from beam_tfrecord.errors import UsageError

CACHE_VARIABLE = "BEAM_TFRECORD_CACHE"

_DISTRIBUTION = "beam-tfrecord"
_KEPT = (".py", ".pyi", ".jar", ".typed")
# Zip files cannot tell of times before 1980.
_TIME = (1980, 1, 1, 0, 0, 0)


class WheelOptions(PipelineOptions):
    """What workers are given of this package."""

    @classmethod
    def _add_argparse_args(cls, parser: object) -> None:
        parser.add_argument(  # type: ignore[attr-defined]
            "--worker_wheel",
            default="auto",
            help="Wheel of beam_tfrecord for workers: a path; auto: made from what is installed "
            "here; none: they have it already.",
        )


def cache_directory() -> Path:
    """Return where wheels are kept: ``$BEAM_TFRECORD_CACHE``, or a place in the user's cache."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / _DISTRIBUTION


def staged_wheels(options: PipelineOptions, modules: Iterable[str] = ()) -> list[str]:
    """Return the paths of the wheels that workers need.

    Args:
        options: The user's, `WheelOptions` among them.
        modules: Names of modules that the user's functions are from.

    Raises:
        UsageError: The wheel that was given is none of this version.
    """
    given = options.view_as(WheelOptions).worker_wheel
    wheels = []
    if given == "auto":
        wheels.append(package_wheel())
    elif given != "none":
        wheels.append(_checked(given))
    wheels += [wheel for name in modules if (wheel := module_wheel(name)) is not None]
    return wheels


def package_wheel() -> str:
    """Return the path of a wheel of this package, as it is installed here."""
    root = Path(beam_tfrecord.__file__).parent
    files = {f"{root.name}/{name}": data for name, data in _contents(root)}
    tag = "py3-none-any"
    if any(name.endswith(_extension_suffix()) for name in files):
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        tag = f"{python}-{python}-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
    return _wheel(_DISTRIBUTION, __version__, tag, files, _own_metadata())


def module_wheel(name: str) -> str | None:
    """Return the path of a wheel of a user's own module, or of the package it is in.

    Returns:
        None for a module that is installed: workers have it by whatever brings them packages.
    """
    top = name.partition(".")[0]
    spec = util.find_spec(top)
    if spec is None or spec.origin is None or top == __name__.partition(".")[0]:
        return None
    origin = Path(spec.origin)
    if origin.suffix != ".py" or _is_installed(origin):
        return None
    if spec.submodule_search_locations is None:
        files = {origin.name: origin.read_bytes()}
    else:
        files = {f"{top}/{path}": data for path, data in _contents(origin.parent)}
    version = "0+" + _digest(files)[:12]
    about = f"Metadata-Version: 2.1\nName: {top}\nVersion: {version}\n"
    return _wheel(top, version, "py3-none-any", files, about)


def _checked(path: str) -> str:
    start = f"{_DISTRIBUTION.replace('-', '_')}-{__version__}-"
    if not os.path.basename(path).startswith(start) or not path.endswith(".whl"):
        raise UsageError(
            f"worker wheel {path!r} is not one of this version: give one named {start}….whl"
        )
    if not os.path.isfile(path):
        raise UsageError(f"there is no worker wheel {path!r}")
    return path


def _contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of the files of a package that are of use on a worker."""
    kept = (*_KEPT, _extension_suffix())
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name.endswith(kept):
            yield path.relative_to(root).as_posix(), path.read_bytes()


def _extension_suffix() -> str:
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def _is_installed(path: Path) -> bool:
    places = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    return any(path.is_relative_to(place) for place in places)


def _own_metadata() -> str:
    try:
        about = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {__version__}\n"
    text = about.read_text("METADATA") or about.read_text("PKG-INFO") or ""
    # The description is the whole README, and of no use there.
    return text.partition("\n\n")[0] + "\n"


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _wheel(
    distribution: str, version: str, tag: str, files: Mapping[str, bytes], about: str
) -> str:
    name = f"{re.sub(r'[-_.]+', '_', distribution)}-{version}"
    info = f"{name}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": about.encode(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: beam_tfrecord {__version__}\n"
            f"Root-Is-Purelib: {str(tag.endswith('any')).lower()}\nTag: {tag}\n"
        ).encode(),
    }
    directory = cache_directory() / "wheels" / _digest(files)[:16]
    path = directory / f"{name}-{tag}.whl"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        # Another process may be at the same: a rename leaves a whole file, whoever is last.
        temporary = directory / f".{path.name}.{os.getpid()}"
        temporary.write_bytes(_zipped(files, f"{info}/RECORD"))
        temporary.replace(path)
    return str(path)


def _zipped(files: Mapping[str, bytes], record_name: str) -> bytes:
    """Return a wheel: a zip file whose last entry lists the others with their hashes."""
    rows = [*(_row(name, data) for name, data in sorted(files.items())), f"{record_name},,"]
    whole = {**dict(sorted(files.items())), record_name: _lines(rows)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in whole.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _row(name: str, data: bytes) -> str:
    # PEP 427: URL-safe base64 without padding.
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def _lines(rows: Sequence[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()
