"""The exchange, which shuffles: brings each record to its shard, and writes the shards.

To shuffle records, workers encode them (`block`), sort them into *runs*, which are sorted spill
files (`spill`), plan the shards (`merge_plan`) and merge the runs into them (`merge`). Without a
shuffle, `output_writers` write each *task*, the units that one worker reads together,
straight to TFRecord shards or Parquet files. `write_steps` builds the Beam steps;
the other modules do not use Beam.
"""
