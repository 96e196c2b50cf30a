"""The other steps, on CSV without splits: their values, and what missing ones become."""

import math
import warnings

import numpy as np
import pytest

import beam_tfrecord as bt
from tests.helpers.cli_stand_ins import run
from tests.helpers.lazy import Lazy
from tests.preprocess.made_rides import check_served

tf = Lazy("tensorflow")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

VALUES = [3.0, None, 1.0, math.nan, 10.0, -2.0, 7.0, 3.0, 0.5]
SEATS = [4, 2, None, 4, 9, -1, 2, 4, 3]
WORDS = ["a", "b", None, "a", "", "c", "b", "a", "zz"]
EPOCH = 1_600_000_000
MATRIX = [[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]]

STEPS = [
    *("impute=median:how=median", "impute=when:how=median", "impute=frequent:how=most_frequent"),
    *("impute=word:how=most_frequent", "impute=seats_mean", "impute=clipped:value=20"),
    *("clip=clipped:low=0:high=10", "clip=seats_clipped:high=4", "minmax=scaled", "minmax=same"),
    *("log1p=logged", "bucketize=bucket:boundaries=[0, 3]", "bucketize=half:buckets=2"),
    *("hash=hashed:buckets=5", "hash=hashed_number:buckets=5", "drop_null=kept"),
    *("embed=row:matrix=matrix.npy", "embed=checked:matrix=matrix.npy:write=index"),
    *("vocabulary=top:top_k=1", "vocabulary=bare:top_k=1:oov_buckets=0", "one_hot=hot:top_k=2"),
    "vocabulary=Straße (a/b):top_k=1",
    *("vocabulary=looked_up:top_k=2", "embed=looked_up:matrix=matrix.npy"),
]


def text(value):
    return "" if value is None else "nan" if value != value else str(value)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    directory = tmp_path_factory.mktemp("more")
    columns = {"id": list(range(9)), "kept": [*range(8), None]}
    for name in ("median", "clipped", "scaled", "logged", "bucket", "half", "frequent"):
        columns[name] = VALUES
    for name in ("seats_mean", "seats_clipped", "hashed_number", "row", "checked"):
        columns[name] = SEATS
    for name in ("word", "hashed", "top", "bare", "hot", "looked_up"):
        columns[name] = WORDS
    columns["Straße (a/b)"] = WORDS
    columns["when"] = [None if i == 4 else EPOCH + i for i in range(9)]
    columns["same"] = [5.5] * 9
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join('""' if value == "" else text(value) for value in row))
    (directory / "in.csv").write_text("\n".join(lines) + "\n")
    np.save(directory / "matrix.npy", np.array(MATRIX))
    words = [word for step in STEPS for word in ("--step", step)]
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.chdir(directory)
        ran = run("write", "in.csv", "out", *words)
    assert ran.exit_code == 0, ran.output
    return directory / "out"


@pytest.fixture(scope="module")
def rows(out):
    table = bt.load(out).arrow().sort_by("id")
    return {name: table.column(name).to_pylist() for name in table.column_names}


def approx(*values):
    return [pytest.approx(value, nan_ok=True) if value is not None else None for value in values]


def test_raw_rows_are_served_what_was_written(out):
    check_served(out.with_name("in.csv"), out)


def test_rows_without_a_value_are_dropped_before_statistics_are_made(rows):
    assert rows["id"] == list(range(8))


def test_median_fills_missing_values_and_nan(rows):
    # Of 3, 1, 10, -2, 7, 3: the sketch gives one of the values, not the mean of two.
    assert rows["median"] == approx(3, 3, 1, 3, 10, -2, 7, 3)


def test_median_of_times_stays_whole_and_exact(rows):
    assert rows["when"][4] - EPOCH in (2, 3, 5)
    del rows["when"][4]
    assert rows["when"] == [EPOCH + i for i in (0, 1, 2, 3, 5, 6, 7)]


def test_most_frequent(rows):
    assert rows["frequent"] == approx(3, 3, 1, 3, 10, -2, 7, 3)
    assert rows["word"] == ["a", "b", "a", "a", "", "c", "b", "a"]


def test_mean_of_whole_numbers_is_rounded(rows):
    # 24 / 7 = 3.43
    assert rows["seats_mean"] == [4, 2, 3, 4, 9, -1, 2, 4]


def test_clip_after_a_constant(rows):
    assert rows["clipped"] == approx(3, 10, 1, 10, 10, 0, 7, 3)
    assert rows["seats_clipped"] == [4, 2, None, 4, 4, -1, 2, 4]


def test_minmax_leaves_what_is_missing(rows):
    expected = (5 / 12, None, 3 / 12, math.nan, 1, 0, 9 / 12, 5 / 12)
    assert rows["scaled"] == approx(*expected)
    assert rows["same"] == [0.0] * 8


def test_log1p_below_minus_one_is_nan(rows):
    expected = (math.log(4), None, math.log(2), math.nan, math.log(11), math.nan)
    assert rows["logged"] == approx(*expected, math.log(8), math.log(4))


def test_buckets(rows):
    assert rows["bucket"] == [2, None, 1, None, 2, 0, 2, 2]
    assert rows["half"] == [1, None, 0, None, 1, 0, 1, 1]


def test_hash_is_that_of_tensorflow(rows):
    expected = [
        None if word is None else int(tf.strings.to_hash_bucket_fast(word, 5)) for word in WORDS[:8]
    ]
    assert rows["hashed"] == expected
    assert rows["hashed_number"] == [
        None if seats is None else int(tf.strings.to_hash_bucket_fast(str(seats), 5))
        for seats in SEATS[:8]
    ]


def test_embedding_rows_and_zeros_where_there_is_none(rows):
    zeros = [0.0, 0.0]
    expected = [zeros, MATRIX[2], zeros, zeros, zeros, zeros, MATRIX[2], zeros]
    assert rows["row"] == expected
    assert rows["checked"] == [-1, 2, None, -1, -1, -1, 2, -1]


def test_vocabulary_index_looks_rows_of_a_matrix_up(rows):
    a, b, other, none = MATRIX[0], MATRIX[1], MATRIX[2], [0.0, 0.0]
    assert rows["looked_up"] == [a, b, none, a, other, other, b, a]


def test_out_of_vocabulary(rows):
    assert rows["top"] == [0, 1, None, 0, 1, 1, 1, 0]
    assert rows["Straße (a/b)"] == rows["top"]
    assert rows["bare"] == [0, -1, None, 0, -1, -1, -1, 0]
    a, b, none = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
    assert rows["hot"] == [a, b, none, a, none, none, b, a]
