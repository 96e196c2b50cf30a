
































import beam_tfrecord as bt

bt.write(
    "penguins.csv",
    "steps/",
    splits={"train": 0.8, "test": 0.2},
    columns=["species", "island", "bill_length_mm"],
    transform=[
        {"op": "impute", "columns": ["bill_length_mm"], "how": "median"},
        {"op": "zscore", "columns": ["bill_length_mm"]},
        {"op": "one_hot", "columns": ["island"]},
        {"op": "vocabulary", "columns": ["species"]},
    ],
)
train = bt.load("steps/", split="train").tf(batch_size=32, label="species", shuffle=True)
