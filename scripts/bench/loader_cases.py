"""How each loader of `loaders.py` writes its format, and reads a shuffled epoch and single rows.

Each function uses its package as the documentation of that package recommends for speed on local
files. Imports stand in functions, because a process measures one package.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from loader_data import (
    BATCH_SIZE,
    FLOATS,
    INTEGERS,
    TEXTS,
    Batch,
    Source,
    number_arrays,
    rgb,
    stacked,
)

SEED = 0
SHARDS = 8


@dataclasses.dataclass(frozen=True)
class Loader:
    """A package and a way to use it.

    Attributes:
        framework: Whose tensors the batches have: ``torch``, ``numpy`` or ``tensorflow``.
        modules: What is imported before the clock of the first batch starts.
        data: Name of the directory of its format; loaders may share one.
        write: Writes the format to a directory.
        epoch: Opens the format and returns an iterable of the batches of a shuffled epoch; the last
            argument is the number of worker processes.
        pick: Opens the format and returns a function that reads rows by their indices; None if it
            cannot.
        workers: Numbers of worker processes; a single None where the package uses threads.
    """

    framework: str
    modules: tuple[str, ...]
    data: str
    write: Callable[[Source, Path], None]
    epoch: Callable[[Path, str, int], Any]
    pick: Callable[[Path], Callable[[Sequence[int]], Any]] | None = None
    workers: tuple[int | None, ...] = (0, 1, 2)


def torch_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate rows to tensors of the types of the columns; `default_collate` makes float64."""
    import torch

    columns = number_arrays(rows)
    return {
        name: value if name in TEXTS else torch.from_numpy(value) for name, value in columns.items()
    }


def torch_pictures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate pictures, PIL images or tensors, to uint8 tensors `[batch, 3, height, width]`."""
    import torch
    from torchvision.transforms.functional import pil_to_tensor

    images = [row["image"] for row in rows]
    if not isinstance(images[0], torch.Tensor):
        images = [pil_to_tensor(image) for image in images]
    numbers = torch.tensor([int(row["number"]) for row in rows])
    return {"image": torch.stack(images), "number": numbers}


def _collate(kind: str) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    return torch_rows if kind == "rows" else torch_pictures


# MosaicML streaming


def write_mds(source: Source, out: Path) -> None:
    """Write MDS shards of the default size, 64 MB."""
    from PIL import Image
    from streaming import MDSWriter

    types = {"image": "jpeg", "number": "int64"}
    if source.kind == "rows":
        types = dict.fromkeys(FLOATS, "float32") | dict.fromkeys(INTEGERS, "int64")
        types |= dict.fromkeys(TEXTS, "str")
    with MDSWriter(out=str(out), columns=types, hashes=["xxh64"]) as writer:
        for row in source.row_dicts():
            if source.kind == "pictures":
                row = {"image": Image.open(row["path"]), "number": row["number"]}
            writer.write(row)


def _mds(path: Path, kind: str, *, shuffle: bool) -> Any:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    return StreamingDataset(local=str(path), shuffle=shuffle, batch_size=BATCH_SIZE[kind])


def read_mds(path: Path, kind: str, workers: int) -> Any:
    """Read with the default shuffle, by PyTorch's `DataLoader`."""
    from torch.utils.data import DataLoader

    dataset = _mds(path, kind, shuffle=True)
    batch = BATCH_SIZE[kind]
    return DataLoader(dataset, batch, num_workers=workers, collate_fn=_collate(kind))


def pick_mds(path: Path) -> Callable[[Sequence[int]], Any]:
    """Read rows by their indices."""
    dataset = _mds(path, "rows", shuffle=False)
    return lambda indices: [dataset[index] for index in indices]


# litdata


def litdata_rows(part: tuple[str, str, int, int]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part of the source; `optimize` calls it in its processes."""
    from PIL import Image

    place, kind, start, stop = part
    for row in Source(Path(place), kind).row_dicts(start, stop):  # type: ignore[arg-type]
        if kind == "pictures":
            row = {"image": Image.open(row["path"]), "number": row["number"]}
        yield row


def write_litdata(source: Source, out: Path) -> None:
    """Write chunks of the recommended size, 64 MB."""
    import litdata

    count = source.table.num_rows
    size = math.ceil(count / SHARDS)
    parts = [
        (str(source.place), source.kind, start, start + size) for start in range(0, count, size)
    ]
    litdata.optimize(
        litdata_rows, parts, str(out), chunk_bytes="64MB", num_workers=2, start_method="fork"
    )


def read_litdata(path: Path, kind: str, workers: int) -> Any:
    """Read by `StreamingDataLoader`."""
    import litdata

    dataset = litdata.StreamingDataset(str(path), shuffle=True, seed=SEED)
    return litdata.StreamingDataLoader(
        dataset, batch_size=BATCH_SIZE[kind], num_workers=workers, collate_fn=_collate(kind)
    )


def pick_litdata(path: Path) -> Callable[[Sequence[int]], Any]:
    """Read rows by their indices."""
    import litdata

    dataset = litdata.StreamingDataset(str(path))
    return lambda indices: [dataset[index] for index in indices]


# ArrayRecord, read by Grain


def write_array_record(source: Source, out: Path) -> None:
    """Write pickled dicts with `group_size:1`, as the tutorial of Grain does."""
    from array_record.python.array_record_module import ArrayRecordWriter

    count = source.table.num_rows
    size = math.ceil(count / SHARDS)
    for number in range(SHARDS):
        writer = ArrayRecordWriter(str(out / f"{number:03d}.array_record"), "group_size:1")
        for row in source.row_dicts(number * size, (number + 1) * size):
            if source.kind == "pictures":
                row = {"image": Path(row["path"]).read_bytes(), "number": row["number"]}
            writer.write(pickle.dumps(row))
        writer.close()


def _array_records(path: Path) -> Any:
    import grain

    return grain.sources.ArrayRecordDataSource(sorted(map(str, path.glob("*.array_record"))))


def _grain_picture(data: bytes) -> dict[str, Any]:
    row: dict[str, Any] = pickle.loads(data)
    return {"image": rgb(row["image"]), "number": row["number"]}


def _grain_stacked(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return stacked([row["image"] for row in rows], [row["number"] for row in rows])


def _grain_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return number_arrays(list(rows))


def read_array_record(path: Path, kind: str, workers: int) -> Any:
    """Read with the global shuffle; processes by `mp_prefetch`.

    The files are in the page cache, for which Grain recommends no threads.
    """
    import grain

    parse, batch = (pickle.loads, _grain_rows)
    if kind == "pictures":
        parse, batch = (_grain_picture, _grain_stacked)  # type: ignore[assignment]
    dataset = grain.MapDataset.source(_array_records(path)).shuffle(seed=SEED).map(parse)
    rows = dataset.to_iter_dataset(grain.ReadOptions(num_threads=0))
    return rows.batch(BATCH_SIZE[kind], batch_fn=batch).mp_prefetch(
        grain.MultiprocessingOptions(num_workers=workers)
    )


def pick_array_record(path: Path) -> Callable[[Sequence[int]], Any]:
    """Read rows by their indices, together."""
    source = _array_records(path)
    return lambda indices: [pickle.loads(data) for data in source.__getitems__(indices)]


# WebDataset


def write_webdataset(source: Source, out: Path) -> None:
    """Write tar files of a JSON file for each row, or of a JPEG and a class file."""
    import webdataset

    size = 64 * 10**6 if source.kind == "rows" else 16 * 10**6
    pattern = str(out / "%06d.tar")
    with webdataset.ShardWriter(pattern, maxsize=size, verbose=0) as writer:
        for number, row in enumerate(source.row_dicts()):
            if source.kind == "rows":
                sample: dict[str, Any] = {"json": json.dumps(row).encode()}
            else:
                sample = {"jpg": Path(row["path"]).read_bytes(), "cls": row["number"]}
            writer.write({"__key__": f"{number:08d}", **sample})


def _webdataset_row(sample: dict[str, Any]) -> Any:
    return sample["json"]


def _webdataset_picture(sample: dict[str, Any]) -> Any:
    return {"image": sample["jpg"], "number": sample["cls"]}


def read_webdataset(path: Path, kind: str, workers: int) -> Any:
    """Read with shuffled shards and a buffer of 1,000 examples; batches are made in workers."""
    import webdataset

    shards = sorted(map(str, path.glob("*.tar")))
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards), seed=SEED).shuffle(1000)
    dataset = dataset.decode("pil")
    dataset = dataset.map(_webdataset_row if kind == "rows" else _webdataset_picture)
    dataset = dataset.batched(BATCH_SIZE[kind], collation_fn=_collate(kind))
    return webdataset.WebLoader(dataset, batch_size=None, num_workers=workers)


# Hugging Face datasets


def write_hf(source: Source, out: Path) -> None:
    """Save an Arrow dataset; pictures have the type `Image`."""
    import datasets

    dataset = datasets.Dataset(source.table)
    if source.kind == "pictures":
        rows = ((Path(row["path"]).read_bytes(), row["number"]) for row in source.row_dicts())
        images, numbers = zip(*rows, strict=True)
        types = datasets.Features({"image": datasets.Image(), "number": datasets.Value("int64")})
        cells = [{"bytes": data, "path": None} for data in images]
        dataset = datasets.Dataset.from_dict({"image": cells, "number": numbers}, features=types)
    dataset.save_to_disk(str(out), max_shard_size="64MB")


def read_hf_map(path: Path, kind: str, workers: int) -> Any:
    """Read all rows of a batch at once, by a `BatchSampler`."""
    import datasets
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    dataset = datasets.load_from_disk(str(path)).with_format("torch")
    sampler = BatchSampler(RandomSampler(dataset), BATCH_SIZE[kind], drop_last=False)
    return DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=workers)


def read_hf_iterable(path: Path, kind: str, workers: int) -> Any:
    """Read with shuffled shards and a buffer of 1,000 examples."""
    import datasets
    from torch.utils.data import DataLoader

    dataset = datasets.load_from_disk(str(path)).to_iterable_dataset(num_shards=64)
    dataset = dataset.shuffle(seed=SEED, buffer_size=1000).with_format("torch")
    dataset = dataset.batch(BATCH_SIZE[kind])
    return DataLoader(dataset, batch_size=None, num_workers=workers)


def pick_hf(path: Path) -> Callable[[Sequence[int]], Any]:
    """Read rows by their indices into an Arrow table."""
    import datasets

    dataset = datasets.load_from_disk(str(path)).with_format("arrow")
    return lambda indices: dataset[indices]


# TFRecord, by this package, TensorFlow alone, and Grain


def write_ours(source: Source, out: Path) -> None:
    """Write TFRecord files in 8 shards."""
    import beam_tfrecord

    kind = {"from_": "images"} if source.kind == "pictures" else {}
    beam_tfrecord.write(source.table_path, out, shards=SHARDS, **kind)  # type: ignore[arg-type]


def read_by_hand(path: Path, kind: str, workers: int) -> Any:
    """Read by TensorFlow alone: interleaved, shuffled in a buffer, parsed in parallel."""
    import tensorflow as tf

    files = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(f"{path}/*.tfrecord")))
    records = files.shuffle(SHARDS, seed=SEED).interleave(
        lambda name: tf.data.TFRecordDataset(name, buffer_size=8 * 2**20),
        cycle_length=SHARDS,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    batch, auto = BATCH_SIZE[kind], tf.data.AUTOTUNE
    if kind == "rows":
        spec = {name: tf.io.FixedLenFeature([], tf.float32) for name in FLOATS}
        spec |= {name: tf.io.FixedLenFeature([], tf.int64) for name in INTEGERS}
        spec |= {name: tf.io.FixedLenFeature([], tf.string) for name in TEXTS}
        batches = records.shuffle(10_000, seed=SEED).batch(batch)
        return batches.map(lambda data: tf.io.parse_example(data, spec), auto).prefetch(auto)
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "number": tf.io.FixedLenFeature([], tf.int64),
    }

    def decoded(data: Any) -> Any:
        row = tf.io.parse_single_example(data, spec)
        image = tf.cast(tf.io.decode_jpeg(row["image"], 3), tf.float32)
        return {"image": image, "number": row["number"]}

    pictures = records.shuffle(1000, seed=SEED).map(decoded, auto)
    return pictures.batch(batch).prefetch(auto)


COLUMNS: dict[str, list[str] | None] = {"rows": None, "pictures": ["image", "number"]}


def read_ours_torch(path: Path, kind: str, workers: int) -> Any:
    """Read with a permutation of all examples."""
    import beam_tfrecord as bt

    # No dtype means uint8 for images.
    options: Any = {"columns": COLUMNS[kind], "dtype": None if kind == "pictures" else "float32"}
    opened: Any = bt.load(path)
    dataset = opened.torch(BATCH_SIZE[kind], shuffle=True, seed=SEED, **options)
    return dataset.loader(num_workers=workers)


def read_ours_tf(path: Path, kind: str, workers: int) -> Any:
    """Read with a permutation of all examples."""
    import beam_tfrecord as bt

    return bt.load(path).tf(BATCH_SIZE[kind], columns=COLUMNS[kind], shuffle=True, seed=SEED)


def read_ours_grain(path: Path, kind: str, workers: int) -> Any:
    """Read with a permutation of all examples; processes by `mp_prefetch`."""
    import grain

    import beam_tfrecord as bt

    dataset: Any = bt.load(path, columns=COLUMNS[kind])
    batches = dataset.grain(BATCH_SIZE[kind], shuffle=True, seed=SEED)
    if kind == "pictures":
        batches = batches.map(_decoded_pictures)
    return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))


def _decoded_pictures(batch: Batch) -> Batch:
    return stacked([rgb(data) for data in batch["image"]], batch["number"])


def pick_ours(path: Path) -> Callable[[Sequence[int]], Any]:
    """Read rows by their indices into an Arrow batch."""
    import beam_tfrecord as bt

    return bt.load(path).take


TORCH = ("torch", "torch.utils.data")
OURS = ("pyarrow", "beam_tfrecord")
LOADERS: dict[str, Loader] = {
    "streaming": Loader("torch", (*TORCH, "streaming"), "mds", write_mds, read_mds, pick_mds),
    "litdata": Loader(
        "torch", (*TORCH, "litdata"), "litdata", write_litdata, read_litdata, pick_litdata
    ),
    "webdataset": Loader(
        "torch", (*TORCH, "webdataset"), "webdataset", write_webdataset, read_webdataset
    ),
    "datasets": Loader("torch", (*TORCH, "datasets"), "hf", write_hf, read_hf_map, pick_hf),
    "datasets-iterable": Loader("torch", (*TORCH, "datasets"), "hf", write_hf, read_hf_iterable),
    "beam_tfrecord-torch": Loader(
        "torch", (*TORCH, *OURS), "tfrecord", write_ours, read_ours_torch, pick_ours
    ),
    "array_record": Loader(
        "numpy",
        ("grain",),
        "array_record",
        write_array_record,
        read_array_record,
        pick_array_record,
    ),
    "beam_tfrecord-grain": Loader(
        "numpy", ("grain", *OURS), "tfrecord", write_ours, read_ours_grain
    ),
    "tensorflow": Loader(
        "tensorflow", ("tensorflow",), "tfrecord", write_ours, read_by_hand, workers=(None,)
    ),
    "beam_tfrecord-tf": Loader(
        "tensorflow", ("tensorflow", *OURS), "tfrecord", write_ours, read_ours_tf, workers=(None,)
    ),
}
