"""What `motley.Run` takes from its surroundings; tests/test_script.py has whole runs."""

import pytest
from motley.run import find_rank, merge_flags

SLURM = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NODELIST": "a,b,c"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


@pytest.mark.parametrize(("environment", "rank"), [
    ({}, None),
    (TORCHRUN, 1),
    (SLURM, 2),
    ({**SLURM, **TORCHRUN}, 1),
    ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, 3),
    # A batch script of SLURM, a variable of the user's own: nobody starts ranks here.
    ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, None),
    ({"RANK": "1"}, None),
])  # fmt: skip
def test_a_launcher_says_how_many_there_are(environment, rank):
    assert find_rank(environment) == rank


def test_the_command_line_has_the_last_word():
    found = merge_flags({"lr": 0.1, "global_batch": 8, "bf16": True}, ["--lr", "0.2"])
    assert found == ["--lr", "0.2", "--global-batch", "8", "--bf16"]
