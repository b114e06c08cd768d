"""Times that are measured beside those of a plan: what a run corrects, what exchanges slow down. What plans say of
times that are known: motley/cli/verbs/verb_plan_test.cc."""

import sqlite3

from conftest import DIGITS


def test_a_run_corrects_the_profile(motley, mlp, cluster, tmp_path):
    common = ["-m", mlp, "-C", cluster, "--global-batch", 60, "--profiles", tmp_path / "p.db"]
    done = motley("run", *common, "--data", DIGITS, "--steps", 4, "--run-dir", tmp_path / "run", "--batch-split", "34,17,9")
    assert done.code == 0, done.stderr
    corrected = motley("profile", *common, "--from-run", tmp_path / "run", "--json")
    assert corrected.code == 0, corrected.stderr
    assert corrected.json["entries"] == 3  # the pace of each emulated device


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


def test_what_communication_slows_compute_by_is_measured(motley, mlp, tmp_path):
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
