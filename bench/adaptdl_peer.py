""
    "AdaptDL's own goodput module beside our choice of the batch, on equal inputs.

    Takes the rows of bench_adapt that carry
        AdaptDL's parameters and adds what its `optimize` chooses and how long a call takes
    : peer_seconds,
      peer_goodput,
      peer_regret(its goodput over ours - 1; not above 0 where ours is the optimum)
              .The packages of adaptdl_requirements.txt are installed into build
          / adaptdl; without a network the rows
stay as they are, and that is said. Usage: adaptdl_peer.py ROWS.json
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build")) / "adaptdl"
CALLS = 9


def install():
    """The peer's Python, or None."""
    python = VENV / "bin/python"
    if not (VENV / "complete").exists():
#AdaptDL asks for packages that its goodput module does not need.
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        for command in (
            [sys.executable, "-m", "venv", VENV],
            [*pip, "-r", ROOT / "bench/adaptdl_requirements.txt"],
        ):
            if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
                return None
        (VENV / "complete").touch()
    return python


def ask(cases):
    """In the peer's Python: what AdaptDL chooses for each case."""
    import numpy

    numpy.int = int  # gone since NumPy 1.24, still used there
    from adaptdl.goodput import GoodputFunction, GradParams, PerfParams

    for case in cases:
#gamma 1 : gradients and their exchange one behind the other.Ours has no term of one node.
        perf = PerfParams(case["alpha_c"], case["beta_c"], case["alpha_n"], case["beta_n"], 1e-8, 1e-8, 1.0)
#Variance over squared gradient is in units of the initial batch.
        grad = GradParams(sqr=1.0, var=case["noise"] / case["initial_batch"])
        initial, most = int(case["initial_batch"]), int(case["most_local"])
        function = GoodputFunction(perf, grad, initial)
        seconds = []
        for _ in range(CALLS):
            start = time.perf_counter()
            goodput, local, steps = function.optimize(
                case["nodes"], case["replicas"], max_batch_size=most * case["replicas"], atomic_bsz_range=(1, most)
            )
            seconds.append(time.perf_counter() - start)
        batch = int(local) * case["replicas"] * (int(steps) + 1)
        yield dict(peer_seconds=statistics.median(seconds), peer_batch=batch, peer_goodput=float(goodput))


def add_peer(rows):
    """Adds the peer's keys to the rows that have parameters; prints what it found."""
    asked = [row for row in rows if "parameters" in row]
    python = asked and install()
    if not python:
        print("adaptdl: not installed; no peer" if asked else "adaptdl: no rows for it")
        return
    done = subprocess.run([python, __file__, "--ask"], input=json.dumps([row["parameters"] for row in asked]),
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode:
        sys.exit(f"adaptdl: {done.stderr}")
    for row, found in zip(asked, json.loads(done.stdout), strict=True):
        row.update(found, peer_regret=found["peer_goodput"] / row["goodput"] - 1)
    regrets = [row["peer_regret"] for row in asked]
    print(f"{len(asked)} cases of AdaptDL's: its goodput over ours - 1 is {min(regrets):.4f} to {max(regrets):.1e}, "
          f"a call takes {statistics.median(row['peer_seconds'] for row in asked) * 1e3:.2f} ms, "
          f"ours {statistics.median(row['seconds'] for row in asked) * 1e6:.1f} us")  # fmt: skip


def main():
    if sys.argv[1] == "--ask":
        print(json.dumps(list(ask(json.load(sys.stdin)))))
        return
    path = pathlib.Path(sys.argv[1])
    result = json.loads(path.read_text())
    add_peer(result["rows"])
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
