"""No file that anyone may have made crashes a command, hangs it, or leads it elsewhere.

`scripts/prove/run hostile` does the same with thousands of manifests.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import beam_tfrecord as bt
from beam_tfrecord.check import verify_examples
from beam_tfrecord.check.repair import repair
from beam_tfrecord.check.verify import verify
from beam_tfrecord.cli.main import cli
from beam_tfrecord.errors import DataError, RejectedRows
from beam_tfrecord.format import manifest as manifests
from beam_tfrecord.format.manifest import Manifest
from tests.whole.hostile import (
    check_writing,
    commands,
    copied,
    make,
    odd_things,
    run,
    sealed,
    write_changed,
)

CHANGES = 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return make(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stage")
    (directory / "in.csv").write_text("a,b\n1,x\n2,y\n")
    bt.extract(directory / "in.csv", directory / "stage")
    return directory / "stage"


def edited(dataset, change):
    """Change the JSON of a manifest in place, under its own right hash."""
    path = dataset / "manifest.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(sealed(value, manifests.sealed))
    return dataset


@pytest.mark.parametrize("name", ["manifest.json", "job.json", "schema.json"])
@pytest.mark.parametrize("command", ["verify", "head"])
def test_a_small_file_that_is_huge_is_not_read(command, name, sound, tmp_path):
    out = copied(sound, tmp_path / "out")
    # No machine that runs this has so much memory; no disk is filled.
    with open(out / name, "ab") as file:
        file.truncate(2**42)
    ended = CliRunner().invoke(cli, [command, str(out)])
    reads = command == "head" and name != "manifest.json"
    assert ended.exit_code == (0 if reads else 1), ended.output
    if not reads:
        assert "has 4,398,046,511,104 bytes, and a file of this kind at most" in ended.output


def test_the_dataset_is_sound(sound, tmp_path):
    for command in commands(sound, sound, tmp_path / "out"):
        assert run(*command, directory=sound).code == 0


@pytest.mark.slow
def test_no_change_of_a_manifest_crashes_a_command(sound, tmp_path):
    codes = set()
    for number in range(CHANGES):
        dataset = copied(sound, tmp_path / "in")
        write_changed(dataset, random.Random(number))
        for command in commands(dataset, sound, tmp_path / f"out-{number}"):
            ended = run(*command, directory=dataset)
            assert ended.is_right, (number, command[0], ended)
            codes.add(ended.code)
    assert codes == {0, 1}


def test_no_change_of_a_stage_crashes_a_command(stage, tmp_path):
    for number in range(CHANGES // 2):
        dataset = copied(stage, tmp_path / "in")
        write_changed(dataset, random.Random(number))
        for command in (("verify", dataset), ("head", dataset)):
            ended = run(*command, directory=dataset)
            assert ended.is_right, (number, command[0], ended)


@pytest.mark.slow
def test_no_change_of_a_manifest_leads_a_job_that_writes_there_astray(sound, stage, tmp_path):
    table = tmp_path / "in.csv"
    table.write_text("a,b\n1,x\n2,y\n")
    for number in range(CHANGES // 20):
        for command, original in (("write", sound), ("extract", stage)):
            place = copied(original, tmp_path / "in")
            write_changed(place, random.Random(f"write {number}"))
            check_writing(place, table, command)
        changed = copied(stage, tmp_path / "in")
        write_changed(changed, random.Random(number))
        ended = run("write", changed, tmp_path / f"out-{number}", directory=changed)
        assert ended.is_right or ended.code == 2, (number, ended)
        assert ended.is_quiet, (number, ended)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["manifest.json", "schema.json", "job.json", "shard"])
def test_what_is_no_regular_file_is_never_opened(name, sound, tmp_path):
    found = "train-00000-of-00002.tfrecord" if name == "shard" else name
    for number, thing in enumerate(odd_things(Path("x"))):
        dataset = copied(sound, tmp_path / "in")
        path = dataset / found
        path.unlink(missing_ok=True)
        odd_things(path)[thing]()
        for command in commands(dataset, sound, tmp_path / f"out-{number}"):
            ended = run(*command, directory=dataset)
            is_missing = name == "manifest.json" and thing == "link to nothing"
            assert ended.is_right or (is_missing and ended.code == 2), (thing, command[0], ended)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside", "/dev/zero", "..", "a/../../outside", "", "a\0b", "./a"]
)
@pytest.mark.parametrize("of", ["shard", "sidecar"])
def test_names_that_lead_elsewhere_are_refused(of, name, sound, tmp_path):
    def change(value: dict[str, Any]) -> None:
        if of == "shard":
            value["splits"]["train"]["shards"][0]["path"] = name
        else:
            value["sidecars"] = {name: "0" * 16}

    dataset = edited(copied(sound, tmp_path / "in"), change)
    with pytest.raises(DataError, match="is not the plain name of a file"):
        Manifest.load(dataset)
    for command in commands(dataset, sound, tmp_path / "out"):
        ended = run(*command, directory=dataset)
        assert (ended.code, ended.is_right) == (1, True), ended
    assert not (tmp_path / "out").exists()


def test_links_to_regular_files_are_followed(sound, tmp_path):
    dataset = copied(sound, tmp_path / "in")
    for path in list(dataset.iterdir()):
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    for command in commands(dataset, sound, tmp_path / "out"):
        assert run(*command, directory=dataset).code == 0


def faults(dataset):
    return [str(fault) for fault in verify(dataset).faults]


def test_totals_are_added_up(sound, tmp_path):
    def change(value: dict[str, Any]) -> None:
        value["splits"]["train"]["examples"] += 1

    (fault,) = faults(edited(copied(sound, tmp_path / "in"), change))
    assert "split 'train' has 8 examples in its shards, not 9" in fault


def swapped(dataset, *, renames):
    """Swap the first shards of two splits: in the manifest, or by their content as well."""

    def change(value: dict[str, Any]) -> None:
        train, test = (value["splits"][name] for name in ("train", "test"))
        one, two = train["shards"][0], test["shards"][0]
        train["shards"][0], test["shards"][0] = two, one
        if renames:
            os.rename(dataset / one["path"], dataset / "x")
            os.rename(dataset / two["path"], dataset / one["path"])
            os.rename(dataset / "x", dataset / two["path"])
            one["path"], two["path"] = two["path"], one["path"]
        for split in (train, test):
            for what in ("examples", "bytes"):
                split[what] = sum(shard[what] for shard in split["shards"])

    edited(dataset, change)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "decides",
    [
        {"splits": {"train": 0.6, "test": 0.4}},
        {"splits": {"train": 0.6, "test": 0.4}, "group": ["id", "x"], "compression": "gzip"},
        {"splits": {"train": 0.6, "test": 0.4}, "key": "id"},
    ],
)
@pytest.mark.parametrize("renames", [False, True])
def test_shards_of_two_splits_that_were_swapped_are_found(decides, renames, tmp_path, monkeypatch):
    rows = "".join(
        f"{row},name {row % 50},{row / 7},{'test' if row % 3 else 'train'},test\n"
        for row in range(300)
    )
    (tmp_path / "in.csv").write_text("id,name,x,part,other\n" + rows)
    out = tmp_path / "out"
    bt.write(tmp_path / "in.csv", out, shards={"train": 2, "test": 2}, **decides)
    assert faults(out) == []
    swapped(out, renames=renames)
    assert any("swapped" in fault for fault in faults(out))
    # Of larger shards a part is looked at.
    monkeypatch.setattr(verify_examples, "_WHOLE_BYTES", 0)
    assert any("swapped" in fault for fault in faults(out))
    swapped(out, renames=renames)
    assert faults(out) == []


@pytest.mark.slow
def test_a_record_stream_is_never_decompressed_without_end(sound, tmp_path):
    import gzip

    def change(value: dict[str, Any]) -> None:
        value["compression"] = "GZIP"

    dataset = edited(copied(sound, tmp_path / "in"), change)
    for path in dataset.glob("*.tfrecord"):
        path.write_bytes(gzip.compress(bytes(2**28), 1))
    done = repair(dataset, tmp_path / "out")
    assert done.manifest.examples == 0


def stopped(directory):
    """Run a job that ends over its budget of rejects; return its input and its stored state."""
    rows = "".join(f"{row},{row}\n" for row in range(20))
    (directory / "in.csv").write_text(f"a,b\n{rows}1,1000\n")
    (directory / "schema.json").write_text(
        '{"features": [{"name": "a", "type": "int64"}, {"name": "b", "type": "int8"}]}'
    )
    with pytest.raises(RejectedRows):
        bt.write(directory / "in.csv", directory / "out", schema=directory / "schema.json", seed=1)
    (state,) = (directory / "out").glob(".tmp-*")
    return directory / "in.csv", state


@pytest.mark.slow
@pytest.mark.parametrize("thing", ["pipe", "endless device", "any bytes", "deep nesting"])
def test_stored_state_of_any_content_is_done_again(thing, tmp_path):
    source, state = stopped(tmp_path)
    names = [path.name for path in state.iterdir()]
    assert {"plan.json", "kept-tasks"} <= set(names)
    assert any(name.startswith("task-") for name in names)
    for name in names:
        if name.startswith(("kept-", "task-")) or name == "plan.json":
            (state / name).unlink()
            odd_things(state / name)[thing]()
    (state / "publishing").write_text('{"shards": [["x", "../in.csv", 5]], "old": ["../in.csv"]}')
    before = source.read_bytes()
    done = bt.write(
        source, tmp_path / "out", schema=tmp_path / "schema.json", seed=1, max_rejects="any"
    )
    assert (done.examples, done.rejects["rows"]) == (20, 1)
    assert source.read_bytes() == before
    assert verify(tmp_path / "out").ok
