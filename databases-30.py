




























import beam_tfrecord as bt

with bt.pipeline() as p:
    (
        p
        | bt.ReadFromSql("sqlite:///shop.db", table="trips", where="fare > 1")
        | bt.WriteToTFRecord("large/")
    )
