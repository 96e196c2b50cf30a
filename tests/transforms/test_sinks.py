"""What the sinks of one pipeline share, and how their records travel."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineRunner

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.runners.pipelines import LocalRunner


def test_two_sinks_of_a_pipeline_have_outputs_of_their_own(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    (tmp_path / "out").mkdir()
    p = bt.pipeline("FnApiRunner")
    rows = p | beam.Create([{"id": 1}]).with_output_types(dict)
    rows | "1" >> bt.WriteToTFRecord(f"{tmp_path / 'out'}/")
    rows | "2" >> bt.WriteToTFRecord(str(tmp_path / "out" / "part"))
    rows | "3" >> bt.WriteToTFRecord(str(tmp_path / "out" / "other"))
    for number, sink in enumerate(
        (
            bt.WriteToTFRecord(f"{tmp_path / 'out'}/", overwrite=True),
            bt.WriteToTFRecord(f"{tmp_path / 'link'}/"),
            bt.WriteToTFRecord(str(tmp_path / "out" / "part")),
            bt.ExtractToParquet(tmp_path / "out"),
        )
    ):
        with pytest.raises(TargetExists, match="two sinks of one pipeline write to"):
            rows | f"Again{number}" >> sink
    another = bt.pipeline("FnApiRunner") | beam.Create([{"id": 1}]).with_output_types(dict)
    another | bt.WriteToTFRecord(f"{tmp_path / 'out'}/")


class DataflowRunner(PipelineRunner):
    """The name is all that counts: the real one asks the cloud what it may do."""


def test_the_exchange_follows_the_runner(tmp_path):
    def labels(runner, **options):
        p = bt.pipeline("FnApiRunner")
        p.runner = runner
        rows = p | beam.Create([{"id": 1}]).with_output_types(dict)
        rows | "W" >> bt.WriteToTFRecord(f"{tmp_path}/", **options)
        return {label.split("/")[1] for label in p.applied_labels if label.startswith("W/")}

    assert "SortRange0" in labels(DataflowRunner())
    assert "Spill0" in labels(DataflowRunner(), exchange="files")
    assert "Spill0" in labels(LocalRunner())
    assert "SortRange0" in labels(LocalRunner(), exchange="runner")
