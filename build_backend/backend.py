"""The PEP 517 build backend: setuptools with a C compiler that is always there.

The system's compiler builds the native kernel. If there is none, or if the environment names the
platform of the wheel (``_PYTHON_HOST_PLATFORM=linux-aarch64``), the backend asks for the PyPI
package ziglang and builds with its clang, for any processor and for old versions of glibc.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ZIGLANG = "ziglang>=0.13"
# Processors whose kernel is tested, with the oldest glibc that pip's manylinux wheels run on.
_GLIBC = {"x86_64": "2.17", "aarch64": "2.17"}

Settings = Mapping[str, Any] | None


if sys.platform == "win32":
    raise SystemExit("beam-tfrecord runs on Linux and macOS; on Windows, install it in WSL")


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what a wheel needs to be built, a compiler from PyPI included if there is none."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_package()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Return what an editable install needs, a compiler from PyPI included if there is none."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler_package()]


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel and return its file name; remove what setuptools leaves in the sources."""
    _prepare_compiler()
    try:
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
    finally:
        for left in ("build", "beam_tfrecord.egg-info"):
            shutil.rmtree(left, ignore_errors=True)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the kernel in place and a wheel that points here; return the wheel's file name."""
    _prepare_compiler()
    # setuptools warns of every editable install, in nine lines that ask nothing of the user.
    warnings.filterwarnings("ignore", "Editable installation")
    return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def system_compiler() -> str | None:
    """Return the command of the C compiler to use, or None if this machine has none.

    ``$CC`` is used as it is, whatever it names. A wheel for a named platform needs ``$CC`` or zig.
    """
    if command := os.environ.get("CC"):
        return command
    if os.environ.get("_PYTHON_HOST_PLATFORM", "").startswith("linux-"):
        return None
    # A Python built elsewhere may name a compiler that this machine lacks.
    commands = (sysconfig.get_config_var("CC") or "cc", "cc", "gcc", "clang")
    return next((one for one in commands if shutil.which(shlex.split(one)[0])), None)


def zig_environment() -> dict[str, str]:
    """Return the environment variables that make setuptools build with zig for this platform."""
    machine = _machine()
    is_musl = "musl" in str(sysconfig.get_config_var("EXT_SUFFIX"))
    libc = "musl" if is_musl else f"gnu.{_GLIBC[machine]}"
    zig = shlex.join([sys.executable, "-m", "ziglang"])
    compiler = f"{zig} cc -target {machine}-linux-{libc}"
    return {
        "CC": compiler,
        "AR": f"{zig} ar",
        # Zig's own runtime has debug information, whatever CFLAGS say.
        "LDSHARED": f"{compiler} -shared -s",
        # Otherwise the flags of the compiler that built Python would be used.
        "CFLAGS": os.environ.get("CFLAGS", "-DNDEBUG"),
    }


def check_headers(include: str) -> None:
    """Exit with one line that names the missing package unless ``Python.h`` is in `include`."""
    if not (Path(include) / "Python.h").exists():
        raise SystemExit(
            f"beam-tfrecord cannot be built: {include}/Python.h is missing: install the headers of "
            "Python (Debian, Ubuntu: python3-dev; Fedora, RHEL: python3-devel)"
        )


def _prepare_compiler() -> None:
    """Set the environment variables from which setuptools takes the compiler."""
    check_headers(sysconfig.get_path("include"))
    if command := system_compiler():
        if shutil.which(shlex.split(command)[0]) is None:
            raise SystemExit(
                f"beam-tfrecord cannot be built: the environment variable CC is {command!r}, which "
                "is not installed: install it, or unset CC"
            )
        os.environ["CC"] = command
        return
    (package,) = _compiler_package()
    if importlib.util.find_spec("ziglang") is None:
        raise SystemExit(
            "beam-tfrecord cannot be built: there is no C compiler: install gcc or clang, or "
            f"{package!r} beside setuptools and cython"
        )
    os.environ.update(zig_environment())


def _compiler_package() -> list[str]:
    """Return the requirement that brings a compiler if one is needed.

    Raises:
        SystemExit: One is needed, but ziglang is not known to work for this platform.
    """
    if system_compiler():
        return []
    if sysconfig.get_platform().startswith("linux-") and _machine() in _GLIBC:
        return [ZIGLANG]
    raise SystemExit(
        "beam-tfrecord cannot be built: there is no C compiler: install gcc or clang (macOS: "
        "xcode-select --install), or name one in the environment variable CC"
    )


def _machine() -> str:
    """Return the processor that the wheel is for, as in ``linux-x86_64``."""
    return sysconfig.get_platform().rpartition("-")[2]
