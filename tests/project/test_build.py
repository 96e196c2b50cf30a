"""The build backend and the wheels it builds, with a compiler and without one.

`scripts/release/build` builds those of a release, which are for other platforms too.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from setuptools import build_meta

from beam_tfrecord._version import __version__
from tests.helpers.repository import ROOT, tracked_files

COMPILERS = ("cc", "gcc", "clang", "c99", "zig")

# Runs the kernel of the directory it is started in.
USE_KERNEL = """
import numpy as np, pyarrow as pa
from beam_tfrecord import native
from beam_tfrecord.native import _csv

batch = pa.record_batch([pa.array([5, 300])], ["x"])
out = np.zeros(1000, np.uint8)
starts, rows = np.zeros(2, np.int64), np.zeros(2, np.int64)
encoded = native.encode(batch, out, 0, starts, rows)
found = native.scan_frames(out[: encoded.size])
(column,) = native.decode(out, found.starts, [(b"x", 3)])
row = _csv.first_row(b"a,b", (44, 34, None, True), True)
print(native.__file__, column.values.tolist(), row.values, hex(native.crc32c(b"123456789")))
"""


@pytest.fixture
def backend(monkeypatch):
    """Return the build backend, in an environment that says nothing of compilers."""
    for name in ("AR", "CC", "CFLAGS", "LDSHARED", "_PYTHON_HOST_PLATFORM"):
        # Setting comes first, so that what the backend itself sets goes away again.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    spec = importlib.util.spec_from_file_location("backend", ROOT / "build_backend" / "backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for kind in ("wheel", "editable"):
        name = f"get_requires_for_build_{kind}"
        monkeypatch.setattr(build_meta, name, lambda _: ["from setuptools"])
    return module


def add_program(directory, name):
    """Make a program that can be found there."""
    (directory / name).write_text("#!/bin/sh\n")
    (directory / name).chmod(0o755)


def test_a_compiler_is_asked_for_only_where_there_is_none(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = ["from setuptools", backend.ZIGLANG]
    assert backend.get_requires_for_build_wheel() == expected
    assert backend.get_requires_for_build_editable() == expected
    add_program(tmp_path, "clang")
    assert backend.system_compiler() == "clang"
    assert backend.get_requires_for_build_wheel() == ["from setuptools"]
    assert backend.get_requires_for_build_editable() == ["from setuptools"]
    monkeypatch.setenv("CC", "my-cc -m64")
    assert backend.system_compiler() == "my-cc -m64"


def test_a_compiler_that_is_not_installed_is_one_line(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "check_headers", lambda include: None)
    monkeypatch.setenv("CC", "no-such-gcc -m64")
    with pytest.raises(SystemExit, match="CC is 'no-such-gcc -m64', which is not installed"):
        backend.build_wheel(str(tmp_path))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_wheel_of_a_named_platform_is_built_with_zig(backend, monkeypatch, machine):
    monkeypatch.setenv("_PYTHON_HOST_PLATFORM", f"linux-{machine}")
    assert backend.get_requires_for_build_wheel() == ["from setuptools", backend.ZIGLANG]
    made = backend.zig_environment()
    assert f"-target {machine}-linux-" in made["CC"]
    assert made["LDSHARED"] == f"{made['CC']} -shared -s"
    monkeypatch.setenv("CC", "other-gcc")
    assert backend.get_requires_for_build_wheel() == ["from setuptools"]


def test_windows_is_refused_in_one_line(backend, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match=r"^beam-tfrecord runs on Linux and macOS; on Windows"):
        backend.__spec__.loader.exec_module(backend)
    importing = "import sys; sys.platform = 'win32'; import beam_tfrecord"
    done = subprocess.run(
        [sys.executable, "-c", importing], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        "ImportError: beam_tfrecord runs on Linux and macOS; on Windows, use it in WSL"
    )


def test_source_code_that_hides_the_installed_package_says_so_in_one_line(tmp_path):
    package = tmp_path / "beam_tfrecord"
    package.mkdir()
    for name in ("__init__.py", "_version.py"):
        shutil.copy(ROOT / "beam_tfrecord" / name, package)
    importing = [sys.executable, "-c", "import beam_tfrecord"]
    done = subprocess.run(importing, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {package} is source code without its compiled kernel, and hides the "
        "installed package: run Python in another folder, or run: pip install -e ."
    )


def test_without_the_headers_of_python_one_line_names_their_package(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(backend.sysconfig, "get_path", lambda name: str(tmp_path))
    for build in (backend.build_wheel, backend.build_editable):
        with pytest.raises(SystemExit) as caught:
            build(str(tmp_path))
        assert str(caught.value) == (
            f"beam-tfrecord cannot be built: {tmp_path}/Python.h is missing: install the headers "
            "of Python (Debian, Ubuntu: python3-dev; Fedora, RHEL: python3-devel)"
        )


def build_wheel(tmp_path, **environment):
    """Copy the repository and build its wheel from there, so that no stale build helps."""
    for path in tracked_files():
        target = tmp_path / "tree" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    # Parts of earlier builds and settings of this process would help or disturb.
    unset = ("AR", "CC", "CFLAGS", "LDSHARED", "PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-v"]
    done = subprocess.run(
        [*build, "--wheel-dir", str(tmp_path / "wheels"), str(tmp_path / "tree")],
        capture_output=True,
        text=True,
        env={**inherited, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    return wheel


def assert_kernel_runs(wheel, directory):
    """Import the package from a wheel, unpacked where nothing else is, and run its kernel."""
    zipfile.ZipFile(wheel).extractall(directory)
    done = subprocess.run(
        [sys.executable, "-c", USE_KERNEL],
        cwd=directory,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(directory)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = f"{directory}/beam_tfrecord/native/__init__.py [5, 300] [b'a', b'b'] 0xe3069283\n"
    assert done.stdout == expected


@pytest.mark.slow
def test_wheel_holds_the_package_and_its_kernel_and_no_sources_of_c(tmp_path):
    wheel = build_wheel(tmp_path)
    top = {path.name for path in (tmp_path / "tree").iterdir()}
    assert top.isdisjoint({"build", "beam_tfrecord.egg-info"})
    assert wheel.name.startswith(f"beam_tfrecord-{__version__}-cp311-abi3-")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"beam_tfrecord-{__version__}.dist-info/licenses/LICENSE" in names
    assert {"beam_tfrecord/py.typed", "beam_tfrecord/__init__.pyi"} <= set(names)
    assert {"beam_tfrecord/cards/page.html", "beam_tfrecord/cards/page.css"} < set(names)
    for part in ("files", "keras", "tf", "torch"):
        assert f"beam_tfrecord/frameworks/program_{part}.jinja" in names
    for module in ("_csv", "_index", "_records"):
        assert f"beam_tfrecord/native/{module}.abi3.so" in names
        assert f"beam_tfrecord/native/{module}.pyi" in names
    unwanted = {".c", ".h", ".md", ".pyx", ".pxd", ".pxi"}
    assert {Path(name).suffix for name in names} & unwanted == set()
    outside = ("tests/", "scripts/", "pipelines/", "build_backend/")
    assert [name for name in names if name.startswith(outside)] == []
    assert_kernel_runs(wheel, tmp_path / "site")


@pytest.mark.slow
def test_without_a_compiler_the_wheel_has_the_kernel_all_the_same(tmp_path):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("without isolation the build needs ziglang: pip install ziglang")
    path = tmp_path / "path"
    path.mkdir()
    assert [name for name in COMPILERS if shutil.which(name, path=str(path))] == []
    wheel = build_wheel(tmp_path, PATH=str(path))
    assert_kernel_runs(wheel, tmp_path / "site")
