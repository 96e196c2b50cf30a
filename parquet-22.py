




















import beam_tfrecord as bt

with bt.pipeline() as p:
    (
        p
        | bt.ReadFromParquet("penguins-*.parquet", columns=["species", "body_mass_g"])
        | bt.WriteToTFRecord("small/", splits={"train": 0.8, "test": 0.2})
    )
