"""Hugging Face in and out: folders are exported, trained and written back, and what is wrong is said by name."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import torch
import transformers as hf
from conftest import sampled
from motley import command
from motley.hugging_face import TASKS
from motley.model_file import read_model_file
from motley.parse import parse_graph
from safetensors.torch import load_file, save_file

VOCABULARY = 61
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 24,
}
GPT = {"vocab_size": VOCABULARY, "n_positions": 24, "n_embd": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 0}
CALM = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
T5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
VIT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 16, "patch_size": 8}
MODELS = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT, **CALM)),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2, tie_word_embeddings=True)),
    "mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4)),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)),
    "bert_base": lambda: hf.BertModel(hf.BertConfig(**SMALL)),
    "classes": lambda: hf.BertForSequenceClassification(hf.BertConfig(**SMALL, num_labels=3)),
    "grades": lambda: hf.BertForSequenceClassification(
        hf.BertConfig(**SMALL, num_labels=2, problem_type="regression")
    ),
    "labels": lambda: hf.BertForSequenceClassification(
        hf.BertConfig(**SMALL, num_labels=3, problem_type="multi_label_classification")
    ),
    "words": lambda: hf.BertForTokenClassification(hf.BertConfig(**SMALL, num_labels=3)),
    "answers": lambda: hf.BertForQuestionAnswering(hf.BertConfig(**SMALL)),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**T5, decoder_start_token_id=0)),
    "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**VIT, num_labels=5)),
}
EXPORTED = {  # inputs of the exported model, in order, and its extra outputs
    "gpt2": ({"input_ids": "i64[batch, 24]"}, ["logits"]),
    "llama": ({"input_ids": "i64[batch, 24]"}, ["logits"]),
    "mixtral": ({"input_ids": "i64[batch, 24]"}, ["logits"]),
    "bert": ({"input_ids": "i64[batch, 24]", "labels": "i64[batch, 24]"}, ["logits"]),
    "classes": (
        {"input_ids": "i64[batch, 24]", "attention_mask": "i64[batch, 24]", "labels": "i64[batch]"}, ["logits"],
    ),
    "grades": (
        {"input_ids": "i64[batch, 24]", "attention_mask": "i64[batch, 24]", "labels": "f32[batch, 2]"}, ["logits"],
    ),
    "labels": (
        {"input_ids": "i64[batch, 24]", "attention_mask": "i64[batch, 24]", "labels": "f32[batch, 3]"}, ["logits"],
    ),
    "words": (
        {"input_ids": "i64[batch, 24]", "attention_mask": "i64[batch, 24]", "labels": "i64[batch, 24]"}, ["logits"],
    ),
    "answers": (
        {
            "input_ids": "i64[batch, 24]", "attention_mask": "i64[batch, 24]",
            "start_positions": "i64[batch]", "end_positions": "i64[batch]",
        },
        ["start_logits", "end_logits"],
    ),
    "t5": (
        {"input_ids": "i64[batch, 20]", "labels": "i64[batch, 20]"}, ["logits", "encoder_last_hidden_state"],
    ),
    "vit": ({"pixel_values": "f32[batch, 3, 16, 16]", "labels": "i64[batch]"}, ["logits"]),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """folders(NAME): the folder that save_pretrained wrote of a model; in shards if it has more than 50 kB."""
    root = tmp_path_factory.mktemp("folders")

    def make(name):
        if not (root / name).exists():
            torch.manual_seed(0)
            MODELS[name]().save_pretrained(root / name, max_shard_size="50KB")
        return root / name

    return make


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test sees what another one, or the user, has exported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def folder(folders, tmp_path):
    """A copy of gpt2's that a test may damage."""
    return pathlib.Path(shutil.copytree(folders("gpt2"), tmp_path / "gpt2"))


def export(folder, target, capsys, *flags) -> dict:
    assert command.main([f"hf:{folder}", "-o", str(target), "--json", *flags]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(folder, target, capsys, *flags) -> str:
    """The message, after checking that nothing was written."""
    assert command.main([f"hf:{folder}", "-o", str(target), *flags]) == 2
    assert not target.exists()
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", EXPORTED)
def test_tasks(folders, tmp_path, capsys, name):
    """The loss and outputs of the task, the inputs it is trained on, the weights under their own names."""
    inputs, outputs = EXPORTED[name]
    flags = ["--seq", "20"] if name == "t5" else []
    result = export(folders(name), tmp_path / "model.motley", capsys, *flags)
    assert (result["inputs"], result["outputs"]) == (inputs, outputs)
    assert result["check"]["batches"][0] == 1 and max(result["check"]["worst"].values()) < 1e-5
    _, tensors = read_model_file(tmp_path / "model.motley")
    auto = getattr(hf, MODELS[name]().__class__.__name__)
    state = auto.from_pretrained(folders(name)).state_dict()
    assert {key for key in tensors if not key.startswith("motley.constant.")} == set(state)
    assert all(torch.equal(tensors[key], value) for key, value in state.items())


def test_every_task_is_tried():
    tried = {name for name, task in TASKS.items() for made in EXPORTED.values() if tuple(made[0]) == task.inputs}
    assert tried == set(TASKS)


def test_graph_only_is_the_same_graph(folders, tmp_path, capsys):
    """From the configuration alone: a folder without weights will do."""
    export(folders("llama"), tmp_path / "whole.motley", capsys)
    (tmp_path / "bare").mkdir()
    shutil.copy(folders("llama") / "config.json", tmp_path / "bare")
    result = export(tmp_path / "bare", tmp_path / "model.motley", capsys, "--graph-only")
    assert result["check"] is None
    bare, tensors = read_model_file(tmp_path / "model.motley")
    whole = read_model_file(tmp_path / "whole.motley")[0]
    assert tensors == {}
    assert bare.splitlines()[2:] == whole.splitlines()[2:]  # all but version and name


def test_inputs_length_and_dtype_as_asked(folders, tmp_path, capsys):
    flags = ["--inputs", "input_ids,attention_mask,labels", "--seq", "12", "--dtype", "bfloat16"]
    result = export(folders("gpt2"), tmp_path / "model.motley", capsys, *flags)
    assert result["inputs"] == {name: "i64[batch, 12]" for name in ("input_ids", "attention_mask", "labels")}
    text, _ = read_model_file(tmp_path / "model.motley")
    assert {source.value.dtype for source in parse_graph(text).of_kind("param")} == {"bf16"}
    message = refusal(folders("gpt2"), tmp_path / "no.motley", capsys, "--inputs", "input_ids,weight")
    assert message == (
        'motley.export: no such input; --inputs; found "weight", wanted some of attention_mask, '
        "decoder_attention_mask, decoder_input_ids, end_positions, input_ids, labels, pixel_values, "
        "start_positions, token_type_ids; try a function of your own"
    )


def test_a_head_that_was_asked_for_is_new(folders, tmp_path, capsys):
    flags = ["--task", "sequence-classification"]
    assert command.main([f"hf:{folders('bert_base')}", "-o", str(tmp_path / "model.motley"), *flags]) == 0
    assert (
        " s  the head is new, with weights drawn at random: classifier.bias, classifier.weight"
        in capsys.readouterr().err
    )
    message = refusal(folders("bert_base"), tmp_path / "no.motley", capsys)
    assert message == (
        f"motley.export: the model's task is not known; {folders('bert_base')}/config.json; "
        "found bert made for BertModel, wanted a task of causal-lm, masked-lm, sequence-classification, "
        "token-classification, question-answering; try --task causal-lm"
    )
    message = refusal(folders("bert_base"), tmp_path / "no.motley", capsys, "--task", "image-classification")
    assert message.startswith("motley.export: the model has no such task; ")


def change_config(folder, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def refusal_with(path, text, target, capsys) -> str:
    """Of a folder one of whose files has another text; none: is not there."""
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    return refusal(path.parent, target, capsys)


def test_wrong_configurations(folder, tmp_path, capsys):
    target = tmp_path / "model.motley"
    family = f"{len(hf.CONFIG_MAPPING)} that transformers {hf.__version__} knows"
    change_config(folder, model_type="gpt9")
    assert refusal(folder, target, capsys) == (
        f'motley.export: the model\'s family is unknown; {folder}/config.json; found model_type "gpt9", '
        f"wanted one of the {family}; try a newer transformers"
    )
    config = folder / "config.json"
    assert refusal_with(config, "{", target, capsys) == (
        f"motley.export: not a JSON file; {folder}/config.json; found JSONDecodeError: Expecting property name "
        "enclosed in double quotes: line 1 column 2 (char 1), wanted a JSON object; try the file as released"
    )
    assert refusal_with(config, "[]", target, capsys) == (
        f"motley.export: not a JSON file; {folder}/config.json; found list, wanted a JSON object; "
        "try the file as released"
    )
    assert refusal_with(config, None, target, capsys) == (
        f"motley.export: not a Hugging Face model; {folder}; found no config.json, "
        "wanted a folder that save_pretrained wrote; try the folder that has config.json"
    )
    assert refusal(folder / "none", target, capsys) == (
        f"motley.export: not a Hugging Face model; {folder}/none; found no such folder, "
        "wanted a folder that save_pretrained wrote; try the folder that has config.json"
    )


def test_sizes_that_make_no_model(folder, tmp_path, capsys):
    change_config(folder, n_head=5)
    message = refusal(folder, tmp_path / "model.motley", capsys, "--graph-only")
    assert message.startswith(f"motley.export: the configuration is refused; {folder}/config.json; found ValueError: ")
    assert message.endswith(", wanted sizes that make a model; try the file as it was released")


def test_weights_of_another_shape(folder, tmp_path, capsys):
    change_config(folder, n_positions=30)
    assert refusal(folder, tmp_path / "model.motley", capsys) == (
        f'motley.export: a tensor has another shape; tensor "transformer.wpe.weight" in {folder}; '
        "found [24, 32], wanted [30, 32]; try the config.json that belongs to the weights"
    )


def test_missing_weights(folder, tmp_path, capsys):
    target = tmp_path / "model.motley"
    index_file = folder / "model.safetensors.index.json"
    index = json.loads(index_file.read_text())
    shard = folder / index["weight_map"]["transformer.ln_f.bias"]
    tensors = load_file(shard)
    del tensors["transformer.ln_f.bias"]
    save_file(tensors, shard, metadata={"format": "pt"})
    assert refusal(folder, target, capsys) == (
        f"motley.export: a tensor is missing; {shard}; found {len(tensors)} others, "
        'wanted tensor "transformer.ln_f.bias" as model.safetensors.index.json says; try copying the file again'
    )
    del index["weight_map"]["transformer.ln_f.bias"]
    assert refusal_with(index_file, json.dumps(index), target, capsys) == (
        f"motley.export: weights are missing; {folder}; found 1 missing, among them transformer.ln_f.bias, "
        "wanted every tensor of GPT2LMHeadModel; "
        "try all files of the release; --task NAME gives a model of another task a new head"
    )
    assert refusal_with(index_file, "{}", target, capsys) == (
        f"motley.export: the index has no files; {folder}/model.safetensors.index.json; found no weight_map, "
        "wanted the file of every tensor; try the file as released"
    )
    assert refusal_with(index_file, None, target, capsys) == (
        f"motley.export: the weights are missing; {folder}/model.safetensors; found no such file, "
        "wanted weights as safetensors; try --graph-only for a model without weights"
    )
    assert refusal_with(folder / "pytorch_model.bin", "", target, capsys) == (
        f"motley.export: the weights are missing; {folder}/model.safetensors; "
        "found no such file, but pytorch_model.bin, wanted weights as safetensors; "
        "try save_pretrained in transformers, which writes safetensors"
    )


def test_damaged_weights(folder, tmp_path, capsys):
    shard = min(folder.glob("model-*.safetensors"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-4])
    assert refusal(folder, tmp_path / "model.motley", capsys) == (
        f"motley.export: the weights are damaged; {shard}; found SafetensorError: Error while deserializing header: "
        "incomplete metadata, file not fully covered, wanted a safetensors file; try copying it again"
    )
    shard.unlink()
    assert refusal(folder, tmp_path / "model.motley", capsys) == (
        f"motley.export: the weights are missing; {shard}; found no such file, "
        "wanted weights as safetensors; try --graph-only for a model without weights"
    )


def test_the_folders_code_is_never_run(folder, tmp_path, capsys):
    """Neither where transformers knows the family, nor where it does not."""
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    change_config(folder, auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})
    export(folder, tmp_path / "model.motley", capsys)
    change_config(folder, model_type="own")
    message = refusal(folder, tmp_path / "own.motley", capsys)
    assert message.endswith("; try a newer transformers; the folder's own code is never run")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name, shard", sampled([("gpt2", "1MiB"), ("llama", "20kB"), ("mixtral", "1MiB")], 1))
def test_trained_and_back(folders, tmp_path, capsys, motley, cluster, name, shard):
    """Tokens in a flat file train the model as PyTorch does, and from_pretrained loads what it became."""
    model_file, made = tmp_path / "model.motley", tmp_path / "made"
    export(folders(name), model_file, capsys)
    tokens = np.random.default_rng(0).integers(VOCABULARY, size=24 * 16).astype("<u2")
    tokens.tofile(tmp_path / "tokens.bin")
    common = ["-m", model_file, "-C", cluster, "--global-batch", 8, "--lr", 0.5, "--data", tmp_path / "tokens.bin"]
    flags = ["--seq", 24, "--steps", 2, "--batch-split", "4,3,1", "--run-dir", tmp_path / "run", "--json", "-q"]
    ran = motley("run", *common, *flags)
    assert ran.code == 0, ran.stderr
    outcome = motley("consolidate", tmp_path / "run", "--hf", folders(name), "-o", made, "--shard-size", shard, "--json")
    assert outcome.code == 0, outcome.stderr
    alone = motley("consolidate", tmp_path / "run", "--hf", folders(name))
    assert (alone.code, alone.stderr) == (2, "motley: --hf: found no -o, wanted the folder to write [cli.flags]\n")
    alone = motley("consolidate", tmp_path / "run", "--shard-size", shard)
    assert (alone.code, alone.stderr) == (2, "motley: --shard-size: belongs to --hf; leave it out [cli.flags]\n")
    written = outcome.json
    assert written["left_out"] == ([] if name == "mixtral" else ["lm_head.weight"])
    assert (len(written["weights"]) > 1) == (made / "model.safetensors.index.json").exists() == (name == "llama")

    reference = type(MODELS[name]()).from_pretrained(folders(name)).train()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    for step in range(2):
        batch = torch.from_numpy(tokens.astype(np.int64)).view(16, 24)[8 * step :][:8]
        optimizer.zero_grad()
        reference(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    loaded, info = type(reference).from_pretrained(made, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for (key, found), wanted in zip(loaded.state_dict().items(), reference.state_dict().values(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6, msg=key)
