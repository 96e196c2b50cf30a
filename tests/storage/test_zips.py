"""Members of zip files as files: their bytes, jumps in them, damage, and bounds of memory."""

import io
import os
import random
import shutil
import tracemalloc
import zipfile
from types import SimpleNamespace

import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import DataError, InputChanged, StorageError
from beam_tfrecord.storage import zips
from tests.helpers.zips import flip_in, make_zip

METHODS = pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
TEXT = random.Random(1).randbytes(3_000_000) + bytes(3_000_000)


def url(path, name):
    return storage.zip_url(str(path), name)


@METHODS
def test_any_sequence_of_jumps_reads_the_bytes_of_the_member(tmp_path, method):
    path = make_zip(tmp_path / "a.zip", {"x/y.bin": TEXT, "z": b"end"}, method)
    draw = random.Random(method)
    for buffer_bytes in (0, 4096, None):
        oracle = io.BytesIO(TEXT)
        with storage.open_read(url(path, "x/y.bin"), buffer_bytes=buffer_bytes) as file:
            for _ in range(60):
                at, size = draw.randrange(len(TEXT) + 10), draw.choice((0, 1, 5000, 2_000_000))
                if draw.random() < 0.5:
                    assert file.seek(at) == oracle.seek(at)
                assert file.read(size) == oracle.read(size)
                assert file.tell() == oracle.tell()
            assert file.seek(-7, os.SEEK_END) == len(TEXT) - 7
            assert file.read() == TEXT[-7:]


@pytest.mark.slow
def test_a_member_of_zeros_needs_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(zips, "_IN_MEMORY_BYTES", 2**20)
    path, size = tmp_path / "bomb.zip", 150 * 2**20
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a", "w", force_zip64=True) as out,
    ):
        for _ in range(size // 2**20):
            out.write(bytes(2**20))
    assert path.stat().st_size < size // 500
    tracemalloc.start()
    try:
        with storage.open_read(url(path, "a")) as file:
            total = 0
            while piece := file.read(2**18):
                total += len(piece)
            assert total == size
            assert file.seek(size - 3) == size - 3
            file.seek(2 * 2**20)
            assert file.read(3) == bytes(3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


def test_a_copy_larger_than_the_disk_is_refused(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a.zip", {"a": bytes(9 * 2**20)})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with storage.open_read(url(path, "a")) as file:
        file.seek(5 * 2**20)
        assert file.read(1) == b"\0"
        file.seek(1)
        with pytest.raises(StorageError, match=r"a\.zip/a' has 9,437,184 bytes unpacked.*TMPDIR"):
            file.read(1)


def test_names_sizes_and_directories(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"b/": b"", "b/2": b"22", "a": b"1", "b/c/3": b"333"})
    root = storage.zip_url(str(path))
    listed = list(storage.list_files(root))
    assert [(storage.shown_path(e.path), e.bytes) for e in listed] == [
        (f"{path}/{name}", size) for name, size in (("a", 1), ("b/2", 2), ("b/c/3", 3))
    ]
    assert storage.list_names(root) == ["a", "b"]
    assert storage.list_names(url(path, "b")) == ["2", "c"]
    assert [storage.is_directory(url(path, name)) for name in ("b", "b/c", "a", "x")] == [
        *(True, True, False, False)
    ]
    assert [storage.exists(url(path, name)) for name in ("a", "b/2", "b")] == [True, True, False]
    assert not storage.exists(url(tmp_path / "none.zip", "a"))
    with pytest.raises(FileNotFoundError, match="no such file"):
        storage.open_read(url(path, "x"))


def test_a_forked_process_has_its_own_position(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": TEXT}, zipfile.ZIP_STORED)
    with storage.open_read(url(path, "a")) as file:
        file.read(10)
        archive = zips_of(path)
        child = os.fork()
        if not child:
            os._exit(0 if zips_of(path) is not archive else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert zips_of(path) is archive


def zips_of(path):
    return storage._ZIP._archive(str(path))


@METHODS
@pytest.mark.parametrize("jumps", [False, True])
def test_a_wrong_crc_is_an_error(tmp_path, method, jumps):
    path = make_zip(tmp_path / "a.zip", {"a": b"1234567890" * 200_000}, method)
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02") + 16
    data[at] ^= 1
    path.write_bytes(data)
    with storage.open_read(url(path, "a")) as file:
        file.seek(1_500_000 if jumps else 0)
        with pytest.raises(OSError, match="Bad CRC-32 for file 'a'") as raised:
            file.read(1 if jumps else 2_000_000)
        assert raised.value.errno is None


@pytest.mark.parametrize("size", [0, 5, 50])
def test_a_wrong_size_is_an_error(tmp_path, size):
    path = make_zip(tmp_path / "a.zip", {"a": b"1234567890"}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02") + 24
    data[at : at + 4] = size.to_bytes(4, "little")
    path.write_bytes(data)
    with (
        pytest.raises(OSError, match=r"Bad CRC-32 for file 'a'|it is cut off"),
        storage.open_read(url(path, "a")) as file,
    ):
        file.read()


def test_a_zip_file_that_lacks_bytes_is_damaged(tmp_path):
    """Then `zipfile` finds the first member before the start of the file."""
    path = make_zip(tmp_path / "a.zip", {"a": b"1234567890"}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"4567", b""))
    with storage.open_read(url(path, "a")) as file:
        with pytest.raises(OSError, match="Invalid argument") as raised:
            file.read()
        assert raised.value.errno is None


@pytest.mark.parametrize("name", ["../x", "/x", "a/../x", "a//b", "a\nb", "./a", "a\\b"])
def test_names_that_are_not_plain_are_refused(tmp_path, name):
    path = make_zip(tmp_path / "a.zip", {name: b"1"})
    with pytest.raises(DataError, match="which is not a plain name") as raised:
        list(storage.list_files(storage.zip_url(str(path))))
    assert "\n" not in str(raised.value)


def test_one_name_twice_and_links_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x", b"2")
    with pytest.raises(DataError, match=r"a\.zip' has two members named 'x'"):
        list(storage.list_files(storage.zip_url(str(path))))
    link = zipfile.ZipInfo("y")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(link, b"x")
    with pytest.raises(DataError, match=r"'y' in .* is a link"):
        list(storage.list_files(storage.zip_url(str(path))))


def test_names_of_other_programs(tmp_path):
    path = tmp_path / "a.zip"
    # UTF-8 without the flag, as macOS writes it; and code page 437.
    for raw, name in (("é.csv".encode(), "é.csv"), (b"\x82.csv", "é.csv")):
        make_zip(path, {"@" * len(raw): b"1"})
        path.write_bytes(path.read_bytes().replace(b"@" * len(raw), raw))
        (entry,) = storage.list_files(storage.zip_url(str(path)))
        assert storage.shown_path(entry.path) == f"{path}/{name}"
        assert storage.read_bytes(entry.path) == b"1"
    for system in (0, 10, 14):  # DOS, NTFS, VFAT
        member = zipfile.ZipInfo("@")
        member.filename, member.create_system = "cat\\1.jpg", system
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, b"1")
        (entry,) = storage.list_files(storage.zip_url(str(path)))
        assert storage.shown_path(entry.path) == f"{path}/cat/1.jpg"
        assert storage.read_bytes(entry.path) == b"1"


def test_a_changed_zip_file_is_read_anew_but_not_under_an_old_version(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": b"old", "b": b"same"}, zipfile.ZIP_STORED)
    status = path.stat()
    old = {entry.path: entry.version for entry in storage.list_files(storage.zip_url(str(path)))}
    make_zip(path, {"a": b"new", "b": b"same"}, zipfile.ZIP_STORED)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert storage.read_bytes(url(path, "a")) == b"new"
    with pytest.raises(InputChanged, match=r"a\.zip/a' was changed while it was read"):
        storage.open_read(url(path, "a"), version=old[url(path, "a")])
    with storage.open_read(url(path, "b"), version=old[url(path, "b")]) as file:
        assert file.read() == b"same"
    make_zip(path, {"b": b"same"})
    with pytest.raises(InputChanged, match=r"a\.zip/a' was removed"):
        storage.open_read(url(path, "a"), version=old[url(path, "a")])
    path.unlink()
    with pytest.raises(InputChanged, match=r"a\.zip/b' was removed"):
        storage.open_read(url(path, "b"), version=old[url(path, "b")])


def test_a_change_while_a_member_is_open_is_no_damage(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a": b"0" * 100_000}, zipfile.ZIP_STORED)
    with storage.open_read(url(path, "a"), buffer_bytes=16) as file:
        assert file.read(10) == b"0" * 10
        flip_in(path, b"0" * 100_000, b"1" * 100_000)
        with pytest.raises(InputChanged, match="was changed while it was read"):
            file.read()
