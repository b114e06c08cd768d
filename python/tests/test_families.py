"""Every model family exports, agrees with eager PyTorch, and says what the format asks for."""

import families
import pytest
import torch
from motley.graph import print_graph
from motley.interpret import references
from motley.model_file import read_model_file

NAMES = [family.__name__ for family in families.FAMILIES]


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_eager_at_two_other_batches(exported, name):
    result, graph, _ = exported(name)
    assert result.check.batches == [1, 3]
    assert graph.sizes == {"batch": (1, 65536)}
    # The same kernels in the same order: what is left is single-precision rounding, which batch norm
    # over one or three samples amplifies.
    assert max(result.check.worst.values()) < 5e-6
    assert result.check.tolerance == (1e-2 if name == "bf16" else 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_text_in_the_file_is_canonical(exported, name):
    result, graph, _ = exported(name)
    assert print_graph(graph) == read_model_file(result.path)[0]


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_dense_and_every_operator_is_used(exported, name):
    _, graph, _ = exported(name)
    ids = [source.value.id for source in graph.sources]
    used = {output.value for output in graph.outputs}
    for op in graph.ops:
        ids += [value.id for value in op.results]
        used.update(references(op.arguments))
        assert op.name not in ("aten::_unsafe_view", "aten::reshape")
        assert op.name not in ("aten::alias", "aten::detach", "aten::_conj")
        assert op.name.startswith("motley::") or "scaled_dot_product" not in op.name
    assert ids == list(range(len(ids)))
    assert all(any(value.id in used for value in op.results) for op in graph.ops)


@pytest.mark.parametrize("name", NAMES)
def test_module_paths_are_those_of_the_module(exported, name):
    module, _ = getattr(families, name)()
    _, graph, _ = exported(name)
    assert {op.module for op in graph.ops} <= {path for path, _ in module.named_modules()}
    assert {op.backward for op in graph.ops} == {False, True}


@pytest.mark.parametrize("name", NAMES)
def test_file_holds_the_state_dict(exported, name):
    module, _ = getattr(families, name)()
    _, graph, tensors = exported(name)
    state = module.state_dict()
    assert {key for key in tensors if not key.startswith("motley.constant.")} == set(state)
    assert all(torch.equal(tensors[key], value) for key, value in state.items())
    gradients = {output.of for output in graph.outputs if output.kind == "gradient"}
    unused = {"unused.weight", "unused.bias"}
    trained = {key for key, value in module.named_parameters() if value.requires_grad}
    assert gradients == trained - unused


def test_frozen_unused_and_named_inputs(exported):
    _, graph, _ = exported("regression")
    assert [source.name for source in graph.of_kind("input")] == ["features", "target"]
    frozen = [source.name for source in graph.of_kind("param") if source.frozen]
    assert frozen == ["frozen.weight", "frozen.bias"]


def test_tied_head_is_one_parameter_with_two_names(exported):
    _, graph, tensors = exported("gpt_tied")
    tied = [source for source in graph.of_kind("param") if source.tied]
    assert [(source.name, source.tied) for source in tied] == [("wte.weight", ["head.weight"])]
    assert torch.equal(tensors["wte.weight"], tensors["head.weight"])


def test_attention_is_our_own_pair(exported):
    _, graph, _ = exported("bert")
    forward = [op for op in graph.ops if op.name == "motley::attention"]
    backward = [op for op in graph.ops if op.name == "motley::attention_backward"]
    assert len(forward) == len(backward) == 2
    assert forward[0].arguments[4:] == [0.0, False, None]  # dropout_p, is_causal, scale
    assert [value.shape for value in forward[0].results] == [
        ("batch", "4", "10", "8"),
        ("batch", "4", "10"),
    ]
    # Forward and backward read the same q, k, v, mask; backward reads out and saved as well.
    assert backward[1].arguments[1:4] == forward[0].arguments[:3]
    assert backward[1].arguments[6] == forward[0].arguments[3]
    assert [item.id for item in backward[1].arguments[4:6]] == [v.id for v in forward[0].results]


def test_batch_norm_updates_its_buffers(exported):
    _, graph, _ = exported("cnn")
    updates = [output.of for output in graph.outputs if output.kind == "update"]
    assert updates == [source.name for source in graph.of_kind("buffer")]
    assert len(updates) == 6  # mean, variance and count of two layers
    convolution = [op for op in graph.ops if op.name == "aten::convolution_backward"][-1]
    assert [value.type for value in convolution.results] == ["none", "f32[8, 1, 3, 3]", "none"]


def test_lists_are_marked(exported):
    _, graph, _ = exported("lstm")
    marked = {op.name for op in graph.ops if op.returns_list}
    assert marked == {"aten::unbind.int", "aten::split.Tensor"}


@pytest.mark.parametrize("name", NAMES)
def test_backward_operators_know_their_forward_one(exported, name):
    """All but the sums of gradients that meet at one value."""
    _, graph, _ = exported(name)
    forward = {op.sequence for op in graph.ops if not op.backward}
    for op in graph.ops:
        if op.backward:
            assert op.sequence in forward or (op.sequence is None and op.name == "aten::add.Tensor")


def test_gradients_come_in_the_order_of_the_parameters(exported):
    _, graph, _ = exported("gpt_tied")
    gradients = [output.of for output in graph.outputs if output.kind == "gradient"]
    assert gradients == [source.name for source in graph.of_kind("param")]
