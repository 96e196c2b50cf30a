"""Builds the native kernel; everything else about the package is in pyproject.toml.

Without a C compiler or Cython the package still installs and runs on its Python reference.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("beam_tfrecord") / "native"

C_SOURCES: dict[str, list[str]] = {
    "_records": [
        "crc32c.c",
        "xxh64.c",
        "utf8.c",
        "column.c",
        "measure.c",
        "write.c",
        "encode.c",
        "frames.c",
        "sort.c",
        "example.c",
        "decode.c",
        "discover.c",
        "canonical.c",
    ],
    "_csv": ["utf8.c", "csv_*.c"],
}

NO_KERNEL = (
    "WARNING: the native kernel of beam_tfrecord was not built, so encoding will be about a "
    "hundred times slower: install a C compiler and Cython, then reinstall"
)


class OptionalBuildExt(build_ext):
    """Builds what can be built and says once, clearly, when something could not."""

    warned = False

    def run(self) -> None:
        """Build all extensions; a failure leaves the package pure Python."""
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
                    for form in ("*.h", "*.pxi")
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


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
