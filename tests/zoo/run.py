"""Models of torchvision, timm and transformers, small, through all of Motley: `make test-zoo`.

Each model is exported with its self-check, planned on four GPUs of two kinds (gpus.toml), and trained five steps on
three unequal emulated devices, by the plan of `auto` and by two plans drawn at random, beside PyTorch's own loop.
Losses and parameters must agree to 1e-5, or to ten times what a change of the last bit of every weight does to
PyTorch's loop. Dropout and dropped paths are on: PyTorch's loop draws the numbers that the run draws.

A model's answer is kept in build/zoo/NAME.json: another call goes on where one ended; a model that is named is
always tried again. At the end docs/models_that_train.md is written from all answers (table.py).
"""

import argparse
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "tests"), str(HERE)]

import table  # noqa: E402
from conftest import BUILD, CLUSTER  # noqa: E402

PACKAGES = ("torchvision", "timm", "transformers")
ANSWERS = BUILD / "zoo"
SECONDS = 900  # a model that takes longer has failed
RATES = (0.02, 1e-3, 1e-4)  # of SGD
STEADY = 1e-3  # where rounding does more to a loss, or ten times that to a tensor, a comparison says little
CHANGES = 4
# Plans drawn at random: seed, and how their ranks exchange.
SEEDS = {"random-3": (3, "auto"), "random-5": (5, "gloo")}


def names_of(package):
    """The functions of PACKAGE_models.py that return (module, inputs)."""
    text = (HERE / f"{package}_models.py").read_text()
    return [f"{package}.{name}" for name in re.findall(r"^def (\w+)\(\):", text, re.MULTILINE)]


def environment():
    return dict(
        os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1", MOTLEY_PROFILES=str(ANSWERS / "profiles.db"),
        MOTLEY_PROFILE_ROUNDS="1", MOTLEY_BUILD=str(BUILD), HF_HUB_OFFLINE="1",
    )  # fmt: skip


def prepare():
    """The cluster of emulated devices, and times of one model from which those of all others are modelled."""
    ANSWERS.mkdir(parents=True, exist_ok=True)
    cluster, model = ANSWERS / "three.toml", ANSWERS / "mlp.motley"
    cluster.write_text(CLUSTER)
    if model.exists():
        return
    export = [sys.executable, "-m", "motley.export", ROOT / "examples/mlp.py:model", "-o", model]
    profile = [BUILD / "motley", "profile", "-m", model, "-C", cluster, "--global-batch", "60", "-q"]
    subprocess.run(profile if model.exists() else export, check=True, capture_output=True, env=environment())
    subprocess.run(profile, check=True, capture_output=True, env=environment())


# One model, in a process of its own


def plan_for_gpus(model):
    """What `motley plan` says of four GPUs that nobody here has."""
    words = ["plan", "-m", model.path, "-C", HERE / "gpus.toml", "--global-batch", 32, "--json", "-q"]
    done = subprocess.run([str(BUILD / "motley"), *map(str, words)], capture_output=True, text=True, timeout=300,
                          env=model.environment, check=False)  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"motley plan ends with {done.returncode}")
    return json.loads(done.stdout)


def compare(model, run_dir, flags, limits):
    """One run beside the reference: the largest differences of a loss and of a tensor."""
    from parity import differences

    seed, _ = SEEDS.get(run_dir, (0, ""))
    found = model.run(run_dir, seed, "--resume", "never", *flags)
    loss, tensor, where = differences(found, model.reference(seed))
    regions = model.plan(run_dir)["replicas"][0]["regions"]
    return {
        "plan": run_dir, "loss": loss, "tensor": tensor, "where": where, "limits": limits,
        "is_split": any(split != "whole" for split in regions[0].get("operators", [])),
        "is_equal": loss <= limits[0] and tensor <= limits[1],
    }  # fmt: skip


def rounding_of(model):
    """What changes of the last bit of every weight before each step do to PyTorch's own loop, ten times: to losses and
    to tensors."""
    import torch
    from motley.rounding import change_last_bits
    from parity import differences

    wanted, worst = model.reference(0), [0.0, 0.0]
    for seed in range(CHANGES):
        generator = torch.Generator().manual_seed(seed)
        found = model.eager(lambda module, generator=generator: change_last_bits(module, generator))
        worst = [max(pair) for pair in zip(worst, differences(found, wanted)[:2], strict=True)]
    return [10 * value for value in worst]


def settle(model):
    """The largest learning rate at which the comparison says something, and what may differ there: 1e-5, or what
    rounding does."""
    from parity import LIMIT

    for model.lr in RATES:
        model.forget()
        rounding = rounding_of(model)
        if rounding[0] <= STEADY and rounding[1] <= 10 * STEADY:
            break
    return [max(LIMIT, value) for value in rounding]


def make(name):
    """(module, inputs)"""
    import torch

    package, function = name.split(".")
    torch.manual_seed(0)
    return getattr(importlib.import_module(f"{package}_models"), function)()


def trained(name, folder, place):
    """The exported model, with what trains it at a place (parity.Trained)."""
    from parity import Trained

    class Zoo(Trained):
        steps, batch, is_random = 5, 6, True

    return Zoo(name, make(name), folder, place)


def place_of(folder):
    """A cluster, and an environment that keeps what runs measure with the model: it would change the plans of those
    that follow."""
    folder.mkdir(parents=True, exist_ok=True)
    profiles = folder / "profiles.db"
    shutil.copy(ANSWERS / "profiles.db", profiles)
    return ANSWERS / "three.toml", dict(environment(), MOTLEY_PROFILES=str(profiles))


def try_model(name, answer):
    """Fills the answer step by step, so that it says how far a model came."""
    begin = time.monotonic()

    def took():
        return round(time.monotonic() - begin, 1)

    models = ANSWERS / "models"
    model = trained(name, models, place_of(models / name))
    answer.update(
        operators=model.exported.operators, numbers=model.exported.parameter_elements, export_s=took(),
        notes=model.exported.check.notes, draws=draws(model),
    )  # fmt: skip
    answer["stage"] = "plan"
    planned = plan_for_gpus(model)
    answer["plan"] = {key: planned.get(key) for key in ("planner", "predicted_step_s", "search_s", "notes")}
    answer["plan_s"] = took() - answer["export_s"]
    answer["stage"] = "train"
    limits = settle(model)
    answer["lr"], answer["runs"] = model.lr, [compare(model, "auto", [], limits)]
    for run_dir, (_, transport) in SEEDS.items():
        flags = ["--planner", "random", "--transport", transport]
        answer["runs"].append(compare(model, run_dir, flags, limits))
    answer["train_s"] = took() - answer["plan_s"] - answer["export_s"]


def draws(model):
    """Has the model dropout, or something else that is drawn?"""
    from motley.model_file import read_model_file

    text, _ = read_model_file(model.path)
    return any(f" = motley::{name}(" in text for name in ("random", "dropout"))


def one(name):
    """Tries a model; exit status 0: all equal."""
    import torch

    torch.set_num_threads(1)
    answer = {"name": name, "stage": "export"}
    try:
        try_model(name, answer)
        answer["stage"] = "done"
    except Exception as error:  # of whatever kind: the answer says so, and the next model is tried
        answer["error"] = f"{type(error).__name__}: {error}"[:2000]
    write_answer(answer)
    print(table.line(answer))
    return 0 if table.is_fine(answer) else 1


def write_answer(answer):
    (ANSWERS / f"{answer['name']}.json").write_text(json.dumps(answer, indent=2) + "\n")


# All of them


def wanted(given):
    every = [name for package in PACKAGES for name in names_of(package)]
    if not given:
        return [name for name in every if not (ANSWERS / f"{name}.json").exists()], every
    chosen = [name for name in every if name in given or name.split(".")[1] in given or name.split(".")[0] in given]
    if not chosen:
        sys.exit(f"zoo: no model of {', '.join(given)}; there are {', '.join(every)}")
    return chosen, every


def try_apart(name):
    """A model in a process of its own, so that a crash or a hang is an answer as others."""
    words = [sys.executable, __file__, "--one", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env=environment(), check=False)
    except subprocess.TimeoutExpired:
        write_answer({"name": name, "stage": "time", "error": f"more than {SECONDS} s"})
        return f"{name:<32} more than {SECONDS} s"
    if done.returncode not in (0, 1):
        write_answer({"name": name, "stage": "crash", "error": done.stderr[-500:]})
        return f"{name:<32} ends with {done.returncode}: {done.stderr[-500:]}"
    return done.stdout.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models or packages; none: those without an answer")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.exit(one(options.one))
    prepare()
    chosen, every = wanted(options.names)
    for i, name in enumerate(chosen, 1):
        print(f"[{i}/{len(chosen)}] {try_apart(name)}", flush=True)
    answers = [json.loads(path.read_text()) for path in map(lambda name: ANSWERS / f"{name}.json", every) if path.exists()]
    (ROOT / "docs/models_that_train.md").write_text(table.page(answers, len(every)))
    fine = sum(map(table.is_fine, answers))
    print(f"{fine} of {len(answers)} train as PyTorch does: docs/models_that_train.md")
    sys.exit(0 if fine == len(answers) == len(every) else 1)


if __name__ == "__main__":
    main()
