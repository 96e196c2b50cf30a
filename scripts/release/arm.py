"""A Python for ARM from Debian's packages, run by QEMU: nothing is installed, nobody is root."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def python_of_arm(work: Path) -> tuple[list[str], str]:
    """Return a command that runs Python for ARM, and its version as in ``3.11``.

    Args:
        work: An existing directory, for packages and what is in them.

    Raises:
        OSError: Debian's packages cannot be had.
    """
    root = work / "arm64"
    # NumPy's wheels need the C++ library.
    _unpack(root, "arm64", "python3", "libstdc++6")
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        here = work / "here"
        _unpack(here, ARCHITECTURES[platform.machine()], "qemu-user-static")
        emulator = str(here / "usr" / "bin" / "qemu-aarch64-static")
    (python,) = (root / "usr" / "bin").glob("python3.??")
    return [emulator, "-L", str(root), str(python)], python.name.removeprefix("python")


def _unpack(root: Path, architecture: str, *packages: str) -> None:
    """Download packages with all they depend on, and unpack them below `root`."""
    state = root.with_name(f"{root.name}-apt")
    (state / "lists" / "partial").mkdir(parents=True)
    (state / "archives" / "partial").mkdir(parents=True)
    (state / "status").touch()
    settings = {
        "Dir::State": state,
        "Dir::State::lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "Dir::Cache::archives": state / "archives",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", "--quiet=2", *(f"-o{name}={value}" for name, value in settings.items())]
    install = ["install", "--yes", "--download-only", "--no-install-recommends", *packages]
    try:
        subprocess.run([*apt, "update"], capture_output=True, check=True)
        subprocess.run([*apt, *install], capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise OSError(f"Debian's {architecture} packages: {' '.join(reason)}") from error
    for file in sorted((state / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", file, root], check=True)
