import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import InputChanged, StorageError
from beam_tfrecord.storage import WholeFile, object_store
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
    before = storage.status(path).version
    storage.put(path, b"")
    assert storage.read_bytes(path) == b""
    assert storage.status(path).version != before


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
    storage.put(f"{store.url}/e//x", b"data")
    assert below(store, "/e") == ["e//x"]
    assert storage.read_bytes(f"{store.url}/e//x") == b"data"
    assert storage.list_names(f"{store.url}/d") == ["a", "b", "ü 1%.txt"]
    assert storage.list_names(store.url) == ["d", "d.txt", "da", "e"]
    assert sorted(below(store, "/d")) == ["d/a", "d/b/c", "d/b/e", "d/ü 1%.txt"]


def test_only_a_directory_is_removed_with_all_in_it(store):
    for name in ("d/a", "d/b/c", "d.txt", "da/x"):
        storage.put(f"{store.url}/{name}", b"x")
    storage.remove_tree(f"{store.url}/d")
    assert below(store) == ["d.txt", "da/x"]
    storage.remove(f"{store.url}/d.txt")
    assert below(store) == ["da/x"]


def test_more_objects_than_a_page_holds(store):
    count = 1_005
    object_store.run_all(lambda i: storage.put(f"{store.url}/d/{i:05d}", b""), range(count))
    assert below(store, "/d") == [f"d/{i:05d}" for i in range(count)]
    storage.remove_tree(f"{store.url}/d")
    assert below(store) == []


def test_ranges_are_exact(store):
    storage.put(f"{store.url}/f", b"0123456789")
    for start, size in [(0, 10), (3, 4), (9, 1), (10, 0), (0, 0)]:
        out = bytearray(size)
        storage.read_into(f"{store.url}/f", start, memoryview(out))
        assert bytes(out) == b"0123456789"[start : start + size]
    for start, size in [(5, 6), (10, 1), (100, 1)]:
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
    monkeypatch.setattr(object_store, "READ_BYTES", 4)
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
    with storage.open_read(path, version=listed.version) as file:
        assert file.read() == b"old"
    storage.put(path, b"new")
    with pytest.raises(InputChanged, match="was replaced while it was read: run the job again"):
        storage.open_read(path, version=listed.version)


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
    object_store.run_all(lambda i: put_if_absent(path, b"%d" % i) and won.append(i), list(range(8)))
    assert [b"%d" % i for i in won] == [storage.read_bytes(path)]
