"""Every option of pictures with every other: cases, and what each must give.

What a dataset must hold follows from the files alone; Pillow and TensorFlow read them and it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy
from tests.whole.combinations import HALVES, Case, refusal_line

tf = Lazy("tensorflow")

CLASSES = ("cat", "dog", "owl")
WIDTH, HEIGHT = 12, 8
RESIZED_WIDTH, RESIZED_HEIGHT = 6, 4

PICTURES = {
    "size": (0, 1, 4, 1000),
    "input": ("folders", "splits", "flat", "table"),
    "damaged": (False, True),
    "check": ("header", "decode", "none"),
    "resize": (None, f"{RESIZED_HEIGHT}x{RESIZED_WIDTH}"),
    "format": (None, "png"),
    "columns": (None, ("path", "image")),
    "shuffle": (True, False),
    "splits": (None, "hash", "column"),
    "key": ((), "path"),
    "group": ((), "label_name"),
    "shards": (None, 1, 3),
    "shard_size": (None, "2KB"),
    "compression": ("none", "gzip"),
    "limit": (None, 1, 3),
    "max_rejects": (0, "any"),
    "seed": (0, 7),
}

# What must be refused: the first level of every factor, but for these.
REFUSED_PICTURES = (
    {"damaged": True},
    {"damaged": True, "check": "none", "resize": f"{RESIZED_HEIGHT}x{RESIZED_WIDTH}"},
    {"input": "flat", "group": "label_name"},
    {"columns": ("path", "image"), "group": "label_name"},
    {"input": "splits", "group": "label_name"},
    {"input": "splits", "columns": ("path", "image")},
    {"splits": "column"},
    {"key": "path", "shuffle": False},
    {"shards": 3, "shard_size": "2KB"},
)


def is_sound_picture(case):
    """Tell whether a case, which may lack factors, makes sense: it is not one to be refused."""
    # The first pictures are those that are read first: a damaged one may be among them.
    if case.get("damaged") and case.get("limit"):
        return False
    return refusal_of_picture(case) != "must"


def refusal_of_picture(case):
    """Return ``must``, ``may`` or ``no``: whether a case, which may lack factors, is refused."""
    group, columns = case.get("group"), case.get("columns")
    has_label = case.get("input") != "flat" and not columns
    if (
        (case.get("shards") and case.get("shard_size"))
        or (case.get("key") and not case.get("shuffle", True))
        or (case.get("splits") == "column" and case.get("input", "splits") != "splits")
        or (_splits_by_folder(case) and (group or columns))
        or (group and not has_label)
    ):
        return "must"
    if case.get("damaged") and case.get("check") != "none" and case.get("max_rejects") == 0:
        return "must"
    if case.get("size") == 0:
        return "may"
    is_split = _splits_by_folder(case) or case.get("splits")
    return "may" if case.get("shards") == 1 and is_split else "no"


def _splits_by_folder(case):
    """Tell whether the folders decide the splits: they do unless other splits are asked for."""
    if "splits" not in case:
        return False
    is_split = case.get("input") == "splits" and case["splits"] is None
    return bool(is_split or case["splits"] == "column")


def make_pictures(case: Case, directory: Path) -> tuple[str, dict[str, bytes]]:
    """Write the input of a case.

    Returns:
        What is to be read, and the sound files by their paths below it, in order of these.
    """
    root = directory / "pictures"
    root.mkdir(parents=True)
    files = {}
    for number in range(case["size"]):
        name = f"{number:04d}.png"
        label = CLASSES[number * number % 3]
        folder = {
            "folders": f"{label}/",
            "splits": f"{'train' if number % 4 else 'test'}/{label}/",
            "flat": "",
            "table": "all/",
        }[case["input"]]
        files[folder + name] = _picture(number)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    damaged = {}
    if case["damaged"] and files:
        first = next(iter(files))
        damaged[f"{first.rpartition('/')[0]}/damaged.png".lstrip("/")] = files[first][:40]
    for path, data in damaged.items():
        (root / path).write_bytes(data)
    if case["input"] != "table":
        return str(root), dict(sorted(files.items()))
    table = directory / "photos.csv"
    with open(table, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows((path, _label(path, case)) for path in [*files, *damaged])
    return str(table), files


def _picture(number):
    pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def _label(path, case):
    if case["input"] == "flat":
        return None
    if case["input"] == "table":
        stem = Path(path).stem
        return "cat" if stem == "damaged" else CLASSES[int(stem) ** 2 % 3]
    return path.split("/")[-2]


def check_picture(case, directory):
    """Run a case and check what it gives; return ``written`` or ``refused``.

    Raises:
        AssertionError: It is wrong.
    """
    source, files = make_pictures(case, directory)
    out, refusal = directory / "out", refusal_of_picture(case)
    options = {name: case[name] for name in ("check", "resize", "format")}
    if case["input"] == "table":
        options["base"] = str(directory / "pictures")
    else:
        options["layout"] = {"folders": "class", "splits": "split"}.get(case["input"], "flat")
    try:
        manifest = bt.write(
            source,
            out,
            from_="images",
            splits=HALVES if case["splits"] == "hash" else None,
            split_column="split" if case["splits"] == "column" else None,
            source_options=options,
            **{
                name: case[name]
                for name in (
                    *("group", "key", "shards", "shard_size", "shuffle", "seed", "limit"),
                    *("compression", "columns", "max_rejects"),
                )
            },
        )
    except bt.BeamTFRecordError as error:
        line = refusal_line(error)
        is_damaged = case["damaged"] and case["max_rejects"] == 0
        assert refusal != "no" or is_damaged, f"refused: {line}"
        assert not (out / "manifest.json").exists(), "published, and refused"
        return "refused"
    assert refusal != "must", "not refused"
    paths = list(files)[: case["limit"]]
    _check_rows(case, out, {path: files[path] for path in paths})
    assert manifest.examples == len(paths) + (_stores_damaged(case) and bool(files))
    assert bt.verify(out).ok
    return "written"


def _stores_damaged(case):
    """Tell whether the damaged file is a row: nothing looks at its bytes."""
    return bool(
        case["damaged"]
        and case["check"] == "none"
        and case["resize"] is None
        and case["format"] is None
    )


def _check_rows(case, out, files):
    manifest = json.loads((out / "manifest.json").read_text())
    found = {}
    stored = 0
    for split, content in manifest["splits"].items():
        found[split] = []
        for shard in content["shards"]:
            records = tf.data.TFRecordDataset(
                str(out / shard["path"]), compression_type=manifest["compression"]
            )
            paths = []
            for record in records:
                feature = tf.train.Example.FromString(record.numpy()).features.feature
                path = feature["path"].bytes_list.value[0].decode()
                if path.endswith("damaged.png") and _stores_damaged(case):
                    stored += 1
                    continue
                _check_row(case, feature, path, files[path])
                paths.append(path)
            found[split].append(paths)
    every = [path for shards in found.values() for shard in shards for path in shard]
    assert sorted(every) == sorted(files)
    assert stored == (_stores_damaged(case) and bool(files))
    if _splits_by_folder(case):
        for split, shards in found.items():
            assert all(path.startswith(f"{split}/") for shard in shards for path in shard)
    elif case["splits"] == "hash" and case["group"]:
        of_label = {}
        for split, shards in found.items():
            for shard in shards:
                for path in shard:
                    of_label.setdefault(_label(path, case), set()).add(split)
        assert all(len(splits) == 1 for splits in of_label.values())
    elif case["splits"] is None:
        assert set(found) <= {"data"}
    for shards in found.values():
        paths = [path for shard in shards for path in shard]
        if not case["shuffle"]:
            order = {path: place for place, path in enumerate(files)}
            assert paths == sorted(paths, key=order.__getitem__)
        elif len(paths) >= 200:
            assert paths != sorted(paths)


def _check_row(case, feature, path, data):
    (image,) = feature["image"].bytes_list.value
    is_resized = case["resize"] is not None
    if not is_resized:
        # Both are PNG: what is to be re-encoded as what it is stays as it is.
        assert image == data
    pixels = tf.io.decode_image(image).numpy()
    height, width = (RESIZED_HEIGHT, RESIZED_WIDTH) if is_resized else (HEIGHT, WIDTH)
    assert pixels.shape == (height, width, 3)
    if case["columns"]:
        assert set(feature) == set(case["columns"])
        return
    assert feature["width"].int64_list.value[:] == [width]
    assert feature["height"].int64_list.value[:] == [height]
    assert feature["sha256"].bytes_list.value[:] == [hashlib.sha256(data).hexdigest().encode()]
    label = _label(path, case)
    assert ("label_name" in feature) == (label is not None)
    if label is not None:
        assert feature["label_name"].bytes_list.value[:] == [label.encode()]
    if is_resized:
        assert feature["original_width"].int64_list.value[:] == [WIDTH]
        assert feature["original_height"].int64_list.value[:] == [HEIGHT]
