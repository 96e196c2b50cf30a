from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import Manifest, manifest_path
from beam_tfrecord.format.manifest_parts import Shard, Split

MANIFEST = Manifest(
    fingerprint="f00d",
    content="00000000000000ff",
    order="shuffled",
    seed=7,
    compression="",
    key=("id",),
    group=None,
    place="key",
    schema=Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), nullable=False)])),
    source={"kind": "csv", "files": [{"path": "größe.csv", "bytes": 12}]},
    rejects={"rows": 0, "xxh64": "0123456789abcdef"},
    sidecars={"schema.json": "fedcba9876543210"},
    splits={
        "train": Split((Shard("train-0", 2, 50, "a" * 16), Shard("train-1", 1, 30, "b" * 16))),
        "empty": Split(()),
    },
    rules=7,
)
TEXT = """{
  "format": "beam_tfrecord/1",
  "requires": [],
  "content": "00000000000000ff",
  "order": "shuffled",
  "seed": 7,
  "compression": "",
  "key": ["id"],
  "group": null,
  "place": "key",
  "split_by": null,
  "schema": {"features": [{"name": "id", "type": "int64", "nullable": false}]},
  "sidecars": {"schema.json": "fedcba9876543210"},
  "generations": [
    {"rules": 7, "fingerprint": "f00d", \
"source": {"kind": "csv", "files": [{"path": "größe.csv", "bytes": 12}]}, \
"rejects": {"rows": 0, "xxh64": "0123456789abcdef"}}
  ],
  "splits": {
    "train": {"examples": 3, "bytes": 80, "shards": [
        {"path": "train-0", "examples": 2, "bytes": 50, "xxh64": "aaaaaaaaaaaaaaaa"},
        {"path": "train-1", "examples": 1, "bytes": 30, "xxh64": "bbbbbbbbbbbbbbbb"}
    ]},
    "empty": {"examples": 0, "bytes": 0, "shards": []}
  },
  "xxh64": ""
}
"""


def seal(text):
    """Return the text of a manifest with its hash, by another library."""
    return text.replace('"xxh64": ""', f'"xxh64": "{xxhash.xxh64_hexdigest(text.encode())}"')


def test_the_text_is_as_documented_with_the_hash_of_itself():
    assert MANIFEST.dumps() == seal(TEXT)


@given(st.integers(0, len(MANIFEST.dumps()) - 1), st.characters(codec="utf-8"))
def test_a_changed_character_is_noticed(position, character):
    text = MANIFEST.dumps()
    changed = text[:position] + character + text[position + 1 :]
    if changed != text:
        with pytest.raises(DataError, match=r"^m is not|^m was changed|^m has format"):
            Manifest.loads(changed, where="m")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON: line 1: Expecting property name enclosed in double quotes"),
        ("{}", "Object missing required field `format`"),
        ('{"format": 2}', "Expected `str`, got `int` - at `$.format`"),
    ],
)
def test_the_error_says_what_to_do(text, reason):
    with pytest.raises(DataError) as raised:
        Manifest.loads(text, where="m")
    advice = "restore it from a copy, or run write again"
    assert str(raised.value) == f"m is not a manifest ({reason}): {advice}"


def test_a_later_format_is_named():
    with pytest.raises(DataError, match="has format 'beam_tfrecord/3', not 'beam_tfrecord/1'"):
        Manifest.loads(MANIFEST.dumps().replace("beam_tfrecord/1", "beam_tfrecord/3"))


def test_unknown_fields_are_ignored_unless_they_are_required():
    more = TEXT.replace('"seed": 7,', '"seed": 7,\n"later": {"a": 1},')
    more = more.replace('"examples": 2,', '"examples": 2, "generation": 1,')
    assert more.count("generation") == TEXT.count("generation") + 1
    assert Manifest.loads(seal(more)) == MANIFEST
    more = more.replace('"nullable": false', '"nullable": false, "mean": {"of": 1.5}')
    assert more.count("mean") == 1
    assert Manifest.loads(seal(more)) == MANIFEST
    with pytest.raises(DataError, match=r"^m requires 'later', 'x', which this version does not"):
        Manifest.loads(
            seal(more.replace('"requires": []', '"requires": ["later", "x"]')), where="m"
        )


def test_generations_that_are_not_sound_are_refused():
    line = next(line for line in TEXT.splitlines() if "fingerprint" in line)
    with pytest.raises(DataError, match="a generation has no content hash"):
        Manifest.loads(seal(TEXT.replace(line, f"{line},\n{line}")))
    later = TEXT.replace('{"path": "train-0"', '{"generation": 2, "path": "train-0"')
    with pytest.raises(DataError, match="a shard is of a generation that is not listed"):
        Manifest.loads(seal(later))


def test_manifests_are_found_by_directory_prefix_or_name(tmp_path):
    (tmp_path / "manifest.json").write_text(MANIFEST.dumps(), encoding="utf-8")
    (tmp_path / "part-manifest.json").write_text(MANIFEST.dumps(), encoding="utf-8")
    assert manifest_path(tmp_path) == str(tmp_path / "manifest.json")
    assert manifest_path(tmp_path / "part") == str(tmp_path / "part-manifest.json")
    assert manifest_path(tmp_path / "part-manifest.json") == str(tmp_path / "part-manifest.json")
    for path in (tmp_path, tmp_path / "part", tmp_path / "manifest.json"):
        assert Manifest.load(path) == MANIFEST


def test_a_directory_may_be_named_like_a_file(tmp_path):
    (tmp_path / "data.json").mkdir()
    (tmp_path / "data.json" / "manifest.json").write_text(MANIFEST.dumps(), encoding="utf-8")
    assert Manifest.load(tmp_path / "data.json") == MANIFEST


def test_no_dataset(tmp_path):
    with pytest.raises(UsageError, match=r"no dataset at '.*': there is no '.*manifest.json'"):
        Manifest.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"no dataset at '.*file': it is a file: name the dir"):
        Manifest.load(tmp_path / "file")
    (tmp_path / "train-00000-of-00001.tfrecord").touch()
    with pytest.raises(UsageError, match=r"it has shards but no .*; else restore the manifest"):
        Manifest.load(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "path", "meant"),
    [
        ("out/manifest.json", "out/train-00000-of-00001.tfrecord", "out"),
        ("out/manifest.json", "out/train", "out"),
        ("out/part-manifest.json", "out/", "out/part"),
        ("out/part-manifest.json", "out/part-00000-of-00001", "out/part"),
        ("all/out/manifest.json", "all", "all/out"),
        ("manifest.json", "train", "."),
    ],
)
def test_the_dataset_that_a_wrong_path_may_stand_for_is_named(
    tmp_path, monkeypatch, manifest, path, meant
):
    monkeypatch.chdir(tmp_path)
    Path(manifest).parent.mkdir(parents=True, exist_ok=True)
    Path(manifest).touch()
    if path.endswith(("tfrecord", "00001")):
        Path(path).touch()
    with pytest.raises(UsageError) as raised:
        Manifest.load(path)
    assert str(raised.value) == f"no dataset at {path!r}: did you mean {meant!r}?"


def test_a_dataset_without_rejects(tmp_path):
    (tmp_path / "manifest.json").touch()
    with pytest.raises(UsageError, match=f"no dataset at .*: '{tmp_path}' has no rejects$"):
        Manifest.load(tmp_path / "rejects")


def test_many_datasets_in_a_directory_are_listed(tmp_path):
    for number in range(12):
        (tmp_path / f"out{number:02}").mkdir()
        (tmp_path / f"out{number:02}" / "manifest.json").touch()
    with pytest.raises(UsageError, match=r"the datasets there are out00, .*, out09 and 2 more$"):
        Manifest.load(tmp_path)
