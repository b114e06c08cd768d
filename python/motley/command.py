"""The command line: `python -m motley.export FILE.py:FUNCTION -o MODEL.motley`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import logging
import os
import sys

from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from motley.capture import MAX_BATCH
from motley.errors import ExportError, refuse
from motley.exporter import Exported, export


def load_function(spec: str):
    """The function that `FILE.py:FUNCTION` names."""
    file, colon, function = spec.rpartition(":")
    if not colon or not file or not function:
        refuse("not a function", "command line", f'"{spec}"', "FILE.py:FUNCTION", "model.py:model")
    if not os.path.isfile(file):
        refuse("no such file", "command line", f'"{file}"', "a Python file", "its full path")
    module_spec = importlib.util.spec_from_file_location("motley_user_model", file)
    if module_spec is None:
        refuse(
            "not a Python file",
            "command line",
            f'"{file}"',
            "a name that ends in .py",
            "renaming it",
        )
    module = importlib.util.module_from_spec(module_spec)
    sys.modules["motley_user_model"] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        found = f"{type(error).__name__}: {error}"
        refuse(
            "the file does not run", file, found, "a file that can be imported", f"python {file}"
        )
    if not callable(getattr(module, function, None)):
        known = [name for name, value in vars(module).items() if is_model_function(value, module)]
        found = "functions " + (", ".join(sorted(known)) or "none")
        refuse(f'no function "{function}"', file, found, f'"{function}"', "one of them")
    return getattr(module, function)


def is_model_function(value, module) -> bool:
    return (
        callable(value)
        and not isinstance(value, type)
        and getattr(value, "__module__", "") == module.__name__
    )


def build_model(function, spec: str, graph_only: bool) -> tuple:
    """Calls the user's function, without memory for weights if only the graph is wanted.

    The result is (module, inputs, dimensions of the samples by input).
    """
    try:
        if graph_only:
            with FakeTensorMode(allow_non_fake_inputs=True):
                made = function()
        else:
            made = function()
    except Exception as error:  # whatever the user's function raises
        found = f"{type(error).__name__}: {error}"
        refuse("the function fails", spec, found, "(module, inputs)", "calling it in Python")
    is_pair = isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], nn.Module)
    if not is_pair or (len(made) == 3 and not isinstance(made[2], (dict, type(None)))):
        found = type(made).__name__
        if isinstance(made, tuple):
            found = "(" + ", ".join(type(item).__name__ for item in made) + ")"
        wanted, advice = "(module, inputs)", "return module, (x, y)"
        refuse("the function returns something else", spec, found, wanted, advice)
    return made if len(made) == 3 else (*made, None)


def result_object(exported: Exported) -> dict:
    """What `--json` prints."""
    return dataclasses.asdict(exported)


def result_text(exported: Exported) -> str:
    lines = [
        f"{exported.path}: {exported.bytes} bytes",
        "inputs      " + ", ".join(f"{name} {kind}" for name, kind in exported.inputs.items()),
        f"operators   {exported.operators}",
        f"parameters  {exported.parameters} tensors, {exported.parameter_elements} numbers",
    ]
    if exported.shared:
        lines.append("constants   " + ", ".join(exported.shared) + " (all samples share them)")
    if exported.outputs:
        named = [name or "one without a name" for name in exported.outputs]
        lines.append("outputs     loss, " + ", ".join(named))
    check = exported.check
    if check is None:
        return "\n".join([*lines, "weights     none (graph only); shapes checked"])
    batches = " and ".join(str(batch) for batch in check.batches)
    lines.append(
        f"checked     at batch {batches} against eager PyTorch; worst relative difference:"
    )
    lines += [
        f"  {kind:9} {value:.3g} (limit {check.tolerance:g})" for kind, value in check.worst.items()
    ]
    return "\n".join(lines + [f"note: {note}" for note in check.notes])


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m motley.export",
        description="Writes a model file: one training step of a PyTorch module and its weights.",
    )
    parser.add_argument(
        "model",
        metavar="FILE.py:FUNCTION",
        help="FUNCTION() returns (module, inputs): a tuple, or a dict of keyword arguments",
    )
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.motley")
    parser.add_argument(
        "--graph-only", action="store_true", help="no weights, and no memory for them"
    )
    parser.add_argument(
        "--verify-batch", type=int, metavar="N", help="batch size to check at, besides 1"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(arguments)
    if parsed.verify_batch is not None and not 1 <= parsed.verify_batch <= MAX_BATCH:
        parser.error(f"--verify-batch: wanted 1 to {MAX_BATCH}")
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 written, 2 refused."""
    options = parse_arguments(arguments)
    log = logging.getLogger("motley.export")
    log.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("motley.export: %(message)s"))
    log.addHandler(handler)
    try:
        function = load_function(options.model)
        module, inputs, batch_dims = build_model(function, options.model, options.graph_only)
        name = os.path.splitext(os.path.basename(options.output))[0]
        exported = export(
            module,
            inputs,
            options.output,
            batch_dims=batch_dims,
            graph_only=options.graph_only,
            verify_batch=options.verify_batch,
            name=name,
        )
    except ExportError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        log.removeHandler(handler)
    print(json.dumps(result_object(exported)) if options.json else result_text(exported))
    return 0
