"""`motley plan`, `simulate`, `probe`, `doctor`: keys, exit codes, messages."""

import pathlib
import subprocess
import tomllib

import pytest

from conftest import CLUSTER


def plan(motley, mlp, cluster, *flags):
    return motley("plan", "-m", mlp, "-C", cluster, "--json", *flags)


def test_plan_has_the_promised_keys(motley, mlp, cluster):
    outcome = plan(motley, mlp, cluster, "--global-batch", 560)
    assert outcome.code == 0, outcome.stderr
    answer = outcome.json
    for key in (
        "planner outcome predicted_step_s lower_bound_s peak_bytes batch_split idle baselines elapsed_s why".split()
    ):
        assert key in answer, key
    assert answer["outcome"] in ("optimal", "feasible")
    assert sum(answer["batch_split"].values()) == 560
    assert answer["lower_bound_s"] <= answer["predicted_step_s"] * (1 + 1e-9)
    assert set(answer["baselines"]) == {"equal_split", "best_single"}
    assert answer["predicted_step_s"] <= answer["baselines"]["equal_split"]["step_s"]
    shares = answer["batch_split"]  # c:0 has a quarter of a:0's speed; twice is within one round's noise
    assert shares["a:0"] > shares.get("c:0", 0)


def test_manual_split_and_exclude(motley, mlp, cluster):
    answer = plan(motley, mlp, cluster, "--global-batch", 60, "--batch-split", "30,20,10").json
    assert answer["batch_split"] == {"a:0": 30, "b:0": 20, "c:0": 10}
    answer = plan(motley, mlp, cluster, "--global-batch", 60, "--exclude", "c:0").json
    assert "c:0" not in answer["batch_split"]


def test_a_time_limit_ends_the_search_with_a_plan(motley, mlp, cluster):
    answer = plan(motley, mlp, cluster, "--global-batch", 60, "--planner", "spmd", "--time-limit", 1e-9).json
    assert answer["outcome"] == "limit"
    assert 0 < answer["lower_bound_s"] <= answer["predicted_step_s"]
    assert any("time limit" in line for line in answer["why"])
    outcome = plan(motley, mlp, cluster, "--global-batch", 60, "--time-limit", -1)
    assert outcome.code == 2 and "--time-limit" in outcome.stderr


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_plans_are_valid_and_repeatable(motley, mlp, cluster, seed):
    first = plan(motley, mlp, cluster, "--global-batch", 60, "--planner", "random", "--seed", seed).json
    again = plan(motley, mlp, cluster, "--global-batch", 60, "--planner", "random", "--seed", seed).json
    assert sum(first["batch_split"].values()) == 60
    assert first["batch_split"] == again["batch_split"]


def test_memory_too_small_is_exit_3_with_arithmetic(motley, mlp, workspace):
    path = workspace / "tiny.toml"
    path.write_text(CLUSTER.replace("speed = 0.8", 'speed = 0.8\n  memory = "1MiB"')
                    .replace("speed = 0.4", 'speed = 0.4\n  memory = "1MiB"')
                    .replace("speed = 0.2", 'speed = 0.2\n  memory = "1MiB"'))
    outcome = motley("plan", "-m", mlp, "-C", path, "--global-batch", 60)
    assert outcome.code == 3
    assert "a:0 needs" in outcome.stderr and "MiB" in outcome.stderr


def test_batch_smaller_than_the_number_of_devices_leaves_some_idle(motley, mlp, cluster):
    answer = plan(motley, mlp, cluster, "--global-batch", 2).json
    assert sum(answer["batch_split"].values()) == 2
    assert answer["idle"] or 0 in answer["batch_split"].values()  # it may have a part of the operators


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("speeed = 0.8", 7, "did you mean 'speed'?"),
        ("speed = 3.0", 5, "speed = 3.0, wanted > 0 and <= 1"),
        ('memory = "12 bananas"', 7, "bananas"),
    ],
)
def test_bad_cluster_is_exit_2_with_line(motley, mlp, workspace, text, line, message):
    path = workspace / "bad.toml"
    path.write_text(CLUSTER.replace("speed = 0.8", text))
    outcome = motley("plan", "-m", mlp, "-C", path, "--global-batch", 60)
    assert outcome.code == 2
    assert f"bad.toml:{line}" in outcome.stderr and message in outcome.stderr


def test_truncated_model_is_exit_2(motley, mlp, cluster, workspace):
    path = workspace / "cut.motley"
    path.write_bytes(mlp.read_bytes()[:-100])
    outcome = motley("plan", "-m", path, "-C", cluster, "--global-batch", 60)
    assert outcome.code == 2 and "cut.motley" in outcome.stderr


def test_unknown_verb_and_flag_get_suggestions(motley):
    outcome = motley("plann")
    assert outcome.code == 2 and "did you mean 'plan'?" in outcome.stderr
    outcome = motley("plan", "--globl-batch", "3")
    assert outcome.code == 2 and "--global-batch" in outcome.stderr


def test_plan_for_a_changed_cluster_is_exit_4(motley, mlp, cluster, workspace):
    path = workspace / "plan.json"
    split = ["--batch-split", "30,30,0"]  # the other cluster has all that it uses
    assert motley("plan", "-m", mlp, "-C", cluster, "--global-batch", 60, *split, "-o", path).code == 0
    other = workspace / "two.toml"
    other.write_text(CLUSTER[: CLUSTER.index('[[node]]\nname = "c"')])
    outcome = motley("simulate", "--plan", path, "-m", mlp, "-C", other)
    assert outcome.code == 4 and "made for cluster" in outcome.stderr and "plan again" in outcome.stderr


def test_simulate_and_phases(motley, mlp, cluster, workspace):
    answer = motley("simulate", "-m", mlp, "-C", cluster, "--global-batch", 60, "--json").json
    for key in "step_s peak_bytes busy_share exposed_comm_s".split():
        assert key in answer
    outcome = motley("plan", "-m", mlp, "-C", cluster, "--global-batch", 60, "--print", "synth")
    assert outcome.stdout.startswith("motley.program/1")
    folder = workspace / "dump"
    motley("plan", "-m", mlp, "-C", cluster, "--global-batch", 60, "--dump-dir", folder)
    assert (folder / "01-load.txt").exists() and (folder / "03-search.txt").exists()


def test_probe_and_doctor(motley, mlp, cluster, workspace):
    path = workspace / "probed.toml"
    outcome = motley("probe", "-o", path, "--json")
    assert outcome.code == 0 and outcome.json["devices"]
    outcome = motley("doctor", "-C", cluster, "-m", mlp, "--json")
    assert outcome.code == 0, outcome.stdout
    assert all(finding["severity"] != "error" for finding in outcome.json["findings"])
    assert motley("plan", "-m", mlp, "-C", path, "--global-batch", 60).code == 0


FAKE_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { return *count = 2, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int length, int device) { return __builtin_strcpy(name, "NVIDIA A10"), 0; }
int cuDeviceTotalMem_v2(unsigned long* bytes, int device) { return *bytes = 22ul << 30, 0; }
int cuDeviceGetUuid(unsigned char* bytes, int device) { return __builtin_memset(bytes, device, 16), 0; }
int cuDeviceCanAccessPeer(int* can, int device, int peer) { return *can = 1, 0; }
"""
FAKE_MANAGEMENT = """
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) { return *device = (void*)uuid, 0; }
int nvmlDeviceGetP2PStatus(void* device, void* peer, int capability, int* status) { return *status = capability != 2, 0; }
"""


def test_probe_writes_gpus_and_how_they_reach_each_other(motley, workspace):
    fakes = workspace / "fakes"
    fakes.mkdir()
    path = workspace / "gpus.toml"

    def probe(**libraries):
        for name, source in libraries.items():
            (fakes / f"{name}.c").write_text(source)
            library = fakes / f"lib{name.replace('_', '-')}.so.1"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, fakes / f"{name}.c"], check=True)
        outcome = motley("probe", "-o", path, "--json", env={"LD_LIBRARY_PATH": str(fakes)})
        assert outcome.code == 0, outcome.stderr
        return tomllib.loads(path.read_text())["node"][0], outcome.json["notes"]

    node, notes = probe(cuda=FAKE_DRIVER)
    assert [device["uuid"][:12] for device in node["device"][1:]] == ["GPU-00000000", "GPU-01010101"]
    assert node["device"][1]["model"] == "NVIDIA A10" and node["device"][1]["memory"] == "22GiB"
    assert "peers" not in node and "cuda: devices reach each other not known how 0-1" in notes
    node, notes = probe(nvidia_ml=FAKE_MANAGEMENT)
    assert node["peers"] == "nvlink" and "cuda: devices reach each other by nvlink 0-1" in notes
    older = FAKE_DRIVER.replace("cuDeviceCanAccessPeer", "cuSomethingElse").replace("cuDeviceGetUuid", "cuAnother")
    node, _ = probe(cuda=older)
    assert "peers" not in node and "uuid" not in node["device"][1] and node["device"][1]["count"] == 2


def test_a_model_without_rules_is_planned_and_says_why_nothing_is_gained(motley, export, workspace):
    source = workspace / "without_rules.py"
    tests = pathlib.Path(__file__).parent
    source.write_text(f"import sys\nsys.path.insert(0, {str(tests)!r})\nimport lowering_models\n"
                      "model = lowering_models.without_rules\n")
    kinds = workspace / "kinds.toml"
    kinds.write_text(
        'schema = "motley.cluster/1"\nname = "kinds"\n[[node]]\nname = "a"\n[[node.device]]\nkind = "a100-40g"\n'
        '[[node]]\nname = "b"\n[[node.device]]\nkind = "v100-16g"\n[[link]]\nall = true\nbandwidth = "10Gbps"\n')
    outcome = motley("plan", "-m", export(f"{source}:model"), "-C", kinds, "--global-batch", 6, "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["batch_split"] == {"a:0": 6} and outcome.json["idle"] == ["b:0"]
    whys = "\n".join(outcome.json["why"])
    assert "whole: no rule for aten::_cdist_forward, aten::_cdist_backward" in whys
    assert "b:0 stays idle: with it the step would take" in whys


def test_graph_only_models_are_planned_but_not_run(motley, export, cluster):
    model = export("mlp.py:model", "--graph-only")
    assert motley("plan", "-m", model, "-C", cluster, "--global-batch", 60).code == 0
    from conftest import DIGITS

    outcome = motley("run", "-m", model, "-C", cluster, "--global-batch", 60, "--data", DIGITS, "--steps", 1)
    assert outcome.code == 2 and "--graph-only" in outcome.stderr
