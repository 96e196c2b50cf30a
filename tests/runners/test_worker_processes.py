"""Steps of Python in worker processes: the same promises as in one process.

Each test runs a program of its own, as a user would: no guard of ``__main__``, classes, lambdas
and closures of the program itself.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from tests.helpers.repository import ROOT

ROWS = 40_000

PROGRAM = """
import logging, os, random, signal, sys, threading, time
import apache_beam as beam
import beam_tfrecord as bt

# Who is started in the background of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
workers = None if sys.argv[1] == "None" else int(sys.argv[1])
"""

WRITE = """
with bt.pipeline("direct", workers=workers) as p:
    read = p | bt.ReadFromParquet("a.parquet")
    made = read | bt.ToRows() | beam.ParDo(Step())
    made | bt.WriteToTFRecord("out/", overwrite=True, splits={"train": 0.7, "test": 0.3})
"""


@pytest.fixture
def program(tmp_path):
    """Return a function that starts a program in a directory with a table of `ROWS` rows."""
    numbers = list(range(ROWS))
    table = pa.table({"id": numbers, "text": [f"t{number % 1000}" for number in numbers]})
    pq.write_table(table, tmp_path / "a.parquet")

    def start(body, workers=2, **options):
        source = PROGRAM + textwrap.dedent(body)
        (tmp_path / "program.py").write_text(source)
        return subprocess.Popen(
            [sys.executable, *options.pop("flags", []), "program.py", str(workers)],
            cwd=tmp_path,
            # A program that is killed leaves the temporary directory of its pipeline.
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    return start


def ended(process):
    """Return what a program printed, and its exit code."""
    out, err = process.communicate(timeout=120)
    return out, err, process.returncode


def last_line(text):
    return text.strip().splitlines()[-1]


def shards(directory):
    found = sorted(directory.glob("*.tfrecord"))
    return {path.name: path.read_bytes() for path in found}


def is_gone(pid):
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        try:
            # A process that nobody waits for is dead, too.
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


STEP = """
class Step(beam.DoFn):
    def setup(self):
        print("setup", os.getpid())
    def teardown(self):
        print("teardown", os.getpid())
    def process(self, row):
        if row["id"] == 7:
            print("print of row 7")
            logging.getLogger("mine").warning("warning of row %s", row["id"])
            logging.getLogger("mine").debug("debug of row 7")
        yield {"n": row["id"] * 3, "text": row["text"]}
"""


def test_workers_print_once_and_set_up_once_each(program, tmp_path):
    out, err, code = ended(program(STEP + WRITE + "print('parent', os.getpid())"))
    assert code == 0, err
    assert out.count("print of row 7\n") == 1
    assert err.count("warning of row 7") == 1
    assert "debug" not in err
    pids = {line.split()[1] for line in out.splitlines() if line.startswith("setup")}
    # One worker may have taken all rows before the other began.
    assert len(pids) in (1, 2)
    assert last_line(out).split()[1] not in pids
    assert out.count("setup") == out.count("teardown") == len(pids)
    rows = [bt.load(tmp_path / "out", split=split).arrow() for split in ("train", "test")]
    assert sorted(pa.concat_tables(rows)["n"].to_pylist()) == list(range(0, 3 * ROWS, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "options"),
    [
        ("MapRows(lambda row: [{'id': row['id'] - 5}] * (row['id'] % 3))", "shuffle=True"),
        ("MapRows(lambda row: {'id': row['id'], 'length': len(row['text'])})", "shuffle=False"),
        ("MapBatches(lambda batch: batch.select(['id']))", "key='id'"),
    ],
)
def test_any_number_of_workers_writes_the_same(program, tmp_path, step, options):
    body = f"""
    for workers in (1, 2, 5):
        with bt.pipeline("direct", workers=workers) as p:
            made = p | bt.ReadFromParquet("a.parquet") | bt.{step}
            made | bt.WriteToTFRecord(f"{{workers}}/", num_shards=3, {options})
    """
    _, err, code = ended(program(body))
    assert code == 0, err
    one, two, five = (shards(tmp_path / str(workers)) for workers in (1, 2, 5))
    assert one == two == five
    assert len(one) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "how"),
    [
        ("os._exit(3)", "ended itself with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL, perhaps because the"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
    ],
)
def test_a_worker_that_dies_is_one_line_and_the_next_run_goes_on(program, tmp_path, death, how):
    step = f"""
    class Step(beam.DoFn):
        def process(self, row):
            if row["id"] == 20_000 and not os.path.exists("again"):
                {death}
            yield {{"n": row["id"]}}
    """
    body = textwrap.dedent(step) + WRITE
    _, err, code = ended(program(body))
    assert code == 1
    assert "Exception in thread" not in err
    assert last_line(err).startswith(f"beam_tfrecord.errors.JobFailed: a worker process {how}")
    assert last_line(err).endswith(
        "in the rows a.parquet row 16384 to a.parquet row 32767: run the job again"
    )
    assert not (tmp_path / "out" / "manifest.json").exists()
    (tmp_path / "again").touch()
    _, err, code = ended(program(body))
    assert code == 0, err
    splits = ("train", "test")
    assert sum(len(bt.load(tmp_path / "out", split=split)) for split in splits) == ROWS


@pytest.mark.slow
def test_an_error_of_the_function_is_the_same_as_in_one_process(program):
    step = """
    class Step(beam.DoFn):
        def process(self, row):
            yield {"n": 1 // (row["id"] - 20_000)}
    """
    body = textwrap.dedent(step) + WRITE
    errors = [ended(program(body, workers))[1].splitlines()[-4:] for workers in (1, 2)]
    assert errors[0] == errors[1]
    assert errors[0][0].startswith("RuntimeError: ZeroDivisionError")
    assert 'program.py", line ' in errors[0][1]


@pytest.mark.slow
def test_rejects_counters_and_progress_add_up(program, tmp_path):
    body = """
    def check(row):
        if row["id"] % 1000 == 3:
            raise ValueError("three")
        return {"id": row["id"]}
    p = bt.pipeline("direct", workers=workers)
    step = bt.MapRows(check)
    p | bt.ReadFromParquet("a.parquet") | step | bt.WriteToTFRecord(
        "out/", overwrite=True, max_rejects="any")
    counters = p.run().metrics().query()["counters"]
    print(sorted((c.key.metric.name, c.committed) for c in counters))
    """
    said, rejects = [], []
    for workers in (1, 2):
        out, err, code = ended(program(body, workers))
        assert code == 0, err
        said.append([one for one in eval(last_line(out)) if "-rows" in one[0]])
        found = pq.read_table(tmp_path / "out" / "rejects" / "rejects-00000.parquet")
        rejects.append(found.to_pylist())
    assert said[0] == said[1]
    assert ("reject-rows", ROWS // 1000) in said[0]
    assert rejects[0] == rejects[1]
    assert "program.py:" in rejects[0][0]["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["MapRows(place)", "ToRows() | beam.FlatMap(lambda r: [place(r)])"]
)
def test_functions_run_in_the_workers(program, step):
    body = f"""
    def place(row):
        if row["id"] in (0, 20_000):
            print("ran in", os.getpid())
        return {{"id": row["id"]}}
    print("launcher is", os.getpid(), flush=True)
    with bt.pipeline("direct", workers=2) as p:
        p | bt.ReadFromParquet("a.parquet") | bt.{step} | bt.WriteToTFRecord("out/")
    """
    out, err, code = ended(program(body))
    assert code == 0, err
    assert out.count("ran in") == 2
    assert len({line.split()[2] for line in out.splitlines()}) == 3


@pytest.mark.slow
def test_what_a_step_said_before_it_failed_is_shown(program):
    step = """
    class Step(beam.DoFn):
        def process(self, row):
            if row["id"] == 7:
                logging.warning("wrong arguments %d", "seven")
                logging.getLogger("mine").warning("long " + "x" * 100_000 + " end")
                print("before the error")
                raise KeyError("seven")
            yield row
    """
    out, err, code = ended(program(textwrap.dedent(step) + WRITE))
    assert code == 1
    assert out == "before the error\n"
    assert "Logging error" in err
    assert " end\n" in err
    assert "RuntimeError: KeyError: 'seven' [while running 'ParDo(Step)']" in err


@pytest.mark.slow
def test_a_module_that_starts_threads_runs_in_one_process(program, tmp_path):
    (tmp_path / "threads.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(2)\nlist(pool.map(abs, [1, 2]))\n"
        "def step(row):\n    return [{'id': pool.submit(abs, row['id']).result()}]\n"
    )
    body = """
    import threads
    with bt.pipeline("direct", workers=workers) as p:
        rows = p | bt.ReadFromParquet("a.parquet") | bt.ToRows() | beam.FlatMap(threads.step)
        rows | bt.WriteToTFRecord("out/")
    """
    _, err, code = ended(program(body))
    assert code == 0, err
    assert "runs in one process, because no other can load it: RuntimeError: a module starts" in err
    assert len(bt.load(tmp_path / "out")) == ROWS


WAITS = """
class Step(beam.DoFn):
    def process(self, row):
        if row["id"] in (0, 20_000):
            print("waits", os.getpid(), flush=True)
            time.sleep(600)
        yield {"n": row["id"]}
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_leaves_no_worker(program, tmp_path, number):
    process = program(WAITS + WRITE)
    pids = [int(process.stdout.readline().split()[1]) for _ in range(2)]
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode in (-number, 128 + number)
    assert all(map(is_gone, pids))
    if number != signal.SIGKILL:
        assert not list((tmp_path / "out").glob(".tmp-*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_ends_early_leaves_no_process(tmp_path, program, number):
    (tmp_path / "f.py").write_text(
        "import os, time\nopen(f'pid-{os.getpid()}', 'w').close()\ntime.sleep(0.5)\n"
        "def keep(row):\n    time.sleep(0.01)\n    return row\n"
    )
    ended(program("pass"))  # after it the table is there
    command = "from beam_tfrecord.cli.main import main; main()"
    words = ["write", "a.parquet", "out/", "--map", "f.py:keep", "--workers", "2", "--quiet"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", command, *words]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    until_s = time.monotonic() + 60
    # The command loads the file first, then the program that forks.
    while len(list(tmp_path.glob("pid-*"))) < 2 and time.monotonic() < until_s:
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(timeout=120)
    pids = [int(path.name.partition("-")[2]) for path in tmp_path.glob("pid-*")]
    assert len(pids) == 2
    assert all(map(is_gone, pids))


@pytest.mark.slow
def test_workers_have_the_state_of_the_program(program, tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "mine.py").write_text(
        "import os, random\nrandom.seed(5)\n"
        "def place(row):\n"
        "    where = os.path.relpath(os.getcwd(), os.environ['STARTED_IN'])\n"
        "    return {'id': row['id'], 'env': os.environ['OF_THE_PROGRAM'], 'cwd': where}\n"
    )
    body = """
    os.environ["STARTED_IN"] = os.getcwd()
    os.environ["OF_THE_PROGRAM"] = "set here"
    sys.path.insert(0, os.path.abspath("modules"))
    import mine
    first = random.random()
    os.chdir("modules")
    def step(row):
        return [{**mine.place(row), "argument": sys.argv[1]}]
    with bt.pipeline("direct", workers=workers) as p:
        rows = p | bt.ReadFromParquet("../a.parquet") | bt.ToRows() | beam.FlatMap(step)
        rows | bt.WriteToTFRecord("../out/")
    """
    _, err, code = ended(program(body))
    assert code == 0, err
    rows = bt.load(tmp_path / "out").arrow()
    assert set(rows["env"].to_pylist()) == {"set here"}
    assert set(rows["cwd"].to_pylist()) == {"modules"}
    assert set(rows["argument"].to_pylist()) == {"2"}
    assert sorted(rows["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.slow
def test_a_seed_decides_the_random_numbers_of_each_worker(program, tmp_path):
    body = """
    random.seed(11)
    class Step(beam.DoFn):
        def setup(self):
            print(random.random())
        def process(self, row):
            yield row
    """
    runs = []
    for _ in range(2):
        out, err, code = ended(program(textwrap.dedent(body) + WRITE))
        assert code == 0, err
        # Lines of two processes may follow each other without an end between them.
        runs.append(sorted(re.findall(r"0\.\d+?(?=0\.|\s|$)", out)))
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 2


def keep(row):
    return row


def test_the_plan_says_how_many_workers_and_why(tmp_path):
    rows = {"few": 1_000, "many": 500_000}
    for name, count in rows.items():
        pq.write_table(pa.table({"id": pa.array(range(count))}), tmp_path / f"{name}.parquet")

    def planned(name, **options):
        options = {"map": keep, **options}
        return bt.plan(str(tmp_path / f"{name}.parquet"), str(tmp_path / "out"), **options)

    assert planned("few")["workers"] == {"number": 1, "why": "the input is small"}
    many = planned("many")
    assert many["workers"]["why"] == "Python code runs for each row of a large input"
    assert many["workers"]["number"] == len(os.sched_getaffinity(0))
    assert ("worker processes", f"{many['workers']['number']}: {many['workers']['why']}") in (
        many.lines()
    )
    assert planned("few", pipeline_options=["--workers=3"])["workers"]["number"] == 3
    assert planned("many", pipeline_options=["--workers", "1"])["workers"]["number"] == 1
    assert planned("many", map=None)["workers"]["why"] == "no Python code runs for each row"
    assert planned("many", runner="flink")["workers"] == {}
