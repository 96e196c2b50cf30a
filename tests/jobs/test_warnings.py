"""What `write` and `extract` warn of, in Python and on the command line."""

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import OutputWarning, options_named_by
from tests.helpers.cli_stand_ins import run

CUT = ".1234567890123456789"
COARSE = (
    "float32 is too coarse for 'start', 'stop': rounding moves values by more than 0.01%% of their "
    'range: "store": "bytes" or "text" in %s keeps them exact'
)
REJECTED = "1 row rejected: for the reasons, run beam-tfrecord head %s/rejects"


def test_write_warns_of_rounding_and_rejects_at_the_line_of_its_caller(tmp_path):
    path, out = tmp_path / "a.csv", tmp_path / "out"
    times = "1.7e9,-1e9,0.5\n1700086400.5,-999996400.5,0.1\n"
    path.write_text(f"start,stop,fare\n{times}1.7e9,x,1\n")
    types = dict.fromkeys(("start", "stop", "fare"), "float64")
    with pytest.warns(OutputWarning) as warned, options_named_by("keyword"):
        bt.write(path, out, types=types, max_rejects=1)
    assert [str(one.message) for one in warned] == [COARSE % "schema", REJECTED % out]
    assert {one.filename for one in warned} == {__file__}
    words = ("--max-rejects", 1, "--types", ",".join(f"{name}=float64" for name in types))
    told = run("write", path, tmp_path / "by-command", *words).stderr.splitlines()
    assert told[1:] == [
        f"warning: {COARSE % '--schema'}",
        f"warning: {REJECTED % (tmp_path / 'by-command')}",
    ]


def write(rows, out):
    bt.write(rows, out, types={"x": "int64"}, max_rejects=1, splits="a=.5,b=.5", map=twice)


def extract(rows, out):
    bt.extract(rows, out, types={"x": "int64"}, max_rejects=1)


def pipeline(rows, out):
    with bt.pipeline() as p:
        rows = p | bt.ReadFromCsv(rows, types={"x": "int64"}) | bt.MapRows(twice)
        rows | bt.WriteToTFRecord(f"{out}/", max_rejects=1, splits="a=.5,b=.5")


def twice(row):
    return [row, {"x": row["x"] + 100}]


@pytest.mark.parametrize("job", [write, extract, pipeline])
def test_every_job_warns_at_the_line_of_its_caller(tmp_path, job):
    (tmp_path / "a.csv").write_text("x\ny\n" + "".join(f"{row}\n" for row in range(40)))
    with pytest.warns(OutputWarning) as warned:
        job(tmp_path / "a.csv", tmp_path / "out")
    texts = [str(one.message) for one in warned]
    assert texts[-1] == REJECTED % (tmp_path / "out")
    torn = [text.partition(" became several that lie in different splits")[1] for text in texts]
    assert any(torn) == (job in (write, pipeline))
    assert {one.filename for one in warned} == {__file__}


def test_write_warns_of_digits_that_the_schema_cuts(tmp_path):
    (tmp_path / "a.csv").write_text(f"x\n{CUT}\n")
    schema = bt.Schema((bt.Feature("x", "float64", store="bytes"),))
    with pytest.warns(OutputWarning, match="^values of 'x' have more digits than float64 holds"):
        bt.write(tmp_path / "a.csv", tmp_path / "out", schema=schema)


def test_write_warns_of_values_that_rounding_makes_equal(tmp_path):
    with pytest.warns(OutputWarning, match="^float32 is too coarse for 'start': "):
        bt.write({"start": [100000001.5, 100000002.5], "same": [0.1, 0.1]}, tmp_path / "out")


def test_a_clean_job_has_no_warning(tmp_path, recwarn):
    (tmp_path / "a.csv").write_text("x,y\n0.5,0.1\n1.5,0.1\n")
    bt.write(tmp_path / "a.csv", tmp_path / "out")
    bt.extract(tmp_path / "a.csv", tmp_path / "stage")
    assert not recwarn
