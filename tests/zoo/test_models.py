"""Quick models of the zoo, one of each kind (all with make test-slow): exported, and trained by a random plan as PyTorch's loop does."""

import pytest
import run
from conftest import sampled

MODELS = [
    "torchvision.mobilenet_v3",  # convolutions, dropout
    "torchvision.vit",  # attention over patches
    "timm.resmlp",  # products over places
    "timm.convmixer",  # batch norm
    "transformers.gpt2",  # tokens
    "transformers.wav2vec2_ctc",  # sound, the loss of transcripts
]


@pytest.mark.parametrize("name", sampled(MODELS))
def test_model_trains_as_pytorch_does(motley, mlp, cluster, environment, tmp_path, name):
    # Times of one model, from which those of all others are modelled.
    assert motley("profile", "-m", mlp, "-C", cluster, "--global-batch", 60).code == 0
    model = run.trained(name, tmp_path, (cluster, environment))
    found = run.compare(model, "random-3", ["--planner", "random"], run.settle(model))
    assert found["is_equal"], found
