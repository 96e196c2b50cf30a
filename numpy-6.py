




import numpy as np

images = np.random.default_rng(0).integers(0, 255, (60, 28, 28), np.uint8)
np.savez("digits.npz", image=images, label=np.arange(60) % 10)
for number in range(2):
    np.save(f"scan-{number}.npy", np.zeros((number + 3, 4), np.float32))
