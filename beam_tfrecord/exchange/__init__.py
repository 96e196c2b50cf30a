"""The exchange: from encoded records anywhere to sorted shards, or straight to shards.

Records are encoded (`block`), sorted into spill files (`spill`, `spill_files`), planned into shards
(`plan`) and merged (`merge`); `shard_writers` and `stage_writer` write groups of units without a
shuffle. `checkpoints` lets the next attempt resume, and `write_summary` holds the counts.
`pipeline` builds the Beam steps; the other modules do not use Beam.
"""
