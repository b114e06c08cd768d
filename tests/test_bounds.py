"""What `motley plan` says that no plan can beat, none beats: drawn models, drawn devices, and plans
of every planner, the best ones and random ones."""

import copy
import random
import sys

import pytest
from conftest import ROOT, SLOW
from random_models import draw_model

sys.path[:0] = [str(ROOT / "python")]

import motley as motley_python  # noqa: E402

BATCH = 12
KINDS = ["a100-40g", "v100-16g", "t4", "rtx3090", "rtx4090", "p100"]
SEEDS = range(60 if SLOW else 3)
RANDOM_PLANS = range(20 if SLOW else 4)


def draw_cluster(seed):
    """Two to five unlike devices, some of them on one machine."""
    draw = random.Random(seed)
    kinds = draw.sample(KINDS, draw.randint(2, 5))
    text = 'schema = "motley.cluster/1"\nname = "drawn"\n'
    for i, kind in enumerate(kinds):
        host = draw.randrange(len(kinds))
        text += f'[[node]]\nname = "n{i}"\nhost = "h{host}"\n[[node.device]]\nkind = "{kind}"\n'
    return text + f'[[link]]\nall = true\nbandwidth = "{10 ** draw.uniform(2, 5):.0f}Mbps"\nlatency = "20us"\n'


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_is_better_than_the_bound(motley, tmp_path, seed):
    module, inputs = draw_model(seed, BATCH)
    motley_python.export(copy.deepcopy(module), inputs, tmp_path / "m.motley", name="drawn")
    (tmp_path / "c.toml").write_text(draw_cluster(seed))

    def plan(planner, *flags):
        outcome = motley("plan", "-m", tmp_path / "m.motley", "-C", tmp_path / "c.toml", "--global-batch", BATCH,
                         "--profile", "never", "--planner", planner, "--json", *flags)
        assert outcome.code == 0, (module, outcome.stderr)
        assert outcome.json["lower_bound_s"] <= outcome.json["predicted_step_s"], planner
        return outcome.json

    best = plan("auto")
    others = [plan(planner) for planner in ["split", "spmd", "hap", "equal", "proportional"]]
    others += [plan("random", "--seed", draw) for draw in RANDOM_PLANS]
    for other in others:
        # Instructions take whole nanoseconds in a simulated step; a bound adds them up unrounded.
        assert other["predicted_step_s"] >= best["lower_bound_s"] - 1e-6, (module, other)
    for other in others[:5]:
        assert best["predicted_step_s"] <= other["predicted_step_s"] * (1 + 1e-9), (module, other["planner"])
    for other in others[1:3]:  # of all shardings, as the best one's
        assert other["lower_bound_s"] <= best["predicted_step_s"], (module, other["planner"])
