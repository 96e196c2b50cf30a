"""What each loader of `loaders.py` does and does not do, and the page that says so.

The facts are those of the versions in `loaders-requirements.txt`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Facts:
    """Plain facts of a loader.

    Attributes:
        shuffle: What is mixed in an epoch.
        resume: Whether reading continues within an epoch with the examples that are left.
        other_world: Whether it continues with other numbers of ranks or workers.
        checksums: What is verified when examples are read.
        random_reads: Whether it reads an example by its number.
        other_readers: What else reads its files.
        source: Where its documentation or its source says so.
    """

    shuffle: str
    resume: str
    other_world: str
    checksums: str
    random_reads: str
    other_readers: str
    source: str


_HF = {"checksums": "no, those of the download only", "other_readers": "Arrow"}
_OURS = Facts(
    shuffle="permutation of all; within windows in object stores",
    resume="exact, torch and Grain; tf from the start of a batch",
    other_world="yes, same global batch",
    checksums="CRC32C of every record; hashes by verify",
    random_reads="yes",
    other_readers="tf.data, Spark, DALI, Ray, Beam, and others",
    source="docs/training.md, docs/format.md",
)
FACTS: dict[str, Facts] = {
    "streaming": Facts(
        shuffle="within blocks of 262,144 examples or more; all of them by `naive`",
        resume="exact",
        other_world="yes, same global batch",
        checksums="of a shard when it is downloaded, by validate_hash",
        random_reads="yes",
        other_readers="litdata",
        source="mosaicml/streaming docs: shuffling, fast_resumption, elastic_determinism, "
        "shard_retrieval; Lightning-AI/litData README",
    ),
    "litdata": Facts(
        shuffle="order of chunks, and examples within a chunk",
        resume="exact",
        other_world="yes, none twice; same global batch",
        checksums="no",
        random_reads="yes",
        other_readers="no",
        source="Lightning-AI/litData README: Shuffle, seed, and drop_last; Pause & Resume",
    ),
    "webdataset": Facts(
        shuffle="order of shards, and a buffer",
        resume="no",
        other_world="no",
        checksums="no",
        random_reads="by its package wids",
        other_readers="all that reads tar; DALI, Ray",
        source="webdataset/webdataset README; ISSUES.md, 234 and 271",
    ),
    "datasets": Facts(
        shuffle="permutation of all",
        resume="only with a sampler that has a state",
        other_world="no",
        random_reads="yes",
        **_HF,
        source="huggingface/datasets docs: about_mapstyle_vs_iterable, use_with_pytorch",
    ),
    "datasets-iterable": Facts(
        shuffle="order of shards, and a buffer",
        resume="loses the examples in the buffer",
        other_world="no",
        random_reads="no",
        **_HF,
        source="huggingface/datasets docs: stream, use_with_pytorch",
    ),
    "array_record": Facts(
        shuffle="permutation of all",
        resume="exact",
        other_world="other ranks by ElasticIterator, experimental",
        checksums="hash of every chunk",
        random_reads="yes",
        other_readers="TFDS, Beam",
        source="google/grain docs: README, grain.experimental; google/riegeli: "
        "records_file_format.md",
    ),
    "tensorflow": Facts(
        shuffle="order of files, and a buffer",
        resume="with the buffer in the checkpoint; exact in deterministic order only",
        other_world="no",
        checksums="CRC32C of every record",
        random_reads="no",
        other_readers="Spark, DALI, Ray, Beam, and others",
        source="tensorflow.org: guide/data, iterator checkpointing; tutorials/load_data/tfrecord",
    ),
    "beam_tfrecord-torch": _OURS,
    "beam_tfrecord-grain": _OURS,
    "beam_tfrecord-tf": _OURS,
}
