"""Records whose files are left where they are: the same dataset, and no other when one changes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import beam_tfrecord as bt
from beam_tfrecord.batch import FileColumn
from beam_tfrecord.dataset.verify import verify
from beam_tfrecord.errors import DataError, StorageError
from beam_tfrecord.exchange import merge, spill, stubs
from beam_tfrecord.jobs import keeping
from beam_tfrecord.records.tfrecord import frame_record
from beam_tfrecord.sources.images import folders
from tests.cli_stand_ins import run
from tests.datasets import shard_hashes
from tests.sources.made_images import jpeg, write_tree

SPLITS = "a=0.6,b=0.4"
# Below this a file is not left out.
LARGE = stubs.LEAST_FILE_BYTES


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 60 pictures, half of them too small to be left out; one is no picture."""
    root = tmp_path_factory.mktemp("kept") / "photos"
    for number in range(60):
        side = 400 if number % 2 else 16
        picture = jpeg(number, width=side, height=side)
        assert (len(picture) >= LARGE) == bool(number % 2)
        write_tree(root, **{f"{'cat' if number % 3 else 'dog'}__{number:02d}": picture})
    write_tree(root, cat__broken=b"no picture")
    return root


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file take too long to open, however much else this machine does."""
    monkeypatch.setattr(keeping, "_SLOW_OPEN_S", 60.0)


@pytest.fixture
def made_whole(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Tell how many records are made whole at a time."""
    seen: list[int] = []
    whole = stubs.make_whole

    def counting(data: Any, starts: Any, order: Any, out: Any) -> None:
        seen.append(len(order))
        whole(data, starts, order, out)

    monkeypatch.setattr(merge, "make_whole", counting)
    return seen


def write(photos: Path, out: Path, **options: Any) -> dict[str, str]:
    bt.write(photos, out, **{"splits": SPLITS, "max_rejects": "any", **options})
    assert not verify(out).faults
    return {**shard_hashes(out), "manifest": (out / "manifest.json").read_text()}


def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "free_memory", lambda: 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shards": 5, "seed": 3},
        {"compression": "gzip"},
        {"source_options": {"check": "decode"}},
        {"source_options": {"columns": ("image", "label", "sha256")}},
    ],
    ids=["splits", "shards", "gzip", "decode", "columns"],
)
def test_the_dataset_is_the_same(
    options: dict[str, Any],
    photos: Path,
    tmp_path: Path,
    made_whole: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = write(photos, tmp_path / "kept", **options)
    assert sum(made_whole) == 60
    made_whole.clear()
    without_memory(monkeypatch)
    assert write(photos, tmp_path / "copied", **options) == kept
    assert not made_whole


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": False, "splits": None},
        {"key": ["path"]},
        {"source_options": {"resize": 8}},
        {"source_options": {"columns": ("label", "path")}},
        {"map": dict},
        {"limit": 20},
    ],
    ids=["source", "key", "resized", "no-image", "mapped", "limited"],
)
def test_where_files_are_not_what_is_stored_all_is_copied(
    options: dict[str, Any], photos: Path, tmp_path: Path, made_whole: list[int]
) -> None:
    write(photos, tmp_path / "out", **options)
    assert not made_whole


def test_many_small_runs_and_windows_are_the_same(
    photos: Path, tmp_path: Path, made_whole: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write(photos, tmp_path / "whole", shards=3)
    made_whole.clear()
    monkeypatch.setattr("beam_tfrecord.sources.images.pack.PACK_FILES", 7)
    packed = write(photos, tmp_path / "packed", shards=3)
    made_whole.clear()
    # Every batch is a run, and every window a few pictures.
    init = spill.Spiller.__init__

    def small(self: Any, *arguments: Any, **settings: Any) -> None:
        init(self, *arguments, **{**settings, "run_bytes": 1})

    monkeypatch.setattr(spill.Spiller, "__init__", small)
    monkeypatch.setattr("beam_tfrecord.exchange.merge_pipeline.window_bytes_for", lambda *_: 9000)
    assert write(photos, tmp_path / "small", shards=3) == packed
    assert max(made_whole) < 60
    assert whole.keys() == packed.keys()


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_a_picture_that_changes_meanwhile_is_told_and_nothing_is_published(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "photos"
    for number in range(4):
        write_tree(root, **{f"cat__{number}": jpeg(number, width=400, height=400)})
    victim = root / "cat" / "2.jpg"
    whole = stubs.make_whole

    def change_first(*arguments: Any) -> None:
        if change == "edited":
            victim.write_bytes(bytes(victim.stat().st_size))
        elif victim.exists():
            victim.unlink()
        whole(*arguments)

    monkeypatch.setattr(merge, "make_whole", change_first)
    told = "was changed while the dataset" if change == "edited" else "cannot read .* again: No"
    with pytest.raises(DataError, match=told) as raised:
        bt.write(root, tmp_path / "out")
    assert "cat/2.jpg" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "out").iterdir()) == []


def stop_at_the_merge(photos: Path, out: Path, **options: Any) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise RuntimeError("stop")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_tfrecord.exchange.merge_pipeline.Merger.merge", stop)
        with pytest.raises(Exception, match="stop"):
            bt.write(photos, out, splits=SPLITS, max_rejects="any", **options)


@pytest.mark.parametrize("was_kept", [True, False])
def test_an_attempt_goes_on_as_the_one_before_it_began(
    was_kept: bool,
    photos: Path,
    tmp_path: Path,
    made_whole: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = write(photos, tmp_path / "expected")
    made_whole.clear()
    with pytest.MonkeyPatch.context() as patch:
        if not was_kept:
            without_memory(patch)
        stop_at_the_merge(photos, tmp_path / "out")
    if was_kept:
        without_memory(monkeypatch)
    # What is done is not read again.
    monkeypatch.setattr(folders, "read_pictures", None)
    assert write(photos, tmp_path / "out") == expected
    assert bool(made_whole) == was_kept


def test_an_attempt_that_cannot_go_on_so_begins_anew(
    photos: Path, tmp_path: Path, made_whole: list[int]
) -> None:
    expected = write(photos, tmp_path / "expected")
    made_whole.clear()
    stop_at_the_merge(photos, tmp_path / "out")
    assert write(photos, tmp_path / "out", runner="BundleBasedDirectRunner") == expected
    assert not made_whole


def test_an_attempt_at_pictures_that_were_moved_begins_anew(photos: Path, tmp_path: Path) -> None:
    expected = write(photos, tmp_path / "expected")
    shutil.copytree(photos, tmp_path / "there")
    stop_at_the_merge(tmp_path / "there", tmp_path / "out")
    shutil.move(tmp_path / "there", tmp_path / "elsewhere")
    assert write(tmp_path / "elsewhere", tmp_path / "out") == expected


def test_a_fault_of_the_machine_leaves_what_is_done(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = write(photos, tmp_path / "expected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stubs.kernel, "make_whole", lambda *_: (0, errno.EIO))
        with pytest.raises(StorageError, match="the same command goes on from there"):
            bt.write(photos, tmp_path / "out", splits=SPLITS, max_rejects="any")
    monkeypatch.setattr(folders, "read_pictures", None)
    assert write(photos, tmp_path / "out") == expected


def test_a_job_that_is_only_described_writes_nothing(photos: Path, tmp_path: Path) -> None:
    described = run("write", photos, tmp_path / "out", "--split", SPLITS, "--dry-run")
    assert described.exit_code == 0
    assert not (tmp_path / "out").exists()


def test_ties_are_sorted_by_the_bytes_of_the_whole_records(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    contents = [bytes([first]) * LARGE for first in chance.permutation(20)]
    paths = []
    for number, content in enumerate(contents):
        (path := tmp_path / str(number)).write_bytes(content)
        paths.append(os.fsencode(path))
    # Examples of one feature, which only its bytes tell apart.
    lists = [tf.train.BytesList(value=[content]) for content in contents]
    features = [{"image": tf.train.Feature(bytes_list=values)} for values in lists]
    records = [
        tf.train.Example(features=tf.train.Features(feature=one)).SerializeToString()
        for one in features
    ]
    frames = [frame_record(record) for record in records]
    data = np.frombuffer(b"".join(frames), np.uint8)
    starts = np.cumsum([0, *map(len, frames)])[:-1]
    files = FileColumn("image", pa.array(paths, pa.binary()))
    kept, begins = stubs.stubs_of(data, starts, files)
    places = np.array([1] * 8 + [2] * 4 + [3] + [4] * 7, np.uint64)[chance.permutation(20)]
    order = stubs.by_whole_bytes(kept, begins, places, np.argsort(places, kind="stable"))
    assert order.tolist() == sorted(range(20), key=lambda n: (places[n], records[n]))


def test_a_run_that_holds_no_stubs_is_damaged() -> None:
    data = np.frombuffer(frame_record(b"an example"), np.uint8)
    with pytest.raises(DataError, match="a run is damaged"):
        stubs.whole_sizes(data, np.array([0]))


def test_memory_that_is_not_known_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, *_: Any, **__: Any) -> str:
        raise FileNotFoundError(self)

    assert keeping.free_memory() > 0
    monkeypatch.setattr(Path, "read_text", missing)
    assert keeping.free_memory() == 0


def test_a_limit_of_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [tmp_path / "one", tmp_path / "two"]
    limits[0].write_text("max\n")
    limits[1].write_text("12345\n")
    monkeypatch.setattr(keeping, "_MEMORY_LIMITS", tuple(map(str, limits)))
    assert keeping.free_memory() == 12345


def test_files_that_take_long_to_open_are_copied(
    photos: Path, tmp_path: Path, made_whole: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever it takes here is too long.
    monkeypatch.setattr(keeping, "_SLOW_OPEN_S", 0.0)
    write(photos, tmp_path / "out")
    assert not made_whole
    assert not keeping.open_at_once([])
