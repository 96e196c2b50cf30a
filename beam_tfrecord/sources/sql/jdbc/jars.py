"""Jars of drivers: by path, by URL of any Beam filesystem, or as Maven coordinates.

Coordinates are resolved by Maven, and what it found is remembered. Workers without Maven find a
jar that was staged with the job under its file name.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from beam_tfrecord.errors import UsageError
from beam_tfrecord.private import private_directory
from beam_tfrecord.storage import put

_COORDINATES = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)")
_MAVEN_S = 120
_SHOWN_CHARACTERS = 200

# The newest plugin need not be asked for: this one knows all that is needed.
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>beam_tfrecord</groupId><artifactId>drivers</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  </dependency></dependencies>
</project>
"""


def local_jars(jars: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of jars on this machine, with those that they need.

    Args:
        jars: Paths of jars or of directories of them, URLs, or ``group:artifact:version``.

    Raises:
        UsageError: One of them cannot be had.
    """
    return tuple(path for jar in jars for path in _located(jar))


def jars_to_send(jars: Sequence[str]) -> tuple[str, ...]:
    """Return what workers need to find jars that this machine, which submits the job, can find.

    Coordinates become the jars that Maven finds here. A URL stays one; so does a path that is
    not here, for it may be there.

    Raises:
        UsageError: Maven does not find what was named.
    """
    sent: list[str] = []
    for jar in jars:
        is_here = os.path.exists(jar.removeprefix("file://")) or _COORDINATES.fullmatch(jar)
        sent += _located(jar) if is_here else (jar,)
    return tuple(sent)


def _located(jar: str) -> tuple[str, ...]:
    path = jar.removeprefix("file://")
    if os.path.isdir(path):
        found = sorted(str(one) for one in Path(path).glob("*.jar"))
        if not found:
            raise UsageError(f"no jar is in directory {path!r}: correct --jar")
        return tuple(found)
    if os.path.isfile(path):
        return (os.path.abspath(path),)
    if "://" in path:
        return (_downloaded(path),)
    if coordinates := _COORDINATES.fullmatch(jar):
        return _resolved(*coordinates.groups())
    if staged := _staged(os.path.basename(path)):
        return (staged,)
    raise UsageError(f"cannot read driver jar {jar!r}: no such file: correct --jar")


def _staged(name: str) -> str | None:
    """Return the path of a file that was staged with the job, on a worker that has it."""
    directory = os.environ.get("SEMI_PERSISTENT_DIRECTORY")
    path = os.path.join(directory, "staged", name) if directory else ""
    return path if path and os.path.isfile(path) else None


def _cache(name: str) -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    own = os.path.join(tempfile.gettempdir(), f"beam_tfrecord-{os.getuid()}")
    try:
        directory = private_directory(os.path.join(root, "beam_tfrecord"))
    except OSError:
        try:
            directory = private_directory(own)
        except OSError as error:
            raise UsageError(
                f"cannot keep driver jars in {own!r}: {error.strerror}: remove it, or set "
                "XDG_CACHE_HOME to a directory of your own"
            ) from error
    return os.path.join(directory, name)


@functools.cache
def _downloaded(url: str) -> str:
    """Copy a jar from a filesystem that Beam knows; once a process."""
    from apache_beam.io.filesystems import FileSystems

    name = f"{hashlib.sha256(url.encode()).hexdigest()[:16]}-{url.rpartition('/')[2]}"
    path = _cache(name)
    try:
        with FileSystems.open(url) as file:
            put(path, file.read())
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"cannot read driver jar {url!r} ({reason}): correct --jar") from error
    return path


@functools.cache
def _resolved(group: str, artifact: str, version: str) -> tuple[str, ...]:
    """Return the jars of Maven coordinates, the one that is named first."""
    noted = _cache(f"{group}_{artifact}_{version}.classpath")
    if os.path.isfile(noted):
        paths = Path(noted).read_text(encoding="utf-8").split(os.pathsep)
        if all(map(os.path.isfile, paths)):
            return tuple(paths)
    coordinates = f"{group}:{artifact}:{version}"
    maven = shutil.which("mvn")
    if maven is None:
        if staged := _staged(f"{artifact}-{version}.jar"):
            return (staged,)
        raise UsageError(
            f"cannot resolve {coordinates}: maven (mvn) is not installed: pass the path of the "
            "jar with --jar"
        )
    found = _ask_maven(maven, group, artifact, version)
    put(noted, found.encode())
    return tuple(found.split(os.pathsep))


def _ask_maven(maven: str, group: str, artifact: str, version: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        pom, out = os.path.join(directory, "pom.xml"), os.path.join(directory, "classpath")
        put(pom, _POM.format(*map(escape, (group, artifact, version))).encode())
        command = [
            maven,
            "-B",
            "-q",
            "-Dstyle.color=never",
            "-f",
            pom,
            _PLUGIN,
            f"-Dmdep.outputFile={out}",
        ]
        try:
            done = subprocess.run(
                [*command, "-DincludeScope=runtime"],
                capture_output=True,
                text=True,
                timeout=_MAVEN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"maven did not find {group}:{artifact}:{version} within {_MAVEN_S} seconds: "
                "pass the path of the jar with --jar"
            ) from None
        if done.returncode == 0 and os.path.isfile(out):
            return Path(out).read_text(encoding="utf-8").strip()
    said = (line.rpartition("[ERROR]")[2].strip() for line in done.stdout.splitlines())
    reason = next((line for line in said if line), "it says nothing")[:_SHOWN_CHARACTERS]
    raise UsageError(f"maven did not find {group}:{artifact}:{version} ({reason}): correct --jar")
