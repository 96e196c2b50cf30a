"""The exchange: from encoded records anywhere to sorted shards.

``block`` encodes batches and gives every record its split and place; ``runs`` is the format of a
sorted spill file; ``bins`` sums what all runs hold and plans shards; ``merge`` turns slices of
runs into shards. ``files`` and ``runner`` are the two ways records travel in between: through
run files on the output's filesystem, or through the runner's own GroupByKey. Both end in runs and
share everything after.
"""
