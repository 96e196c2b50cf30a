"""Numbers of every database, by every driver: rounded once, and every loss reported."""

import random

import pytest

from tests.helpers.databases import numbers, partitions
from tests.helpers.databases.numbers import way_through
from tests.whole.number_texts import random_texts
from tests.whole.number_ways import check_way

COLUMNS = 80
ROWS = 3


def check(way, directory):
    """Check random columns, of which every type holds most."""
    chance = random.Random(0)
    columns = {f"c{index}": random_texts(chance, ROWS) for index in range(COLUMNS)}
    assert check_way(way, columns, directory) > COLUMNS * ROWS // 2


def check_type(database, declared, holds, directory):
    check(way_through(database, declared, holds), directory)


@pytest.mark.parametrize(("declared", "holds"), numbers.DUCKDB.items())
@pytest.mark.slow
def test_duckdb(tmp_path, declared, holds):
    check_type(partitions.duckdb(tmp_path / "numbers.duckdb"), declared, holds, tmp_path)


@pytest.mark.parametrize("driver", ["", "jdbc"])
@pytest.mark.parametrize(("declared", "holds"), numbers.POSTGRES.items())
def test_postgres(postgres, tmp_path, declared, holds, driver):
    check_type(partitions.postgres(postgres, driver), declared, holds, tmp_path)


@pytest.mark.parametrize("driver", ["mariadb", "mysql"])
@pytest.mark.parametrize(("declared", "holds"), numbers.MARIADB.items())
def test_mariadb(mariadb, tmp_path, declared, holds, driver):
    check_type(partitions.mariadb(mariadb, driver), declared, holds, tmp_path)


@pytest.mark.slow
@pytest.mark.xdist_group("databases")
@pytest.mark.parametrize(("declared", "holds"), numbers.H2.items())
def test_h2(tmp_path, declared, holds):
    check_type(partitions.h2("numbers"), declared, holds, tmp_path)
