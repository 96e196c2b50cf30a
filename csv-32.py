






























import beam_tfrecord as bt

bt.write("penguins.tsv", "again/", source_options={"delimiter": "\t", "null_words": ["NA"]})

with bt.pipeline() as p:
    p | bt.ReadFromCsv("penguins.tsv", delimiter="\t", null_words=["NA"]) | bt.WriteToTFRecord("piped/")
