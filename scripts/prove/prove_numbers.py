"""Random decimal numbers through every way into a dataset, against exact fractions."""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.databases import numbers as databases
from tests.helpers.databases import partitions
from tests.helpers.databases.jdbc_mariadb import mariadb_server
from tests.helpers.databases.numbers import ways_through
from tests.helpers.databases.postgres import binaries, postgres_server
from tests.whole.number_texts import random_texts
from tests.whole.number_ways import WAYS, Way, check_bytes, check_text, check_way

_COLUMNS = 400
# The row of a server has room for fewer.
_SERVER_COLUMNS = 80


def prove(*, rounds: int = 200, seed: int = 0) -> dict[str, Any]:
    """Return how many numbers were compared; raise where one is rounded twice, or a loss hidden."""
    with contextlib.ExitStack() as servers:
        directory = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        by_database = _database_ways(servers, directory)
        numbers = dict.fromkeys((*WAYS, "bytes", "text", *by_database), 0)
        for number in range(rounds):
            rng = random.Random(seed + number)
            rows = rng.choice([1, 2, 3, 5])
            columns = {f"c{index}": random_texts(rng, rows) for index in range(_COLUMNS)}
            few = dict(itertools.islice(columns.items(), _SERVER_COLUMNS))
            for name, way in WAYS.items():
                numbers[name] += check_way(way, columns, directory)
            for name, way in by_database.items():
                numbers[name] += check_way(way, few, directory)
            numbers["bytes"] += check_bytes(columns, directory)
            numbers["text"] += check_text(columns, directory)
            print(f"round {number + 1:,} of {rounds:,}", flush=True)
    return {"seed": seed, "rounds": rounds, "numbers": numbers}


def _database_ways(servers: contextlib.ExitStack, directory: Path) -> dict[str, Way]:
    """Return the ways through the databases and drivers that can be had."""

    def postgres() -> dict[str, Way]:
        if binaries() is None:
            pytest.skip("PostgreSQL is not installed")
        server = servers.enter_context(postgres_server())
        native, jdbc = partitions.postgres(server), partitions.postgres(server, "jdbc")
        types = databases.POSTGRES
        return ways_through("postgresql", native, types) | ways_through(
            "postgresql by jdbc", jdbc, types
        )

    def mariadb() -> dict[str, Way]:
        server = servers.enter_context(mariadb_server())
        ways = {}
        for driver in ("mariadb", "mysql"):
            database = partitions.mariadb(server, driver)
            ways |= ways_through(f"mariadb by {driver}", database, databases.MARIADB)
        return ways

    def h2() -> dict[str, Way]:
        return ways_through("h2", partitions.h2("proof"), databases.H2)

    def duckdb() -> dict[str, Way]:
        database = partitions.duckdb(directory / "proof.duckdb")
        return ways_through("duckdb", database, databases.DUCKDB)

    makers: tuple[Callable[[], dict[str, Way]], ...]
    makers = (duckdb, h2, postgres, mariadb)
    found: dict[str, Way] = {}
    for make in makers:
        with contextlib.suppress(pytest.skip.Exception):
            found |= make()
    return found
