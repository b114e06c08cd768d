"""Quick models of the zoo, one a package (all with make test-slow): exported, and trained by a random plan as PyTorch's loop does."""

import pytest
import run
from conftest import SLOW, TURN

MODELS = {
    "torchvision": ["mobilenet_v3", "vit"],  # convolutions and dropout; attention over patches
    "timm": ["resmlp", "convmixer"],  # products over places; batch norm
    "transformers": ["gpt2", "wav2vec2_ctc"],  # tokens; sound, the loss of transcripts
}
CHOSEN = [f"{package}.{name}" for package, names in MODELS.items() for name in (names if SLOW else [names[TURN % len(names)]])]


@pytest.mark.parametrize("name", CHOSEN)
def test_model_trains_as_pytorch_does(profiled, mlp, cluster, environment, tmp_path, name):
    profiled(mlp, cluster, "--global-batch", 60)  # times of one model, from which those of all others are modelled
    model = run.trained(name, tmp_path, (cluster, environment))
    found = run.compare(model, "random-3", ["--planner", "random"], run.settle(model))
    assert found["is_equal"], found
