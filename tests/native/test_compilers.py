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
    """Return the commands of the C compilers on this machine by name."""
    found = {name: [path] for name in ("gcc", "clang") if (path := shutil.which(name))}
    if zig := shutil.which("zig"):
        found["zig"] = [zig, "cc"]
    if importlib.util.find_spec("ziglang") is not None:
        found["zig"] = [sys.executable, "-m", "ziglang", "cc"]
    return found


def cross(machine, *features):
    """Return the flags that let zig's clang build for any machine of a kind."""
    return ["-target", f"{machine}-linux-gnu", *features]


COMPILERS = compilers()


@pytest.fixture(params=COMPILERS)
def compiler(request):
    """Return the command of a compiler."""
    # By itself zig builds for this very machine, instructions and all.
    return COMPILERS[request.param] + (cross(platform.machine()) if request.param == "zig" else [])


@pytest.mark.slow_after(1)
@pytest.mark.slow
def test_every_file_builds(compiler, tmp_path):
    for source in sorted(NATIVE.glob("*.c")):
        command = [*compiler, *FLAGS, "-O1", "-c", str(source), "-o", str(tmp_path / "a.o")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{source.name}: {done.stderr}"


@pytest.mark.slow_after(1)
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


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["generic", "generic+crc"])
def test_every_file_builds_for_arm(machine, tmp_path):
    if "zig" not in COMPILERS:
        pytest.skip("there is no zig here, which compiles for other machines: pip install ziglang")
    target = cross("aarch64", f"-mcpu={machine}")
    for source in sorted(NATIVE.glob("*.c")):
        command = [*COMPILERS["zig"], *target, *FLAGS, "-O1", "-c", str(source), "-o"]
        done = subprocess.run(
            [*command, str(tmp_path / "a.o")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{source.name}: {done.stderr}"
