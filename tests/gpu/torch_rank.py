"""One rank of the scripts of test_torch_gpu.py: python torch_rank.py CASE WIDTH DEPTH BATCH STEPS DEVICE..., under RANK, WORLD_SIZE, ...

Ranks are on the devices that are named, in this order. Rank 0 prints a line of JSON: samples of each rank in each step, how far the parameters
are from one device's, and seconds of the last steps.
"""

import copy
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import motley.torch
from motley.torch.session import session_of

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FRACTION = 0.02  # of the GPU's memory, in "memory"


def make_model(width, depth, has_norm):
    torch.manual_seed(1)
    layers = [nn.Linear(16, width)]
    for _ in range(depth):
        layers += [nn.Linear(width, width), *([nn.BatchNorm1d(width)] if has_norm else []), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 5))


def train(model, loader, device, steps, record):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    done = 0
    while done < steps:
        for x, y in loader:
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            record(len(x), begin, loss.detach())
            done += 1
            if done == steps:
                break
    return model


def main():
    case, width, depth, batch, steps, *devices = sys.argv[1:]
    width, depth, batch, steps = map(int, (width, depth, batch, steps))
    device = torch.device(devices[RANK])
    if device.type == "cpu":
        torch.set_num_threads(4)
    else:
        torch.cuda.set_device(device)
        if case == "memory":
            torch.cuda.set_per_process_memory_fraction(FRACTION)
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    data = TensorDataset(torch.randn(8 * batch, 16), torch.randint(5, (8 * batch,)))
    model = make_model(width, depth, case != "memory")
    start = copy.deepcopy(model)
    sampler = DistributedSampler(data, WORLD, RANK, shuffle=False)
    loader = motley.torch.share(DataLoader(data, batch // WORLD, sampler=sampler, drop_last=True))
    samples, took = [], []

    def record(count, begin, _):
        samples.append(count)
        took.append(time.perf_counter() - begin)

    trained = train(motley.torch.DDP(model.to(device)), loader, device, steps, record).module
    found = [None] * WORLD
    dist.all_gather_object(found, samples)
    if RANK != 0:
        return
    row = {"case": case, "samples": found, "last_s": sorted(took[-5:])[2]}
    if device.type == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated()
        row["limit_bytes"] = FRACTION * torch.cuda.get_device_properties(device).total_memory
    if case != "memory":
        whole = DataLoader(data, batch, drop_last=True)
        losses = []
        alone = train(start.to(device), whole, device, steps, lambda *seen: losses.append(seen[-1]))
        row["losses"] = [each.item() for each in losses]
        row["max_param_diff"] = max((a - b).abs().max().item() for a, b in zip(trained.parameters(), alone.parameters(), strict=True))
        row["moved"] = max((a - b).abs().max().item() for a, b in zip(trained.cpu().parameters(), make_model(width, depth, True).parameters(), strict=True))
    assert session_of().lag == (1 if any(each != "cpu" for each in devices) else 0)
    print(json.dumps(row), flush=True)


main()
dist.barrier()
dist.destroy_process_group()
