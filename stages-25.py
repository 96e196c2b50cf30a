























import beam_tfrecord as bt

bt.extract("sqlite:///shop.db", "again/", source_options={"table": "trips"})

with bt.pipeline() as p:
    p | bt.ReadFromSql("sqlite:///shop.db", table="trips") | bt.ExtractToParquet("piped/")

bt.load("stage/").arrow()  # a stage is also a dataset to read
