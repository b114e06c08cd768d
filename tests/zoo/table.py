"""The page of the zoo's answers, docs/models_that_train.md, and a line of each."""

import importlib.metadata as metadata
import re

CHAOS = 1e-2
WHAT = {
    "export": "is not exported",
    "plan": "is not planned",
    "train": "does not train",
    "time": "takes too long",
    "crash": "ends a process",
}
HEAD = """# Models that train
Written by `make test-zoo` (`tests/zoo`); do not edit. Models of torchvision {torchvision}, timm {timm} and transformers {transformers} with few layers and random
weights, under PyTorch {torch}, float32. Each one was exported and checked against eager PyTorch, planned for two H100 and two RTX 4090 (32 samples a step), and
trained 5 steps of SGD, 6 samples each (at a rate of 0.02, or, where rounding decides what comes of that, 0.001 or 0.0001), on three unequal emulated devices: by `auto`'s plan and by two plans drawn at random. What stands under *auto* and *random* are the largest
relative differences of a step's loss and of a tensor of the trained model from PyTorch's own loop on one thread; *rounding* is ten times what changes of the last bit of every weight before each step do to
these (the most of four times). A model trains if both are at most 1e-5, or as much as rounding where that is more. *draws*: the model has dropout or dropped paths, whose random numbers
PyTorch's loop then draws as the run does.

{fine} of {all} that were tried train; the zoo has {count}.

| model | operators | parameters | GPUs: step | auto | random | rounding | draws |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def is_fine(answer):
    return answer["stage"] == "done" and all(run["is_equal"] for run in answer["runs"]) and not is_chaotic(answer)


def is_chaotic(answer):
    """Does rounding decide what a step gives, so that nothing can be compared?"""
    return answer["runs"][0]["limits"][0] > CHAOS


def why(answer):
    """Of a model that does not train: what fails, in a line."""
    if "error" in answer:
        text = answer["error"].split("; try")[0].replace("ExportError: motley.export: ", "")
        text = re.sub(r"/\S*/site-packages/", "", text)
        return f"{WHAT.get(answer['stage'], answer['stage'])}: {' '.join(text.split())[:400]}"
    if is_chaotic(answer):
        return f"rounding alone changes its loss by {answer['runs'][0]['limits'][0] / 10:.1e} in PyTorch"
    run = next(run for run in answer["runs"] if not run["is_equal"])
    return f"differs under {run['plan']}: loss {run['loss']:.1e}, {run['where']} {run['tensor']:.1e}, limits {run['limits'][0]:.1e} and {run['limits'][1]:.1e}"


def line(answer):
    name = f"{answer['name']:<32}"
    if not is_fine(answer):
        return f"{name} {why(answer)}"
    seconds = sum(answer.get(key, 0) for key in ("export_s", "plan_s", "train_s"))
    runs = answer["runs"]
    largest = [max(run[key] for run in runs) for key in ("loss", "tensor")]
    limits = runs[0]["limits"]
    cells = [f"{value:.0e} of {limit:.0e}" for value, limit in zip(largest, limits, strict=True)]
    return f"{name} {answer['operators']:>5} operators  losses {cells[0]}  tensors {cells[1]}  {seconds:.0f} s"


def row(answer):
    auto, *drawn = answer["runs"]
    limits = " ".join(f"{limit:.0e}" for limit in auto["limits"]) if max(auto["limits"]) > 1e-5 else ""
    cells = [
        answer["name"],
        f"{answer['operators']:,}",
        f"{answer['numbers']:,}",
        f"{answer['plan']['predicted_step_s'] * 1e3:.2f} ms",
        pair([auto]),
        pair(drawn),
        limits,
        "yes" if answer["draws"] else "",
    ]
    return "| " + " | ".join(cells) + " |\n"


def pair(runs):
    """The largest differences of a loss and of a tensor."""
    return " ".join(f"{max(run[key] for run in runs):.0e}".replace("0e+00", "0") for key in ("loss", "tensor"))


def page(answers, count):
    versions = {name: metadata.version(name) for name in ("torchvision", "timm", "transformers", "torch")}
    fine = [answer for answer in answers if is_fine(answer)]
    text = HEAD.format(**versions, fine=len(fine), all=len(answers), count=count) + "".join(map(row, fine))
    rest = [answer for answer in answers if not is_fine(answer)]
    if rest:
        text += "\n## What does not train, or cannot be compared, and why\n"
        text += "".join(f"- `{answer['name']}`: {why(answer)}\n" for answer in rest)
    return text
