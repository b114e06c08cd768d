"""What is said beforehand: intervals, parts, models and devices that were never measured."""

import json
import sqlite3

import numpy as np
import pytest

from conftest import DIGITS

RENTED = """schema = "motley.cluster/1"
name = "rented"
[[node]]
name = "a"
  [[node.device]]
  kind = "rtx4090"
[[node]]
name = "b"
  [[node.device]]
  kind = "t4"
[[link]]
all = true
bandwidth = "10Gbps"
latency = "50us"
"""


def check_prediction(answer):
    """Parts sum to wholes, intervals hold what they are about."""
    low, high = answer["predicted_step_interval_s"]
    assert low < answer["predicted_step_s"] < high
    assert answer["interval_basis"]
    for device, parts in answer["breakdown"].items():
        # Waits for others included, every device's step is the step; what devices vary by is on top.
        assert sum(parts.values()) <= answer["predicted_step_s"] * (1 + 1e-6)
        assert parts["compute_s"] > 0
        memory = answer["memory"][device]
        whole = sum(value for key, value in memory.items() if key.endswith("_bytes"))
        assert whole == answer["peak_bytes"][device]
        assert memory["at"] and memory["largest"][0]["bytes"] > 0
        tensors = whole - memory["framework_bytes"]
        low, high = answer["peak_interval_bytes"][device]
        # Where earlier runs all took some bytes more, the interval is that much above.
        assert low * (1 - 1e-4) <= tensors <= high * (1 + 1e-4)


def test_plan_says_how_far_to_trust_it(motley, mlp, cluster):
    answer = motley("plan", "-m", mlp, "-C", cluster, "--global-batch", 560, "--json").json
    check_prediction(answer)
    assert sum(part["compute_s"] for part in answer["breakdown"].values()) > 0


def test_devices_that_are_not_here_are_planned_by_their_data_sheets(motley, mlp, workspace):
    path = workspace / "rented.toml"
    path.write_text(RENTED)
    answer = motley("plan", "-m", mlp, "-C", path, "--global-batch", 4096, "--profile", "never", "--json").json
    check_prediction(answer)
    assert "device kinds" in answer["interval_basis"]
    assert all(memory["framework_bytes"] > 512 << 20 for memory in answer["memory"].values())
    # A tenth of the bandwidth makes an exchange over it slower, never faster.
    path.write_text(RENTED.replace("10Gbps", "1Gbps"))
    flags = ["plan", "-m", mlp, "-C", path, "--global-batch", 4096, "--batch-split", "2048,2048", "--json"]
    slow = motley(*flags).json["predicted_step_s"]
    path.write_text(RENTED)
    assert slow > motley(*flags).json["predicted_step_s"]


def test_a_profile_is_carried_to_devices_that_are_not_here(motley, mlp, cluster, workspace, tmp_path):
    path, store = workspace / "rented.toml", tmp_path / "p.db"
    path.write_text(RENTED)
    flags = ["-m", mlp, "--global-batch", 256, "--profiles", store]
    planned = ["plan", *flags, "-C", path, "--profile", "never", "--batch-split", "128,128"]
    by_figures = motley(*planned, "--json").json
    assert by_figures["times_from"] == {"a:0": "figures of rtx4090", "b:0": "figures of t4"}
    # What a CPU took under the name of a GPU.
    assert motley("profile", *flags, "--updates", "portable", "-C", cluster).code == 0
    with sqlite3.connect(store) as database:
        for table in ("op", "profiled_batch"):
            # The processor's name, not what it is at a speed or beside others.
            alone = "kind LIKE 'cpu%' AND kind NOT LIKE '% at %' AND kind NOT LIKE '% beside %'"
            database.execute(f"UPDATE {table} SET kind = 'Tesla T4' WHERE {alone}")
    carried = motley(*planned, "--json").json
    check_prediction(carried)
    assert carried["times_from"] == {"a:0": "carried from Tesla T4", "b:0": "carried from Tesla T4"}
    assert "carried to other device kinds" in carried["interval_basis"]
    computes = {device: parts["compute_s"] for device, parts in carried["breakdown"].items()}
    assert computes["a:0"] < computes["b:0"]
    assert computes["b:0"] > 2 * by_figures["breakdown"]["b:0"]["compute_s"]
    assert "times: carried from Tesla T4" in motley(*planned).stdout


def test_a_model_that_was_never_profiled(motley, mlp, cnn, cluster, tmp_path):
    store = ["--profiles", tmp_path / "p.db"]
    common = ["-C", cluster, "--global-batch", 60, *store]
    refused = motley("plan", "-m", mlp, *common, "--profile", "model")
    assert refused.code == 2
    assert "0 measured operators, wanted 10 or more" in refused.stderr
    assert motley("profile", "-m", cnn, *common).code == 0
    assert motley("plan", "-m", mlp, *common, "--profile", "never").code == 2
    outcome = motley("plan", "-m", mlp, *common, "--profile", "model", "--json")
    assert outcome.code == 0, outcome.stderr
    check_prediction(outcome.json)
    assert "not profiled" in outcome.json["interval_basis"]


def test_runs_are_remembered_and_correct_the_profile(motley, mlp, cluster, tmp_path):
    store = ["--profiles", tmp_path / "p.db"]
    common = ["-m", mlp, "-C", cluster, "--global-batch", 60, *store]
    run = ["run", *common, "--data", DIGITS, "--steps", 4, "--resume", "never", "--run-dir", tmp_path / "run"]
    for _ in range(9):
        done = motley(*run, "--batch-split", "34,17,9")
        assert done.code == 0, done.stderr
    answer = motley("plan", *common, "--json").json
    assert answer["interval_basis"] == "9 earlier runs of this model on this cluster"
    corrected = motley("profile", *common, "--from-run", tmp_path / "run", "--json")
    assert corrected.code == 0, corrected.stderr
    assert corrected.json["entries"] == 3  # the pace of each emulated device
    assert motley("profile", *common, "--from-run", tmp_path / "none").code != 0


TWO = """schema = "motley.cluster/1"
name = "two"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
"""


def test_communication_slows_compute_as_measured(motley, mlp, tmp_path):
    cluster, store = tmp_path / "two.toml", tmp_path / "p.db"
    cluster.write_text(TWO)
    # Small buckets: the first exchanges lie beside the rest of the backward pass.
    common = ["-m", mlp, "-C", cluster, "--global-batch", 600, "--profiles", store, "--bucket", "64KiB", "--json"]
    profiled = motley("profile", *common)
    assert profiled.code == 0, profiled.stderr
    with sqlite3.connect(store) as rows:
        found = rows.execute("SELECT kind, threads, backend, route, ranks, factor, samples FROM interference").fetchall()
    assert [each[1:5] for each in found] == [(1, "gloo", "local", 2)]
    assert found[0][0].startswith("cpu ")
    assert 0 <= found[0][5] <= 100 and found[0][6] == 24

    def predict(factor):
        with sqlite3.connect(store) as rows:
            rows.execute("UPDATE interference SET factor = ?", (factor,))
        return motley("simulate", *common, "--batch-split", "300,300").json

    free, half, stopped = predict(0), predict(1), predict(100)
    assert free["step_s"] < half["step_s"] < stopped["step_s"]


def test_conditions_give_distributions(motley, mlp, workspace, tmp_path):
    cluster, conditions = workspace / "rented.toml", tmp_path / "conditions.json"
    cluster.write_text(RENTED)
    common = ["simulate", "-m", mlp, "-C", cluster, "--global-batch", 4096, "--batch-split", "2048,2048", "--json"]
    exact = motley(*common, "--steps", 10).json["step_s"]
    slow = {"device": "b:0", "factor": 2}
    conditions.write_text(json.dumps({"schema": "motley.conditions/1", "slow_downs": [slow]}))
    flags = ["--steps", 10, "--conditions", conditions, "--runs", 20]
    under = motley(*common, *flags).json["under_conditions"]
    # Without jitter every run is the same; the slower device only computes twice as long.
    assert under["step_s"]["p10"] == under["step_s"]["p90"]
    assert exact < under["step_s"]["p50"] <= 2 * exact
    jitter = {"device": "b:0", "per_step": 0.2}
    conditions.write_text(json.dumps({"schema": "motley.conditions/1", "jitter": [jitter]}))
    under = motley(*common, *flags).json["under_conditions"]
    assert under["step_s"]["p10"] < under["step_s"]["p50"] < under["step_s"]["p90"]
    conditions.write_text("{}")
    assert motley(*common, *flags).code == 2


# Two layers of 1 and 2 ms forward a sample on each kind, twice as long backward; 0.5 ms of update.
def layer_times(factor):
    return {
        str(micro): {"1": {str(layer): [factor * micro * (layer + 1) * 1e-3, factor * micro * (layer + 1) * 2e-3,
                                        0.25e-3] for layer in range(2)}}
        for micro in (1, 2, 4)
    }


@pytest.fixture
def layers(tmp_path):
    """Flags of a layer profile in Sailor's form: a V100 twice as slow as an A100."""
    for kind, factor in (("A100-40", 1), ("V100-16", 2)):
        (tmp_path / f"{kind}.json").write_text(json.dumps(layer_times(factor)))
    sizes = {"params_floats": 1000, "params_bytes": 4000, "act_output_bytes": 100, "act_mem_bytes": 1000}
    (tmp_path / "info.json").write_text(json.dumps({"toy": {"1": {"0": sizes, "1": sizes}}}))
    flags = ["--layer-sizes", tmp_path / "info.json", "--layer-model", "toy"]
    for kind in ("A100-40", "V100-16"):
        flags += ["--layer-times", f"{kind}={tmp_path}/{kind}.json"]
    return flags


def test_an_imported_profile_is_planned(motley, layers, tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(RENTED.replace("rtx4090", "a100-40g").replace('"t4"', '"v100-16g"').replace("10Gbps", "100Gbps"))
    outcome = motley("plan", *layers, "-C", path, "--global-batch", 6, "--json")
    assert outcome.code == 0, outcome.stderr
    # 9 ms a sample on one, 18 on the other: 4 and 2 both take 36 ms; then the exchange, then 0.5 ms.
    assert outcome.json["batch_split"] == {"a:0": 4, "b:0": 2}
    assert outcome.json["predicted_step_s"] == pytest.approx(36.5e-3, rel=0.02)
    assert outcome.json["predicted_step_s"] > 36.5e-3
    assert outcome.json["peak_bytes"] == {"a:0": 32000 + 8000, "b:0": 32000 + 4000}


def test_stages_are_planned_from_an_imported_profile(motley, layers, tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(RENTED.replace("rtx4090", "a100-40g").replace('"t4"', '"v100-16g"').replace("10Gbps", "100Gbps"))
    outcome = motley("plan", *layers, "-C", path, "--global-batch", 6, "--planner", "stages", "--json")
    assert outcome.code == 0, outcome.stderr
    # 4 and 2 of 6 samples take 36 ms on both; no plan of stages is quicker.
    plan = outcome.json["plan"]
    assert sorted(replica["samples"] for replica in plan["replicas"]) == [2, 4]
    assert plan["step_s"] == pytest.approx(36.5e-3, rel=0.02)
    assert 35e-3 < outcome.json["lower_bound_s"] <= plan["step_s"]
    assert {stage["kind"] for replica in plan["replicas"] for stage in replica["stages"]} == {"a100-40g", "v100-16g"}
    text = motley("plan", *layers, "-C", path, "--global-batch", 6, "--planner", "stages")
    assert "2 replicas of 1 stage; 1 of 1 a100-40g, 1 of 1 v100-16g" in text.stdout


def test_a_plan_of_layers_is_written_and_simulated(motley, layers, tmp_path):
    cluster, plan, trace = tmp_path / "two.toml", tmp_path / "plan.json", tmp_path / "trace.json"
    cluster.write_text(RENTED.replace("rtx4090", "a100-40g").replace('"t4"', '"v100-16g"').replace("10Gbps", "100Gbps"))
    common = [*layers, "-C", cluster]
    planned = motley("plan", *common, "--global-batch", 6, "--planner", "stages", "-o", plan, "--json")
    assert planned.code == 0, planned.stderr
    assert json.loads(plan.read_text())["schema"] == "motley.plan/1"
    simulated = motley("simulate", *common, "--plan", plan, "--trace", trace, "--json")
    assert simulated.code == 0, simulated.stderr
    assert simulated.json["step_s"] == pytest.approx(planned.json["program_step_s"], rel=1e-6)
    assert simulated.json["step_s"] == pytest.approx(planned.json["plan"]["step_s"], rel=1e-2)
    assert simulated.json["peak_bytes"] > 8 * 4000
    assert any("motley::layer" in event["name"] for event in json.loads(trace.read_text())["traceEvents"])
    program = motley("simulate", *common, "--plan", plan, "--print", "synth").stdout
    assert program.startswith("motley.program/1") and "motley::layer_backward" in program
    # The graph is shown; nobody can run it.
    graph = tmp_path / "layers.txt"
    graph.write_text(motley("simulate", *common, "--plan", plan, "--print", "load").stdout)
    np.savez(tmp_path / "x.npz", samples=np.zeros((6, 1), dtype=np.int64))
    refused = motley("run", "-m", graph, "-C", cluster, "--plan", plan, "--data", tmp_path / "x.npz", "--steps", 1)
    assert refused.code == 2 and "is the graph of a layer profile" in refused.stderr
    # Another profile's plan is stale.
    sizes = json.loads((tmp_path / "info.json").read_text())
    sizes["toy"]["1"]["0"]["params_bytes"] = 8000
    (tmp_path / "info.json").write_text(json.dumps(sizes))
    assert motley("simulate", *common, "--plan", plan).code == 4


# A sample takes 3 and 6 ms in the layers on one kind, 6 and 12 on the other; the update 0.25 ms each.
@pytest.mark.parametrize("planner, step", [
    ("equal-stages", 54.5e-3),  # 3 samples each
    ("uniform-stages", 36.5e-3),  # 4 and 2
    ("amp", 42.25e-3),  # the slow kind has the first layer: 6 ms a stage, 7 times
    ("sailor", 42.25e-3),
    ("harp", 100.25e-3),  # the slow kind comes second, and forwards again: 16 ms, 6 times, after 4
    ("zorse", 36.5e-3),
])  # fmt: skip
def test_narrower_spaces_of_stages_are_planned(motley, layers, tmp_path, planner, step):
    path = tmp_path / "two.toml"
    path.write_text(RENTED.replace("rtx4090", "a100-40g").replace('"t4"', '"v100-16g"').replace("10Gbps", "100Gbps"))
    outcome = motley("plan", *layers, "-C", path, "--global-batch", 6, "--planner", planner, "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["planner"] == planner and outcome.json["outcome"] == "feasible"
    assert outcome.json["plan"]["step_s"] == pytest.approx(step, rel=0.02)
    assert outcome.json["lower_bound_s"] <= outcome.json["plan"]["step_s"]
    assert outcome.json["why"][-1].endswith(" alone; the bound holds for all plans, by rates alone")


def test_an_imported_profile_must_be_possible(motley, layers, tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(RENTED.replace("rtx4090", "a100-40g"))
    times = layer_times(1)
    times["2"]["1"]["0"][0] = -1e-3
    (tmp_path / "A100-40.json").write_text(json.dumps(times))
    outcome = motley("plan", *layers, "-C", path, "--global-batch", 6)
    assert outcome.code == 2
    assert "a100-40g" in outcome.stderr and "micro-batch 2, layer 0" in outcome.stderr
    (tmp_path / "A100-40.json").write_text("{")
    assert motley("plan", *layers, "-C", path, "--global-batch", 6).code == 2
