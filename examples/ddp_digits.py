"""PyTorch's own training of a CNN with batch norm over ranks that need not be alike: three lines are Motley's.

torchrun --nproc-per-node 3 examples/ddp_digits.py [STEPS]
"""

import pathlib
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import motley.torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
arrays = np.load(pathlib.Path(__file__).resolve().parent / "data/digits.npz")
data = TensorDataset(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]))
loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
loader = motley.torch.share(loader)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
model = motley.torch.DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

step = 0
while step < steps:
    loader.sampler.set_epoch(step)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            print(f"step {step} rank {dist.get_rank()}: {len(x)} samples, loss {loss.item():.4f}", flush=True)
        if step == steps:
            break
dist.barrier()
dist.destroy_process_group()
