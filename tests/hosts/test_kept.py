"""What a run keeps without a shared file system: checkpoints at the coordinator while rank 0 is elsewhere, the data that each
host reads, and what is left when a host dies or its disk is full.
"""

import json
import subprocess
import time

import pytest

from hosts import namespaces
from hosts.conftest import MOTLEY, PYTHON, RUN, ends, nothing_runs, run_json, slow

pytestmark = pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())

AWAY = f"{RUN} -C cluster.toml --exclude a:0 --planner equal"  # the coordinator's own device is idle: rank 0 is on b


def begin(lead, command, folder, step):
    """A long run, once a checkpoint of so many steps or more is at the coordinator."""
    process = subprocess.Popen(lead.command(f"{command} --steps 100000 --timeout 10 --run-dir {folder} 2>{folder}.err"),
                               stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while latest(lead, folder) < step:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    return process


def latest(lead, folder):
    name = lead.run(f"readlink {folder}/checkpoint/latest", check=False).stdout.strip()
    return int(name[5:]) if name else 0


def checkpoints(lead, folder):
    return sorted(lead.run(f"ls {folder}/checkpoint").stdout.split())


def test_checkpoints_come_while_the_run_goes_on(lead, one_device):
    done = lead.run(f"{AWAY} --steps 12 --checkpoint-every 4 --run-dir come", check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["losses"] == pytest.approx(one_device[:12], rel=1e-5)
    assert "checkpoint of step 12 has come from host b" in done.stderr
    assert checkpoints(lead, "come")[0] == "latest" and latest(lead, "come") == 12
    assert lead.run("cmp come/model.safetensors come/checkpoint/latest/model.safetensors").returncode == 0


@slow
def test_the_best_model_of_a_remote_rank_0_is_published(lead):
    command = f"{AWAY} --steps 12 --eval-data digits.npz --eval-every 2 --ema 0.9"
    run_json(lead, f"{command} --run-dir best")
    state = json.loads(lead.run("cat best/checkpoint/best/state.json").stdout)
    assert state["best"]["step"] == state["step"]
    lead.run("cmp best/model_best.safetensors best/checkpoint/best/model.safetensors; ls best/model_average.safetensors")


@slow
def test_a_lost_host_of_rank_0_costs_no_checkpoint(lead, hosts):
    process = begin(lead, f"{AWAY} --checkpoint-every 10", "lost-first", step=20)
    hosts["b"].run("pkill -KILL -f '[m]otley'", check=False)
    code, message = ends(process)
    assert code == 1 and ("host b" in message or "b:0" in message)
    nothing_runs(hosts)
    step = latest(lead, "lost-first")
    assert step >= 20 and not any(name.endswith(".tmp") for name in checkpoints(lead, "lost-first"))
    steps = step + 5
    one = run_json(lead, f"{RUN} -C cluster.toml --exclude b:0 --exclude c:0 --steps {steps} --run-dir one-{steps}")
    more = run_json(lead, f"{RUN} -C cluster.toml --exclude b:0 --planner equal --steps {steps} --run-dir lost-first")
    assert more["first_step"] == step
    assert more["losses"][-5:] == pytest.approx(one["losses"][-5:], rel=1e-4)


@slow
def test_an_interrupted_run_of_a_remote_rank_0_has_its_last_checkpoint_here(lead, hosts):
    process = begin(lead, f"{AWAY} --checkpoint-every 10", "told", step=10)
    lead.run("pkill -TERM -x motley")
    process.communicate(timeout=40)
    assert process.returncode == 75
    state = json.loads(lead.run("cat told/checkpoint/latest/state.json").stdout)
    steps = [json.loads(line) for line in lead.run("cat told/log.jsonl").stdout.splitlines()]
    assert state["step"] == steps[-1]["step"] + 1
    nothing_runs(hosts)


@pytest.fixture(scope="module")
def stored(lead):
    """The digits in a file that is not packed, whose samples can be taken out; its bytes."""
    lead.run(f"""{PYTHON} -c "import numpy; a = numpy.load('digits.npz'); numpy.savez('stored.npz', **a)" """)
    return int(lead.run("stat -c %s stored.npz").stdout)


def kept_bytes(host):
    """Of excerpts of data that it keeps."""
    return sum(map(int, host.run("stat -c %s .cache/motley/hosts/files/excerpt-* 2>/dev/null", check=False).stdout.split()))


def forget(hosts):
    for host in hosts:
        host.run("rm -rf .cache/motley/hosts/files", check=False)


def test_each_host_is_sent_what_it_reads(lead, hosts, stored):
    forget(hosts)
    command = f"{RUN.replace('digits.npz', 'stored.npz')} -C cluster.toml --batch-split 30,20,10 --steps 29"
    run_json(lead, f"{command} --run-dir epoch")  # 29 batches of 60: an epoch of 1797, but for some
    sent = {name: kept_bytes(hosts[name]) for name in "bc"}
    # Of 1797 samples b reads 20 in 60 and c 10 in 60; numbers of samples are 8 bytes beside 264.
    assert sent["b"] == pytest.approx(stored / 3, rel=0.06) and sent["c"] == pytest.approx(stored / 6, rel=0.06)
    run_json(lead, f"{command} --run-dir epoch-again")
    assert {name: kept_bytes(hosts[name]) for name in "bc"} == sent
    assert hosts["b"].run("ls .cache/motley/hosts/files | grep -c excerpt").stdout.strip() == "1"


@slow
@pytest.mark.parametrize("flags", ["--shuffle none --steps 40", "--shuffle 7 --steps 40",
                                   "--shuffle 7 --steps 20 --eval-data stored.npz[:700] --eval-every 10"])
def test_losses_do_not_depend_on_what_was_sent(lead, hosts, stored, flags):
    """Packed files go whole: the bits are the same. And those of a run that is gone on with."""
    forget(hosts)
    command = f"{RUN} -C cluster.toml --batch-split 30,20,10 {flags}"
    number = len(flags + flags.split()[1])
    whole = run_json(lead, f"{command.replace('stored', 'digits')} --run-dir whole-{number}")
    assert kept_bytes(hosts["b"]) == 0
    command = command.replace("digits.npz", "stored.npz")
    parts = run_json(lead, f"{command} --run-dir parts-{number}")
    assert kept_bytes(hosts["c"]) > 0
    assert parts["losses"] == whole["losses"] and parts["evaluations"] == whole["evaluations"]
    more = command.replace("--steps 40", "--steps 50").replace("--steps 20", "--steps 30")
    more_whole = run_json(lead, f"{more.replace('stored', 'digits')} --run-dir whole-{number}")
    assert run_json(lead, f"{more} --run-dir parts-{number}")["losses"] == more_whole["losses"]


class TinyDisk:
    """A host whose cache is a file system of so many KiB."""

    def __init__(self, host, kib):
        self.host, self.kib = host, kib

    def __enter__(self):
        self.host.run(f"mkdir -p .cache/motley; mount -t tmpfs -o size={self.kib}k none .cache/motley")
        return self

    def fill(self):
        self.host.run("dd if=/dev/zero of=.cache/motley/fill bs=4k", check=False)

    def __exit__(self, *_):
        self.host.run("umount -l .cache/motley", check=False)


@slow
def test_a_host_without_room_for_the_data_is_named(lead, hosts, stored):
    with TinyDisk(hosts["c"], 100):
        done = lead.run(f"{RUN.replace('digits.npz', 'stored.npz[:-1]')} -C cluster.toml --batch-split 20,20,20 --steps 29 "
                        "--run-dir no-room", check=False)
    assert done.returncode == 1
    message = json.loads(done.stdout)["error"]["message"]
    assert "host c" in message and "No space left on device" in message and "make room" in message
    nothing_runs(hosts)


@slow
def test_a_full_disk_of_rank_0s_host_keeps_the_last_checkpoint(lead, hosts):
    with TinyDisk(hosts["b"], 20000) as disk:
        process = begin(lead, f"{AWAY} --checkpoint-every 10", "full", step=10)
        disk.fill()
        code, message = ends(process)
    assert code == 1
    assert "host b" in message and "no space left on the disk, free some" in message
    nothing_runs(hosts)
    step = latest(lead, "full")
    more = run_json(lead, f"{AWAY} --steps {step + 2} --run-dir full")
    assert more["first_step"] == step


@slow
def test_a_full_disk_of_the_lead_keeps_the_last_checkpoint(lead, hosts):
    lead.run("mkdir -p small; mount -t tmpfs -o size=20000k none small")
    try:
        process = begin(lead, f"{AWAY} --checkpoint-every 10", "small/run", step=10)
        lead.run("dd if=/dev/zero of=small/fill bs=4k", check=False)
        code, message = ends(process)
        assert code == 1
        assert "not written" in message and "is kept" in message and "No space left on device" in message
        nothing_runs(hosts)
        step = latest(lead, "small/run")
        lead.run("rm small/fill")
        assert run_json(lead, f"{AWAY} --steps {step + 2} --run-dir small/run")["first_step"] == step
    finally:
        lead.run("umount -l small", check=False)


HELD = f"{RUN} -C cluster.toml --planner random --seed 5 --checkpoint hosts"


def held(lead, folder):
    """Files of the latest checkpoint that hosts keep, by host."""
    state = json.loads(lead.run(f"cat {folder}/checkpoint/latest/state.json").stdout)
    files = {}
    for name, place in state.get("held", {}).items():
        files.setdefault(place["host"], []).append(name)
    return files


def kept_folders(host):
    return host.run("find .cache/motley/hosts/kept -name 'step-*'", check=False).stdout.split()


@slow
def test_hosts_keep_their_parts_of_checkpoints(lead, hosts, one_device):
    run_json(lead, f"{HELD} --steps 7 --checkpoint-every 2 --run-dir held")
    there = held(lead, "held")
    assert "c" in there  # of this plan; rank 0 is on b
    assert not set(there["c"]) & set(lead.run("ls held/checkpoint/latest/").stdout.split())
    assert len(kept_folders(hosts["c"])) == 2  # the newest and the one before
    # Another run of the same ranks reads them where they are.
    more = run_json(lead, f"{HELD} --steps 9 --run-dir held")
    assert more["first_step"] == 7 and more["losses"] == pytest.approx(one_device[:9], rel=1e-4)
    assert not set(there["c"]) & set(lead.run("ls held/checkpoint/step-00000007/").stdout.split())
    # What wants all of it says who has the rest; others that go on bring it.
    done = lead.run(f"{MOTLEY} consolidate held", check=False)
    assert done.returncode == 2 and f"host c has {there['c'][0]}" in done.stderr and "--hosts" in done.stderr
    last = run_json(lead, f"{RUN} -C cluster.toml --planner equal --seed 5 --steps 12 --run-dir held")
    assert last["first_step"] == 9 and last["losses"] == pytest.approx(one_device[:12], rel=1e-4)
    nothing_runs(hosts)


@slow
def test_kept_parts_are_put_together(lead, hosts, one_device):
    done = lead.run(f"{HELD.replace(' --json', '')} --steps 5 --run-dir held-2")
    assert "in parts, on their hosts: motley consolidate held-2 --hosts" in done.stdout
    there = held(lead, "held-2")
    lead.run("cp -r held-2 held-3; sed -i 's/\"host\": \"c\"/\"host\": \"nowhere\"/' held-3/checkpoint/latest/state.json")
    done = lead.run(f"{MOTLEY} consolidate held-3 --hosts", check=False)
    assert done.returncode == 1 and f"host nowhere keeps {there['c'][0]}" in done.stderr
    assert lead.run(f"{MOTLEY} consolidate held-2 --hosts").returncode == 0
    assert held(lead, "held-2") == {}
    assert "model.safetensors" in lead.run("ls held-2/checkpoint/latest/").stdout.split()
    more = run_json(lead, f"{RUN} -C cluster.toml --exclude b:0 --exclude c:0 --seed 5 --steps 8 --run-dir held-2")
    assert more["losses"] == pytest.approx(one_device[:8], rel=1e-4)
    for place in list(kept_folders(hosts["c"])):
        hosts["c"].run(f"rm -rf {place}")
    lead.run("sed -i 's/nowhere/c/' held-3/checkpoint/latest/state.json")
    done = lead.run(f"{MOTLEY} consolidate held-3 --hosts", check=False)
    assert done.returncode == 1 and "is no more there" in done.stderr and "host c" in done.stderr
