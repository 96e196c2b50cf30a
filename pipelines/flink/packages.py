"""Flink and the Beam runner for it, from PyPI and Maven Central, kept in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

FLINK = "1.19.3"
RUNNER = "beam-runners-flink-1.19-2.62.0"

_HERE = Path(__file__).parent
_MAVEN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_S = 900
_NEEDED = {
    "java": "install a Java runtime of version 11 or 17 (such as openjdk-17-jre-headless)",
    "mvn": "install Maven, which fetches the Beam runner for Flink",
}


class Missing(Exception):
    """Something is not on this machine; the text says what, and what to do."""


def cache() -> Path:
    """Return where downloads are kept: ``$BEAM_TFRECORD_CACHE``, or the user's cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("BEAM_TFRECORD_CACHE") or f"{home}/beam-tfrecord").absolute()


def need(program: str) -> str:
    """Return the path of a program.

    Raises:
        Missing: It is not there.
    """
    if (path := shutil.which(program)) is None:
        raise Missing(f"there is no {program} on this machine: {_NEEDED[program]}")
    return path


def flink_home() -> Path:
    """Return the directory of Flink itself, with bin/, lib/ and conf/."""
    return _kept(f"flink-{FLINK}", _fetch_flink) / "pyflink"


def runner_jars() -> Path:
    """Return the directory of the jars of the Beam runner, and of all that it needs."""
    return _kept(RUNNER, _fetch_runner)


def _fetch_flink(into: Path) -> None:
    # The libraries come as sources of a package, which pip builds with what is beside it.
    with tempfile.TemporaryDirectory() as directory:
        python = _make_python(Path(directory) / "venv")
        install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(into)]
        _run(python, "-m", "pip", "install", "--quiet", "setuptools<81", "wheel")
        _run(*install, "--no-build-isolation", f"apache-flink-libraries=={FLINK}")
        rest = Path(directory) / "rest"
        install[-1] = str(rest)
        _run(*install, "--only-binary=:all:", f"apache-flink=={FLINK}")
        for part in ("bin", "conf"):
            shutil.copytree(rest / "pyflink" / part, into / "pyflink" / part, dirs_exist_ok=True)


def _make_python(directory: Path) -> str:
    if shutil.which("uv"):
        _run("uv", "venv", "--quiet", "--seed", "--python", sys.executable, str(directory))
    else:
        _run(sys.executable, "-m", "venv", str(directory))
    return str(directory / "bin" / "python")


def _fetch_runner(into: Path) -> None:
    options = [f"-DoutputDirectory={into}", "-DincludeScope=runtime", "-Dstyle.color=never"]
    _run(need("mvn"), "-B", "-q", "-f", str(_HERE / "pom.xml"), _MAVEN, *options)
    if not (into / f"{RUNNER}.jar").exists():
        raise Missing(f"Maven did not fetch {RUNNER}.jar: see the settings of your repositories")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} did not end within {_FETCH_S} seconds: try again") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it says nothing"]
        raise Missing(f"{' '.join(command[:6])} … failed: {said[-1]}")


def _kept(name: str, fetch: Callable[[Path], None]) -> Path:
    place = cache() / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_name(f"{name}.lock")):
        if not place.exists():
            made = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{name}-"))
            try:
                fetch(made)
                made.rename(place)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
    return place


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
