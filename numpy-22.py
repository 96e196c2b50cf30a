




















import beam_tfrecord as bt

digits = bt.load("digits/")
back = digits.numpy()
order = [np.flatnonzero((images == image).all(axis=(1, 2)))[0] for image in back["image"]]
assert back["image"].dtype == np.uint8 and (back["image"] == images[order]).all()  # shuffled, and unchanged

batches = digits.tf(batch_size=32, label="label")  # decoded: uint8, shape [32, 28, 28]
