












































import beam_tfrecord as bt

bt.write(
    "penguins.csv",
    "python/",
    splits={"train": 0.8, "test": 0.2},
    group="island",
    shards={"train": 4, "test": 2},
    seed=7,
    source_options={"null_words": ["NA"]},
)
