"""A host is lost at a random moment, in one of five ways; the run ends, nothing is left, and it goes on exactly.

`MOTLEY_MOMENTS` moments (12), from the command's first instant to well into training: what is being done then may be
reaching hosts, placing files, starting workers, a step or a checkpoint. `MOTLEY_MOMENTS_SEED` draws others. Of each
moment a line goes to moments.jsonl of `MOTLEY_MOMENTS_DIR`, if that is set: how, when, how long the end took.
"""

import json
import os
import pathlib
import random
import subprocess
import time

import pytest

from hosts import namespaces
from hosts.conftest import MOTLEY, RUN, nothing_runs, run_json, slow

pytestmark = [pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing()), slow]

MOMENTS = int(os.environ.get("MOTLEY_MOMENTS", "12"))
SEED = int(os.environ.get("MOTLEY_MOMENTS_SEED", "1"))
WAYS = ("cable", "agent", "sshd", "worker", "lead")
STEPS, MOST_STEPS = 60, 100000
END_WITHIN, NOTHING_WITHIN = 30, 10  # seconds
SILENCE = 20  # after which an agent takes its lead for dead
TRAIN = f"{RUN} -C cluster.toml --batch-split 30,20,10 --timeout 10 --checkpoint-every 10"


@pytest.fixture(scope="module")
def whole(lead):
    """Losses of a run that nothing happens to; profiles are there afterwards."""
    return run_json(lead, f"{TRAIN} --steps {STEPS} --run-dir whole")["losses"]


def lose(way, victim, lead):
    if way == "cable":
        victim.unplug()
    elif way == "lead":
        lead.run("pkill -KILL -x motley", check=False)
    else:
        what = {"agent": "-x motley", "sshd": "-f '[s]shd: root'", "worker": "-x motley-worker"}[way]
        victim.run(f"pkill -KILL {what}", check=False)


def names_a_host(out, victim):
    error = json.loads(out)["error"]
    assert victim.name in error["message"] and error["message"].count(" ") > 4, error
    return error["code"]


def saved_step(lead, run_dir):
    found = lead.run(f"readlink {run_dir}/checkpoint/latest", check=False).stdout.strip()
    return int(found.rsplit("-", 1)[-1]) if found else 0


def write(line):
    folder = os.environ.get("MOTLEY_MOMENTS_DIR")
    if folder:
        with open(pathlib.Path(folder) / "moments.jsonl", "a") as lines:
            lines.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_moment(lead, hosts, whole, number):
    draw = random.Random(SEED * 1000 + number)
    way, victim, moment = WAYS[number % len(WAYS)], hosts[draw.choice("bc")], draw.uniform(0, 12)
    run_dir = f"moment-{number}"
    process = subprocess.Popen(lead.command(f"{TRAIN} --steps {MOST_STEPS} --run-dir {run_dir} 2>/dev/null"),
                               stdout=subprocess.PIPE, text=True)
    time.sleep(moment)
    lose(way, victim, lead)
    lost_at = time.monotonic()
    code = "goes on"
    try:
        try:
            out, _ = process.communicate(timeout=END_WITHIN)
            ended_s = time.monotonic() - lost_at
            code = "killed" if way == "lead" else names_a_host(out, victim)
        except subprocess.TimeoutExpired:
            # There was no agent or worker yet to be killed: then all goes on, and is stopped by its user.
            ended_s = None
            assert way in ("agent", "sshd", "worker") and saved_step(lead, run_dir) > 0, way
            lead.run("pkill -TERM -x motley")
            assert process.wait(timeout=30) == 75
        if way == "cable":  # the agent there notices by itself
            left = lost_at + SILENCE + NOTHING_WITHIN - time.monotonic()
            while victim.processes():
                assert left > 0, victim.processes()
                time.sleep(0.2)
                left -= 0.2
    finally:
        if way == "cable":
            victim.plug_again()
    nothing_runs(hosts, within=SILENCE + NOTHING_WITHIN if way == "cable" else NOTHING_WITHIN)
    first = saved_step(lead, run_dir)
    write({"way": way, "moment_s": moment, "ended_s": ended_s, "code": code, "saved_step": first})
    if first >= STEPS:
        return
    resumed = run_json(lead, f"{TRAIN} --steps {STEPS} --run-dir {run_dir}")
    assert resumed["first_step"] == first
    assert resumed["losses"][-(STEPS - first):] == whole[first:]
