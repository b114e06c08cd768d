"""The self-check finds graphs that differ from the model, and names the tensor."""

import re

import families
import motley
import motley.exporter
import motley.selfcheck
import pytest
import torch
import torch.nn.functional as F
from motley.graph import Number
from motley.interpret import run_graph
from motley.model_file import read_model_file
from motley.parse import parse_graph
from motley.rounding import with_last_bits_changed
from motley.selfcheck import (
    Difference,
    SelfCheck,
    Unsteady,
    check,
    judge,
    random_inputs,
    relative_difference,
)
from motley.step import make_step
from torch import nn


def recheck(name, graph, tensors):
    module, inputs = getattr(families, name)()
    step, examples = make_step(module, inputs)
    return check(graph, tensors, step, examples, (families.BATCH, families.BATCH + 3))


def changed(exported, name, old, new):
    """The family's graph with one piece of its text replaced."""
    from motley.model_file import read_model_file

    result, _, tensors = exported(name)
    text = read_model_file(result.path)[0]
    assert text.count(old) == 1
    return parse_graph(text.replace(old, new)), tensors


def test_a_wrong_gradient_is_named_with_both_values(exported):
    """tanh_backward(g, y) = g (1 - y^2) replaced by sigmoid_backward(g, y) = g y (1 - y)."""
    graph, tensors = changed(
        exported, "regression", "aten::tanh_backward", "aten::sigmoid_backward"
    )
    with pytest.raises(motley.ExportError) as caught:
        recheck("regression", graph, tensors)
    pattern = (
        r"^motley\.export: the exported graph differs from the model; "
        r'gradient "first\.(weight|bias)" at batch 1; '
        r"found norm [\d.e-]+ in the graph and norm [\d.e-]+ in eager PyTorch "
        r"\(relative difference [\d.e+-]+\), wanted a relative difference of 1e-05 at most; "
        r"try other operators for what it is computed from$"
    )
    assert caught.match(pattern)


def test_a_wrong_number_in_the_file_is_found(exported):
    graph, tensors = changed(exported, "cnn", '0.1, 1e-05) fwd "net.1"', '0.2, 1e-05) fwd "net.1"')
    with pytest.raises(motley.ExportError, match='; buffer "net.1.running_mean" at batch 1; '):
        recheck("cnn", graph, tensors)


def test_wrong_weights_in_the_file_are_found(exported):
    _, graph, tensors = exported("mlp")
    tensors = {**tensors, "net.2.bias": tensors["net.2.bias"] + 1e-3 * torch.arange(5)}
    with pytest.raises(motley.ExportError, match="; loss at batch 1; "):
        recheck("mlp", graph, tensors)


def test_a_wrong_shape_is_found_where_it_arises(exported):
    old = "op %8: f32[batch, 32]"
    graph, tensors = changed(exported, "mlp", old, "op %8: f32[batch, 33]")
    with pytest.raises(motley.ExportError) as caught:
        recheck("mlp", graph, tensors)
    assert str(caught.value) == (
        "motley.export: the exported graph does not run; batch 1; found aten::addmm (%8): "
        "found torch.float32 [1, 32], declared f32[batch, 33], "
        "wanted the operators to run as declared; try another batch size"
    )


def test_a_missing_gradient_is_found(exported):
    graph, tensors = changed(exported, "mlp", 'output gradient %23 of "net.2.bias"\n', "")
    with pytest.raises(
        motley.ExportError, match='; gradient "net.2.bias" at batch 1; found no outp'
    ):
        recheck("mlp", graph, tensors)


def test_a_refused_file_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "model.motley"
    path.write_text("old")
    print_graph = motley.exporter.print_graph
    monkeypatch.setattr(
        motley.exporter, "print_graph", lambda graph: print_graph(graph).replace("relu", "tanh")
    )
    module, inputs = families.mlp()
    with pytest.raises(motley.ExportError, match="the exported graph differs from the model"):
        motley.export(module, inputs, path)
    assert [item.name for item in tmp_path.iterdir()] == ["model.motley"]
    assert path.read_text() == "old"


def test_batch_norm_over_features_cannot_take_one_sample(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 5)
            self.bn = nn.BatchNorm1d(5)

        def forward(self, x, y):
            return F.cross_entropy(self.bn(self.fc(x)), y)

    inputs = (torch.randn(6, 4), torch.randint(0, 5, (6,)))
    result = motley.export(Net(), inputs, tmp_path / "model.motley", verify_batch=32)
    assert result.check.batches == [2, 32]
    assert result.check.notes == [
        "batch 1 is not checked: ValueError: Expected more than 1 value per channel when training, "
        "got input size torch.Size([1, 5])"
    ]


def test_an_example_of_one_sample_is_enough(tmp_path):
    module, inputs = families.mlp()
    result = motley.export(module, tuple(value[:1] for value in inputs), tmp_path / "a.motley")
    assert result.check.batches == [1, 3]  # captured at 2


def test_the_module_is_left_as_it_was(tmp_path):
    module, inputs = families.cnn()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    motley.export(module, inputs, tmp_path / "model.motley")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_buffers_outside_of_the_state_dict(tmp_path):
    """What the step only reads is a constant; what it changes stays a buffer."""
    from motley.model_file import read_model_file

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.arange(4.0), persistent=False)
            self.register_buffer("seen", torch.zeros(4), persistent=False)
            self.fc = nn.Linear(4, 3)

        def forward(self, x, y):
            self.seen += x.sum(0).detach()
            return F.cross_entropy(self.fc(x * self.scale + torch.tensor([1.0, 2, 3, 4])), y)

    inputs = (torch.randn(6, 4), torch.randint(0, 3, (6,)))
    motley.export(Net(), inputs, tmp_path / "model.motley")
    text, tensors = read_model_file(tmp_path / "model.motley")
    graph = parse_graph(text)
    constants = [source.name for source in graph.of_kind("constant")]
    assert constants == ["motley.constant.0", "motley.constant.1"]
    assert tensors["motley.constant.0"].tolist() == [0, 1, 2, 3]
    assert tensors["motley.constant.1"].tolist() == [1, 2, 3, 4]
    assert [source.name for source in graph.of_kind("buffer")] == ["seen"]
    assert [output.of for output in graph.outputs if output.kind == "update"] == ["seen"]


def test_numbers_and_sizes(tmp_path):
    """The batch in the arithmetic is number(), in a shape or index size()."""
    from motley.model_file import read_model_file

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            batch = x.shape[0]
            weight = torch.full((batch, 1), batch * 2.0) + torch.arange(batch)[:, None]
            return (self.fc(x) * weight).sum() / batch

    motley.export(Net(), (torch.randn(6, 4),), tmp_path / "model.motley")
    ops = {op.name: op for op in parse_graph(read_model_file(tmp_path / "model.motley")[0]).ops}
    assert [repr(item) for item in ops["aten::full"].arguments[:2]] == [
        "[Size(text='batch'), 1]",
        "Number(text='batch/1*(2/1)')",
    ]
    assert repr(ops["aten::arange"].arguments[0]) == "Size(text='batch')"
    assert ops["aten::div.Tensor"].arguments[1] == Number("batch")


def test_random_inputs_are_of_the_kind_of_the_example():
    generator = torch.Generator().manual_seed(0)
    labels = random_inputs(torch.tensor([-100, 0, 7]), 500, generator)
    assert set(labels.tolist()) == {-100, 0, 7}
    numbers = random_inputs(torch.tensor([[2.0, 3.0], [2.5, 5.0]]), 500, generator)
    assert numbers.shape == (500, 2) and 2 <= numbers.min() and numbers.max() <= 5
    mask = torch.tensor([[True, False], [True, True]])
    assert random_inputs(mask, 500, generator)[:, 0].all()


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
        self.drop = nn.Dropout(0.3, inplace=True)

    def forward(self, x, y):
        torch.randn_like(x)  # nobody uses them, and the next ones are others
        return (self.drop(self.fc(x + torch.rand_like(x))) - y).square().mean()


def test_eager_pytorch_draws_the_same_random_numbers(tmp_path):
    path = tmp_path / "noisy.motley"
    inputs = (torch.randn(6, 4), torch.randn(6, 1))
    result = motley.export(Noisy(), inputs, path).check
    assert result.batches == [1, 3] and result.worst["gradient"] <= 1e-5
    text = read_model_file(path)[0]
    assert "dtype(f32), 1)" in text and "motley::dropout(" in text and "aten::rand" not in text


def test_a_mask_that_differs_is_found(tmp_path):
    """The wrong probability changes a gradient that the self-check compares."""
    path, inputs = tmp_path / "noisy.motley", (torch.randn(6, 4), torch.randn(6, 1))
    torch.manual_seed(0)
    module = Noisy()
    motley.export(module, inputs, path)
    text, tensors = read_model_file(path)
    wrong = parse_graph(text.replace(", 0.3, 2)", ", 0.4, 2)"))
    step, examples = make_step(module, inputs)
    with pytest.raises(motley.ExportError, match="the exported graph differs from the model"):
        check(wrong, tensors, step, examples, (6, 9))


def test_noise_is_compared_on_the_scale_of_all_gradients():
    """A gradient of 1e-9 that should be 2e-9 is wrong by half, unless all gradients are near 1."""
    found, wanted = torch.tensor([1e-9]), torch.tensor([2e-9])
    assert relative_difference(found, wanted, 0.0) == pytest.approx(0.5)
    assert relative_difference(found, wanted, 1e-3) == pytest.approx(1e-6)
    assert relative_difference(wanted, wanted, 0.0) == 0.0


def judged(difference, *changes):
    """What a gradient that differs by so much becomes, where rounding changes tensors by `changes`."""
    result = SelfCheck()
    key = ("gradient", "fc.weight")
    keys = [key, *(("gradient", f"other{i}") for i in range(len(changes) - 1))]
    judge(
        {key: Difference(difference, torch.tensor([1.1]).double(), torch.ones(1))},
        lambda: dict(zip(keys, changes, strict=True)),
        5,
        result,
    )
    return result


def test_a_difference_that_rounding_explains_is_noted():
    result = judged(2e-5, 2.5e-6)
    assert result.worst["gradient"] == 0 and result.notes == [
        'gradient "fc.weight" at batch 5 differs by 2e-05, less than ten times what a change of the last '
        "bit of every weight does to eager PyTorch (2.5e-05); so do 0 more tensors"
    ]


def test_a_difference_beyond_what_rounding_explains_is_refused():
    with pytest.raises(motley.ExportError) as caught:
        judged(3e-5, 2.5e-6)
    assert str(caught.value) == (
        'motley.export: the exported graph differs from the model; gradient "fc.weight" at batch 5; '
        "found norm 1.1 in the graph and norm 1 in eager PyTorch (relative difference 3e-05), wanted a "
        "relative difference of 2.5e-05 at most, ten times what a change of the last bit of every weight "
        "does to eager PyTorch; try other operators for what it is computed from"
    )


def test_where_rounding_decides_most_tensors_nothing_is_compared():
    with pytest.raises(Unsteady, match="a change of the last bit of every weight changes most results"):
        judged(0.5, 0.02, 0.02, 0.001)
    with pytest.raises(motley.ExportError, match="relative difference of 0.2 at most"):
        judged(0.5, 0.02, 0.001, 0.001)


def test_a_net_that_rounding_decides_is_not_compared(tmp_path):
    """Each sine takes what was multiplied by ten million: the file's weights, next to the module's, give other results."""
    from motley.model_file import read_model_file

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return ((self.fc(x) * 1e7).sin() * 1e7).sin().mean()

    module, inputs = Net(), (torch.randn(6, 4),)
    motley.export(module, inputs, tmp_path / "model.motley")
    text, _ = read_model_file(tmp_path / "model.motley")
    tensors = with_last_bits_changed(module, 7).state_dict()
    with pytest.raises(motley.ExportError) as caught:
        step, examples = make_step(module, inputs)
        check(parse_graph(text), tensors, step, examples, (6, 9))
    assert str(caught.value) == (
        "motley.export: the model cannot be compared with eager PyTorch; batch 1 to 4; found a change "
        "of the last bit of every weight changes most results, wanted a finite loss that rounding does "
        "not decide; try example inputs that resemble real ones"
    )


def test_last_bits():
    module, _ = families.mlp()
    changed = with_last_bits_changed(module, 0)
    for old, new in zip(module.parameters(), changed.parameters(), strict=True):
        up = torch.nextafter(old, torch.full_like(old, torch.inf))
        down = torch.nextafter(old, torch.full_like(old, -torch.inf))
        assert ((new == up) | (new == down)).all()
        assert old.numel() < 30 or ((new == up).any() and (new == down).any())


def test_batch_norm_of_few_values_amplifies_rounding(tmp_path, monkeypatch):
    """Two dozen layers over four values a channel, in which the bias in front gets nothing but rounding."""
    torch.manual_seed(0)
    layers = [(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(24)]
    net = nn.Sequential(nn.Conv2d(3, 16, 1), *(part for layer in layers for part in layer), nn.Flatten())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.fc = net, nn.Linear(64, 5)

        def forward(self, x, y):
            return F.cross_entropy(self.fc(self.net(x)), y)

    # Kernels that round otherwise than eager PyTorch's, on whatever processor this is.
    def run_rounding_otherwise(graph, tensors, *rest, **options):
        generator = torch.Generator().manual_seed(7)
        ends = {name: torch.where(torch.rand(each.shape, generator=generator) < 0.5, -torch.inf, torch.inf)
                for name, each in tensors.items() if each.is_floating_point()}  # fmt: skip
        moved = {name: torch.nextafter(each, ends[name].to(each.dtype)) if name in ends else each
                 for name, each in tensors.items()}  # fmt: skip
        return run_graph(graph, moved, *rest, **options)

    monkeypatch.setattr(motley.selfcheck, "run_graph", run_rounding_otherwise)
    inputs = (torch.randn(6, 3, 2, 2), torch.randint(0, 5, (6,)))
    result = motley.export(Net(), inputs, tmp_path / "model.motley").check
    assert result.batches == [1, 3]
    assert re.fullmatch(
        r'gradient "[\w.]+" at batch 1 differs by [\d.e-]+, less than ten times what a change of the '
        r"last bit of every weight does to eager PyTorch \([\d.e-]+\)(; so do \d+ more tensors)?",
        result.notes[0],
    )
