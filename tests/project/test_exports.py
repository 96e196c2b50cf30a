"""The public names: lazy, sorted, and the same whatever was imported before."""

from pathlib import Path

import pytest

import beam_tfrecord as bt

ROOT = Path(__file__).parents[2]
PUBLIC = """
AssignSplits Batch BatchRows BeamTFRecordError Dataset EncodeExamples ExtractToParquet Feature
Manifest MapBatches MapRows Preprocess ReadAllFromArrow ReadAllFromAvro ReadAllFromCsv
ReadAllFromJson ReadAllFromOrc ReadAllFromParquet ReadAllFromTFRecord ReadAllFromWebDataset
ReadFromArrow ReadFromAvro ReadFromCoco ReadFromCsv ReadFromDelta ReadFromExcel ReadFromIceberg
ReadFromImages ReadFromJson ReadFromNumpy ReadFromOrc ReadFromParquet ReadFromSql ReadFromTFRecord
ReadFromWebDataset Schema ToExample ToRows WriteToTFRecord __version__ append card compact describe
diff export extract index load mix pipeline plan repair schema verify write
""".split()  # noqa: SIM905


def test_all_is_sorted_and_is_what_is_public():
    assert bt.__all__ == sorted(bt.__all__)
    assert bt.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(bt))


def test_no_module_hides_a_function():
    modules = {path.stem for path in (ROOT / "beam_tfrecord").iterdir()}
    assert modules.isdisjoint(set(bt.__all__) - {"__version__"})


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'writ'"):
        bt.writ  # noqa: B018
