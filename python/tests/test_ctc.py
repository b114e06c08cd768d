"""The CTC loss is exported in every form; the self-check compares it with PyTorch's own."""

import motley
import pytest
import torch
import torch.nn.functional as F
from motley.model_file import read_model_file
from torch import nn

SAMPLES, TIMES, LENGTH, CLASSES = 6, 9, 4, 5


class Speech(nn.Module):
    """Scores of each time, and a loss computed by `loss(log_probs, labels, counts)`."""

    def __init__(self, loss):
        super().__init__()
        self.fc, self.loss = nn.Linear(3, CLASSES), loss

    def forward(self, sound, labels, counts):
        return self.loss(self.fc(sound).log_softmax(-1).transpose(0, 1), labels, counts)


def times_of(log_probs):
    return torch.full((log_probs.shape[1],), TIMES)


def too_short(log_probs, labels, counts):
    """Of three times four labels cannot be."""
    return F.ctc_loss(log_probs[:3], labels, times_of(log_probs) // 3, counts, zero_infinity=True)


LOSSES = {
    "mean": lambda log_probs, labels, counts: F.ctc_loss(log_probs, labels, times_of(log_probs), counts),
    "none": lambda log_probs, labels, counts: (
        F.ctc_loss(log_probs, labels - 1, times_of(log_probs), counts, blank=CLASSES - 1, reduction="none").square().sum()
    ),
    "module": lambda log_probs, labels, counts: nn.CTCLoss()(log_probs, labels, times_of(log_probs), counts),
    "sum": lambda log_probs, labels, counts: (
        F.ctc_loss(log_probs, labels, times_of(log_probs).int(), counts.int(), reduction="sum")
    ),
    "too short": too_short,
}  # fmt: skip


def inputs():
    torch.manual_seed(0)
    labels = torch.randint(1, CLASSES, (SAMPLES, LENGTH))
    return torch.randn(SAMPLES, TIMES, 3), labels, torch.tensor([3, 4, 2, 4, 1, 3])


@pytest.mark.parametrize("case", LOSSES)
def test_forms(tmp_path, case):
    torch.manual_seed(1)
    result = motley.export(Speech(LOSSES[case]), inputs(), tmp_path / "model.motley")
    assert result.check.worst["gradient"] < 1e-6
    text, _ = read_model_file(result.path)
    assert text.count("motley::ctc_loss(") == 1


def test_labels_behind_each_other_are_refused(tmp_path):
    def loss(log_probs, labels, counts):
        return F.ctc_loss(log_probs, labels.flatten(), times_of(log_probs), torch.full((log_probs.shape[1],), LENGTH))

    with pytest.raises(motley.ExportError) as caught:
        motley.export(Speech(loss), inputs(), tmp_path / "model.motley")
    assert str(caught.value) == (
        "motley.export: the CTC loss cannot be split by samples; F.ctc_loss; found targets one behind the other, "
        "wanted rows of them, padded: [samples, length]; try pad_sequence"
    )
