"""The exchange: from encoded records anywhere to sorted shards, or straight to shards.

Records are encoded (`block`), sorted into spill files (`spill`, `spill_files`), planned into shards
(`plan`) and merged (`merge`, `streaming_merge`); `shard_writers` and `stage_writer` write groups of
units without a shuffle. `pipeline` wires all of it into Beam; the other modules know nothing of it.
"""
