"""Models of Hugging Face's transformers: from a folder with config.json and safetensors.

The model's code is the installed transformers' alone: code in the folder is never run, and nothing
is fetched. The loss is the one that transformers computes for the task.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from torch._subclasses.fake_tensor import FakeTensorMode

from motley.errors import refuse

log = logging.getLogger("motley.export")

SAMPLES = 2  # of the example inputs
LENGTH = 128  # tokens a sample, unless said
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Task:
    """A head: transformers' Auto class and table of it, and the inputs it is trained on."""

    auto: str
    table: str
    inputs: tuple[str, ...]


TASKS = {
    "causal-lm": Task("AutoModelForCausalLM", "CAUSAL_LM", ("input_ids",)),
    "masked-lm": Task("AutoModelForMaskedLM", "MASKED_LM", ("input_ids", "labels")),
    "seq2seq-lm": Task("AutoModelForSeq2SeqLM", "SEQ_TO_SEQ_CAUSAL_LM", ("input_ids", "labels")),
    "sequence-classification": Task(
        "AutoModelForSequenceClassification",
        "SEQUENCE_CLASSIFICATION",
        ("input_ids", "attention_mask", "labels"),
    ),
    "token-classification": Task(
        "AutoModelForTokenClassification",
        "TOKEN_CLASSIFICATION",
        ("input_ids", "attention_mask", "labels"),
    ),
    "question-answering": Task(
        "AutoModelForQuestionAnswering",
        "QUESTION_ANSWERING",
        ("input_ids", "attention_mask", "start_positions", "end_positions"),
    ),
    "image-classification": Task(
        "AutoModelForImageClassification", "IMAGE_CLASSIFICATION", ("pixel_values", "labels")
    ),
}


@dataclass
class Choices:
    """What the command line says of a folder's model; None is the default."""

    task: str | None = None
    inputs: list[str] | None = None
    length: int | None = None  # tokens a sample
    dtype: str | None = None  # of the parameters


def load_folder(folder: str, choices: Choices, graph_only: bool):
    """The model, in training mode, and a dict of example inputs."""
    said = read_config_file(folder)
    transformers = import_transformers()
    config = read_config(transformers, folder, said)
    task, is_chosen = find_task(transformers, folder, config, choices.task)
    dtype = DTYPES[choices.dtype or "float32"]
    config.use_cache = False
    # The default is an operator that transformers defines in Python, and no engine has.
    config._experts_implementation = "batched_mm"
    auto = getattr(transformers, TASKS[task].auto)
    if graph_only:
        model = build_without_weights(auto, folder, config, dtype)
    else:
        check_weight_files(folder)
        model = load_weights(auto, folder, config, dtype, is_chosen)
    names = choices.inputs or list(TASKS[task].inputs)
    inputs = {name: example(name, task, config, choices.length) for name in names}
    if "labels" not in names and task in ("causal-lm", "masked-lm"):
        model.register_forward_pre_hook(tokens_as_labels, with_kwargs=True)
    return model.train(), inputs


def tokens_as_labels(model, args, kwargs):
    """What is to be predicted are the tokens themselves; transformers moves them by one."""
    return args, {**kwargs, "labels": kwargs["input_ids"]}


def import_transformers():
    try:
        import transformers
    except ImportError as error:
        found, wanted = str(error), "the package transformers, which is not one of Motley's own"
        refuse("hf: needs transformers", "command line", found, wanted, "pip install transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


# The configuration


def read_config_file(folder: str) -> dict:
    path = os.path.join(folder, "config.json")
    if not os.path.isfile(path):
        found = "no config.json" if os.path.isdir(folder) else "no such folder"
        wanted = "a folder that save_pretrained wrote"
        refuse("not a Hugging Face model", folder, found, wanted, "the folder that has config.json")
    return read_json(path)


def read_config(transformers, folder: str, said: dict):
    path = os.path.join(folder, "config.json")
    family, known = said.get("model_type"), transformers.CONFIG_MAPPING
    if family not in known:
        found = f"model_type {json.dumps(family)}"
        wanted = f"one of the {len(known)} that transformers {transformers.__version__} knows"
        advice = "a newer transformers"
        if "auto_map" in said:
            advice += "; the folder's own code is never run"
        refuse("the model's family is unknown", path, found, wanted, advice)
    try:
        return transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # each family checks its own fields, with errors of any type
        found, wanted = first_line(error), f"a configuration of {family}"
        refuse("the configuration is refused", path, found, wanted, "the file as it was released")


def read_json(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
    except (OSError, ValueError) as error:
        refuse("not a JSON file", path, first_line(error), "a JSON object", "the file as released")
    if not isinstance(said, dict):
        found = type(said).__name__
        refuse("not a JSON file", path, found, "a JSON object", "the file as released")
    return said


def find_task(transformers, folder: str, config, chosen: str | None) -> tuple[str, bool]:
    """The task, and whether the folder's own architecture is of another one."""
    made_for = list(config.architectures or [])
    for name, task in TASKS.items():
        classes = table_of(transformers, task).get(config.model_type, ())
        classes = (classes,) if isinstance(classes, str) else classes
        if set(classes) & set(made_for) and chosen in (None, name):
            return name, False
    where = os.path.join(folder, "config.json")
    have = [
        name for name, task in TASKS.items() if config.model_type in table_of(transformers, task)
    ]
    if chosen in have:
        return chosen, True
    if chosen is None and not made_for and "causal-lm" in have:
        return "causal-lm", False
    found = f"{config.model_type} made for {', '.join(made_for) or 'nothing'}"
    wanted = "a task of " + (", ".join(have) or "those that are exported: " + ", ".join(TASKS))
    advice = f"--task {have[0]}" if have else "a function that returns (module, inputs)"
    refuse(
        "the model has no such task" if chosen else "the model's task is not known",
        where,
        found,
        wanted,
        advice,
    )


def table_of(transformers, task: Task) -> dict:
    """Class names of a task by family."""
    tables = transformers.models.auto.modeling_auto
    return getattr(tables, f"MODEL_FOR_{task.table}_MAPPING_NAMES")


# The weights


def check_weight_files(folder: str) -> None:
    """Refuses what is missing or damaged, by the file's name."""
    index = os.path.join(folder, INDEX)
    if os.path.isfile(index):
        placed = read_json(index).get("weight_map")
        if not isinstance(placed, dict) or not placed:
            found, wanted = "no weight_map", "the file of every tensor"
            refuse("the index has no files", index, found, wanted, "the file as released")
        held = {
            file: tensor_names(os.path.join(folder, file)) for file in sorted(set(placed.values()))
        }
        for name, file in placed.items():
            if name not in held[file]:
                where, wanted = os.path.join(folder, file), f'tensor "{name}" as {INDEX} says'
                found = f"{len(held[file])} others"
                refuse("a tensor is missing", where, found, wanted, "copying the file again")
    else:
        tensor_names(os.path.join(folder, WEIGHTS))


def tensor_names(path: str) -> set[str]:
    if not os.path.isfile(path):
        others = [file for file in os.listdir(os.path.dirname(path)) if file.endswith(".bin")]
        found = "no such file" + (f", but {min(others)}" if others else "")
        advice = "--graph-only for a model without weights"
        if others:
            advice = "save_pretrained in transformers, which writes safetensors"
        refuse("the weights are missing", path, found, "weights as safetensors", advice)
    try:
        with safe_open(path, "pt") as file:
            return set(file.keys())
    except (SafetensorError, OSError) as error:
        found = first_line(error)
        refuse("the weights are damaged", path, found, "a safetensors file", "copying it again")


def build_without_weights(auto, folder: str, config, dtype: torch.dtype):
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return auto.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # sizes that do not go together, with errors of any type
        where, found = os.path.join(folder, "config.json"), first_line(error)
        wanted = "sizes that make a model"
        refuse("the configuration is refused", where, found, wanted, "the file as it was released")


def load_weights(auto, folder: str, config, dtype: torch.dtype, is_chosen: bool):
    """The model with every tensor from the folder. A head that was asked for may be a new one."""
    try:
        model, loaded = auto.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers has no common type for its refusals
        found, wanted = first_line(error), "weights of the model that config.json describes"
        refuse("transformers cannot load the model", folder, found, wanted, "--graph-only")
    for name, found, wanted in sorted(loaded["mismatched_keys"], key=str):
        where = f'tensor "{name}" in {folder}'
        advice = "the config.json that belongs to the weights"
        refuse("a tensor has another shape", where, list(found), list(wanted), advice)
    missing = sorted(loaded["missing_keys"])
    in_body = [name for name in missing if name.startswith(f"{model.base_model_prefix}.")]
    if in_body or (missing and not is_chosen):
        found = f"{len(missing)} missing, among them {(in_body or missing)[0]}"
        wanted = f"every tensor of {type(model).__name__}"
        advice = "all files of the release; --task NAME gives a model of another task a new head"
        refuse("weights are missing", folder, found, wanted, advice)
    if missing:
        log.info("the head is new, with weights drawn at random: %s", ", ".join(missing))
    return model


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


# Example inputs


def example(name: str, task: str, config, length: int | None) -> torch.Tensor:
    """Numbers of the kind that an input has; the self-check draws others like them."""
    text = config.get_text_config()
    limit = getattr(text, "max_position_embeddings", None) or LENGTH
    tokens = (SAMPLES, length or min(LENGTH, limit))
    generator = torch.Generator().manual_seed(0)

    def integers(below: int, shape) -> torch.Tensor:
        return torch.randint(below, shape, generator=generator)

    if name == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        shape = (SAMPLES, getattr(config, "num_channels", 3), height, width)
        return torch.randn(shape, generator=generator)
    if name in ("input_ids", "decoder_input_ids"):
        return integers(text.vocab_size, tokens)
    if name in ("attention_mask", "decoder_attention_mask"):
        mask = torch.ones(tokens, dtype=torch.int64)
        mask[-1, -(tokens[1] // 4) :] = 0
        return mask
    if name == "token_type_ids":
        return integers(getattr(text, "type_vocab_size", None) or 1, tokens)
    if name in ("start_positions", "end_positions"):
        return integers(tokens[1], (SAMPLES,))
    if name == "labels":
        return example_labels(
            task, config, text.vocab_size if "lm" in task else 0, tokens, integers
        )
    found, wanted = f'"{name}"', ", ".join(sorted(KNOWN_INPUTS))
    refuse("no such input", "--inputs", found, f"some of {wanted}", "a function of your own")


KNOWN_INPUTS = {name for task in TASKS.values() for name in task.inputs} | {
    "token_type_ids", "decoder_input_ids", "decoder_attention_mask",
}  # fmt: skip


def example_labels(task: str, config, vocabulary: int, tokens, integers) -> torch.Tensor:
    if vocabulary:
        return integers(vocabulary, tokens)
    if task == "token-classification":
        return integers(config.num_labels, tokens)
    kind = getattr(config, "problem_type", None)
    if kind == "multi_label_classification":
        return integers(2, (SAMPLES, config.num_labels)).float()
    if kind == "regression" or config.num_labels == 1:
        shape = (SAMPLES, config.num_labels) if config.num_labels > 1 else (SAMPLES,)
        return integers(100, shape).float() / 100
    return integers(config.num_labels, (SAMPLES,))
