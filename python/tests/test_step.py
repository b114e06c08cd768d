"""How a module is called and what it returns: every form gives the step of the plain one."""

import collections
import copy
import dataclasses
import functools
import types

import motley
import pytest
import torch
import torch.nn.functional as F
from motley.graph import print_graph
from motley.model_file import read_evaluation, read_model_file
from motley.parse import parse_graph
from torch import nn


class Net(nn.Module):
    """A linear layer `fc`; `result(loss, logits)` is what forward returns."""

    def __init__(self, result=lambda loss, logits: loss):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 3)
        self.result = result

    def forward(self, x, y):
        logits = self.fc(x)
        return self.result(F.cross_entropy(logits, y), logits)


def inputs():
    torch.manual_seed(1)
    return torch.randn(6, 4), torch.randint(0, 3, (6,))


def exported(tmp_path, module, given, **options):
    """The result, the graph and the tensors of an export."""
    result = motley.export(module, given, tmp_path / "model.motley", name="net", **options)
    text, tensors = read_model_file(result.path)
    return result, parse_graph(text), tensors


def steps(graph) -> str:
    """The graph's text without its extra outputs."""
    graph.outputs = [output for output in graph.outputs if output.kind != "extra"]
    return print_graph(graph)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The graph of the plain module."""
    return functools.partial(copy.deepcopy, exported(tmp_path_factory.mktemp("plain"), Net(), inputs())[1])


@dataclasses.dataclass
class Data:
    loss: torch.Tensor
    logits: torch.Tensor


Named = collections.namedtuple("Named", "logits loss")
Plain = collections.namedtuple("Plain", "score logits")
RESULTS = {
    "tuple": (lambda loss, logits: (loss, logits), [""]),
    "list": (lambda loss, logits: [loss, (logits, 3)], [""]),
    "dict": (lambda loss, logits: {"logits": logits, "loss": loss}, ["logits"]),
    "nested dict": (
        lambda loss, logits: {"loss": loss, "layers": (logits, {"last": logits}), "none": None},
        ["layers.0", "layers.1.last"],
    ),
    "user dict": (
        lambda loss, logits: collections.UserDict(loss=loss, logits=logits),
        ["logits"],
    ),
    "dataclass": (Data, ["logits"]),
    "named tuple": (lambda loss, logits: Named(logits, loss), ["logits"]),
    "named tuple, the loss in front": (Plain, ["logits"]),
    "object": (
        lambda loss, logits: types.SimpleNamespace(loss=loss, logits=logits, count=3),
        ["logits"],
    ),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results(tmp_path, plain, case):
    """The step is the same whatever holds the loss, and the other tensors keep their names."""
    make, names = RESULTS[case]
    result, graph, _ = exported(tmp_path, Net(make), inputs())
    assert result.outputs == names
    assert [output.name for output in graph.outputs if output.kind == "extra"] == names
    logits = next(op.results[0].id for op in graph.ops if op.name == "aten::addmm")
    assert {output.value for output in graph.outputs if output.kind == "extra"} == {logits}
    assert steps(graph) == steps(plain())


def test_two_outputs_of_one_name(tmp_path):
    """The second one loses it: a name means one output."""

    def result(loss, logits):
        return {"loss": loss, "a.b": logits, "a": {"b": logits}}

    assert exported(tmp_path, Net(result), inputs())[0].outputs == ["a.b", ""]


def test_complex_tables_and_outputs(tmp_path):
    """A table is a constant of real and imaginary parts, joined once; an output is no metric."""

    def turned(loss, logits):
        seen = torch.fft.fft(logits) * module.table + module.table
        return {"loss": loss + seen.abs().mean(), "seen": seen, "sum": seen.sum(), "scale": loss.abs()}

    module = Net(turned)
    module.register_buffer("table", torch.tensor([1 + 2j, 3j, -1]), persistent=False)
    result, graph, tensors = exported(tmp_path, module, inputs())
    (constant,) = graph.of_kind("constant")
    assert torch.equal(tensors[constant.name], torch.view_as_real(module.table))
    assert [op.name for op in graph.ops].count("aten::view_as_complex") == 1
    assert result.outputs == ["seen", "sum", "scale"]
    evaluated = parse_graph(read_evaluation(result.path))
    assert [output.name for output in evaluated.outputs if output.kind == "metric"] == ["scale"]


def test_keyword_inputs(tmp_path, plain):
    """In the order of the dict, under their names; what they compute is the same."""
    x, y = inputs()
    result, graph, _ = exported(tmp_path, Net(), {"x": x, "y": y})
    assert steps(graph) == steps(plain())
    assert result.inputs == {"x": "f32[batch, 4]", "y": "i64[batch]"}
    result, graph, _ = exported(tmp_path, Net(), {"y": y, "x": x})
    assert result.inputs == {"y": "i64[batch]", "x": "f32[batch, 4]"}


class Nested(Net):
    def forward(self, batch, *, flags):
        image, label = batch["image"], batch["pair"][0]
        return super().forward(image * flags["scale"], label)


def test_nested_inputs_and_numbers(tmp_path):
    """Leaves are named by their path; 2 * x in, by hand: the input of addmm is x * 2."""
    x, y = inputs()
    given = {"batch": {"image": x, "pair": (y, None)}, "flags": {"scale": 2}}
    result, graph, _ = exported(tmp_path, Nested(), given)
    assert result.inputs == {"batch.image": "f32[batch, 4]", "batch.pair.0": "i64[batch]"}
    assert result.shared == []
    scaled = next(op for op in graph.ops if op.name == "aten::mul.Tensor")
    assert scaled.arguments[1] == 2


class Sequence(nn.Module):
    """Length first: tokens [T, batch], a mask [T] and positions [T] that all samples share."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.rnn = nn.GRU(4, 5)
        self.last = nn.Linear(5, 9)

    def forward(self, tokens, mask, positions, weight):
        hidden = self.table(tokens.view(-1)).view(*tokens.shape, 4)  # needs contiguous tokens
        hidden = self.rnn(hidden + positions[:, None, None])[0]
        losses = F.cross_entropy(
            self.last(hidden).flatten(0, 1), tokens.flatten(), reduction="none"
        )
        return (losses.view(tokens.shape) * mask[:, None]).mean() * weight


def test_samples_in_another_dimension_and_values_that_all_share(tmp_path):
    torch.manual_seed(0)
    length = 6
    tokens = torch.randint(0, 9, (length, length))  # as many samples as steps: sizes tell nothing
    mask = torch.tensor([0.0, 1, 1, 0, 1, 1])
    given = (tokens, mask, torch.arange(length) / 10, torch.tensor(0.5))
    dims = {"tokens": 1, "mask": None, "positions": None}
    result, graph, tensors = exported(tmp_path, Sequence(), given, batch_dims=dims)
    assert result.inputs == {"tokens": "i64[batch, 6]"}
    assert result.shared == ["mask", "positions", "weight"]
    assert result.check.batches == [1, 3]
    assert max(result.check.worst.values()) < 1e-6
    kept = {name: tensor for name, tensor in tensors.items() if name.startswith("motley.constant.")}
    assert sorted(map(tuple, (tensor.flatten().tolist() for tensor in kept.values()))) == sorted(
        tuple(value.flatten().tolist()) for value in given[1:]
    )
    assert graph.sources[0].value.shape == ("batch", "6")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_graph_without_weights(tmp_path, plain, device):
    """The graph of a module that has none is that of the module that has them."""
    with torch.device(device):
        module = Net()
    result, graph, tensors = exported(tmp_path, module, inputs(), graph_only=True)
    assert tensors == {} and result.check is None
    assert print_graph(graph) == print_graph(plain())
    assert module.fc.weight.device.type == device  # the module stays as it was


def test_len_is_the_batch(tmp_path):
    """As in the contrastive loss of CLIP."""

    class Pairs(Net):
        def forward(self, x, y):
            scores = self.fc(x) @ self.fc(x + 1).t()
            return F.cross_entropy(scores, torch.arange(len(scores)))

    result, graph, _ = exported(tmp_path, Pairs(), inputs())
    assert result.check.batches == [1, 3]
    assert "aten::arange(size(batch)" in print_graph(graph)


def test_batches_above_4096(tmp_path):
    _, graph, _ = exported(tmp_path, Net(), inputs(), verify_batch=65536)
    assert graph.sizes == {"batch": (1, 65536)}
