import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import InputChanged, UsageError
from beam_tfrecord.sources.choose import detect_kind
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.storage import open_read, put
from tests.helpers.zips import make_zip

FILES = (
    "a.csv",
    "b.csv.gz",
    "b.txt",
    "d/c.csv",
    "d/e/f.csv",
    "d/_e/f.csv",
    "d/.e.csv",
    "k=1/x.csv",
    "k=2/x.csv",
)


@pytest.fixture
def bucket(store):
    for name in FILES:
        put(f"{store.url}/in/{name}", name.encode())
    return f"{store.url}/in"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([""], ["a.csv", "b.csv.gz", "d/c.csv", "d/e/f.csv", "k=1/x.csv", "k=2/x.csv"]),
        (["/"], ["a.csv", "b.csv.gz", "d/c.csv", "d/e/f.csv", "k=1/x.csv", "k=2/x.csv"]),
        (["/a.csv"], ["a.csv"]),
        (["/b.txt"], ["b.txt"]),
        (["/*"], ["a.csv", "b.csv.gz", "b.txt", "d/c.csv", "d/e/f.csv", "k=1/x.csv", "k=2/x.csv"]),
        (["/[ab].*"], ["a.csv", "b.csv.gz", "b.txt"]),
        (["/[!b].csv"], ["a.csv"]),
        (["/?.csv*"], ["a.csv", "b.csv.gz"]),
        (["/d/*.csv"], ["c.csv"]),
        (["/d/**/*.csv"], ["c.csv", "e/f.csv"]),
        (["/k=*/x.csv"], ["k=1/x.csv", "k=2/x.csv"]),
        (["/k=2"], ["k=2/x.csv"]),
        (["/d/_e"], ["f.csv"]),
        (["/d/c.csv", "/a.csv", "/*.csv"], ["a.csv", "d/c.csv"]),
    ],
)
def test_what_paths_name(bucket, paths, expected):
    found = list(list_files([bucket + path for path in paths], [".csv"]))
    assert [file.name for file in found] == expected
    assert all(file.path.endswith(f"/{file.name}") for file in found)
    # The content of each is its name.
    assert [file.bytes for file in found] == [
        len(file.path.removeprefix(f"{bucket}/")) for file in found
    ]
    assert all(file.version for file in found)


def test_zip_files_are_read_without_a_copy_here(store, tmp_path):
    text = "".join(f"{row},x\n" for row in range(3000))
    path = make_zip(tmp_path / "x.zip", {"t/a.csv": f"a,b\n{text}", "__MACOSX/a.csv": b"\0"})
    put(f"{store.url}/in/x.zip", path.read_bytes())
    for inside in ("", "/t/*.csv"):
        source = bt.ReadFromCsv(f"{store.url}/in/x.zip{inside}")
        assert [row["a"] for batch in source.batches() for row in batch.rows()] == [*range(3000)]
    url = f"{store.url}/in/x.zip/t/a.csv"
    (file,) = list_files([url], [".csv"])
    assert (file.name, file.bytes) == ("x.zip/t/a.csv", 4 + len(text))
    make_zip(path, {"t/a.csv": b"a,b\n1,2\n"})
    put(f"{store.url}/in/x.zip", path.read_bytes())
    with pytest.raises(InputChanged, match=r"x\.zip/t/a\.csv' was changed"):
        open_read(file.path, version=file.version)


@pytest.mark.parametrize("path", ["/none", "/none/*.csv", "/a.cs", "/[xy].csv"])
def test_what_is_not_there_is_named(bucket, path):
    with pytest.raises(UsageError, match=rf"cannot read '{bucket}/"):
        list(list_files([bucket + path], [".csv"]))


def test_a_bucket_is_no_pattern(store):
    with pytest.raises(UsageError, match="the name of a bucket cannot be a pattern"):
        list(list_files([f"{store.scheme}://bucket-*/a.csv"], [".csv"]))


def test_local_and_remote_files_are_not_mixed(bucket):
    with pytest.raises(UsageError, match="give those of one filesystem"):
        list(list_files([bucket, "/etc/hosts"], [".csv"]))


def test_the_kind_is_seen_from_the_names(bucket):
    assert detect_kind(bucket) == "csv"
    assert detect_kind(f"{bucket}/a.csv") == "csv"
    assert detect_kind(f"{bucket}/d/*") == "csv"
    with pytest.raises(UsageError, match="no such file"):
        detect_kind(f"{bucket}/none")
