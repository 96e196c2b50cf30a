"""Stubs of records: what comes back is the record, byte for byte, or a fault that is told."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native
from beam_tfrecord.native import _files as files
from tests.native.strategies import RELAXED

# Anything that is there is a file worth leaving out.
ALL = 1


def example(before: list[int], image: list[bytes], behind: bytes) -> bytes:
    """Return an example whose feature ``image`` has others on both sides."""
    features = {
        "a": tf.train.Feature(int64_list=tf.train.Int64List(value=before)),
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=image)),
        "z": tf.train.Feature(bytes_list=tf.train.BytesList(value=[behind])),
    }
    made = tf.train.Example(features=tf.train.Features(feature=features))
    return made.SerializeToString(deterministic=True)


def framed(payloads: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    array = pa.array(payloads, pa.binary())
    out, starts = np.zeros(native.frame_bound(array), np.uint8), np.zeros(len(payloads), np.int64)
    return out[: native.frame(array, out, 0, starts)], starts


def made_whole(stubs: np.ndarray, starts: np.ndarray, order: list[int]) -> bytes:
    sizes = files.whole_sizes(stubs, starts)
    out = np.zeros(int(sizes[order].sum()), np.uint8)
    assert files.make_whole(stubs, starts, np.array(order, np.int64), out) is None
    return out.tobytes()


@RELAXED
@given(
    contents=st.lists(st.one_of(st.none(), st.binary(max_size=300)), min_size=1, max_size=6),
    numbers=st.lists(st.integers(-5, 5), max_size=3),
    least=st.integers(0, 20),
)
def test_stubs_are_made_whole(
    contents: list[bytes | None],
    numbers: list[int],
    least: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("files")
    paths = []
    for number, content in enumerate(contents):
        (path := directory / str(number)).write_bytes(content or b"")
        paths.append(None if content is None else os.fsencode(path))
    values = [b"no file" if content is None else content for content in contents]
    payloads = [example(numbers, [value], b"end") for value in values]
    data, starts = framed(payloads)
    stubs, begins = files.make_stubs(data, starts, b"image", paths, least)
    assert native.scan_frames(stubs, True).starts.tolist() == begins.tolist()
    assert made_whole(stubs, begins, list(range(len(contents)))) == data.tobytes()
    backwards = list(range(len(contents)))[::-1]
    expected = b"".join(framed([payloads[number]])[0].tobytes() for number in backwards)
    assert made_whole(stubs, begins, backwards) == expected


def test_a_stub_holds_nothing_of_its_file(tmp_path: Path) -> None:
    content = os.urandom(5000)
    (tmp_path / "f").write_bytes(content)
    data, starts = framed([example([1], [content], b"end")])
    stubs, begins = files.make_stubs(data, starts, b"image", [os.fsencode(tmp_path / "f")], 5000)
    assert len(stubs) < 300
    assert content[:8] not in stubs.tobytes()
    assert files.stub_path(stubs, int(begins[0])) == os.fsencode(tmp_path / "f")


@pytest.mark.parametrize(
    "payload",
    [
        b"no example",
        b"",
        example([1], [b"content", b"content"], b""),
        example([1], [], b""),
        tf.train.Example().SerializeToString(),
        example([1], [b"content"], b"") + b"\x10\x01",
    ],
)
def test_what_has_no_one_value_in_its_place_stays_whole(payload: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"content")
    data, starts = framed([payload])
    stubs, begins = files.make_stubs(data, starts, b"image", [os.fsencode(tmp_path / "f")], ALL)
    (tmp_path / "f").unlink()
    assert made_whole(stubs, begins, [0]) == data.tobytes()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda path: path.write_bytes(b"CONTENT"), "bytes"),
        (lambda path: path.write_bytes(b"conten"), "size"),
        (lambda path: path.write_bytes(b"contents"), "size"),
        (lambda path: path.unlink(), errno.ENOENT),
        (lambda path: (path.unlink(), path.mkdir()), errno.EISDIR),
    ],
)
def test_a_file_that_has_changed_is_told(change, fault: str | int, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_bytes(b"content")
    data, starts = framed([example([1], [b"content"], b"")] * 2)
    names = [os.fsencode(path) for path in paths]
    stubs, begins = files.make_stubs(data, starts, b"image", names, ALL)
    change(paths[1])
    out = np.zeros(len(data), np.uint8)
    assert files.make_whole(stubs, begins, np.array([0, 1]), out) == (1, fault)


def test_no_byte_outside_of_out_is_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"content")
    data, starts = framed([example([], [b"content"], b"")])
    stubs, begins = files.make_stubs(data, starts, b"image", [os.fsencode(tmp_path / "f")], ALL)
    room = np.full(len(data) + 16, 7, np.uint8)
    # A file that has grown is asked for one byte more than it had.
    (tmp_path / "f").write_bytes(b"contents and more")
    assert files.make_whole(stubs, begins, np.array([0]), room[8:-8]) == (0, "size")
    assert room[:8].tolist() == room[-8:].tolist() == [7] * 8


def test_what_is_no_stub_is_refused() -> None:
    data, starts = framed([b"x" * 27, b"x" * 100])
    for number in range(2):
        with pytest.raises(ValueError, match="is no stub"):
            files.whole_sizes(data, starts[number : number + 1])
        with pytest.raises(ValueError, match="is no stub"):
            files.make_whole(data, starts, np.array([number]), np.zeros(116, np.uint8))
    with pytest.raises(ValueError, match="does not lie inside"):
        files.whole_sizes(data, np.array([len(data)]))
    with pytest.raises(ValueError, match="does not lie inside"):
        files.make_stubs(data, np.array([-1]), b"image", [None], ALL)
    with pytest.raises(ValueError, match="2 paths"):
        files.make_stubs(data, starts[:1], b"image", [None, None], ALL)


@RELAXED
@given(st.binary(max_size=60), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_sizes_that_do_not_add_up_are_refused(rest: bytes, size: int, before: int) -> None:
    head = struct.pack("<QIIIQ", size, 0, before, 0, 0)
    data, starts = framed([head + rest])
    if size == len(rest) and before <= len(rest):
        assert files.whole_sizes(data, starts).tolist() == [size + 16]
    else:
        with pytest.raises(ValueError, match="is no stub"):
            files.whole_sizes(data, starts)


def test_a_size_that_no_example_has_is_refused() -> None:
    # Many of them would add up to a few bytes again.
    head = struct.pack("<QIIIQ", 2**44, 0, 0, 2, 2**44) + b"f\0"
    data, starts = framed([head])
    with pytest.raises(ValueError, match="is no stub"):
        files.whole_sizes(data, starts)
    with pytest.raises(ValueError, match="is no stub"):
        files.make_whole(data, starts, np.zeros(2**20, np.int64), np.zeros(100, np.uint8))


def test_a_name_must_end(tmp_path: Path) -> None:
    for name, is_good in ((b"f\0", True), (b"ff", False)):
        head = struct.pack("<QIIIQ", 4, 0, 0, 2, 4)
        data, starts = framed([head + name])
        if is_good:
            assert files.whole_sizes(data, starts).tolist() == [20]
        else:
            with pytest.raises(ValueError, match="is no stub"):
                files.whole_sizes(data, starts)


def test_room_and_numbers_are_checked() -> None:
    data, starts = framed([example([1], [b"x"], b"")])
    stubs, begins = files.make_stubs(data, starts, b"image", [None], ALL)
    with pytest.raises(ValueError, match="out has"):
        files.make_whole(stubs, begins, np.array([0]), np.zeros(len(data) - 1, np.uint8))
    with pytest.raises(ValueError, match="does not lie inside"):
        files.make_whole(stubs, begins, np.array([1]), np.zeros(len(data), np.uint8))
    assert files.make_whole(stubs, begins, np.zeros(0, np.int64), np.zeros(0, np.uint8)) is None
