"""Builds the sdist and the Linux wheels of this version in dist/, and checks them.

``scripts/release/build`` runs this in an environment that has requirements.txt. Each wheel is built
from the sdist by zig, for glibc 2.17 and any Python from 3.11 on, then installed and used: on every
Python that is here, and the one for ARM in an emulator. The last lines say what could not be tried.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from arm import python_of_arm

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
SMOKE = ROOT / "scripts" / "release" / "smoke.py"
MACHINES = ("x86_64", "aarch64")
PYTHONS = ("3.11", "3.12", "3.13")
UV = (sys.executable, "-m", "uv")
# Settings of a compiler, which would replace zig.
COMPILER_VARIABLES = ("CC", "CFLAGS", "LDSHARED")


def run(*command: str | Path, **environment: str) -> str:
    """Run a command and return its output.

    Raises:
        SystemExit: The command failed; the message has its output.
    """
    inherited = {name: it for name, it in os.environ.items() if name not in COMPILER_VARIABLES}
    done = subprocess.run(
        command,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}release: failed: {shlex.join(map(str, command))}")
    return done.stdout


def check_version(root: Path) -> str:
    """Return the version of the source tree at `root`.

    Raises:
        SystemExit: The commit has a tag of another version, the changelog lacks this version, or a
            proof is older than the release before.
    """
    version = str(runpy.run_path(str(root / "beam_tfrecord" / "_version.py"))["__version__"])
    for tag in run("git", "-C", root, "tag", "--points-at", "HEAD", "--list", "v*").split():
        if tag != f"v{version}":
            raise SystemExit(
                f"release: the tag {tag} does not match version {version} in "
                "beam_tfrecord/_version.py: correct that file, commit, and tag the new commit"
            )
        changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
        if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M):
            raise SystemExit(
                f"release: CHANGELOG.md has no heading '## [{version}] - YYYY-MM-DD': rename "
                "'## [Unreleased]', commit, and tag the new commit"
            )
        check_proofs(root, version, changelog)
    return version


def check_proofs(root: Path, version: str, changelog: str) -> None:
    """Check that every long proof was run since the release before `version`."""
    headings = re.findall(r"^## \[(.+)\] - (\d{4}-\d\d-\d\d)$", changelog, re.M)
    before = max((date for name, date in headings if name != version), default="")
    for path in sorted((root / "scripts" / "prove" / "results").glob("*.json")):
        if json.loads(path.read_text(encoding="utf-8"))["date"] < before:
            raise SystemExit(
                f"release: the proof {path.stem} is older than the last release: run "
                f"scripts/prove/run {path.stem}, commit, and tag the new commit"
            )


def build(work: Path) -> list[Path]:
    """Build the sdist, and a wheel from it for each processor; return the wheels."""
    shutil.rmtree(DIST, ignore_errors=True)
    make = [*UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
    run(*make, "--sdist", "--out-dir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    wheels = []
    for machine in MACHINES:
        built = work / machine
        run(*make, "--wheel", "--out-dir", built, sdist, _PYTHON_HOST_PLATFORM=f"linux-{machine}")
        (wheel,) = built.glob("*.whl")
        said = run("auditwheel", "repair", "--wheel-dir", DIST, wheel)
        repaired = list(DIST.glob(f"*-cp311-abi3-*manylinux_2_17_{machine}.whl"))
        if not repaired:
            raise SystemExit(f"{said}release: {wheel.name} does not run with glibc 2.17")
        wheels += repaired
    return wheels


def check(wheels: list[Path]) -> None:
    """Check what a package index and an installer look at."""
    run("twine", "check", "--strict", *DIST.glob("beam_tfrecord-*"))
    run("check-wheel-contents", *wheels)
    run("abi3audit", "--strict", "--assume-minimum-abi3", "3.11", *wheels)
    for wheel in wheels:
        archive = zipfile.ZipFile(wheel)
        if "beam_tfrecord/java/beam-tfrecord.jar" not in archive.namelist():
            raise SystemExit("release: no Java helper in the wheel: install a JDK of 11 or later")
        for name in archive.namelist():
            if name.endswith(".so") and b".debug_info" in archive.read(name):
                raise SystemExit(f"release: {wheel.name}: {name} has debug information")


def try_here(wheel: Path, version: str, python: str, work: Path) -> str:
    """Install a wheel in a bare environment that finds no compiler, and use it.

    Returns:
        What happened; it begins with "not tried" if there is no such Python.
    """
    environment = work / f"python{python}"
    made = [*UV, "venv", "--quiet", "--python", python, str(environment)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        return f"not tried: Python {python}, which this machine does not have"
    program = environment / "bin" / "python"
    run(*UV, "pip", "install", "--quiet", "--python", program, wheel, PATH="")
    said = run(program, "-I", SMOKE, PATH="")
    if version not in run(environment / "bin" / "beam-tfrecord", "--version", PATH=""):
        raise SystemExit(f"release: the command of {wheel.name} has another version")
    return said.splitlines()[-1]


def try_on_arm(wheel: Path, work: Path) -> str:
    """Use a wheel for ARM in an emulator; return what happened, as `try_here` does."""
    try:
        python, minor = python_of_arm(work)
    except OSError as error:
        return f"not tried: {wheel.name}: {error}"
    site = work / "site"
    target = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", minor)
    run(*UV, "pip", "install", "--quiet", *target, "--target", site, wheel)
    return run(*python, SMOKE, PYTHONPATH=str(site)).splitlines()[-1]


def main() -> None:
    """Build, check and try everything, and print what came of it."""
    if "-linux-gnu" in Path(sysconfig.get_config_h_filename()).read_text(encoding="utf-8"):
        raise SystemExit(
            "release: the headers of this Python, as of Debian's and Ubuntu's, are for one "
            "processor: use one of uv (UV_PYTHON_PREFERENCE=only-managed), pyenv or python.org"
        )
    version = check_version(ROOT)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        x86, arm = build(work)
        check([x86, arm])
        for path in sorted(DIST.glob("beam_tfrecord-*")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes  sha256 {digest}")
        for python in PYTHONS:
            print(try_here(x86, version, python, work), flush=True)
        print(try_on_arm(arm, work))


if __name__ == "__main__":
    main()
