"""A process that trains within a limit of memory, growing its batches as Memory says: python torch_memory.py LIMIT_BYTES.

Prints, of each step, its samples, what is said to fit after it and the highest memory so far.
"""

import ctypes
import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

from motley.torch.memory import HostMemory, Memory

WIDTH, DEPTH = 64, 24
M_MMAP_THRESHOLD, OWN_PAGES = -3, 1 << 18


class Limited(HostMemory):
    """As in a control group with so many bytes."""

    def there_is(self, sharing):
        return min(super().there_is(sharing), float(sys.argv[1]) / sharing)


ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, OWN_PAGES)  # no tensor leaves a hole in the heap when it goes
torch.set_num_threads(1)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(16, WIDTH), *(layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.LeakyReLU())), nn.Linear(WIDTH, 5))
optimizer = torch.optim.Adam(model.parameters())
memory = Memory(torch.device("cpu"), lambda: list(model.parameters()))
memory.of = Limited()
samples, rows = 1024, []
for _ in range(7):
    x, y = torch.randn(samples, 16), torch.randint(5, (samples,))
    optimizer.zero_grad()
    memory.begin()
    F.cross_entropy(model(x), y).backward()
    memory.end()
    most = memory.most(samples)
    optimizer.step()
    rows.append([samples, most, memory.of.peak()])
    samples = min(most, 3 * samples)
print(json.dumps(rows))
