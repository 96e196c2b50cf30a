"""The JVM inside a process: memory, signals, forks, exit, and what is not installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from apache_beam.utils.subprocess_server import JavaJarServer

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql import jdbc_java as sql_jdbc_jars
from beam_tfrecord.sources.sql.jdbc_java import local_jars
from tests.helpers.databases.jdbc_drivers import H2, MARIADB, MYSQL, POSTGRES, driver_jars
from tests.helpers.databases.jdbc_mariadb import PASSWORD as MARIADB_PASSWORD
from tests.helpers.databases.jdbc_mariadb import USER as MARIADB_USER
from tests.helpers.databases.postgres import PASSWORD

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

PROLOGUE = """
import contextlib, gc, os, signal, sys, time
# Who is started in the background of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
import pyarrow as pa
from beam_tfrecord.errors import UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql.database import Relation
from beam_tfrecord.sources.sql.jdbc import Jdbc

def engine(url, jars, user=None, password=None, **properties):
    known = {**properties, **({"password": password} if password else {})}
    options = DatabaseOptions(jars=tuple(jars), username=user, properties=tuple(known.items()))
    return Jdbc(url, options)
"""


def start(code, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROLOGUE + textwrap.dedent(code), *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = start(code, *arguments, **environment)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


# Results of 120 MB through a heap of 80 MB: who holds a complete result does not get to its end.
STREAM = """
url, user, password, series, shapes, *jars = sys.argv[1:]
properties = {"IFEXISTS": "FALSE"} if ":h2:" in url else {}
for shape in shapes.split():
    rows, width = shape.split("x")
    sql = series.format(rows=rows, width=width)
    found = longest = 0
    with engine(url, jars, user, password, **properties).connect() as connection:
        columns = connection.describe(Relation(connection.dialect.subquery(sql)))
        for one in connection.read(sql, columns, batch_rows=16384):
            found += one.data.num_rows
            longest = max(longest, one.data.nbytes)
    print(found, longest < 20_000_000)
"""
SERIES = {
    "postgresql": "SELECT n, repeat('x', {width}) AS t FROM generate_series(1, {rows}) AS s(n)",
    "mariadb": "SELECT seq, repeat('x', {width}) AS t FROM seq_1_to_{rows}",
    "mysql": "SELECT seq, repeat('x', {width}) AS t FROM seq_1_to_{rows}",
    "h2": "SELECT x, repeat('x', {width}) AS t FROM system_range(1, {rows})",
}


@pytest.fixture
def databases(postgres, mariadb):
    """URL, user, password and jars of every database, as arguments."""
    of_mariadb = (MARIADB_USER, MARIADB_PASSWORD)
    port = mariadb.port
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
    return {
        "postgresql": (url, "tester", PASSWORD, *driver_jars(POSTGRES)),
        "mariadb": (f"jdbc:mariadb://127.0.0.1:{port}/t", *of_mariadb, *driver_jars(MARIADB)),
        "mysql": (f"jdbc:mysql://127.0.0.1:{port}/t", *of_mariadb, *driver_jars(MYSQL)),
        "h2": ("jdbc:h2:mem:stream", "", "", *driver_jars(H2)),
    }


@pytest.mark.parametrize(
    "name", ["postgresql", "mariadb", "h2", pytest.param("mysql", marks=pytest.mark.slow)]
)
def test_results_are_streamed_through_a_small_heap(databases, name):
    url, user, password, *jars = databases[name]
    arguments = (url, user, password, SERIES[name], "120000x1000 60x2000000", *jars)
    code, out, err = run(STREAM, *arguments, JAVA_TOOL_OPTIONS="-Xmx80m")
    assert (code, out) == (0, "120000 True\n60 True\n"), err


def test_memory_that_is_used_up_is_told_with_the_cure(databases):
    url, user, password, *jars = databases["h2"]
    arguments = (url, user, password, SERIES["h2"], "100x30000000", *jars)
    _, _, err = run(STREAM, *arguments, JAVA_TOOL_OPTIONS="-Xmx40m")
    assert "java's memory is used up: set JAVA_TOOL_OPTIONS=-Xmx2g" in err.splitlines()[-1]


READ_A_LITTLE = """
with engine("jdbc:h2:mem:x", sys.argv[1:], IFEXISTS="FALSE").connect() as connection:
    sql = "SELECT x, repeat('y', 100) AS t FROM system_range(1, 200000)"
    columns = connection.describe(Relation(connection.dialect.subquery(sql)))
    print(sum(found.data.num_rows for found in connection.read(sql, columns, batch_rows=1000)))
"""


def test_processes_end_cleanly():
    jars = driver_jars(H2)
    processes = [start(READ_A_LITTLE, *jars) for _ in range(2)]
    found = [(*process.communicate(timeout=120), process.returncode) for process in processes]
    assert found == [("200000\n", "", 0)] * 2


def test_ctrl_c_stops_a_statement(databases):
    url, user, password, *jars = databases["postgresql"]
    code = """
    with engine(sys.argv[1], sys.argv[4:], *sys.argv[2:4]).connect() as connection:
        try:
            print("asking", flush=True)
            connection.fetch("SELECT pg_sleep(600)")
        except KeyboardInterrupt:
            print("stopped")
            sys.exit(3)
    """
    process = start(code, url, user, password, *jars)
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (3, "stopped\n"), err


def test_a_fork_of_a_process_with_java_is_refused():
    code = """
    engine("jdbc:h2:mem:x", sys.argv[1:], IFEXISTS="FALSE").connect().close()
    child = os.fork()
    if child == 0:
        try:
            engine("jdbc:h2:mem:x", sys.argv[1:]).connect()
        except UsageError as error:
            print(error, flush=True)
        kept = []
        for _ in range(20):
            # JPype would answer the growth of this process by a collection in Java.
            kept.append(bytearray(os.urandom(2**20)) * 8)
            gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    """
    code, out, err = run(code, *driver_jars(H2))
    assert (code, err) == (0, "")
    assert out.startswith("cannot use Java in a forked process")
    assert out.endswith("start processes by spawn, or use threads\n")


WITHOUT = {
    "jpype": ("sys.modules['jpype'] = None", r"pip install 'beam-tfrecord[jdbc]'"),
    "java": (
        "import jpype\ndef none(): raise jpype.JVMNotFoundException()\n"
        "jpype.getDefaultJVMPath = none",
        "no Java runtime is found: install one of version 11 or later, or set JAVA_HOME",
    ),
    "a java that starts": (
        "import jpype\njpype.getDefaultJVMPath = lambda: '/dev/null'",
        "cannot start Java at '/dev/null'",
    ),
    "the helper": (
        "import importlib.resources, pathlib\n"
        "importlib.resources.files = lambda name: pathlib.Path('/nowhere')",
        "built without its Java helper: install a JDK of version 11 or later, then reinstall",
    ),
}


@pytest.mark.parametrize("missing", WITHOUT)
def test_what_is_not_installed_is_told_with_the_cure(missing):
    prepared, message = WITHOUT[missing]
    code = f"{prepared}\ntry:\n    engine('jdbc:h2:mem:x', []).connect()\n"
    _, out, err = run(code + "except UsageError as error:\n    print(error)")
    assert message in out, err
    assert out.count("\n") == 1


def test_jars_are_found_by_path_and_url(tmp_path, monkeypatch):
    monkeypatch.setattr(JavaJarServer, "JAR_CACHE", str(tmp_path / "cache"))
    path = f"{tmp_path}/a.jar"
    (tmp_path / "a.jar").touch()
    assert local_jars((path, f"file://{path}")) == (path, path)
    with pytest.raises(UsageError, match=r"cannot read driver jar .*: no such file"):
        local_jars((str(tmp_path),))
    with pytest.raises(UsageError, match=r"cannot read driver jar 'nowhere://x/y.jar'"):
        local_jars(("nowhere://x/y.jar",))


def test_jars_staged_with_a_job_are_found_on_its_workers(tmp_path, monkeypatch):
    staged = tmp_path / "staged" / "driver-1.0.jar"
    staged.parent.mkdir()
    staged.touch()
    monkeypatch.setenv("SEMI_PERSISTENT_DIRECTORY", str(tmp_path))
    assert local_jars(("/elsewhere/driver-1.0.jar",)) == (str(staged),)


def test_jars_are_sent_along_with_a_job(tmp_path, monkeypatch):
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
    from apache_beam.testing.test_pipeline import TestPipeline

    import beam_tfrecord as bt

    here = [tmp_path / "a.jar", tmp_path / "b.jar", tmp_path / "found.jar"]
    for path in here:
        path.touch()
    monkeypatch.setattr(sql_jdbc_jars, "_resolved", lambda *_: str(here[2]))
    jars = [*map(str, here[:2]), "org.example:driver:1.0", "gs://bucket/c.jar", "/image/d.jar"]
    options = PipelineOptions([f"--files_to_stage={here[0]}"])
    pipeline = TestPipeline(options=options)
    batches = pipeline | bt.ReadFromSql("jdbc:example:x", table="t", jars=jars)
    a, b, found = map(str, here)
    assert pipeline.options.view_as(SetupOptions).files_to_stage == [a, b, found]
    sent = batches.beam_tfrecord_reader.source
    assert sent.jars == (a, b, found, "gs://bucket/c.jar", "/image/d.jar")
