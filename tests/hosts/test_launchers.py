"""The same training by torchrun, SLURM and MPI: as what starts agents, and as what starts every rank.

In whatever order a launcher counts, with idle devices and spare ranks, the bits are those by ssh.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hosts import namespaces, slurm
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


@slow
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


MPI = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
wants_slurm = pytest.mark.skipif(slurm.missing() != "", reason=slurm.missing())
wants_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (openmpi-bin)")


@pytest.fixture(scope="module")
def allocation(hosts):
    with slurm.Slurm(hosts) as made:
        yield made


@slow
@wants_slurm
@pytest.mark.parametrize("how", ["salloc -N3 -n3 {} --launcher slurm", "srun -N3 -n3 {}", "srun -N3 -n6 {}"])
def test_slurm(hosts, by_ssh, allocation, how):
    command = how.format(f"{train('first-idle')} --steps 5 --run-dir slurm-{len(how)}")
    done = allocation.run(command, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert answer([(done.stdout, done.stderr)])["losses"] == by_ssh["first-idle"]["losses"]
    nothing_runs(hosts)


@slow
@wants_slurm
def test_slurm_by_its_job_file(hosts, by_ssh, allocation):
    """What `motley manifest` writes, given to sbatch: run where and as it says."""
    program, words = train("first-idle").split(" ", 1)
    hosts["a"].run(f"{program} manifest slurm -C cluster.toml --time 00:05:00 -o job.sh -- {words} --steps 5 --run-dir slurm-job")
    path = f"export PATH={Path(program).parent}:$PATH; "
    done = allocation.run(f"{path}sbatch --wait --output job.out job.sh; code=$?; cat job.out; exit $code", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert answer([(done.stdout, done.stderr)])["losses"] == by_ssh["first-idle"]["losses"]
    nothing_runs(hosts)


@slow
@wants_mpi
@pytest.mark.parametrize("how", ["{} --launcher mpi", "mpirun --host a,c,b -n 3 -x MASTER_ADDR=a {}",
                                 "mpirun --host b,a,c -n 3 -x MASTER_ADDR=b -x HOME {}"])
def test_mpi(hosts, by_ssh, how):
    lead = hosts["b"] if "host b" in how else hosts["a"]
    done = lead.run(MPI + how.format(f"{train('all')} --steps 5 --run-dir mpi-{len(how)}"), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert answer([(done.stdout, done.stderr)])["losses"] == by_ssh["all"]["losses"]
    nothing_runs(hosts)
