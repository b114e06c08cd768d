"""The command line: `python -m motley.export FILE.py:FUNCTION|hf:FOLDER -o MODEL.motley`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import shlex
import sys
import time

from motley.cache import Cache
from motley.capture import MAX_BATCH
from motley.errors import ExportError
from motley.exporter import Exported, export
from motley.hugging_face import DTYPES, LENGTH, TASKS, Choices, load_folder
from motley.user_function import build_model, load_function


class Elapsed(logging.Formatter):
    """Lines that say how long the export has been going on: the last one is where the time goes."""

    def __init__(self):
        super().__init__()
        self.start = time.monotonic()

    def format(self, record: logging.LogRecord) -> str:
        elapsed = time.monotonic() - self.start
        return f"motley.export: {elapsed:5.1f} s  {record.getMessage()}"


def load_model(options: argparse.Namespace) -> tuple:
    """(module, inputs, dimensions of the samples by input) of what the command line names."""
    if options.model.startswith("hf:"):
        choices = Choices(options.task, options.inputs, options.seq, options.dtype)
        folder = options.model.removeprefix("hf:")
        return (*load_folder(folder, choices, options.graph_only), None)
    function = load_function(options.model)
    return build_model(function, options.model, options.graph_only)


def cache_folder() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(root, "motley", "export")


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
    if exported.is_cached:
        lines.append("cache       graph and checks of an earlier export of the same model")
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
        metavar="FILE.py:FUNCTION | hf:FOLDER",
        help="FUNCTION() returns (module, inputs): a tuple, or a dict of keyword arguments; "
        "FOLDER has a config.json and weights as Hugging Face's transformers writes them",
    )
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.motley")
    parser.add_argument(
        "--graph-only", action="store_true", help="no weights, and no memory for them"
    )
    parser.add_argument(
        "--verify-batch", type=int, metavar="N", help="batch size to check at, besides 1"
    )
    parser.add_argument(
        "--no-cache", action="store_true", help="trace and check a model anew that is unchanged"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    folder = parser.add_argument_group("models of a folder (hf:)")
    folder.add_argument("--task", choices=TASKS, help="default: that of the folder's architecture")
    folder.add_argument("--seq", type=int, metavar="N", help=f"tokens a sample ({LENGTH})")
    folder.add_argument("--dtype", choices=DTYPES, help="of the parameters (float32)")
    folder.add_argument(
        "--inputs",
        type=lambda text: text.split(","),
        metavar="NAME,...",
        help="what the data has; input_ids alone are their own labels",
    )
    parsed = parser.parse_args(arguments)
    if parsed.verify_batch is not None and not 1 <= parsed.verify_batch <= MAX_BATCH:
        parser.error(f"--verify-batch: wanted 1 to {MAX_BATCH}")
    if parsed.seq is not None and parsed.seq < 2:
        parser.error("--seq: wanted 2 or more")
    of_folder = [name for name in ("task", "seq", "dtype", "inputs") if getattr(parsed, name)]
    if of_folder and not parsed.model.startswith("hf:"):
        parser.error(f"--{of_folder[0]}: for hf:FOLDER; a function of your own decides that itself")
    return parsed


def source_words(options: argparse.Namespace) -> str:
    """What makes the module again: FILE.py:FUNCTION or hf:FOLDER, absolute, with its flags."""
    kind, _, rest = options.model.partition(":") if options.model.startswith("hf:") else ("", "", "")
    file, _, function = options.model.rpartition(":")
    place = f"hf:{os.path.abspath(rest)}" if kind else f"{os.path.abspath(file)}:{function}"
    words = [place]
    for flag in ("task", "seq", "dtype", "inputs"):
        value = getattr(options, flag)
        if value:
            words += [f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 written, 2 refused."""
    options = parse_arguments(arguments)
    log = logging.getLogger("motley.export")
    log.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Elapsed())
    log.addHandler(handler)
    try:
        log.info("building %s", options.model)
        module, inputs, batch_dims = load_model(options)
        name = os.path.splitext(os.path.basename(options.output))[0]
        exported = export(
            module,
            inputs,
            options.output,
            batch_dims=batch_dims,
            graph_only=options.graph_only,
            verify_batch=options.verify_batch,
            name=name,
            cache=None if options.no_cache else Cache(cache_folder()),
            source=source_words(options),
        )
    except ExportError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        log.removeHandler(handler)
    print(json.dumps(result_object(exported)) if options.json else result_text(exported))
    return 0
