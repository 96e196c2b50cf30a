"""Builds the sdist and the Linux wheels of this version in dist/, and checks them.

``scripts/release/build`` runs this in an environment that has requirements.txt. Each wheel is built
from the sdist by zig, for glibc 2.17 and any Python from 3.11 on, then installed and used: on every
Python that is here, and the one for ARM in an emulator. The last lines say what could not be tried.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

from arm import python_of_arm

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
JAR = "beam_tfrecord/java/beam-tfrecord.jar"
IN_SDIST = {JAR, "CONTRIBUTING.md", "docs/guarantees.md"}
SMOKE = ROOT / "scripts" / "release" / "smoke.py"
# Processors, with their numbers in the header of an ELF file.
MACHINES = {"x86_64": 62, "aarch64": 183}
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")
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


def check_extras(python: str, platform: str) -> None:
    """Check that an installer finds versions of all that the extras ask for."""
    target = ("--python-version", python, "--python-platform", platform)
    project = ROOT / "pyproject.toml"
    run(*UV, "pip", "compile", "--quiet", "--no-header", "--all-extras", *target, project)


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


def check_sdist(names: set[str]) -> None:
    """Check the names of the files of an sdist."""
    for name in sorted(IN_SDIST - names):
        raise SystemExit(f"release: the sdist lacks {name}")
    for name in sorted(names):
        if name.endswith((".so", ".pyc")):
            raise SystemExit(f"release: the sdist has {name}")


def check(wheels: list[Path], version: str) -> None:
    """Check what a package index and an installer look at."""
    run("twine", "check", "--strict", *DIST.glob("beam_tfrecord-*"))
    run("check-wheel-contents", *wheels)
    run("abi3audit", "--strict", "--assume-minimum-abi3", "3.11", *wheels)
    with tarfile.open(DIST / f"beam_tfrecord-{version}.tar.gz") as packed:
        check_sdist({name.partition("/")[2] for name in packed.getnames()})
    for wheel, number in zip(wheels, MACHINES.values(), strict=True):
        archive = zipfile.ZipFile(wheel)
        if JAR not in archive.namelist():
            raise SystemExit("release: no Java helper in the wheel: install a JDK of 11 or later")
        # e_machine stands behind e_ident and e_type.
        kernel = archive.read("beam_tfrecord/native/_records.abi3.so")
        if int.from_bytes(kernel[18:20], "little") != number:
            raise SystemExit(f"release: {wheel.name} has a kernel of another processor")
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
    for python, platform in itertools.product(PYTHONS, PLATFORMS):
        check_extras(python, platform)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        x86, arm = build(work)
        check([x86, arm], version)
        for path in sorted(DIST.glob("beam_tfrecord-*")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes  sha256 {digest}")
        tried = []
        for python in PYTHONS:
            tried.append(try_here(x86, version, python, work))
            print(tried[-1], flush=True)
        if all(line.startswith("not tried") for line in tried):
            raise SystemExit("release: no wheel was tried: uv python install 3.11")
        print(try_on_arm(arm, work))


if __name__ == "__main__":
    main()
