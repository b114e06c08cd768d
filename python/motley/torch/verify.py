"""motley verify [--json] -- COMMAND: are a script's steps those of one device, however the batch is split?

Starts the command, a script of motley.torch under its launcher, three times: as one device computes it, without any exchange of motley.torch's
(trial.py), and under an even and an uneven split. Gradients of several optimizer steps and batch norm's statistics are compared, an epoch's
end among them. Where they differ it is started with the samples in another order, which shows what rounding makes of them, or that the script
draws random numbers by place; and once under PyTorch's DistributedDataParallel as it is, which a loss that is no mean is to follow. Exit
status: 0 they are equal, 5 they are not, 1 the command failed or cannot be compared, 2 it cannot be asked.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile

import torch

from motley.torch.trial import VARIABLE, Trial

LIMIT = 1e-4  # float32 sums taken in another order
NOISE = 1e-2  # of all gradients' norm: what is below is compared on that scale, so that a millionth of all is rounding's
# A difference may be rounding's where it is below such a part of all gradients' norm (whatever is drawn at random makes more) and so many
# times what another order of the samples makes (sums in other parts round otherwise).
LEAST, ROUNDING = 1e-4, 30
KINDS = {
    "whole": "with the whole batch on each rank", "turned": "with the batch in another order", "ddp": "under DistributedDataParallel",
    "even": "under the even split", "uneven": "under the uneven split",
}  # fmt: skip
DRAWS = (
    "the same samples in another order give other gradients: it draws random numbers by place (augmentation, functional dropout), or its loss "
    "depends on the order. Fix what is drawn (MOTLEY_TORCH_TRIAL is set while it is verified), and try again"
)


class Refusal(Exception):
    def __init__(self, code: str, message: str, status: int):
        super().__init__(message)
        self.code, self.status = code, status


def try_kind(folder: str, kind: str, command: list[str], is_needed: bool = True) -> list[dict]:
    """What the command's optimizer steps had: gradients, buffers, samples by rank. Nothing where it fails and is not needed."""
    told = json.dumps({"folder": folder, "kind": kind})
    try:
        done = subprocess.run(command, env=os.environ | {VARIABLE: told}, stdout=sys.stderr, check=False)
    except OSError as error:
        raise Refusal("verify.command", f"cannot start {command[0]}: {error.strerror}", 2) from None
    if done.returncode != 0 and not is_needed:
        return []  # a batch norm of one sample, say
    if done.returncode != 0:
        raise Refusal("verify.command", f"{' '.join(command)}: exit code {done.returncode} {KINDS[kind]}", 1)
    steps = []
    while os.path.exists(path := Trial(folder, kind).file(len(steps))):
        steps.append(torch.load(path, weights_only=True))
    if not steps:
        raise Refusal("verify.no-step", f"{' '.join(command)}: took no optimizer step of a model in motley.torch.DDP", 1)
    if not any(each["gradients"] for each in steps):
        raise Refusal("verify.no-step", f"{' '.join(command)}: its optimizer steps had no gradients", 1)
    return steps


def norm_of(tensors: dict) -> float:
    return sum(each.double().norm().item() ** 2 for each in tensors.values()) ** 0.5


def compare(ours: dict, reference: dict) -> dict[str, tuple[float, float]]:
    """By tensor ||a - b||, and that over ||b||, or over NOISE of all tensors' norm where ||b|| is less; infinite where one has none."""
    least = NOISE * norm_of(reference)

    def difference(name: str) -> tuple[float, float]:
        if name not in ours or name not in reference:
            return math.inf, math.inf
        apart = (ours[name].double() - reference[name].double()).norm().item()
        scale = max(reference[name].double().norm().item(), least)
        return (apart, apart / scale if scale > 0 else apart) if math.isfinite(apart) else (math.inf, math.inf)

    return {name: difference(name) for name in sorted(reference.keys() | ours.keys())}


def compare_runs(ours: dict[str, list[dict]], reference: list[dict]) -> dict[tuple[str, int, str], tuple[float, float]]:
    """The same by run, step and tensor."""
    return {
        (kind, step, name): apart
        for kind, steps in ours.items()
        for step, (a, b) in enumerate(zip(steps, reference, strict=False))
        for of in ("gradients", "buffers")
        for name, apart in compare(a[of], b[of]).items()
    }


def find_rounding(reference: list[dict], turned: list[dict], differences: dict) -> set[tuple[int, str]]:
    """Steps and tensors beyond the limit of which another order of the samples makes as much."""
    by_order = {key[1:]: each for key, each in compare_runs({"turned": turned}, reference).items()}
    least = [LEAST * norm_of(each["gradients"]) for each in reference]
    if any(relative > LIMIT and apart > least[step] for (step, _), (apart, relative) in by_order.items()):
        raise Refusal("verify.draws", DRAWS, 1)
    return {
        (step, name)
        for (_, step, name), (apart, relative) in differences.items()
        if relative > LIMIT and apart <= least[step] and apart <= ROUNDING * by_order[step, name][0]
    }


def is_beyond(differences: dict, rounding: set) -> bool:
    return any(relative > LIMIT and key[1:] not in rounding for key, (_, relative) in differences.items())


def looks_like(ours: list[dict], reference: list[dict], wrong: list[tuple[int, str]]) -> str:
    """What differences in these steps and tensors have in common."""
    step = wrong[0][0]
    a, b = ours[step]["gradients"], reference[step]["gradients"]
    if missing := sorted(a.keys() ^ b.keys()):
        return f"{missing[0]} has a gradient in one of the runs alone: a part of the model that not every rank uses"
    if all(name in ours[step]["buffers"] for at, name in wrong if at == step):
        return "batch norm's statistics: a forward pass outside of DDP, or statistics of the local batch"
    of_step = [name for at, name in wrong if at == step and name in a]
    ratios = {name: (a[name].double().flatten() @ b[name].double().flatten() / b[name].double().norm() ** 2).item() for name in of_step if b[name].any()}
    scaled = [
        name for name, ratio in ratios.items() if (a[name] - ratio * b[name]).norm() <= 1e-3 * b[name].norm() and abs(ratio - 1) > LIMIT
    ]
    if len(scaled) == len(of_step) == len(b):
        return f"every gradient is {ratios[scaled[0]]:.4g} times what it should be: the loss is weighed by another number than it averages over"
    if step:
        return f"the first {step} optimizer steps are right: accumulation, or batches of another size at an epoch's end"
    return "a loss that depends on which samples a rank has (pairs within the batch), or is weighed by another number than it averages over"


def verify(command: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        against, rounding = "one device", set()
        reference = try_kind(folder, "whole", command, is_needed=False)
        if not reference:  # a rank's memory may not hold the whole batch
            against, reference = "DistributedDataParallel", try_kind(folder, "ddp", command)
        ours = {kind: try_kind(folder, kind, command) for kind in ("even", "uneven")}
        if any(each[0]["samples"] is None for each in ours.values()):
            raise Refusal("verify.no-share", f"{' '.join(command)}: shared no loader (motley.torch.share)", 1)
        differences = compare_runs(ours, reference)
        if against == "one device" and is_beyond(differences, rounding):
            rounding = find_rounding(reference, try_kind(folder, "turned", command), differences)
        if against == "one device" and is_beyond(differences, rounding):
            plain = try_kind(folder, "ddp", command, is_needed=False)
            by_plain = compare_runs(ours, plain)
            if plain and not is_beyond(by_plain, rounding):
                against, reference, differences = "DistributedDataParallel", plain, by_plain
    compared = {key: relative for key, (_, relative) in differences.items() if key[1:] not in rounding}
    kind, step, name = max(compared, key=compared.get)
    wrong = sorted(key[1:] for key, relative in compared.items() if key[0] == kind and relative > LIMIT)
    return {
        "against": against,
        "steps": min(len(reference), *(len(each) for each in ours.values())),
        "max_grad_diff": compared[kind, step, name],
        "grad_limit": LIMIT,
        "worst_tensor": name,
        "worst_step": step,
        "tensors": len({key[2] for key in compared if key[0] == kind}),
        "rounding": sorted({name for _, name in rounding}),
        "splits": [ours["even"][0]["samples"], ours["uneven"][0]["samples"]],
        "looks_like": looks_like(ours[kind], reference, wrong) if wrong else None,
        "pass": not wrong,
    }


def main(arguments: list[str]) -> int:
    place = arguments.index("--")
    flags, command = arguments[:place], arguments[place + 1 :]
    try:
        if unknown := [flag for flag in flags if flag not in ("--json", "-q", "--quiet")]:
            raise Refusal("cli.usage", f"unknown {unknown[0]}; wanted: motley verify [--json] -- COMMAND", 2)
        if not command:
            raise Refusal("cli.usage", "no command; wanted: motley verify [--json] -- COMMAND, say torchrun --nproc-per-node 2 train.py", 2)
        found = verify(command)
    except Refusal as refusal:
        if "--json" in flags:
            print(json.dumps({"error": {"code": refusal.code, "message": str(refusal)}}))
        print(f"motley: {refusal} [{refusal.code}]", file=sys.stderr)
        return refusal.status
    if "--json" in flags:
        print(json.dumps(found))
    else:
        even, uneven = (":".join(map(str, each)) for each in found["splits"])
        print(
            f"{'pass' if found['pass'] else 'FAIL'}: {found['tensors']} tensors of {found['steps']} optimizer steps under {uneven} and {even} samples "
            f"differ from {found['against']}'s by {found['max_grad_diff']:.2g} (limit {LIMIT:g}, worst '{found['worst_tensor']}' in step {found['worst_step']})"
        )
        if found["rounding"]:
            print(f"left out, as rounding alone makes as much of them in another order: {', '.join(found['rounding'])}")
        if found["looks_like"]:
            print(f"it looks like {found['looks_like']}")
    return 0 if found["pass"] else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
