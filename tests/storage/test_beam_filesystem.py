"""Input through any other filesystem of Beam's, stood for by one that keeps files in a dict."""

import io

import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem

import beam_tfrecord as bt
from beam_tfrecord import storage
from beam_tfrecord.errors import StorageError, UsageError

FILES = {}


class DictFileSystem(FileSystem):
    """Beam finds it by its scheme, among the classes that are made of its base."""

    @classmethod
    def scheme(cls):
        return "dict"

    def _list(self, dir_or_prefix):
        for path, data in FILES.items():
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(data), 7.0)

    def open(self, path, mime_type="", compression_type="auto"):
        if path not in FILES:
            raise FileNotFoundError(path)
        if path.endswith("broken.csv"):
            raise RuntimeError("the name node is away\nand more")
        return io.BytesIO(FILES[path])

    def has_dirs(self):
        return False

    def join(self, basepath, *paths):
        return "/".join((basepath, *paths))

    def split(self, path):
        return tuple(path.rsplit("/", 1))

    def _refuse(self, *_args, **_options):
        raise NotImplementedError

    mkdirs = create = copy = rename = delete = _refuse

    def exists(self, path):
        return path in FILES

    def size(self, path):
        return len(FILES[path])

    def last_updated(self, path):
        return 7.0

    def checksum(self, path):
        return ""

    def metadata(self, path):
        return FileMetadata(path, self.size(path), 7.0)


@pytest.fixture(autouse=True)
def files():
    FILES.update(
        {
            "dict://h/in/a.csv": b"a\n1\n2\n",
            "dict://h/in/d/b.csv": b"a\n3\n",
            "dict://h/in/d/_c.csv": b"a\n4\n",
            "dict://h/bad/broken.csv": b"a\n5\n",
        }
    )
    yield
    FILES.clear()


@pytest.mark.parametrize(
    ("path", "rows"),
    [("in", [1, 2, 3]), ("in/*.csv", [1, 2]), ("in/**/*.csv", [1, 2, 3]), ("in/d/b.csv", [3])],
)
def test_input_is_read(path, rows):
    batches = bt.ReadFromCsv(f"dict://h/{path}").batches()
    assert sorted(row["a"] for batch in batches for row in batch.rows()) == rows


def test_ranges_are_exact():
    out = bytearray(3)
    storage.read_into("dict://h/in/a.csv", 2, memoryview(out))
    assert out == b"1\n2"
    with pytest.raises(EOFError):
        storage.read_into("dict://h/in/a.csv", 4, memoryview(out))


def test_names_are_those_of_one_directory():
    assert storage.list_names("dict://h/in") == ["a.csv", "d"]
    assert storage.is_directory("dict://h/in/d")
    assert not storage.is_directory("dict://h/none")


def test_what_fails_is_one_line():
    expected = r"^cannot read 'dict://h/bad/broken.csv' \(the name node is away\): try again later$"
    with pytest.raises(StorageError, match=expected):
        storage.read_bytes("dict://h/bad/broken.csv")


def test_nothing_is_written_there():
    with pytest.raises(UsageError, match="dict:// is for input only"):
        storage.put("dict://h/out/f", b"")


def test_a_filesystem_that_beam_does_not_know_is_named():
    with pytest.raises(UsageError, match=r"nowhere:// is not supported: download the input first"):
        list(bt.ReadFromCsv("nowhere://h/a.csv").batches())
