"""The C of the kernel builds with every compiler that is here, and its CRCs are the same.

Without the instruction a checksum takes three times as long, so each has to build that path.
"""

import ctypes
import importlib.util
import platform
import random
import shutil
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pytest

NATIVE = Path(__file__).parents[2] / "beam_tfrecord" / "native"
FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Werror"]
LENGTHS = [*range(70), 383, 384, 385, 3071, 3072, 3073, 100_000]


def compilers():
    """Return the commands of the C compilers for this machine, and of zig's for ARM, by name."""
    found = {name: [path] for name in ("gcc", "clang") if (path := shutil.which(name))}
    if importlib.util.find_spec("ziglang") is None:
        # A skip of test_arm.py tells it.
        return found, {}
    zig = [sys.executable, "-m", "ziglang", "cc", "-target"]
    # Without a target zig builds for this very machine, instructions and all.
    found["zig"] = [*zig, f"{platform.machine()}-linux-gnu"]
    kinds = ("generic", "generic+crc")
    return found, {name: [*zig, "aarch64-linux-gnu", f"-mcpu={name}"] for name in kinds}


COMPILERS, ARM = compilers()


@pytest.mark.slow_after(1)
@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMPILERS.values(), *ARM.values()], ids=[*COMPILERS, *ARM])
def test_every_file_builds(command, tmp_path):
    for source in sorted(NATIVE.glob("*.c")):
        build = [*command, *FLAGS, "-O1", "-c", str(source), "-o", str(tmp_path / "a.o")]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{source.name}: {done.stderr}"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS)
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its instruction")
def test_checksums_use_the_instruction_and_are_right(compiler, tmp_path):
    library = tmp_path / "crc.so"
    source = str(NATIVE / "crc32c.c")
    subprocess.run([*compiler, *FLAGS, "-fPIC", "-shared", source, "-o", str(library)], check=True)
    assembly = tmp_path / "crc.s"
    subprocess.run([*compiler, "-O3", "-S", source, "-o", str(assembly)], check=True)
    assert "crc32q" in assembly.read_text()
    kernel = ctypes.CDLL(str(library))
    kernel.bt_crc32c_init()
    draw = random.Random(0)
    for length in LENGTHS:
        data = draw.randbytes(length)
        for name in ("bt_crc32c", "bt_crc32c_portable"):
            function = getattr(kernel, name)
            function.restype, function.argtypes = (
                ctypes.c_uint32,
                [ctypes.c_char_p, ctypes.c_size_t],
            )
            assert function(data, length) == google_crc32c.value(data), (name, length)
