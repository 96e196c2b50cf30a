"""Random columns of every family of types, seen by three readers."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.whole.type_families import FAMILIES, Column
from tests.whole.type_readers import CHECKS, write


def prove(*, examples: int = 2000) -> dict[str, Any]:
    """Return what was compared; raise where a reader sees something else.

    There are so many random columns of each family.
    """
    families = {}
    for name, columns in FAMILIES.items():
        families[name] = prove_family(columns, examples)
        print(f"{name}: {families[name]['columns']:,} columns", flush=True)
    return {"readers": list(CHECKS), "families": families}


def prove_family(columns: st.SearchStrategy[Column], examples: int) -> dict[str, int]:
    """Return how many random columns and values of one family were compared."""
    compared = {"columns": 0, "values": 0}

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(columns)
    def check(column: Column) -> None:
        written = write(column)
        for agrees in CHECKS.values():
            agrees(written)
        compared["columns"] += 1
        compared["values"] += len(column.array)

    check()
    if compared["columns"] < examples:
        raise SystemExit(f"only {compared['columns']:,} columns were drawn")
    return compared
