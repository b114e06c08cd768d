"""What cannot be exported is refused with one message, and no file is left."""

import motley
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Linear(nn.Module):
    """A linear layer `fc`, and a loss computed by `step(fc, x, y)`."""

    def __init__(self, step):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.step = step

    def forward(self, x, y):
        return self.step(self.fc, x, y)


HERE = f"{__file__}:{Linear.forward.__code__.co_firstlineno + 1}"


def cross_entropy(fc, x, y):
    return F.cross_entropy(fc(x), y)


def inputs():
    torch.manual_seed(0)
    return torch.randn(6, 4), torch.randint(0, 3, (6,))


def refusal(tmp_path, module, given, **options) -> str:
    """The message, after checking that nothing was written."""
    with pytest.raises(motley.ExportError) as caught:
        motley.export(module, given, tmp_path / "model.motley", **options)
    assert list(tmp_path.iterdir()) == []
    return str(caught.value)


def conditional(fc, x, y):
    scores = torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a + 1, (fc(x),))
    return F.cross_entropy(scores, y)


def casts_on_gpus(fc, x, y, **options):
    with torch.autocast("cuda", dtype=torch.bfloat16, **options):
        return F.cross_entropy(fc(x), y)


STEPS = {
    "autocast of GPUs": (
        casts_on_gpus,
        'forward casts on another device alone; torch.autocast("cuda", dtype=torch.bfloat16); found a model that is traced on a cpu, '
        'wanted torch.autocast("cpu"), or none; try torch.autocast(x.device.type, dtype=torch.bfloat16), which casts on any device',
    ),
    "per-sample loss": (
        lambda fc, x, y: F.cross_entropy(fc(x), y, reduction="none"),
        "the loss is not a scalar; output 0 of forward; found torch.float32 of shape [batch], "
        "wanted one floating-point number; try loss.mean()",
    ),
    "integer loss": (
        lambda fc, x, y: y.sum(),
        "the loss is not a scalar; output 0 of forward; found torch.int64 of shape [], "
        "wanted one floating-point number; try loss.mean()",
    ),
    "dictionary without a loss": (
        lambda fc, x, y: {"score": cross_entropy(fc, x, y), "logits": fc(x)},
        "forward returns no loss; output of forward; found outputs score, logits, "
        "wanted a tensor named loss; try giving it the labels",
    ),
    "no tensor": (
        lambda fc, x, y: (3, fc(x)),
        "forward returns no loss; output 0 of forward; found int, "
        "wanted the scalar loss, a tuple with it in front, or an output named loss; "
        "try returning (loss, logits)",
    ),
    "higher-order operator": (
        conditional,
        "a higher-order operator is not supported; operator cond at {here}; "
        "found an operator that runs functions, wanted operators on tensors; "
        "try torch.where over both branches",
    ),
    "selection by data": (
        lambda fc, x, y: fc(x)[y > 1].sum(),
        "a shape or branch depends on the data; operator aten::index.Tensor at {here}; "
        "found sizes that depend on data, wanted sizes that depend on the batch alone; "
        "try torch.where(mask, x, 0), and mask.sum() to divide by",
    ),
    "places in data": (
        lambda fc, x, y: fc(x)[torch.nonzero(y > 1)[:, 0]].sum(),
        "a shape or branch depends on the data; operator aten::nonzero at {here}; "
        "found sizes that depend on data, wanted sizes that depend on the batch alone; "
        "try multiplying by the mask, or torch.topk of a fixed count",
    ),
    "kinds in data": (
        lambda fc, x, y: fc(x).sum() * y.unique().sum(),
        "a shape or branch depends on the data; operator aten::_unique2 at {here}; "
        "found sizes that depend on data, wanted sizes that depend on the batch alone; "
        "try F.one_hot(x, count).amax(0)",
    ),
    "number from data": (
        lambda fc, x, y: cross_entropy(fc, x, y) * y.float().mean().item(),
        "a number depends on the data; operator aten::mul.Tensor at {here}; "
        "found a number taken out of a tensor, wanted numbers that depend on the batch alone; "
        "try keeping it a tensor",
    ),
    "complex loss": (
        lambda fc, x, y: torch.fft.fft(fc(x)).sum(),
        "complex numbers are supported between operators only; output 0 of forward; "
        "found torch.complex64, wanted a real dtype; try loss.abs() or loss.real",
    ),
    "fixed batch": (
        lambda fc, x, y: F.cross_entropy(fc(x).view(6, 3), y),
        "the model works for some batch sizes only; torch.export; found the batch fixed to 6, "
        "wanted any batch from 1 to 65536; try x.shape[0] in place of a number",
    ),
    "even batch": (
        lambda fc, x, y: cross_entropy(fc, x, y) * (1 if x.shape[0] % 2 == 0 else 2),
        "the model works for some batch sizes only; torch.export; "
        "found the condition (batch % 2) == 0, wanted any batch from 1 to 65536; "
        "try x.shape[0] in place of a number",
    ),
    "root of the batch": (
        lambda fc, x, y: cross_entropy(fc, x, y) / x.shape[0] ** 0.5,
        "a size cannot be written down; operator aten::div.Tensor at {here}; found FloatPow, "
        "wanted + - * // / % max min of the batch size; try simpler sizes",
    ),
    "no gradient": (
        lambda fc, x, y: F.cross_entropy(fc(x).detach(), y),
        "there is nothing to train; output 0 of forward; found a loss without a gradient, "
        "wanted a loss that a trainable parameter influences; try removing detach()",
    ),
    "input changed in place": (
        lambda fc, x, y: F.cross_entropy(fc(x.add_(1)), y),
        'forward changes a tensor in place; input "x"; found a new value, wanted none; try clone()',
    ),
    "wrong shapes": (
        lambda fc, x, y: F.cross_entropy(fc(x[:, :2]), y),
        "PyTorch cannot export the model; {step}; found RuntimeError: "
        "a and b must have same reduction dim, but got [batch, 2] X [4, 3], "
        "wanted a model that it exports; try torch.export.export(module, inputs) alone",
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_steps(tmp_path, case):
    step, message = STEPS[case]
    message = message.replace("{here}", HERE).replace("{step}", f"{__file__}:{step.__code__.co_firstlineno}")
    assert refusal(tmp_path, Linear(step), inputs()) == f"motley.export: {message}"


def test_branch_on_data_names_the_line(tmp_path, capfd):
    def branch(fc, x, y):
        return cross_entropy(fc, x, y) if x.sum() > 0 else fc(x).sum()

    line = branch.__code__.co_firstlineno + 1
    assert refusal(tmp_path, Linear(branch), inputs()).startswith(
        f"motley.export: a shape or branch depends on the data; {__file__}:{line}; "
        "found Could not guard on data-dependent expression Eq(u0, 1), "
    )
    assert capfd.readouterr().err == ""


def test_branch_far_from_the_data_names_the_line(tmp_path):
    class Inner(nn.Module):
        def forward(self, x, is_positive):
            return x.exp() if is_positive else x

    line = Inner.forward.__code__.co_firstlineno + 1
    inner = Inner()
    step = lambda fc, x, y: F.cross_entropy(inner(fc(x), (x.flatten() > 0).any().item()), y)
    assert refusal(tmp_path, Linear(step), inputs()).startswith(
        f"motley.export: a shape or branch depends on the data; {__file__}:{line}; "
    )


def test_size_from_data_names_the_line(tmp_path):
    def narrow(fc, x, y):
        return fc(x)[:, : int(y.max())].mean()

    line = narrow.__code__.co_firstlineno + 1
    assert refusal(tmp_path, Linear(narrow), inputs()) == (
        f"motley.export: a shape or branch depends on the data; {__file__}:{line}; found Could not extract "
        "specialized integer from data-dependent expression u0, wanted sizes that depend on the batch alone; "
        "try a mask: torch.arange(most) < count"
    )


def test_sparse_gradients(tmp_path):
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 3, sparse=True)

        def forward(self, token, label):
            return F.cross_entropy(self.table(token), label)

    message = refusal(tmp_path, Sparse(), (torch.randint(0, 9, (6,)), inputs()[1]))
    assert message == (
        "motley.export: sparse tensors are not supported; "
        'operator aten::_sparse_coo_tensor_with_dims_and_tensors in module "table" at '
        f"{__file__}:{Sparse.forward.__code__.co_firstlineno + 1}; "
        "found torch.sparse_coo, wanted a dense tensor; try sparse=False"
    )


def test_numbers_of_no_fixed_count_of_draws(tmp_path):
    assert refusal(tmp_path, Linear(lambda fc, x, y: fc(torch.poisson(x.abs())).mean()), inputs()) == (
        "motley.export: random numbers of this kind cannot be split; operator aten::poisson "
        f"at {HERE}; "
        "found a draw from PyTorch's generator, wanted numbers that any device draws alike; "
        "try torch.rand"
    )


COMPLEX = "motley.export: complex numbers are supported between operators only"
AS_PARTS = "torch.view_as_real of it, and torch.view_as_complex in forward"


def test_complex_tensors_that_are_stored_or_given(tmp_path):
    ones = torch.ones(2, dtype=torch.complex64)
    module = Linear(cross_entropy)
    module.register_buffer("phase", ones)
    assert refusal(tmp_path, module, inputs()) == (
        f'{COMPLEX}; tensor "phase"; found torch.complex64, wanted a real dtype; '
        f"try persistent=False if it is fixed, or {AS_PARTS}"
    )
    module = Linear(cross_entropy)
    module.turn = nn.Parameter(ones)
    assert refusal(tmp_path, module, inputs()) == (
        f'{COMPLEX}; tensor "turn"; found torch.complex64, wanted a real dtype; try {AS_PARTS}'
    )
    module = Linear(lambda fc, x, y: cross_entropy(fc, x.real, y))
    x, y = inputs()
    assert refusal(tmp_path, module, (x.to(torch.complex64), y)) == (
        f'{COMPLEX}; input "x"; found torch.complex64, wanted a real dtype; try {AS_PARTS}'
    )


def test_complex_table_that_changes(tmp_path):
    def turn(fc, x, y):
        module.phase.mul_(1j)
        return cross_entropy(fc, x, y) * module.phase.abs().mean()

    module = Linear(turn)
    module.register_buffer("phase", torch.ones(2, dtype=torch.complex64), persistent=False)
    assert refusal(tmp_path, module, inputs()) == (
        f'{COMPLEX}; buffer "phase"; found torch.complex64, wanted a real dtype; try {AS_PARTS}'
    )


def test_frozen_module(tmp_path):
    module = Linear(cross_entropy).requires_grad_(False)
    assert refusal(tmp_path, module, inputs()) == (
        "motley.export: there is nothing to train; the module; "
        "found no parameter that takes a gradient, wanted one or more; try requires_grad_()"
    )


def test_inputs(tmp_path):
    x, y = inputs()
    module = Linear(cross_entropy)
    assert refusal(tmp_path, module, (x, y[:5])) == (
        'motley.export: the inputs differ in batch size; input "y"; found 5 samples '
        'in dimension 0, wanted 6 as in input "x"; try returning (module, inputs, {"y": None}) '
        "if all samples share it, or the dimension of its samples"
    )
    assert refusal(tmp_path, module, (x, y.numpy())) == (
        'motley.export: an input is of another kind; input "y"; found ndarray, '
        "wanted a tensor, number, text, or dicts, lists and tuples of these; try torch.as_tensor"
    )
    assert refusal(tmp_path, module, (3, torch.tensor(3))) == (
        "motley.export: no input has samples; inputs; found values that all samples share, "
        "wanted one with a batch; try returning (module, (x,))"
    )
    assert refusal(tmp_path, module, (x, y), batch_dims={"z": 1}) == (
        'motley.export: a dimension is given of no input; input "z"; found inputs x, y, '
        'wanted "z"; try one of them'
    )
    assert refusal(tmp_path, module, (x, y), batch_dims={"y": 1}) == (
        'motley.export: no such dimension; input "y"; found 1, '
        "wanted a dimension of [6], or None; try 0"
    )
    assert refusal(tmp_path, module, ()) == (
        "motley.export: there are no example inputs; inputs; found (), "
        "wanted a tuple or a dict of tensors; try returning (module, (x, y))"
    )
    assert refusal(tmp_path, module, (x[:0], y[:0])) == (
        'motley.export: the inputs are empty; input "x"; found 0 samples, wanted 2 or more; '
        "try 8 example samples"
    )


def test_shared_input_changed_in_place(tmp_path):
    def step(fc, x, scale):
        return (fc(x) * scale.mul_(2)).sum()

    given = (inputs()[0], torch.ones(3))
    assert refusal(tmp_path, Linear(step), given, batch_dims={"y": None}) == (
        'motley.export: forward changes a tensor in place; input "y"; found a new value, '
        "wanted none; try clone()"
    )


def test_no_weights(tmp_path):
    with torch.device("meta"):
        module = Linear(cross_entropy)
    assert refusal(tmp_path, module, inputs()) == (
        'motley.export: the module has no weights; tensor "fc.weight"; found device meta, '
        "wanted a tensor with numbers; try --graph-only"
    )


def test_no_folder(tmp_path):
    with pytest.raises(motley.ExportError) as caught:
        motley.export(Linear(cross_entropy), inputs(), tmp_path / "none" / "model.motley")
    assert str(caught.value) == (
        f"motley.export: the model file cannot be written; {tmp_path}/none/model.motley; "
        f'found no folder "{tmp_path}/none", wanted a folder that exists; try mkdir'
    )


def test_a_model_that_fails_in_eager_mode(tmp_path):
    """Every label is ignored: the mean over no samples is not a number, at any batch."""
    x, _ = inputs()
    ignored = torch.full((6,), -100)
    assert refusal(tmp_path, Linear(cross_entropy), (x, ignored)) == (
        "motley.export: the model cannot be compared with eager PyTorch; batch 1 to 4; "
        "found loss nan, wanted a finite loss that rounding does not decide; "
        "try example inputs that resemble real ones"
    )


def test_checkpointing_and_sdpa_dropout_are_fine(tmp_path):
    """Look like refusals, and are not: both are traced through. What is computed again in the
    backward pass draws as it did before."""

    def step(fc, x, y):
        h = x[:, None, None]
        h = F.scaled_dot_product_attention(h, h, h, dropout_p=0.3)[:, 0, 0]
        z = checkpoint(lambda h: F.dropout(fc(h), 0.3), h, use_reentrant=False)
        return F.cross_entropy(F.dropout(z, 0.2), y)

    result = motley.export(Linear(step), inputs(), tmp_path / "model.motley")
    assert result.check.worst["gradient"] < 1e-6


def test_operators_of_other_libraries(tmp_path):
    """A worker has PyTorch's own only."""

    @torch.library.custom_op("other::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda ctx, grad: grad * 2)
    text = refusal(tmp_path, Linear(lambda fc, x, y: F.cross_entropy(twice(fc(x)), y)), inputs())
    assert text == (
        "motley.export: an operator is not PyTorch's; operator other::twice "
        f"at {HERE}; "
        "found an operator of other, "
        "wanted operators of PyTorch's own; try a way without it, as other may have"
    )
