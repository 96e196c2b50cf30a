"""What `plan --workers` reckons with: speeds, memory and prices, all in one place.

Speeds and memory are of this package, measured by `scripts/bench`; `scripts/bench/scale.py` holds
them to those measurements. Prices and machines are guides: list prices, in US dollars and without
discounts, noted from memory in November 2026 and not looked up again. Each can be given.
"""

from __future__ import annotations

import dataclasses
import difflib

from beam_tfrecord.errors import UsageError

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Machine:
    """A worker.

    Attributes:
        name: As its provider calls it.
        cores: Threads that work at the same time.
        memory_bytes: Of all of them together.
        network_bytes_s: To the store, both ways together.
        usd_hour: Price of an hour.
    """

    name: str
    cores: int
    memory_bytes: int
    network_bytes_s: float
    usd_hour: float


# Cores and memory: the providers' lists of machine types. Network: 10 Gbit/s nominal, of which a
# store gives about 0.6 GB/s to one machine (a guess on the safe side, not measured).
# Prices: cloud.google.com/compute/vm-instance-pricing (us-central1) and
# aws.amazon.com/ec2/pricing/on-demand (us-east-1), on demand; from memory, see above.
_NETWORK_BYTES_S = 0.6e9
MACHINES = (
    Machine("e2-standard-4", 4, 16 * GIB, _NETWORK_BYTES_S, 0.134),
    Machine("n2-standard-4", 4, 16 * GIB, _NETWORK_BYTES_S, 0.194),
    Machine("n2-standard-8", 8, 32 * GIB, 2 * _NETWORK_BYTES_S, 0.388),
    Machine("n2-standard-16", 16, 64 * GIB, 4 * _NETWORK_BYTES_S, 0.777),
    Machine("m6i.xlarge", 4, 16 * GIB, _NETWORK_BYTES_S, 0.192),
    Machine("m6i.2xlarge", 8, 32 * GIB, 2 * _NETWORK_BYTES_S, 0.384),
    Machine("m6i.4xlarge", 16, 64 * GIB, 4 * _NETWORK_BYTES_S, 0.768),
)


@dataclasses.dataclass(frozen=True)
class Rates:
    """Speeds of one core in bytes of records a second, and what else time and money follow from.

    Attributes:
        encode_bytes_s: Reading Parquet and writing records in source order.
        spill_bytes_s: The same, sorted to a run.
        merge_bytes_s: Reading parts of runs, sorting them and writing a shard or another run.
        scan_bytes_s: Reading text to find row ends and types, in bytes of text.
        start_s: Until the first row is read, on this machine.
        barrier_s: Between two steps, each of which waits for all of the one before.
        request_s: Wait for the first byte of a read of a store.
        seek_s: The same of a disk.
        read_usd: Price of a read request.
        write_usd: Price of a write request.
        process_bytes: Memory of a worker process that does nothing yet.
        task_bytes: Memory of batches on their way in one task.
        spill_factor: Memory of spilling, for each byte of a run.
        merge_factor: Memory of merging, for each byte of a window.
    """

    # Fitted to 2026-11-21-090805-1000000x20.json of scripts/bench/results (2 cores of an AMD EPYC,
    # its own disk included); scale.py tells how near other measurements are.
    encode_bytes_s: float = 317e6
    spill_bytes_s: float = 270e6
    merge_bytes_s: float = 260e6
    scan_bytes_s: float = 130e6
    start_s: float = 0.7
    barrier_s: float = 0.25
    # A guess: stores say tens of milliseconds. It is waited for by three readers at once.
    request_s: float = 0.03
    seek_s: float = 0.0002
    # cloud.google.com/storage/pricing and aws.amazon.com/s3/pricing: 0.0004 and 0.005 dollars for
    # 1000 requests of the standard class; from memory, see above.
    read_usd: float = 0.4e-6
    write_usd: float = 5e-6
    # Resident memory of the cases shuffle and source_order in the same results.
    process_bytes: int = 300 * 10**6
    task_bytes: int = 200 * 10**6
    spill_factor: float = 1.5
    merge_factor: float = 1.25


def machine_of(name: str, *, usd_hour: float | None = None, cores: int | None = None) -> Machine:
    """Return a machine by its name.

    Args:
        name: As its provider calls it.
        usd_hour: Price to reckon with instead.
        cores: Cores to reckon with instead.

    Raises:
        UsageError: It is none of the table.
    """
    for machine in MACHINES:
        if machine.name == name:
            return dataclasses.replace(
                machine,
                usd_hour=machine.usd_hour if usd_hour is None else usd_hour,
                cores=cores or machine.cores,
            )
    names = [machine.name for machine in MACHINES]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise UsageError(f"no rates are known of machine {name!r}: {hint}")
