"""Unequal devices under a script that PyTorch goes on computing: three lines, and the result of one device.

import motley.torch
loader = motley.torch.share(loader)   # a DistributedSampler's batches stay; each rank loads its share of them
model = motley.torch.DDP(model)       # in place of DistributedDataParallel
"""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    raise ImportError(f"motley.torch: {sys.executable} has no PyTorch; for `motley verify --` MOTLEY_PYTHON names an interpreter that has")

from motley.torch.gather import gather
from motley.torch.loaders import share, shares
from motley.torch.parallel import DDP, weigh
from motley.torch.refusals import check_version

__all__ = ["DDP", "gather", "share", "shares", "weigh"]

check_version()
