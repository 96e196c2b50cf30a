import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.choose import detect_kind, make_source
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.storage import put

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


def test_a_zip_archive_is_refused_in_a_line_that_says_what_to_do(store):
    url = f"{store.url}/in/a b.zip"
    put(url, b"PK")
    cure = r"a b\.zip' is a zip archive: download and unpack it first: unzip 'a b\.zip' -d 'a b'$"
    for named, kind in (
        (url, None),
        (url, "csv"),
        (f"{store.url}/in", None),
        (f"{store.url}/in", "csv"),
        (f"{store.url}/in/*", None),
    ):
        with pytest.raises(UsageError, match=cure):
            list(make_source(named, from_=kind).files())


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
