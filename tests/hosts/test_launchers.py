"""The same training started by torchrun on every host: in whatever order it counts, with idle devices and spare ranks."""

import json
import subprocess

import pytest

from hosts import namespaces
from hosts.conftest import MOTLEY, PYTHON, ROOT, RUN, nothing_runs, run_json, slow

pytestmark = pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())

PLANS = {"all": "--batch-split 30,20,10", "first-idle": "--exclude a:0 --batch-split 40,20"}


@pytest.fixture(scope="module")
def files(hosts, lead):
    """Model, data, cluster file and plans in each host's home: any may be where rank 0 is."""
    for name, flags in PLANS.items():
        lead.run(f"{MOTLEY} plan -m cnn.motley -C cluster.toml --global-batch 60 --momentum 0.9 --lr 0.05 {flags} "
                 f"-o {name}.json")
    lead.run(f"cp cluster.toml *.json {hosts.keys}")
    for host in hosts:
        host.run(f"cp {hosts.keys}/cnn.motley {hosts.keys}/cluster.toml {hosts.keys}/*.json "
                 f"{ROOT}/examples/data/digits.npz .")


@pytest.fixture(scope="module")
def by_ssh(lead, files):
    return {name: run_json(lead, f"{train(name)} --steps 5 --run-dir ssh-{name}") for name in PLANS}


def train(plan):
    return f"{RUN.replace(' --global-batch 60 --momentum 0.9 --lr 0.05', '')} -C cluster.toml --plan {plan}.json"


def by_torchrun(hosts, order, command, port, per_host=1):
    """What rank 0 prints, which is on the first of `order`; and how all ended."""
    started = [
        subprocess.Popen(
            hosts[name].command(
                f"exec {PYTHON} -m torch.distributed.run --no-python --nnodes {len(order)} --node-rank {rank} "
                f"--nproc-per-node {per_host} --master-addr {order[0]} --master-port {port} {command}"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank, name in enumerate(order)]
    said = [process.communicate(timeout=200) for process in started]
    return said, [process.returncode for process in started]


def answer(said):
    out = said[0][0]
    assert "{" in out, said
    return json.loads(out[out.index("{") : out.rindex("}") + 1])


def test_torchrun_in_another_order(hosts, by_ssh):
    said, codes = by_torchrun(hosts, "cab", f"{train('all')} --steps 5 --run-dir torchrun", 29701)
    assert codes == [0, 0, 0], said
    assert answer(said)["losses"] == by_ssh["all"]["losses"]
    # Rank 0 of the job is on a; what it has written lies where the command was given.
    assert hosts["c"].run("ls torchrun/checkpoint/latest/ torchrun/model.safetensors", check=False).returncode == 0
    nothing_runs(hosts)


@slow
def test_torchrun_with_an_idle_device_and_spare_ranks(hosts, by_ssh):
    said, codes = by_torchrun(hosts, "abc", f"{train('first-idle')} --steps 5 --run-dir torchrun-2", 29702, per_host=2)
    assert codes == [0, 0, 0], said
    assert answer(said)["losses"] == by_ssh["first-idle"]["losses"]


@slow
def test_a_device_whose_host_has_no_rank_is_named(hosts, by_ssh):
    said, codes = by_torchrun(hosts, "ab", f"{train('all')} --steps 5 --run-dir torchrun-3", 29703)
    assert all(codes)
    error = answer(said)["error"]
    assert error["code"] == "host.missing" and "host c:" in error["message"] and "a, b" in error["message"]
    nothing_runs(hosts)


@slow
def test_probe_in_an_allocation(hosts, lead):
    said, codes = by_torchrun(hosts, "bca", f"{MOTLEY} probe --json", 29704)
    assert codes == [0, 0, 0], said
    assert [device["name"] for device in answer(said)["devices"]] == ["b:0", "c:0", "a:0"]
