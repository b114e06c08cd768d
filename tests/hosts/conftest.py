"""The three hosts, and what tests do on them."""

import json
import os
import pathlib
import subprocess
import time

import pytest

from hosts import namespaces

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
PYTHON = os.environ.get("MOTLEY_PYTHON", str(ROOT / ".venv/bin/python"))
MOTLEY = BUILD / "motley"
RATE_MBIT = 200
RUN = f"{MOTLEY} run -m cnn.motley --global-batch 60 --momentum 0.9 --lr 0.05 --data digits.npz --profile-rounds 1 --json"

slow = pytest.mark.skipif(os.environ.get("MOTLEY_SLOW") != "1", reason="make test-hosts runs it")


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    with namespaces.Hosts(folder, {"a": 0.8, "b": 0.4, "c": 0.2}, rate=f"{RATE_MBIT}mbit") as made:
        yield made


@pytest.fixture(scope="session")
def lead(hosts):
    """A host with a model, data and a cluster file that `probe` has written, in its home."""
    a = hosts["a"]
    subprocess.run([PYTHON, "-m", "motley.export", str(ROOT / "examples/digits_cnn.py") + ":model", "-o",
                    str(hosts.keys / "cnn.motley")], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"})
    a.run(f"cp {hosts.keys}/cnn.motley {ROOT}/examples/data/digits.npz .")
    done = a.run(f"{MOTLEY} probe --hosts a,b,c -o cluster.toml", check=False)
    assert done.returncode == 0, done.stderr
    return a


@pytest.fixture(scope="session")
def one_device(lead):
    """Losses of the same training on one device."""
    return run_json(lead, f"{RUN} -C cluster.toml --exclude b:0 --exclude c:0 --steps 20 --run-dir one")["losses"]


def run_json(host, command, code=0):
    done = host.run(command, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def nothing_runs(hosts, within=10):
    """Nothing of a job is left on any host after a while."""
    deadline = time.monotonic() + within
    while any(left := {host.name: host.processes() for host in hosts}.values()):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def begin(lead, folder):
    """A long run, once it trains."""
    process = subprocess.Popen(
        lead.command(f"{RUN} -C cluster.toml --planner equal --steps 100000 --timeout 10 --run-dir {folder} 2>/dev/null"),
        stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while lead.run(f"grep -c step {folder}/log.jsonl", check=False).stdout.strip() in ("", "0", "1", "2", "3"):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.2)
    return process


def ends(process, within=30):
    out, _ = process.communicate(timeout=within)
    return process.returncode, json.loads(out)["error"]["message"] if out.strip() else ""
