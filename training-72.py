






































































import beam_tfrecord as bt
import torch

NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
data = bt.load("out/", split="train", columns=[*NUMBERS, "year"]).torch(
    batch_size=32, defaults=dict.fromkeys(NUMBERS, 0), shuffle=True
)
loader = torch.utils.data.DataLoader(data, batch_size=None)  # the dataset makes the batches
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
for batch in loader:
    numbers = torch.stack([batch[name].float() for name in NUMBERS], dim=1)  # [rows, 4]
    loss = torch.nn.functional.mse_loss(model(numbers)[:, 0], batch["year"].float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
