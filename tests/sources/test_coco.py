"""Pictures with the objects that a COCO file annotates."""

import io
import itertools
import json
import math
import random
import re

import numpy as np
import pytest
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.job_state import stored_state
from beam_tfrecord.sources import coco_files as rows
from beam_tfrecord.sources.coco import Coco
from beam_tfrecord.sources.coco_files import COLUMNS
from beam_tfrecord.sources.read_tasks import ReadTask
from tests.helpers.reading import good_rows, messages_of
from tests.sources.made_images import encoded, exif, jpeg, picture, write_tree

CATEGORIES = [{"id": 7, "name": "cat"}, {"id": 90, "name": "tooth brush é", "supercategory": "x"}]
WIDTH, HEIGHT = 23, 17


def polygon(x, y, w, h):
    """Return the corners of a box as a polygon."""
    return [x, y, x + w, y, x + w, y + h, x, y + h]


def run_lengths(mask):
    """Return the run lengths of a mask, column by column, of which the first is of zeros."""
    flat = mask.flatten(order="F").tolist()
    counts = [len(list(same)) for _, same in itertools.groupby([0, *flat])]
    return {"counts": [counts[0] - 1, *counts[1:]], "size": list(mask.shape)}


def image_of(number, **more):
    return {"id": number, "file_name": f"{number}.jpg", "width": WIDTH, "height": HEIGHT, **more}


def object_of(number, image, **more):
    """Return an annotation with a box that its number decides."""
    box = [number % 5 + 0.25, number % 3 + 0.5, 8.5, 6]
    made = {
        "id": number,
        "image_id": image,
        "category_id": CATEGORIES[number % 2]["id"],
        "bbox": box,
        "area": 51.0,
        "iscrowd": number % 2,
        "segmentation": [polygon(*box)],
    }
    return made | more


def write_coco(path, images, annotations, categories=CATEGORIES):
    """Write a COCO file."""
    content = {
        "info": {"description": "not [read]"},
        "images": images,
        "licenses": [{"id": 1, "name": '"]}'}],
        "annotations": annotations,
        "categories": categories,
    }
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


def some_objects(tmp_path, images=6, objects=20, seed=0):
    """Write pictures, and a COCO file of objects in random order; one picture has no object."""
    draw = random.Random(seed)
    write_tree(tmp_path / "val", **{str(n): jpeg(n) for n in range(images)})
    owners = [draw.randrange(1, images) for _ in range(objects)]
    annotations = [object_of(n, owner) for n, owner in enumerate(owners)]
    draw.shuffle(annotations)
    return write_coco(
        tmp_path / "instances.json", [image_of(n) for n in range(images)], annotations
    )


def pixels_of(png):
    return np.asarray(Image.open(io.BytesIO(png)))


def test_rows_have_the_objects_of_their_pictures(tmp_path):
    path = some_objects(tmp_path)
    content = json.loads(path.read_text())
    names = {category["id"]: category["name"] for category in CATEGORIES}
    found = good_rows(Coco(path, base=str(tmp_path / "val")))
    assert [row["path"] for row in found] == [f"{n}.jpg" for n in range(6)]
    for number, row in enumerate(found):
        objects = [one for one in content["annotations"] if one["image_id"] == number]
        assert row["image"] == jpeg(number)
        assert row["image/source_id"] == str(number)
        assert row["image/object/class/label"] == [one["category_id"] for one in objects]
        assert row["image/object/class/text"] == [names[one["category_id"]] for one in objects]
        assert row["image/object/is_crowd"] == [one["iscrowd"] for one in objects]
        assert row["image/object/area"] == [one["area"] for one in objects]
        segmentations = [json.loads(text) for text in row["image/object/segmentation"]]
        assert segmentations == [one["segmentation"] for one in objects]
        for at, one in enumerate(objects):
            x, y, w, h = one["bbox"]
            corners = {"xmin": x / 23, "ymin": y / 17, "xmax": (x + w) / 23, "ymax": (y + h) / 17}
            for name, value in corners.items():
                assert row[f"image/object/bbox/{name}"][at] == np.float32(value)
    assert found[0]["image/object/class/label"] == []
    assert {*COLUMNS} < {*found[0]}


def test_rows_do_not_depend_on_batches_units_or_the_order_of_parts(tmp_path, monkeypatch):
    path = some_objects(tmp_path, images=40, objects=90)
    options = {"base": str(tmp_path / "val"), "masks": ["objects", "classes"]}
    expected = good_rows(Coco(path, **options))
    monkeypatch.setattr(rows, "_UNIT_IMAGES", 7)
    source = Coco(path, **options)
    units = source.all_units(source.all_scans())
    assert len(units) == 6
    tasks = [ReadTask(0, 0, tuple(units))]
    stored_state.save_tasks(str(tmp_path), tasks)
    assert stored_state.load_tasks(str(tmp_path), source) == tasks
    for batch_rows in (1, 5, 100):
        assert good_rows(source, batch_rows=batch_rows) == expected
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items())), indent=3))
    assert good_rows(Coco(path, **options)) == expected


@pytest.mark.parametrize(("resize", "size"), [("34x69", (69, 34)), (34, (46, 34)), ("5x4", (4, 5))])
def test_resized_pictures_have_right_boxes_areas_and_masks(tmp_path, resize, size):
    path = some_objects(tmp_path)
    options = {"base": str(tmp_path / "val"), "masks": ["objects", "classes"]}
    before = good_rows(Coco(path, **options))
    after = good_rows(Coco(path, resize=resize, **options))
    same = [name for name in COLUMNS if name != "image/object/area"]
    for old, new in zip(before, after, strict=True):
        assert (new["width"], new["height"]) == size
        assert (new["original_width"], new["original_height"]) == (WIDTH, HEIGHT)
        assert [new[name] for name in same] == [old[name] for name in same]
        scale = size[0] * size[1] / (WIDTH * HEIGHT)
        areas = [np.float32(area * scale) for area in old["image/object/area"]]
        assert new["image/object/area"] == areas
        # The middle of each new pixel lies in the old pixel that it comes from.
        columns = ((np.arange(size[0]) + 0.5) * WIDTH / size[0]).astype(int)
        lines = ((np.arange(size[1]) + 0.5) * HEIGHT / size[1]).astype(int)
        masks = zip(
            [old["mask"], *old["image/object/mask"]],
            [new["mask"], *new["image/object/mask"]],
            strict=True,
        )
        for one, other in masks:
            assert (pixels_of(other) == pixels_of(one)[lines][:, columns]).all()


@pytest.mark.filterwarnings("ignore")  # pycocotools uses NumPy in an old way
@pytest.mark.slow
def test_masks_are_those_of_pycocotools(tmp_path):
    from pycocotools import coco as tools
    from pycocotools import mask as coded

    draw = np.random.default_rng(0)
    shape = (HEIGHT, WIDTH)
    segmentations = [run_lengths(draw.random(shape) < 0.3) for _ in range(5)]
    for _ in range(5):
        runs = coded.encode(np.asfortranarray(draw.random(shape) < 0.7).astype(np.uint8))
        segmentations.append({"size": [HEIGHT, WIDTH], "counts": runs["counts"].decode()})
    for _ in range(20):
        points = draw.uniform(-2, 24, (2, 2 * draw.integers(3, 9)))
        segmentations.append(points.round(2).tolist())
    annotations = [
        object_of(number, 1, segmentation=one) for number, one in enumerate(segmentations)
    ]
    write_tree(tmp_path, **{"1": jpeg(1)})
    path = write_coco(tmp_path / "i.json", [image_of(1)], annotations)
    (row,) = good_rows(Coco(path, masks=["objects", "classes"]))
    theirs = tools.COCO(str(path))
    expected = [theirs.annToMask(one) for one in annotations]
    for png, mask in zip(row["image/object/mask"], expected, strict=True):
        assert (pixels_of(png) == mask).all()
    for one, mask in zip(segmentations[:5], expected, strict=False):
        flat = np.repeat(np.arange(len(one["counts"])) % 2, one["counts"])
        assert (mask == flat.reshape(shape, order="F")).all()
    # From the front: objects before crowds, and smaller before larger ones.
    front = sorted(
        range(len(expected)), key=lambda at: (annotations[at]["iscrowd"], expected[at].sum(), -at)
    )
    classes = np.zeros(shape, int)
    for at in front:
        classes[(classes == 0) & (expected[at] > 0)] = annotations[at]["category_id"]
    assert (pixels_of(row["mask"]) == classes).all()
    assert pixels_of(row["mask"]).dtype == np.uint8


def test_masks_of_many_categories_have_16_bits(tmp_path):
    write_tree(tmp_path, **{"1": jpeg(1), "2": jpeg(2)})
    categories = [{"id": 3, "name": "a"}, {"id": 1203, "name": "b"}]
    annotations = [
        object_of(1, 1, category_id=3, segmentation=[polygon(2, 3, 4, 5)]),
        object_of(2, 1, category_id=1203, segmentation=[polygon(10, 3, 4, 5)]),
    ]
    path = write_coco(tmp_path / "i.json", [image_of(1), image_of(2)], annotations, categories)
    one, other = (row["mask"] for row in good_rows(Coco(path, masks=["classes"], columns=["mask"])))
    expected = np.zeros((HEIGHT, WIDTH), int)
    expected[3:8, 2:6], expected[3:8, 10:14] = 3, 1203
    assert (pixels_of(one) == expected).all()
    assert Image.open(io.BytesIO(one)).mode == Image.open(io.BytesIO(other)).mode == "I;16"


def test_bad_images_and_objects_are_rejects(tmp_path):
    write_tree(tmp_path, **{str(n): jpeg(n) for n in range(20)})
    changes = [
        {"bbox": [1, 2, 3]},
        {"bbox": [1, 2, -3, 4]},
        {"bbox": [1, 2, math.inf, 4]},
        {"bbox": [1, 2, 10**400, 4]},
        {"category_id": 8},
        {"category_id": None},
        {"area": "x"},
        {"iscrowd": 2},
        {},
    ]
    annotations = [object_of(n, n, **change) for n, change in enumerate(changes)]
    images = [image_of(n) for n in range(len(changes))]
    images += [
        image_of(9, width=24),
        image_of(10, width=HEIGHT, height=WIDTH),
        image_of(11, width=0),
        image_of(12, file_name=None),
        image_of(13, file_name="gone.jpg"),
        image_of(14, file_name="../14.jpg"),
        image_of(15),
    ]
    path = write_coco(tmp_path / "i.json", images, annotations)
    cure = ": correct it, or leave the image out"
    expected = [
        f"0.jpg in i.json has annotation 0 without a bbox of four numbers{cure}",
        f"1.jpg in i.json has annotation 1 with a bbox of negative size{cure}",
        f"2.jpg in i.json has annotation 2 without a bbox of four numbers{cure}",
        f"3.jpg in i.json has annotation 3 without a bbox of four numbers{cure}",
        f"4.jpg in i.json has annotation 4 of category 8, which is not in categories{cure}",
        f"5.jpg in i.json has annotation 5 of category None, which is not in categories{cure}",
        f"6.jpg in i.json has annotation 6 whose area is no number, or whose iscrowd is not 0 or "
        f"1{cure}",
        f"7.jpg in i.json has annotation 7 whose area is no number, or whose iscrowd is not 0 or "
        f"1{cure}",
        f"11.jpg in i.json has no width and height in pixels{cure}",
        f"None in i.json has no file_name{cure}",
        "9.jpg has 23x17 pixels, but annotations for 24x17 (width x height)",
        "10.jpg has 23x17 pixels, but annotations for 17x23 (width x height): pass --orient if "
        "they are of the upright image",
        "gone.jpg is missing",
        "../14.jpg is not a path below its directory: correct it",
    ]
    assert sorted(messages_of(Coco(path))) == sorted(expected)
    assert [row["path"] for row in good_rows(Coco(path))] == ["8.jpg", "15.jpg"]


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ([[1, 2, 3, 4]], "a polygon that is not three or more pairs of numbers"),
        ([[1, 2, 3, 4, 5, "6"]], "a polygon that is not three or more pairs of numbers"),
        ([], "out a segmentation"),
        ({"size": [HEIGHT, WIDTH], "counts": [5, 5]}, "run lengths that do not fit the size"),
        ({"size": [HEIGHT, WIDTH], "counts": "zzzz"}, "run lengths that do not fit the size"),
        ({"size": [WIDTH, HEIGHT], "counts": [391]}, r"a mask of another size, \[23, 17\]"),
    ],
)
def test_bad_segmentations_are_rejects_if_masks_are_drawn(tmp_path, segmentation, message):
    write_tree(tmp_path, **{"1": jpeg(1)})
    annotations = [object_of(1, 1, segmentation=segmentation)]
    path = write_coco(tmp_path / "i.json", [image_of(1)], annotations)
    assert not messages_of(Coco(path))
    (found,) = messages_of(Coco(path, masks=["objects"]))
    assert found.startswith("1.jpg has an object with")

    assert re.search(f"with{'' if message.startswith('out') else ' '}{message}", found)


def test_category_zero_has_no_number_in_masks_of_classes(tmp_path):
    write_tree(tmp_path, **{"1": jpeg(1)})
    categories = [{"id": 0, "name": "a"}]
    annotations = [object_of(1, 1, category_id=0)]
    path = write_coco(tmp_path / "i.json", [image_of(1)], annotations, categories)
    assert messages_of(Coco(path, masks=["classes"])) == [
        "1.jpg has an object of category 0, and masks have 1 to 65,535"
    ]
    assert not messages_of(Coco(path, masks=["objects"]))


def test_annotations_of_upright_pictures_need_orient(tmp_path):
    (tmp_path / "1.jpg").write_bytes(encoded(picture(), "JPEG", exif=exif(6)))
    upright = image_of(1, width=HEIGHT, height=WIDTH)
    path = write_coco(tmp_path / "i.json", [upright], [object_of(1, 1)])
    assert "pass --orient if they are of the upright image" in messages_of(Coco(path))[0]
    (row,) = good_rows(Coco(path, orient=True, resize="46x34"))
    assert (row["width"], row["original_width"]) == (34, HEIGHT)
    write_coco(path, [image_of(1)], [object_of(1, 1)])
    assert len(good_rows(Coco(path))) == 1
    assert "has 17x23 pixels, but annotations for 23x17" in messages_of(Coco(path, orient=True))[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"i\.json is not valid JSON, or cut off \(Expecting value: line 1 column 1"),
        (b"{\xff}", r"i\.json is not valid JSON, or cut off \('utf-8' codec can't decode"),
        ('{"images": [], "images": []}', r"cut off \(key 'images' twice in an object\)"),
        ('{"images": [{"id": 1}, 5]}', r"has no id, a number or text, in images\[1\]"),
        ('{"annotations": [{"id": 1}]}', r"has no image_id, a number or text, in annotations\[0\]"),
        ('{"images": [{"id": 1}, {"id" 2}]}' + " " * 50, r"Expecting ':' delim.*\(char 29\)"),
        ('{"images": [{"id": 1}], "annotations": [{"id": ', r"cut off \(.*\(char \d+\)"),
        ('{"images": [{"id": 1}], "categories": []} x', r"cut off \(Extra data: .*\(char 42\)"),
        ('{"images": [' + "[" * 100_000, r"cut off \(maximum recursion"),
        (
            '{"images": [{"id": 5}, {"id": "a"}, {"id": 5}], "categories": []}',
            r"i\.json has image 5 twice: remove one",
        ),
    ],
)
def test_files_that_are_not_right_are_one_line(tmp_path, text, message):
    path = tmp_path / "i.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message) as error:
        good_rows(Coco(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "categories",
    [{}, [{"id": "1", "name": "a"}], [{"id": 1}], [{"id": 1, "name": "a"}] * 2, [{"id": 2**70}]],
)
def test_bad_categories_are_named(tmp_path, categories):
    write_tree(tmp_path, **{"1": jpeg(1)})
    path = write_coco(tmp_path / "i.json", [image_of(1)], [], categories)
    with pytest.raises(DataError, match=r"i\.json has category .* twice, or|in categories\[0\]"):
        good_rows(Coco(path))


def test_what_is_not_read_is_said(tmp_path, recwarn):
    write_tree(tmp_path, **{"1": jpeg(1)})
    annotations = [object_of(n, n, keypoints=[1, 2, 2]) for n in range(4)]
    write_coco(tmp_path / "i.json", [image_of(1)], annotations)
    manifest = bt.write(tmp_path / "i.json", tmp_path / "out", from_="coco")
    assert manifest.splits["data"].examples == 1
    warned = "".join(map(str, recwarn))
    assert "3 annotations in i.json left out: images that are not in the file, such as 0" in warned
    assert "annotations in i.json have keys that are not read: keypoints" in warned


@pytest.mark.parametrize(("key", "reference"), [("é", "é"), (7, "7"), ("7", 7)])
def test_texts_may_be_ids_and_annotations_lacking(tmp_path, key, reference):
    write_tree(tmp_path, **{"1": jpeg(1)})
    images = [{**image_of(1), "id": key}]
    path = write_coco(tmp_path / "i.json", images, [object_of(3, reference)])
    with pytest.raises(UsageError, match=r"i\.json has the keys of COCO .* --from coco and --base"):
        bt.write(path, tmp_path / "out")
    assert bt.write(path, tmp_path / "out", columns=["images"]).examples == 1
    (row,) = good_rows(Coco(path))
    assert (row["image/source_id"], row["image/object/class/label"]) == (str(key), [90])
    content = json.loads(path.read_text())
    del content["annotations"]
    path.write_text(json.dumps(content))
    assert good_rows(Coco(path))[0]["image/object/class/label"] == []


@pytest.mark.xdist_group("tensorflow")
def test_a_dataset_of_objects_is_loaded(tmp_path):
    import tensorflow as tf

    path = some_objects(tmp_path)
    out = tmp_path / "out"
    bt.write(
        path,
        out,
        from_="coco",
        source_options={"base": str(tmp_path / "val"), "resize": "8x9", "masks": ["objects"]},
        shuffle=False,
    )
    expected = good_rows(Coco(path, base=str(tmp_path / "val")))
    loaded = bt.load(out)
    assert [row["image/object/class/text"] for row in loaded.rows()] == [
        row["image/object/class/text"] for row in expected
    ]
    columns = ["image", "image/object/bbox/xmin", "image/object/class/label"]
    (batch,) = loaded.tf(batch_size=6, columns=columns)
    assert batch["image"].shape == (6, 8, 9, 3)
    assert isinstance(batch["image/object/bbox/xmin"], tf.RaggedTensor)
    labels = [row["image/object/class/label"] for row in expected]
    assert batch["image/object/class/label"].to_list() == labels


def test_a_changed_file_ends_the_job(tmp_path):
    path = some_objects(tmp_path)
    source = Coco(path, base=str(tmp_path / "val"))
    scans = source.all_scans()
    (unit,) = source.all_units(scans)
    path.write_text(path.read_text()[1:] + " ")
    with pytest.raises(BeamTFRecordError, match="was changed while it was read"):
        list(source.read_unchanged(unit, source.schema(scans)))
