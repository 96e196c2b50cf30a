"""Debian's programs for tests: downloaded and unpacked, not installed, so nobody has to be root."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def unpacked(package, program):
    """Return the directory that holds a program of a package, or skip where it cannot be had.

    Args:
        package: Name of the package.
        program: Path of the program below that directory, as in ``usr/bin/x``.
    """
    if (Path("/") / program).exists():
        return Path("/")
    # Kept, and readable by the user that runs it, which the home directory of root is not.
    root = Path("/var/tmp") / f"beam_tfrecord-{package}-{os.getuid()}"
    if not (root / program).exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            pytest.skip(f"there is no {program}, and no Debian to take it from")
        _unpack(package, root)
    return root


def _unpack(package, root):
    """Download a package with the libraries that it needs and this machine lacks."""
    with tempfile.TemporaryDirectory() as directory:
        listed = subprocess.run(
            ["apt-cache", "depends", package], capture_output=True, text=True, check=False
        )
        lines = listed.stdout.splitlines()
        needed = [line.split()[-1] for line in lines if re.search(r"Depends: (lib|qemu)", line)]
        missing = [name for name in needed if not _is_installed(name)]
        done = subprocess.run(
            ["apt-get", "download", package, *missing],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"{package} cannot be downloaded: {done.stderr.splitlines()[-1:]}")
        unpacked = Path(f"{root}.{os.getpid()}")
        for file in sorted(Path(directory).glob("*.deb")):
            subprocess.run(["dpkg", "-x", file, unpacked], check=True)
        unpacked.chmod(0o755)
        try:
            unpacked.rename(root)
        except OSError:
            # Another process was faster, and may already run the program.
            shutil.rmtree(unpacked)


def _is_installed(package):
    return subprocess.run(["dpkg", "-s", package], capture_output=True, check=False).returncode == 0
