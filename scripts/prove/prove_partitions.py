"""Tables with keys of every type of every database, read in partitions by every driver."""

from __future__ import annotations

import contextlib
import logging
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers.databases import partitions
from tests.helpers.databases.jdbc_mariadb import mariadb_server
from tests.helpers.databases.partitions import KeyedDatabase, check_partitions
from tests.helpers.databases.postgres import postgres_server


def prove(*, tables: int = 20, seed: int = 0) -> dict[str, Any]:
    """Return how many tables of each key were read; a missing or doubled row ends the proof.

    There are so many tables of each type of key, database and driver.
    """
    # Keys that do not cut are warned of.
    logging.getLogger("beam_tfrecord").setLevel(logging.ERROR)
    found = {}
    with contextlib.ExitStack() as servers:
        scratch = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        postgres = servers.enter_context(postgres_server())
        mariadb = servers.enter_context(mariadb_server())
        databases = {
            "duckdb": partitions.duckdb(scratch / "native.duckdb"),
            "h2 by jdbc": partitions.h2("proof"),
            "mariadb by jdbc": partitions.mariadb(mariadb, "mariadb"),
            "mariadb by the jdbc driver of mysql": partitions.mariadb(mariadb, "mysql"),
            "postgresql": partitions.postgres(postgres),
            "postgresql by jdbc": partitions.postgres(postgres, "jdbc"),
        }
        for name, database in databases.items():
            found[name] = _prove_database(name, database, tables, seed)
            print(f"{name}: {found[name]}", flush=True)
    return {"seed": seed, "databases": found}


def _prove_database(name: str, database: KeyedDatabase, tables: int, seed: int) -> dict[str, int]:
    read = {"types": len(database.types), "tables": 0, "partitions": 0}
    for declared in database.types:
        for number in range(tables):
            chance = random.Random(f"{seed} {name} {declared} {number}")
            # Every fourth is also read as a job does, over a connection for each partition.
            parts = check_partitions(database, declared, chance, is_read=number % 4 == 0)
            read["tables"] += 1
            read["partitions"] += parts
    return read
