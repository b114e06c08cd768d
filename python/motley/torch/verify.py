"""motley verify [--json] -- COMMAND: is a step's gradient the same however the batch is split?

Starts the command twice, a script of motley.torch under its launcher: from equal weights, without dropout, once with an even split and
once with an uneven one. Each ends at its first optimizer step; all gradients are compared. Where they differ by little beside all of them
(that of a bias before a batch norm is 0 but for rounding) the even split is tried again with other samples on each rank, which shows what
rounding makes of them. Exit status: 0 they are equal, 5 they are not, 1 the command failed, 2 it cannot be asked.
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
NOISE = 1e-3  # of all gradients' norm: what is below is compared on that scale
# A difference may be rounding's where it is below such a part of all gradients' norm (whatever is drawn at random makes more) and so many
# times what another order of the samples makes (sums in other parts round otherwise).
LEAST, ROUNDING = 1e-4, 30
ADVICE = (
    "what differs: random numbers that are drawn by rank or place (augmentation, functional dropout), a loss that is no mean over what "
    "weight= says, or statistics of the local batch other than batch norm's"
)


class Refusal(Exception):
    def __init__(self, code: str, message: str, status: int):
        super().__init__(message)
        self.code, self.status = code, status


def try_split(folder: str, split: str, command: list[str]) -> dict:
    """Gradients of the command's first step, and samples by rank."""
    trial = Trial(folder, split)
    told = json.dumps({"folder": folder, "split": split})
    try:
        done = subprocess.run(command, env=os.environ | {VARIABLE: told}, stdout=sys.stderr, check=False)
    except OSError as error:
        raise Refusal("verify.command", f"cannot start {command[0]}: {error.strerror}", 2) from None
    if done.returncode != 0:
        raise Refusal("verify.command", f"{' '.join(command)}: exit code {done.returncode} under the {split} split", 1)
    if not os.path.exists(trial.gradients):
        raise Refusal("verify.no-step", f"{' '.join(command)}: took no optimizer step of a model in motley.torch.DDP", 1)
    found = torch.load(trial.gradients, weights_only=True)
    if not found["gradients"]:
        raise Refusal("verify.no-step", f"{' '.join(command)}: the first optimizer step had no gradients", 1)
    if found["samples"] is None:
        raise Refusal("verify.no-share", f"{' '.join(command)}: shared no loader (motley.torch.share)", 1)
    return found


def norm_of(gradients: dict) -> float:
    return sum(each.double().norm().item() ** 2 for each in gradients.values()) ** 0.5


def compare(ours: dict, reference: dict) -> dict[str, tuple[float, float]]:
    """By tensor ||a - b||, and that over ||b||, or over NOISE of all gradients' norm where ||b|| is less; infinite where one has none."""
    least = NOISE * norm_of(reference)

    def difference(name: str) -> tuple[float, float]:
        if name not in ours or name not in reference:
            return math.inf, math.inf
        apart = (ours[name].double() - reference[name].double()).norm().item()
        scale = max(reference[name].double().norm().item(), least)
        return (apart, apart / scale if scale > 0 else apart) if math.isfinite(apart) else (math.inf, math.inf)

    return {name: difference(name) for name in sorted(reference.keys() | ours.keys())}


def find_rounding(folder: str, command: list[str], even: dict, differences: dict[str, tuple[float, float]]) -> set[str]:
    """Those beyond the limit of which another order of the samples makes as much; none where all are beyond, or one is by much."""
    beyond = {name: apart for name, (apart, relative) in differences.items() if relative > LIMIT}
    if not beyond or len(beyond) == len(differences) or max(beyond.values()) > LEAST * norm_of(even):
        return set()
    turned = compare(try_split(folder, "turned", command)["gradients"], even)
    return {name for name, apart in beyond.items() if apart <= ROUNDING * turned[name][0] < math.inf}


def verify(command: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        even, uneven = (try_split(folder, split, command) for split in ("even", "uneven"))
        differences = compare(uneven["gradients"], even["gradients"])
        rounding = find_rounding(folder, command, even["gradients"], differences)
    compared = {name: relative for name, (_, relative) in differences.items() if name not in rounding}
    name = max(compared, key=compared.get)
    return {
        "against": "even",
        "max_grad_diff": compared[name],
        "grad_limit": LIMIT,
        "worst_tensor": name,
        "tensors": len(compared),
        "rounding": sorted(rounding),
        "splits": [even["samples"], uneven["samples"]],
        "pass": bool(compared[name] <= LIMIT),
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
            f"{'pass' if found['pass'] else 'FAIL'}: {found['tensors']} gradients of the first step under {uneven} and {even} samples differ "
            f"by {found['max_grad_diff']:.2g} (limit {LIMIT:g}, worst '{found['worst_tensor']}')"
        )
        if found["rounding"]:
            print(f"left out, as rounding alone makes as much of them in another order: {', '.join(found['rounding'])}")
        if not found["pass"]:
            print(ADVICE)
    return 0 if found["pass"] else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
