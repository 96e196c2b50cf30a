import subprocess
import sys

import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import InputChanged, StorageError, UsageError
from beam_tfrecord.storage import WholeFile, objects
from tests.storage.conftest import put_if_absent


def below(store, name=""):
    found = storage.list_files(store.url + name)
    return [entry.path.removeprefix(store.url + "/") for entry in found]


def test_what_is_put_is_there(store):
    path = f"{store.url}/a/b.txt"
    assert not storage.exists(path)
    assert not storage.is_directory(f"{store.url}/a")
    storage.put(path, b"hello")
    assert storage.exists(path)
    assert storage.file_size(path) == 5
    assert storage.read_bytes(path) == b"hello"
    assert storage.is_directory(f"{store.url}/a")
    assert storage.is_directory(store.url)
    assert not storage.exists(store.url)
    assert not storage.is_directory(path)


def test_an_object_may_be_empty(store):
    storage.put(f"{store.url}/empty", b"")
    assert storage.read_bytes(f"{store.url}/empty") == b""
    assert storage.file_size(f"{store.url}/empty") == 0


def test_a_version_tells_one_content_from_another(store):
    path = f"{store.url}/f"
    versions = []
    for data in (b"1", b"2"):
        storage.put(path, data)
        entry = storage.status(path)
        assert entry is not None
        versions.append(entry.version)
    assert versions[0] != versions[1]


def test_missing_files_are_missing(store):
    path = f"{store.url}/nothing"
    assert storage.status(path) is None
    for look in (storage.read_bytes, storage.file_size, storage.remove, storage.open_read):
        with pytest.raises(FileNotFoundError, match="nothing"):
            look(path)
    assert storage.list_names(path) == []
    storage.remove_tree(path)


def test_names_are_those_of_one_directory(store):
    for name in ("d/a", "d/b/c", "d/b/e", "d.txt", "da/x", "d/ü 1%.txt"):
        storage.put(f"{store.url}/{name}", b"x")
    assert storage.list_names(f"{store.url}/d") == ["a", "b", "ü 1%.txt"]
    assert storage.list_names(store.url) == ["d", "d.txt", "da"]
    assert sorted(below(store, "/d")) == ["d/a", "d/b/c", "d/b/e", "d/ü 1%.txt"]


def test_names_may_have_empty_parts(store):
    storage.put(f"{store.url}/d//x", b"data")
    storage.put(f"{store.url}/d/y", b"")
    assert sorted(below(store, "/d")) == ["d//x", "d/y"]
    assert storage.read_bytes(f"{store.url}/d//x") == b"data"


FORK = """
import os, sys
from beam_tfrecord import storage
data = storage.read_bytes(sys.argv[1])
child = os.fork()
if not child:
    os._exit(storage.read_bytes(sys.argv[1]) != data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_reads_like_its_parent(store):
    # As the workers of a DataLoader do.
    storage.put(f"{store.url}/f", b"data")
    command = [sys.executable, "-W", "ignore", "-c", FORK, f"{store.url}/f"]
    assert subprocess.run(command, env=store.environment, timeout=60, check=False).returncode == 0


def test_only_a_directory_is_removed_with_all_in_it(store):
    for name in ("d/a", "d/b/c", "d.txt", "da/x"):
        storage.put(f"{store.url}/{name}", b"x")
    storage.remove_tree(f"{store.url}/d")
    assert below(store) == ["d.txt", "da/x"]
    storage.remove(f"{store.url}/d.txt")
    assert below(store) == ["da/x"]


def test_more_objects_than_a_page_holds(store):
    count = 1_005
    objects.run_all(lambda i: storage.put(f"{store.url}/d/{i:05d}", b""), range(count))
    assert below(store, "/d") == [f"d/{i:05d}" for i in range(count)]
    storage.remove_tree(f"{store.url}/d")
    assert below(store) == []


@pytest.mark.parametrize(("start", "size"), [(0, 10), (3, 4), (9, 1), (10, 0), (0, 0)])
def test_ranges_are_exact(store, start, size):
    storage.put(f"{store.url}/f", b"0123456789")
    out = bytearray(size)
    storage.read_into(f"{store.url}/f", start, memoryview(out))
    assert bytes(out) == b"0123456789"[start : start + size]


@pytest.mark.parametrize(("start", "size"), [(5, 6), (10, 1), (100, 1)])
def test_ranges_past_the_end_are_errors(store, start, size):
    storage.put(f"{store.url}/f", b"0123456789")
    with pytest.raises(EOFError):
        storage.read_into(f"{store.url}/f", start, memoryview(bytearray(size)))


def test_an_open_file_can_be_sought_in(store):
    storage.put(f"{store.url}/f", b"0123456789")
    with storage.open_read(f"{store.url}/f") as file:
        assert file.read(3) == b"012"
        assert file.seek(-2, 2) == 8
        assert file.read() == b"89"
        assert file.read(1) == b""
        assert file.seek(4) == 4
        assert file.read(2) == b"45"


def test_two_versions_of_a_file_are_never_mixed(store, monkeypatch):
    monkeypatch.setattr(objects, "READ_BYTES", 4)
    storage.put(f"{store.url}/f", b"old-old-old-")
    with storage.open_read(f"{store.url}/f") as file:
        assert file.read(4) == b"old-"
        storage.put(f"{store.url}/f", b"new-new-new-")
        with pytest.raises(StorageError, match="was replaced while it was used: run again"):
            file.read(4)


def test_a_file_of_another_version_than_was_listed_is_not_opened(store):
    path = f"{store.url}/f"
    storage.put(path, b"old")
    listed = storage.status(path)
    assert listed is not None
    with storage.open_read(path, version=listed.version) as file:
        assert file.read() == b"old"
    storage.put(path, b"new")
    with pytest.raises(InputChanged, match="was replaced while it was read: run the job again"):
        storage.open_read(path, version=listed.version)


@pytest.fixture
def small_parts(store, monkeypatch):
    # The smallest parts that the stores allow; but the last one may be smaller.
    size = 5 * 2**20 if store.scheme == "s3" else 2**18
    monkeypatch.setattr(objects, "PART_BYTES", size)
    return size


@pytest.mark.parametrize("parts", [0.5, 1, 1.5, 2, 3.25])
def test_uploads_in_parts(store, small_parts, parts):
    data = bytes(range(251)) * (int(parts * small_parts) // 251 + 1)
    data = data[: int(parts * small_parts)]
    with WholeFile(f"{store.url}/f") as file:
        for low in range(0, len(data), 100_000):
            file.write(data[low : low + 100_000])
        assert below(store) == []
    assert storage.read_bytes(f"{store.url}/f") == data


@pytest.mark.parametrize("parts", [0.5, 2.5])
def test_an_error_leaves_the_old_object(store, small_parts, parts):
    def write_half():
        with WholeFile(f"{store.url}/f") as file:
            file.write(bytes(int(parts * small_parts)))
            raise RuntimeError

    storage.put(f"{store.url}/f", b"old")
    with pytest.raises(RuntimeError):
        write_half()
    assert storage.read_bytes(f"{store.url}/f") == b"old"


def test_of_several_writers_one_wins(store):
    path = f"{store.url}/f"
    won = []
    objects.run_all(lambda i: put_if_absent(path, b"%d" % i) and won.append(i), list(range(8)))
    assert [b"%d" % i for i in won] == [storage.read_bytes(path)]


def test_published_files_replace_older_ones(store):
    for name in ("tmp/1", "tmp/2", "b"):
        storage.put(f"{store.url}/{name}", name.encode())
    pairs = [(f"{store.url}/tmp/1", f"{store.url}/a"), (f"{store.url}/tmp/2", f"{store.url}/b")]
    storage.publish_files(pairs)
    assert storage.read_bytes(f"{store.url}/a") == b"tmp/1"
    assert storage.read_bytes(f"{store.url}/b") == b"tmp/2"


def test_a_missing_bucket_is_named(store):
    path = f"{store.scheme}://no-such-bucket/f"
    for use in (
        lambda: storage.put(path, b"x"),
        lambda: put_if_absent(path, b"x"),
        lambda: list(storage.list_files(path)),
        lambda: storage.list_names(path),
    ):
        with pytest.raises(
            UsageError, match=f"no (bucket|container) '{store.scheme}://no-such-bucket'"
        ):
            use()
