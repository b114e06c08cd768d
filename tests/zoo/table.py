"""The page of the zoo's answers, docs/models_that_train.md, and a line of each."""

import importlib.metadata as metadata
import re
import textwrap

CHAOS = 1e-2
WHAT = {
    "export": "is not exported",
    "plan": "is not planned",
    "train": "does not train",
    "time": "takes too long",
    "crash": "ends a process",
}
HEAD = """# Models that train
`make test-zoo` (`tests/zoo`) writes this page; do not edit it. The models are those of torchvision
{torchvision}, timm {timm} and transformers {transformers} with few layers and random weights, under
PyTorch {torch}, float32.

Each model is exported, checked against eager PyTorch and planned for two H100 and two RTX 4090.
Then it trains 5 steps of SGD with 6 samples each on three unequal emulated devices, by `auto`'s
plan and by two random plans. The learning rate is 0.02, or 0.001 or 0.0001 where rounding decides
the outcome.

*Loss* and *tensor* are the largest relative differences of a step's loss and of a trained tensor
from PyTorch's own loop on one thread. That loop draws the same random numbers. A model trains if
both are at most 1e-5. A star marks a wider limit: ten times what changes of every weight's last bit
do to PyTorch's loop (the most of four).

{fine} of {all} tried models train; the zoo has {count}.

| model | operators | parameters | loss, tensor |
|---|---:|---:|---|
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
    runs = answer["runs"]
    differences = (f"{max(run[key] for run in runs):.0e}".replace("0e+00", "0") for key in ("loss", "tensor"))
    star = "*" if max(runs[0]["limits"]) > 1e-5 else ""
    return f"| {answer['name']} | {answer['operators']:,} | {answer['numbers']:,} | {', '.join(differences)}{star} |\n"


def page(answers, count):
    versions = {name: metadata.version(name) for name in ("torchvision", "timm", "transformers", "torch")}
    fine = [answer for answer in answers if is_fine(answer)]
    text = HEAD.format(**versions, fine=len(fine), all=len(answers), count=count) + "".join(map(row, fine))
    rest = [answer for answer in answers if not is_fine(answer)]
    if rest:
        text += "\n## Models that do not train or cannot be compared\n"
        lines = (f"- `{answer['name']}`: {why(answer)}" for answer in rest)
        text += "".join(textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False) + "\n" for line in lines)
    return text
