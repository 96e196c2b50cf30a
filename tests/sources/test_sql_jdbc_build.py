"""The Java helper in what is built: in the wheel and the sdist, and not missed without javac."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JAR = "beam_tfrecord/java/beam-tfrecord.jar"


@pytest.fixture
def tree(tmp_path):
    """A copy of the project without its C, which takes long to build."""
    copy = tmp_path / "tree"
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    package = copy / "beam_tfrecord"
    shutil.copytree(
        ROOT / "beam_tfrecord" / "java", package / "java", ignore=shutil.ignore_patterns("*.jar")
    )
    for name in ("__init__.py", "_version.py"):
        shutil.copy2(ROOT / "beam_tfrecord" / name, package / name)
    return copy


def setup(tree, *arguments, path=None):
    done = subprocess.run(
        [sys.executable, "setup.py", *arguments],
        cwd=tree,
        env={**os.environ, "PATH": path or os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


needs_javac = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")


@needs_javac
def test_the_jar_is_built_for_java_11_and_goes_into_the_wheel_without_its_sources(tree):
    setup(tree, "build_py", "--build-lib", "out")
    built = {path.relative_to(tree / "out").as_posix() for path in (tree / "out").rglob("*.*")}
    assert JAR in built
    assert {path for path in built if path.endswith(".java")} == set()
    with zipfile.ZipFile(tree / "out" / JAR) as jar:
        names = jar.namelist()
        # Bytes 6 and 7 of a class file are its version: 55 is that of Java 11.
        assert {jar.read(name)[6:8] for name in names if name.endswith(".class")} == {b"\0\x37"}
    assert names[0] == "META-INF/MANIFEST.MF"
    assert {"beamtfrecord/Connector.class", "beamtfrecord/RowBlocks.class"} <= set(names)


def test_without_javac_the_build_goes_on_with_a_warning(tree, tmp_path):
    (tmp_path / "bin").mkdir()
    said = setup(tree, "build_py", "--build-lib", "out", path=str(tmp_path / "bin"))
    assert said.count("install a JDK of 11 or later") == 1
    assert (tree / "out" / "beam_tfrecord" / "__init__.py").exists()
    assert not (tree / "out" / JAR).exists()
