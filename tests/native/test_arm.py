"""The C of the kernel on ARM: built with zig, run by QEMU, with the same results as here."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.debian import unpacked
from tests.native.broken_bytes import stream

ROOT = Path(__file__).parents[2]
RUNS = 3_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ziglang") is None,
        reason="there is no zig here, which compiles for other machines: pip install ziglang",
    ),
]


@pytest.fixture(scope="module")
def qemu():
    """Return the program that runs programs of ARM, which Debian's packages may bring."""
    for name in ("qemu-aarch64", "qemu-aarch64-static"):
        if path := shutil.which(name):
            return path
    program = "usr/bin/qemu-aarch64-static"
    return str(unpacked("qemu-user-static", program) / program)


def fuzzer(path, target):
    """Build the fuzzer of the readers, which needs no library where it runs."""
    sources = re.search(
        r'"beam_tfrecord/native/%s\.c " (.+)\)', (ROOT / "scripts/fuzz").read_text()
    )
    assert sources
    native = ROOT / "beam_tfrecord" / "native"
    command = [
        *(sys.executable, "-m", "ziglang", "cc", "-target", target, "-static"),
        *("-std=c11", "-O2", "-Wall", "-Wextra", "-I", str(native), "-o", str(path)),
        str(ROOT / "tests" / "native" / "fuzz_readers.c"),
        *(str(native / f"{name}.c") for name in shlex.split(sources[1])),
    ]
    subprocess.run(command, check=True)
    return path


def test_the_readers_do_on_arm_what_they_do_here(qemu, tmp_path):
    inputs = b"".join(stream(RUNS, 1))
    arm = fuzzer(tmp_path / "arm", "aarch64-linux-musl")
    here = fuzzer(tmp_path / "here", f"{os.uname().machine}-linux-musl")
    outputs = [
        subprocess.run(command, input=inputs, capture_output=True, check=True).stdout.decode()
        for command in ([qemu, "-cpu", "max", str(arm)], [str(here)])
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith(f"{RUNS} inputs, ")


def test_checksums_have_the_instruction_of_arm(tmp_path):
    assembly = tmp_path / "crc.s"
    source = ROOT / "beam_tfrecord" / "native" / "crc32c.c"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17"]
    subprocess.run([*compiler, "-O3", "-S", str(source), "-o", str(assembly)], check=True)
    text = assembly.read_text()
    # It is found out when the library is loaded: not every processor has it.
    assert "crc32cx" in text
    assert "getauxval" in text
