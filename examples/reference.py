"""PyTorch's own training loop in one process: what a run of Motley is compared with.

    python examples/reference.py examples/digits_cnn.py:model --data examples/data/digits.npz \\
        --global-batch 64 --steps 20 --optimizer sgd --lr 0.05 -o reference.safetensors

Step k uses samples [k*B, (k+1)*B) modulo the number of samples. A token file (`.bin`) is cut into
samples of `--seq` T tokens: sample i has the input tokens [i*T, (i+1)*T) and the target the same
moved on by one, so that floor((tokens - 1) / T) samples exist.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import statistics
import sys
import time

import numpy as np
import torch
from safetensors.torch import load_file, save_file


def load_model(spec: str):
    """Calls FUNCTION of FILE.py: (module, inputs)."""
    file, _, function = spec.rpartition(":")
    found = importlib.util.spec_from_file_location("user_model", file)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, function)()


def load_arrays(path: str, module: torch.nn.Module, count: int) -> list[torch.Tensor]:
    """The module's inputs, under the names of forward's arguments or `x0`, `x1`, ..."""
    if path.endswith(".npz"):
        with np.load(path) as file:
            arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    else:
        arrays = load_file(path)
    names = list(inspect.signature(module.forward).parameters)[:count]
    return [arrays[name] if name in arrays else arrays[f"x{i}"] for i, name in enumerate(names)]


def load_tokens(path: str, width: str, seq: int) -> list[torch.Tensor]:
    tokens = np.fromfile(path, dtype={"u16": "<u2", "u32": "<u4"}[width]).astype(np.int64)
    count = (len(tokens) - 1) // seq
    inputs = torch.from_numpy(tokens[: count * seq].reshape(count, seq))
    targets = torch.from_numpy(tokens[1 : count * seq + 1].reshape(count, seq))
    return [inputs, targets]


def batch_of(arrays: list[torch.Tensor], step: int, size: int) -> list[torch.Tensor]:
    samples = torch.arange(step * size, (step + 1) * size) % len(arrays[0])
    return [array[samples] for array in arrays]


def loss_of(result) -> torch.Tensor:
    """Of what forward returned: the loss alone, first in a tuple, or as `loss` of a dict."""
    if isinstance(result, dict):
        return result["loss"]
    return result[0] if isinstance(result, tuple) else result


def make_optimizer(name: str, parameters, lr: float, momentum: float, weight_decay: float | None):
    """PyTorch's defaults, but for what is given."""
    decay = {} if weight_decay is None else {"weight_decay": weight_decay}
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, **decay)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(parameters, lr=lr, **decay)


def train(module, arrays, options) -> tuple[list[float], list[float]]:
    """Losses and seconds, one a step."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = make_optimizer(
        options.optimizer, parameters, options.lr, options.momentum, options.weight_decay
    )
    losses, seconds = [], []
    for step in range(options.steps):
        start = time.perf_counter()
        inputs = batch_of(arrays, step, options.global_batch)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(module(*inputs))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        if not options.json:
            print(f"step {step} loss {losses[-1]:.6f} time {seconds[-1]:.4f} s")
    return losses, seconds


def without_dropout(module: torch.nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PyTorch's own training loop, for comparison.")
    parser.add_argument("model", metavar="FILE.py:FUNCTION")
    parser.add_argument("--data", required=True, help=".npz, .safetensors or a token file .bin")
    parser.add_argument("--tokens", choices=["u16", "u32"], default="u16")
    parser.add_argument("--seq", type=int, help="tokens of a sample; needed for .bin")
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--optimizer", choices=["sgd", "adam", "adamw"], default="sgd")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--seed", type=int, default=0, help="of dropout")
    parser.add_argument("--no-dropout", action="store_true", help="with all dropout rates 0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--initial", help="start from this state instead of FUNCTION's")
    parser.add_argument("-o", "--output", help="trained state_dict as safetensors")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.data.endswith(".bin") and not options.seq:
        parser.error("a token file needs --seq")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    torch.set_num_threads(options.threads)
    module, inputs = load_model(options.model)
    if options.initial:
        module.load_state_dict(load_file(options.initial), strict=False)
    if options.no_dropout:
        without_dropout(module)
    if options.data.endswith(".bin"):
        arrays = load_tokens(options.data, options.tokens, options.seq)
    else:
        arrays = load_arrays(options.data, module, len(inputs))
    torch.manual_seed(options.seed)
    losses, seconds = train(module, arrays, options)
    if options.output:
        state = {
            name: value.detach().clone().contiguous() for name, value in module.state_dict().items()
        }
        save_file(state, options.output)
    if options.json:
        median = statistics.median(seconds)
        print(json.dumps({"losses": losses, "step_s": seconds, "step_s_median": median}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
