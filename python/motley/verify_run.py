"""PyTorch's own training of a user's model, for `motley verify --against eager`:

    python -m motley.verify_run SOURCE --plan plan.json --job job.json --weights MODEL --batches FILE -o TRAINED

SOURCE is what `python -m motley.export` was given. TRAINED gets the trained model, whose losses are
printed as JSON. With `--disturbed SEED` the last bits of all weights are changed at random before every step.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from functools import partial

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from motley.command import load_model
from motley.command import parse_arguments as parse_export
from motley.draws import DrawnEagerly
from motley.eager import Loop
from motley.errors import ExportError, refuse
from motley.micro_batches import MicroBatches, times_of
from motley.model_file import read_model_file
from motley.philox import PhiloxDraws
from motley.rounding import change_last_bits
from motley.schedule import factor
from motley.step import Step, make_step


def train(step: Step, plan: dict, job: dict, batches, disturbed: int | None, part: float) -> list[float]:
    """The losses of a training of the step's module for `job["steps"]` steps; `part` of a micro-batch's
    loss counts, where the loop takes them one by one."""
    loop = Loop(step.module, plan, forward=step)
    generator = torch.Generator().manual_seed(disturbed or 0)
    size, losses = plan["global_batch"], []
    times, micro_batches = times_of(plan), None
    for i in range(job["steps"]):
        if disturbed is not None:
            change_last_bits(step.module, generator)
        inputs = [values[i * size : (i + 1) * size] for values in batches]
        if times > 1:
            micro_batches = micro_batches or MicroBatches.find(loop, inputs, times, part)
            backward = partial(micro_batches.backward, loop, seed=job["seed"], step=i)
            losses.append(loop.step(inputs, factor(job["schedule"], i), backward))
            continue
        with DrawnEagerly(PhiloxDraws(job["seed"], i)):
            losses.append(loop.step(inputs, factor(job["schedule"], i)))
    return losses


def load_weights(module: nn.Module, path: str) -> None:
    """Begins where the model file does, however the function makes its weights."""
    _, tensors = read_model_file(path)
    state = module.state_dict()
    for name, value in state.items():
        if name in tensors and tensors[name].shape != value.shape:
            found, wanted = str(list(value.shape)), f"{list(tensors[name].shape)}, as exported"
            refuse("the module is another one", f'tensor "{name}"', found, wanted, "--source")
    module.load_state_dict({name: tensors[name] for name in state if name in tensors}, strict=False)


def save(module: nn.Module, path: str) -> None:
    state = {name: value.detach().clone().contiguous() for name, value in module.state_dict().items()}
    save_file(state, path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="as one word for the shell")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--weights", required=True, help="the model file")
    parser.add_argument("--batches", required=True)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--disturbed", type=int, metavar="SEED", help="change the weights' last bits before every step")
    parser.add_argument("--loss-part", type=float, default=1.0, help="of each micro-batch's loss (default: 1)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        export = parse_export([*shlex.split(options.source), "-o", "none"])
        step, examples = make_step(*load_model(export))
        load_weights(step.module, options.weights)
    except ExportError as error:
        print(error, file=sys.stderr)
        return 2
    with open(options.plan) as plan_file, open(options.job) as job_file:
        plan, job = json.load(plan_file), json.load(job_file)
    tensors = load_file(options.batches)
    batches = [tensors[f"x{i}"] for i in range(len(examples))]
    print(json.dumps(train(step, plan, job, batches, options.disturbed, options.loss_part)))
    save(step.module, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
