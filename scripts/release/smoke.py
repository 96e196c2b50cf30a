"""Writes, verifies and reads a small dataset with the installed package, as a test of a wheel."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

import beam_tfrecord as bt
from beam_tfrecord.native import _records

ROWS = [{"id": number, "half": number / 2, "name": f"row {number}"} for number in range(200)]


def main() -> None:
    """Exit with an error unless every row of a CSV file comes back from its dataset."""
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory) / "rows.csv"
        lines = ["id,half,name", *(f"{row['id']},{row['half']},{row['name']}" for row in ROWS)]
        table.write_text("\n".join(lines), encoding="utf-8")
        output = Path(directory) / "rows"
        bt.write(table, output, splits={"train": 0.9, "test": 0.1})
        faults = bt.verify(output).faults
        rows = sorted(bt.load(output).rows(), key=lambda row: row["id"])
    if faults or rows != ROWS:
        raise SystemExit(f"smoke: the dataset is not its rows: {faults or rows[:3]}")
    kernel = Path(_records.__file__).name
    print(f"Python {platform.python_version()} on {platform.machine()}, {kernel}: right")


if __name__ == "__main__":
    main()
