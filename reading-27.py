

























import beam_tfrecord as bt

train = bt.load("out/", split="train")
len(train), train.splits, train.schema  # rows, rows per split, types

next(train.rows())  # a dict; a missing value is None
train.arrow()  # a pyarrow.Table
train.numpy(defaults={"bill_length_mm": 0, "bill_depth_mm": 0, "flipper_length_mm": 0, "body_mass_g": 0})
