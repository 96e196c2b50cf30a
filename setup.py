"""Builds the native kernel and the Java helper; all else about the package is in pyproject.toml.

Without a C compiler or Cython the package still installs and runs on its Python reference, and
without a Java compiler it does all but read databases by their ``jdbc:`` drivers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

NATIVE = Path("beam_tfrecord") / "native"

C_SOURCES: dict[str, list[str]] = {
    "_records": [
        "crc32c.c",
        "xxh64.c",
        "utf8.c",
        "column.c",
        "encode.c",
        "frames.c",
        "example.c",
        "decode.c",
        "fit.c",
        "canonical.c",
    ],
    "_csv": ["utf8.c", "csv_*.c"],
    "_files": ["files.c", "jpeg.c", "stubs.c", "crc32c.c"],
    "_sqlite": ["utf8.c", "sqlite_rows.c"],
}

NO_KERNEL = (
    "WARNING: the native kernel of beam_tfrecord was not built, so encoding will be about a "
    "hundred times slower: install a C compiler and Cython, then reinstall"
)

JAVA = Path("beam_tfrecord") / "java"
JAR = JAVA / "beam-tfrecord.jar"

NO_JAR = (
    "WARNING: the Java helper of beam_tfrecord was not built, so jdbc: databases cannot be read: "
    "install a JDK of 11 or later, then reinstall"
)


def build_jar() -> None:
    """Compile the Java helper into a jar beside its sources, unless one is there that is newer.

    The jar belongs into the sdist too: who installs from that needs no compiler.
    """
    sources = sorted(JAVA.rglob("*.java"))
    newest = max(source.stat().st_mtime for source in sources)
    if JAR.exists() and JAR.stat().st_mtime >= newest:
        return
    with tempfile.TemporaryDirectory() as classes:
        names = [source.as_posix() for source in sources]
        try:
            subprocess.run(["javac", "--release", "11", "-d", classes, *names], check=True)
        except (OSError, subprocess.CalledProcessError) as cause:
            print(f"{NO_JAR} ({cause})", file=sys.stderr)
            return
        _write_jar(Path(classes))


def _write_jar(classes: Path) -> None:
    with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as jar:
        # Fixed names, order and times: the same sources give the same jar.
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), "Manifest-Version: 1.0\r\n\r\n")
        for path in sorted(classes.rglob("*.class")):
            name = path.relative_to(classes).as_posix()
            jar.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)


class BuildPyWithJar(build_py):
    """Makes the jar before the files of the package are gathered."""

    def run(self) -> None:
        """Make the jar, then copy."""
        build_jar()
        super().run()


class SdistWithJar(sdist):
    """Makes the jar before the files of the sdist are listed."""

    def run(self) -> None:
        """Make the jar, then pack."""
        build_jar()
        super().run()


class OptionalBuildExt(build_ext):
    """Builds what can be built and says once, clearly, when something could not."""

    warned = False

    def run(self) -> None:
        """Build all extensions, and the jar; a failure leaves the package pure Python."""
        build_jar()
        try:
            super().run()
        except Exception as cause:
            self._warn(cause)

    def build_extension(self, ext: Extension) -> None:
        """Build one extension; a failure leaves out that one only."""
        try:
            super().build_extension(ext)
        except Exception as cause:
            self._warn(cause)

    def copy_extensions_to_source(self) -> None:
        """Copy what was built beside the sources; what was not built is not missed."""
        built = [
            ext
            for ext in self.extensions
            if (Path(self.build_lib) / self.get_ext_filename(ext.name)).exists()
        ]
        self.extensions = built
        super().copy_extensions_to_source()

    def _warn(self, cause: Exception) -> None:
        if not self.warned:
            print(f"{NO_KERNEL} ({cause})", file=sys.stderr)
        self.warned = True


def extensions() -> list[Any]:
    """Return the extensions whose binding is there, or none without Cython."""
    found = []
    for binding in sorted(NATIVE.glob("_*.pyx")):
        sources = [path for name in C_SOURCES[binding.stem] for path in sorted(NATIVE.glob(name))]
        found.append(
            Extension(
                f"beam_tfrecord.native.{binding.stem}",
                [binding.as_posix(), *(source.as_posix() for source in sources)],
                include_dirs=[NATIVE.as_posix()],
                depends=[
                    path.as_posix()
                    for form in ("*.h", "*.pxd")
                    for path in sorted(NATIVE.glob(form))
                ],
                extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-std=c11"],
            )
        )
    try:
        from Cython.Build import cythonize
    except ImportError as cause:
        print(f"{NO_KERNEL} ({cause})", file=sys.stderr)
        return []
    return list(cythonize(found, build_dir="build/cython"))


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": OptionalBuildExt, "build_py": BuildPyWithJar, "sdist": SdistWithJar},
)
