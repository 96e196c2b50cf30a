

































import beam_tfrecord as bt

photos = bt.load("dataset/", split="train")
names = photos.schema["label"].labels  # ("cat", "dog"); also in dataset/labels.txt
train = photos.tf(batch_size=32, image_size=(64, 64), label="label", shuffle=True)
