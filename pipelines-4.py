


import beam_tfrecord as bt


def add_ratio(row):
    if row["bill_depth_mm"] is None:
        return None  # or a list of rows
    return {**row, "ratio": row["bill_length_mm"] / row["bill_depth_mm"]}


with bt.pipeline() as p:  # a beam.Pipeline with good presets
    (
        p
        | bt.ReadFromCsv("penguins.csv", null_words=["NA"])  # PCollection[bt.Batch]: columns and where they came from
        | bt.MapRows(add_ratio)  # or bt.MapBatches(function of a pyarrow.RecordBatch)
        | bt.WriteToTFRecord("out/", splits={"train": 0.8, "test": 0.2}, seed=7)
    )
