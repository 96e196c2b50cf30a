"""``docs/format.md``: this reader, and one written from the page alone, do what it says."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.loading.order import Order
from tests.helpers.repository import ROOT
from tests.whole.test_releases import write_release

PAGE = (ROOT / "docs" / "format.md").read_text("utf-8")
# It was written by somebody who had only the page.
READER = Path(__file__).with_name("format_reader") / "DatasetReader.java"


def vectors():
    """Return the numbers of each order in the page, and the positions 0 to 7 that it has."""
    rows = re.findall(r"^\| ([\d, |]+) \| ((?:\d+, ){7}\d+) \|$", PAGE, re.MULTILINE)
    return [
        (
            [int(one.replace(",", "")) for one in numbers.split("|")],
            list(map(int, found.split(","))),
        )
        for numbers, found in rows
    ]


def test_orders_are_those_of_the_page():
    assert len(vectors()) == 9
    for numbers, expected in vectors():
        assert Order(*numbers).indices(0, 8).tolist() == expected


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Return a function that runs the reader in Java, and returns its lines."""
    classes = tmp_path_factory.mktemp("classes")
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK")
    subprocess.run(["javac", "-d", str(classes), str(READER)], check=True)

    def run(*words):
        command = ["java", "-cp", str(classes), "DatasetReader", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DataError(done.stderr)
        return done.stdout.splitlines()

    return run


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Return datasets of many kinds, among them with a prefix, of many sizes and zipped."""
    directory = tmp_path_factory.mktemp("datasets")
    table = pa.table({"número": range(900), "t": ["x" * (i * i % 4000) for i in range(900)]})
    pq.write_table(table, directory / "in.parquet")
    source = directory / "in.parquet"
    bt.write(source, directory / "splits", splits="a=0.7,b=0.3", shards=4, seed=2**64 - 1)
    bt.write(source, directory / "zipped", compression="gzip", shuffle=False, shards=3)
    with bt.pipeline("direct") as p:
        _ = (
            p
            | bt.ReadFromParquet(str(source))
            | bt.WriteToTFRecord(str(directory / "prefixed" / "part"), num_shards=2)
        )
    (directory / "kinds").mkdir()
    write_release(directory / "kinds")
    kinds = [path.parent for path in sorted((directory / "kinds").glob("*/job.json"))]
    kinds = [path for path in kinds if path.name != "stage"]
    return [*kinds, directory / "splits", directory / "zipped", directory / "prefixed" / "part"]


def manifest_of(path):
    return path if path.is_dir() else path.with_name(f"{path.name}-manifest.json")


@pytest.mark.slow
def test_the_reader_of_the_page_reads_every_dataset_by_index(reader, datasets):
    assert len(datasets) >= 8
    for path in datasets:
        opened = bt.load(path)
        assert reader("check", manifest_of(path)) == [f"ok {len(opened)}"]
        for split, count in opened.splits.items():
            expected = [example.hex() for example in bt.load(path, split=split).examples()]
            assert reader("examples", manifest_of(path), split) == expected
            numbers = [*range(0, count, 7), count - 1, 0]
            assert reader("read", manifest_of(path), split, *numbers) == [
                expected[number] for number in numbers
            ]


@pytest.mark.slow
def test_the_reader_of_the_page_never_reads_a_wrong_record(reader, datasets, tmp_path):
    damaged = Path(shutil.copytree(datasets[-3], tmp_path / "damaged"))
    expected = [example.hex() for example in bt.load(damaged, split="a").examples()]
    files = [*damaged.glob("a-*.tfrecord"), *(damaged / "_index").glob("idx-a-*")]
    draw = random.Random(1)
    errors = 0
    for path in files * 3:
        data = bytearray(path.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        sound = path.read_bytes()
        path.write_bytes(data)
        with pytest.raises(DataError, match=f"^[^\n]*{path.name}[^\n]*byte[^\n]*\n$"):
            reader("check", damaged)
        number = draw.randrange(len(expected))
        try:
            found = reader("read", damaged, "a", number)
        except DataError:
            errors += 1
        else:
            assert found == [expected[number]]
        path.write_bytes(sound)
    assert errors


@pytest.mark.slow
def test_the_reader_of_the_page_computes_the_orders(reader):
    for numbers, expected in vectors():
        (line,) = reader("order", *numbers, 0, 8)
        assert list(map(int, line.split())) == expected
    order = Order(977, 5, 2, 6, 9)
    (line,) = reader("order", 977, 5, 2, 6, 9, 0, 977)
    assert line.split() == [str(index) for index in order.indices(0, 977)]
