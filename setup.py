"""Builds the native kernel and the Java helper; all else about the package is in pyproject.toml.

``build_backend/`` finds the C compiler. The kernel uses the limited API of Python (abi3), so one
wheel of a platform serves every Python version. Without a Java compiler the package does all but
read databases by their ``jdbc:`` drivers.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_clib import build_clib
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

PACKAGE = Path("beam_tfrecord")
NATIVE = PACKAGE / "native"

# Each is a binding in Cython of the C files, which are one static library.
BINDINGS = ("_csv", "_records", "_index")
KERNEL = (
    "beam_tfrecord_kernel",
    {
        "sources": sorted(path.as_posix() for path in NATIVE.glob("[a-z]*.c")),
        "include_dirs": [NATIVE.as_posix()],
        "obj_deps": {"": sorted(path.as_posix() for path in NATIVE.glob("*.h"))},
        "cflags": ["-O3", "-g0", "-std=c11"],
    },
)

# The oldest Python that the kernel runs on, as the C compiler and as wheel tags name it.
LIMITED_API = ("Py_LIMITED_API", "0x030B0000")
WHEEL_PYTHON = "cp311"

JAVA = PACKAGE / "java"
JAR = JAVA / "beam-tfrecord.jar"
# The quick compiler of the JVM itself is enough for a run of a second.
JAVAC = ("javac", "-J-XX:TieredStopAtLevel=1", "--release", "11")

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
            subprocess.run([*JAVAC, "-d", classes, *names], check=True)
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


class BuildKernel(build_clib):
    """Makes the static library of the kernel, in a thread."""

    def run(self) -> None:
        """Begin; `built.result()` waits for the end."""
        self.built = ThreadPoolExecutor().submit(super().run)


class BuildBindings(build_ext):
    """Makes the bindings while the library is made, and links them with it."""

    def initialize_options(self) -> None:
        """Set what an editable install resets where `setup(options=...)` says it."""
        super().initialize_options()
        self.parallel = len(BINDINGS)
        # Cython's C goes beside the object files, not into the sources.
        self.cython_c_in_temp = True

    def run(self) -> None:
        """Compile the library and the bindings."""
        self.run_command("build_clib")
        super().run()

    def get_libraries(self, ext: Extension) -> list[str]:
        """Return what to link a compiled binding with, when the library is there."""
        self.get_finalized_command("build_clib").built.result()
        return super().get_libraries(ext)


def extensions() -> list[Extension]:
    """Return the bindings; they hold no loops worth more than -O1, which compiles twice as fast."""
    return [
        Extension(
            f"beam_tfrecord.native.{name}",
            [(NATIVE / f"{name}.pyx").as_posix()],
            include_dirs=[NATIVE.as_posix()],
            depends=[
                path.as_posix()
                for form in ("[a-z]*.[ch]", "*.pxd", "*.pxi")
                for path in NATIVE.glob(form)
            ],
            extra_compile_args=["-O1", "-g0", "-std=c11"],
            define_macros=[LIMITED_API],
            py_limited_api=True,
        )
        for name in BINDINGS
    ]


def readme() -> str:
    """Return the README; relative links become links to this version in the public repository."""
    # No tomllib: pip tells an older Python what it needs, but only after this has run there.
    (source,) = re.findall('^Source = "(.+)"$', Path("pyproject.toml").read_text("utf-8"), re.M)
    version = runpy.run_path(str(PACKAGE / "_version.py"))["__version__"]

    def absolute(link: re.Match[str]) -> str:
        view = "raw" if link["text"].startswith("!") else "blob"
        address = f"{source}/{view}/v{version}/{link['target']}"
        return f"{link['text']}({address}" if Path(link["target"]).exists() else link[0]

    text = Path("README.md").read_text(encoding="utf-8")
    return re.sub(r"(?P<text>!\[[^]]*\]|\])\((?P<target>[^)#\s]+)", absolute, text)


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    ext_modules=extensions(),
    libraries=[KERNEL],
    cmdclass={
        "build_clib": BuildKernel,
        "build_ext": BuildBindings,
        "build_py": BuildPyWithJar,
        "sdist": SdistWithJar,
    },
    options={"bdist_wheel": {"py_limited_api": WHEEL_PYTHON}},
)
