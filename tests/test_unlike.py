"""One model on unlike devices: a worker without vector instructions beside two of this machine."""

import shutil
import subprocess
import sys

import pytest
from conftest import BUILD, CLUSTER, DIGITS, sampled
from recipes import OPTIMIZERS

# Rank 1 has the kernels of another processor: PyTorch's, those of its libraries and of C's.
WORKER = """#!/bin/sh
case "$*" in *"--rank 1"*) export ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 \\
  GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-FMA,-FMA_Usable;; esac
exec {worker} "$@"
"""
WORDS = ["--data", DIGITS, "--global-batch", 60, "--batch-split", "30,20,10", "--profile", "model"]


@pytest.fixture(scope="module")
def unlike(motley, mlp, tmp_path_factory):
    """`motley` whose second worker is so, on a cluster that says so: what it says."""
    folder = tmp_path_factory.mktemp("unlike")
    shutil.copy(BUILD / "motley", folder / "motley")
    worker = folder / "motley-worker"
    worker.write_text(WORKER.format(worker=BUILD / "motley-worker"))
    worker.chmod(0o755)
    shutil.copy(BUILD / "motley-worker.json", folder)  # which PyTorch it is for
    models = iter(["A", "B", "A"])
    lines = [line + (f'\n  model = "{next(models)}"' if "kind" in line else "") for line in CLUSTER.splitlines()]
    named = folder / "unlike.toml"
    named.write_text("\n".join(lines) + "\n")
    assert motley("profile", "-m", mlp, "-C", named, "--global-batch", 60).code == 0  # all else is modelled from it

    def call(environment, model, run_dir, steps, *flags, verb="run"):
        words = [verb, "-m", model, "-C", named, *WORDS, "--run-dir", run_dir, "--steps", steps, *flags]
        done = subprocess.run([str(folder / "motley"), *map(str, words)], capture_output=True, text=True, timeout=240, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return call


RECIPES = {
    "sgd": ["--momentum", 0.9, "--schedule", "cosine", "--warmup", 3],
    "adam": ["--clip-norm", 0.05, "--ema", 0.9],
    "adamw": ["--loss-scale", "dynamic:1024", "--schedule", "one-cycle"],
    "rmsprop": ["--momentum", 0.9, "--clip-value", 0.01],
    "muon": ["--momentum", 0.9],
}


@pytest.mark.parametrize("optimizer", sampled(OPTIMIZERS))
def test_copies_are_equal_to_the_bit(unlike, environment, mlp, cnn, tmp_path, optimizer):
    flags = ["--optimizer", optimizer, "--lr", OPTIMIZERS[optimizer], "--schedule-steps", 50, "--checkpoint-every", 10,
             *RECIPES.get(optimizer, [])]  # fmt: skip
    model = cnn if optimizer in ("sgd", "lamb", "adafactor", "muon") else mlp  # with running statistics
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    said = unlike(environment, model, whole, 50, *flags)
    assert '"updates": "portable"' in (whole / "plan.json").read_text()
    said += unlike(environment, model, parts, 20, *flags)
    said += unlike(environment, model, parts, 50, *flags)
    assert "differed" not in said, said
    assert "resume from step 20" in said
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()


@pytest.mark.parametrize("optimizer", sampled(["lamb", "adafactor", "muon"], 1))
def test_what_one_device_sends_is_what_pytorch_computes(unlike, environment, cnn, tmp_path, optimizer):
    unlike(environment, cnn, tmp_path / "run", 4, "--optimizer", optimizer, "--lr", OPTIMIZERS[optimizer], "--clip-norm", 0.5,
           "--against", "eager", "--python", sys.executable, verb="verify")  # fmt: skip
    assert '"updates": "portable"' in (tmp_path / "run/split/plan.json").read_text()


def test_native_updates_differ_by_last_bits_and_are_made_equal(unlike, environment, mlp, tmp_path):
    """What the other test would see if copies were not equal."""
    said = unlike(environment, mlp, tmp_path / "run", 50, "--optimizer", "adafactor", "--lr", 0.01,
                  "--checkpoint-every", 10, "--updates", "native")  # fmt: skip
    assert "on rank 1 (b:0, host " in said and "all have rank 0's now" in said, said
