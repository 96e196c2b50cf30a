"""Which files of a directory are pictures, in which order, and what their folders mean."""

import os
import re
from collections import Counter

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.images.folders import FoundFile, find_tree, list_tree
from beam_tfrecord.sources.images.source import Images


def make(root, *names):
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")


def names_in(tree):
    return [item.name for item in list_tree(tree) if isinstance(item, FoundFile)]


def listed(*paths):
    return names_in(find_tree([str(path) for path in paths]))


def test_paths_come_sorted_as_whole_paths(tmp_path):
    make(tmp_path, "a/x.jpg", "a.jpg", "a-b/x.jpg", "b/c/y.png", "b/c.png", "Z.jpg")
    assert listed(tmp_path) == ["Z.jpg", "a-b/x.jpg", "a.jpg", "a/x.jpg", "b/c.png", "b/c/y.png"]
    assert listed(tmp_path) == sorted(listed(tmp_path))


def test_hidden_and_system_files_are_skipped_and_counted(tmp_path):
    make(tmp_path, "_DSC01.jpg", ".a.jpg", "Thumbs.db", "__MACOSX/b.jpg", ".git/c.jpg", "d.txt")
    tree = find_tree([str(tmp_path)])
    assert names_in(tree) == ["_DSC01.jpg"]
    skipped = [item for item in list_tree(tree) if isinstance(item, str)]
    assert Counter(skipped) == {"hidden or of the operating system": 4, ".txt": 1}


@pytest.mark.parametrize(
    "suffix", ["jpg", "JPEG", "jpe", "png", "GIF", "webp", "bmp", "tif", "tiff"]
)
def test_suffixes_of_pictures(tmp_path, suffix):
    make(tmp_path, f"a.{suffix}", "b.jpg.txt", "jpg", "c.svg")
    assert listed(tmp_path) == [f"a.{suffix}"]


def test_a_file_that_is_named_is_taken_whatever_its_suffix(tmp_path):
    make(tmp_path, "a.data", "b.jpg", "c.data")
    assert listed(tmp_path / "a.data", tmp_path / "b.jpg") == ["a.data", "b.jpg"]
    assert listed(f"{tmp_path}/*") == ["b.jpg"]


@pytest.mark.parametrize(
    "paths",
    [["in"], ["in/*"], ["in/*/*.jpg"], ["in/b", "in/a"], ["in/a/1.jpg", "in/b"], ["in", "in/a"]],
)
def test_names_do_not_depend_on_how_files_are_named(tmp_path, monkeypatch, paths):
    make(tmp_path, "in/a/1.jpg", "in/b/2.jpg")
    monkeypatch.chdir(tmp_path)
    tree = find_tree(paths)
    assert names_in(tree) == ["a/1.jpg", "b/2.jpg"]
    assert tree.root == str(tmp_path / "in")
    assert tree.classes == ("a", "b")


def test_links_are_followed_but_not_in_circles(tmp_path):
    make(tmp_path, "in/a/1.jpg", "elsewhere/2.jpg")
    (tmp_path / "in/a/up").symlink_to(tmp_path / "in")
    (tmp_path / "in/a/self").symlink_to("self")
    (tmp_path / "in/b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/c.jpg").symlink_to(tmp_path / "in/c.jpg")
    (tmp_path / "in/d.jpg").symlink_to(tmp_path / "elsewhere/2.jpg")
    assert listed(tmp_path / "in") == ["a/1.jpg", "b/2.jpg", "c.jpg", "d.jpg"]


def test_odd_names_are_just_names(tmp_path):
    odd = ["a b.jpg", "new\nline.jpg", "日本.jpg", "a[1]*?.jpg", "'\".jpg", "#.jpg"]
    make(tmp_path, *odd)
    assert listed(tmp_path) == sorted(odd)
    with open(os.path.join(os.fsencode(tmp_path), b"\xff\xfe.jpg"), "wb"):
        pass
    with pytest.raises(UsageError, match=r"the name of '.udcff.udcfe\.jpg' in .* is not utf-8"):
        listed(tmp_path)


@pytest.mark.parametrize(
    ("files", "has_splits", "has_labels", "classes"),
    [
        (["a.jpg"], False, False, ()),
        (["é/1.jpg", "b/2.jpg", "B/3.jpg", "9/4.jpg"], False, True, ("9", "B", "b", "é")),
        (["x/deep/a.jpg", "empty/"], False, True, ("empty", "x")),
        (["train/x/a.jpg", "val/y/b.jpg"], True, True, ("x", "y")),
        (["train/a.jpg", "TEST/b.jpg"], True, False, ()),
        (["train/x/a.jpg", "readme.txt", ".git/y.jpg"], True, True, ("x",)),
    ],
)
def test_folders_tell_the_layout(tmp_path, files, has_splits, has_labels, classes):
    make(tmp_path, *files)
    tree = find_tree([str(tmp_path)])
    assert (tree.has_splits, tree.has_labels, tree.classes) == (has_splits, has_labels, classes)


@pytest.mark.parametrize(
    ("files", "options", "warned"),
    [
        (["all/x/a.jpg", "all/y/b.jpg"], {}, ["'all'"]),
        (["train/all/x/a.jpg", "test/all/y/b.jpg"], {}, ["'all'"]),
        (["all/x/a.jpg"], {"layout": "class"}, []),
        (["all/x/a.jpg"], {"labels": ["all"]}, []),
        (["x/a.jpg", "y/b.jpg"], {}, []),
        (["a.jpg"], {}, []),
    ],
)
def test_a_folder_around_all_classes_is_warned_of(tmp_path, files, options, warned):
    make(tmp_path, *files)
    _, remarks = Images(tmp_path, **options).inferred()
    assert [re.findall("'[^']*'", line) for line in remarks] == [[name] for name in warned]


@pytest.mark.parametrize(
    ("paths", "classes"),
    [
        (["one"], ("extra", "train")),
        (["two", "three"], ("three", "two")),
        (["t*/*"], ("three", "two")),
    ],
)
def test_folders_of_unsure_meaning_need_a_layout(tmp_path, paths, classes):
    make(tmp_path, "one/train/x/1.jpg", "one/extra/x/2.jpg", "two/x/1.jpg", "three/x/1.jpg")
    named = [str(tmp_path / path) for path in paths]
    with pytest.raises(UsageError, match=f"folders {', '.join(classes)} are .* --layout"):
        find_tree(named)
    assert find_tree(named, "class").classes == classes
