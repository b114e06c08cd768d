"""Planning, running and watching from C++ (examples/plan_and_run.cc)."""

import subprocess

from conftest import BUILD, DIGITS


def test_plan_run_and_stop_from_cpp(environment, mlp, cluster, workspace, tmp_path):
    run_dir = tmp_path / "run"
    words = [BUILD / "motley-worker", mlp, cluster, DIGITS, workspace / "profiles.db", run_dir]
    done = subprocess.run([BUILD / "plan_and_run", *words], capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    losses = [float(line.split()[-1]) for line in lines if line.startswith("step ")]
    assert lines[-1].startswith("predicted ") and losses[19] < losses[0]
    # The wish to stop after step 19 is granted after a step that was under way, with a checkpoint.
    assert 20 <= len(losses) < 100
    assert (run_dir / "checkpoint/latest").exists()
