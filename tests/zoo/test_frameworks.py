"""motley.torch.share of a Trainer, an Accelerator and a Lightning Trainer: two unequal ranks give what one device does."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import warm
from conftest import BUILD, ROOT, sampled
from ranks import Fresh, start

WORLD = 2
EVEN = 24  # samples of all ranks in a step
LIMIT = 1e-5
SCRIPT = pathlib.Path(__file__).with_name("framework_cases.py")
CASES = ["lightning", "lightning_tokens", "accelerate", "accelerate_tokens", "accelerate_workers", "trainer", "trainer_norm", "trainer_words",
         "trainer_smooth", "trainer_own", "resumed"]  # fmt: skip

SHARED = ["learns_trainer", "learns_accelerate", "learns_lightning", "refuses"]


@pytest.fixture(scope="module")
def frameworks():
    """A Python that has them imported, which takes ten seconds, and starts others by a fork; none with make test-slow."""
    return None if warm.IS_REAL else warm.Server((*warm.MODULES, "lightning.pytorch", "transformers", "accelerate"))


@pytest.fixture(scope="module")
def results(frameworks, tmp_path_factory):
    """Rows of one process and of two, and the folder that has what they trained."""

    def forked(words, environment, files):
        with open(os.devnull) as nothing:
            return warm.Started(frameworks.path, words, environment, files=[each.fileno() for each in (nothing, *files)])

    folder, rows = tmp_path_factory.mktemp("frameworks"), {}
    for world in (1, WORLD):
        more = {"MOTLEY_RUN_DIR": str(folder / "run")} if world > 1 else {}
        names = [str(folder), *CASES, *(SHARED if world > 1 else [])]
        ends, rows[world] = start(SCRIPT, names, world, forked if frameworks else Fresh, **more)
        assert [code for code, _ in ends] == [0] * world, "\n".join(errors[-3000:] for _, errors in ends)
    return rows, folder


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_one_device_gives(results, case):
    ours, alone = (torch.load(results[1] / f"{case}-{world}.pt") for world in (WORLD, 1))
    assert ours.keys() == alone.keys()
    assert max(float((ours[name].double() - alone[name].double()).abs().max()) for name in alone) <= LIMIT


@pytest.mark.parametrize("case", ["trainer", "trainer_norm", "trainer_words", "trainer_smooth", "trainer_own"])
def test_logged_losses_are_those_of_one_device(results, case):
    assert results[0][WORLD][case]["losses"] == pytest.approx(results[0][1][case]["losses"], abs=1e-5)


def test_a_run_directory_has_the_losses_of_one_device(results):
    lines = (results[1] / "run/log.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines[:20]] == pytest.approx(results[0][1]["lightning"]["losses"], abs=1e-5)


def test_batches_are_shared_as_asked(results):
    # 24 samples as 5:2, 17.1 and 6.9; all 120 are evaluated, evenly.
    assert results[0][WORLD]["accelerate"] == {"case": "accelerate", "counts": [17] * 20, "evaluated": 120}


@pytest.mark.parametrize("case", ["learns_trainer", "learns_accelerate", "learns_lightning"])
def test_shares_are_learned_beyond_what_was_drawn_ahead(results, case):
    samples = results[0][WORLD][case]["samples"]
    assert all(sum(step) == EVEN for step in zip(*samples, strict=True))
    assert [ranks[:2] for ranks in samples] == [[12, 12]] * WORLD
    # Ranks of 1 and 3 ms a sample: even, a step takes 36 ms; as 18:6 it takes 18 ms.
    assert max(samples[0][-1], 3 * samples[1][-1]) <= 24, samples


def test_faults_say_what_to_do(results):
    found = results[0][WORLD]["refuses"]
    wanted = {
        "split": "split_batches=True does not go with unequal batches; leave it out, and give each rank's batch size",
        "dispatch": "dispatch_batches=True does not go with unequal batches",
        "engine": "the Accelerator's engine is FSDP, which splits batches or models its own way",
        "even": "even_batches=False leaves ranks without a batch in the last step",
        "compiled": "compile the model before, or leave it out",
        "late": "the Accelerator has prepared a model already; share it before `prepare`",
        "whose": "the Accelerator that prepared the loader is not shared",
        "weight": "weight belongs to the Accelerator: share(Accelerator(), weight=...)",
        "twice": "the loader is shared already",
        "iterable": "the data set is iterable",
        "plain weight": "the weight of a plain loader's batches is the model's: DDP(model, weight=...)",
        "shares": "shares [3, 2, 1]; wanted 2 numbers above 0, one a rank",
        "average": "average_tokens_across_devices=False makes each rank's mean count alike; leave it at True",
        "finds": "auto_find_batch_size tries again on the rank without memory alone",
        "stream": "the data set is iterable",
        "strategy": "the Trainer's strategy is SingleDeviceStrategy; wanted Trainer(strategy='ddp', devices=...)",
        "sampler": "use_distributed_sampler=False hides which samples other ranks take",
        "loaders": "there are several training loaders",
    }
    assert {name: text for name, text in wanted.items() if text not in found[name]} == {}, found


def test_another_version_is_refused():
    from motley.torch.frameworks import VERSIONS, check_version

    for package, (oldest, newest) in VERSIONS.items():
        check_version(package, ".".join(map(str, newest)) + ".3")
        with pytest.raises(ImportError, match=f"motley.torch.share: found {package} 0.1.0, wanted {oldest[0]}.{oldest[1]}"):
            check_version(package, "0.1.0")


def test_no_framework_is_imported_before_one_is_given():
    code = "import motley.torch, sys; print([name for name in ('accelerate', 'transformers', 'lightning') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("case", sampled(["trainer", "accelerate", "lightning"], 1))
def test_verify_compares_the_first_step_under_two_splits(frameworks, tmp_path, case):
    python = pathlib.Path(frameworks.folder, "python") if frameworks else pathlib.Path(sys.executable)
    torchrun = [python.with_name("torchrun")] if frameworks else [python, "-m", "torch.distributed.run"]
    done = subprocess.run(
        [BUILD / "motley", "verify", "--python", python, "--json", "--", *torchrun, "--nproc-per-node", "2", SCRIPT, tmp_path, case],
        capture_output=True, text=True, timeout=240, env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["pass"] and found["tensors"] >= 5 and found["splits"] == [[12, 12], [16, 8]]
