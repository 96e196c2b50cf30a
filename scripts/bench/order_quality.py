"""Measures how well the order of an epoch mixes rows: by windows, beside a uniform permutation.

    .venv/bin/python scripts/bench/order_quality.py

The dataset is only imagined: 1,000 bytes a row, and windows of 64 MB of chunks of 256 KiB, as
`Epochs` makes them for object stores.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt
from saving import save

from beam_tfrecord.loading.order import Order

ROW_BYTES = 1000
CHUNK = 2**18 // ROW_BYTES
WINDOW = 64 * 10**6 // ROW_BYTES // CHUNK
BATCH = 256
EPOCHS = 5


def quality(indices: npt.NDArray[np.int64]) -> dict[str, float]:
    """Return how well the order of an epoch mixes.

    Args:
        indices: The index of the row at each position.
    """
    count = len(indices)
    whole = indices[: count // BATCH * BATCH].reshape(-1, BATCH)
    chunks = np.sort(whole // CHUNK, axis=1)
    position = np.empty(count, np.int64)
    position[indices] = np.arange(count)
    # What a batch knows of the rows: if the file is sorted by a label, the spread of its mean.
    means = whole.mean(axis=1) / count
    return {
        "chunks in a batch": float((np.diff(chunks, axis=1) > 0).sum(axis=1).mean() + 1),
        "correlation of position and index": float(
            abs(np.corrcoef(position, np.arange(count))[0, 1])
        ),
        "neighbours in one batch": float((np.diff(position // BATCH) == 0).mean()),
        "spread of the mean of a batch": float(means.std()),
    }


def measure(count: int, chunk: int, window: int) -> dict[str, float]:
    """Return the mean quality over some epochs."""
    found = [
        quality(Order(count, 1, epoch, chunk, window).indices(0, count)) for epoch in range(EPOCHS)
    ]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def main() -> None:
    """Measure both orders, and print and keep what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    options = parser.parse_args()
    shape: dict[str, Any] = {"rows": options.rows, "chunk": CHUNK, "window": WINDOW}
    orders = {
        "uniform": measure(options.rows, 1, 1),
        "windowed": measure(options.rows, CHUNK, WINDOW),
    }
    save("order", {**shape, "batch": BATCH, "epochs": EPOCHS, "orders": orders})
    for name in orders["uniform"]:
        values = "".join(f"{order} {found[name]:.6f}  " for order, found in orders.items())
        print(f"{name:34} {values}")


if __name__ == "__main__":
    main()
