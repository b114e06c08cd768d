"""What it costs a training over three hosts when one of them, or its process, is lost or comes back (kind `host` of
bench/elastic.py), or when that of the coordinator is (kind `head`)."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from hosts import namespaces
from hosts.elastic_run import TIMEOUT, Running, summary

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOTLEY = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build")) / "motley"
PORT = 7712
RUN = (f"{MOTLEY} run -m cnn.motley -C cluster.toml --data digits.npz --global-batch 60 --planner equal --elastic "
       f"--adapt none --steps 100000 --timeout {TIMEOUT} --listen {PORT} --profile-rounds 1")  # fmt: skip


def lose_and_join(hosts, run):
    """A case, and what ends it, in turn."""
    a, b, c = hosts["a"], hosts["b"], hosts["c"]
    yield "process on another host", lambda: b.run("pkill -KILL -x motley-worker"), "b:0 lost; went on", None
    yield "it comes back", lambda: a.run(f"{MOTLEY} join a:{PORT} --device b:0"), "b:0 joined; went on", None
    yield "agent", lambda: b.run("pkill -KILL -f 'motley agent'", check=False), "b:0 lost; went on", None
    yield "the host comes back", lambda: a.run(f"{MOTLEY} join a:{PORT} --device b:0"), "b:0 joined; went on", None
    yield "cable", c.unplug, "c:0 lost; went on", TIMEOUT
    c.plug_again()
    yield "the host comes back", lambda: a.run(f"{MOTLEY} join a:{PORT} --device c:0"), "c:0 joined; went on", None
    yield "a process on the coordinator's host", lambda: a.run("pkill -KILL -x motley-worker"), "a:0 lost; went on", None


@contextlib.contextmanager
def three_hosts(folder):
    """With a model, data and a cluster file on the first, and measured; None where they cannot be made."""
    if missing := namespaces.missing():
        print(f"  not measured: {missing}")
        yield None
        return
    export = [sys.executable, "-m", "motley.export", ROOT / "examples/digits_cnn.py:model", "-o", folder / "cnn.motley"]
    subprocess.run(export, check=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
    with namespaces.Hosts(folder, {"a": 0.8, "b": 0.4, "c": 0.2}, rate="200mbit") as hosts:
        lead = hosts["a"]
        shutil.copy(folder / "cnn.motley", lead.home())
        shutil.copy(ROOT / "examples/data/digits.npz", lead.home())
        lead.run(f"{MOTLEY} probe --hosts a,b,c -o cluster.toml")
        lead.run(f"{RUN.replace('100000', '3')} --run-dir measured")
        yield hosts


def head_rows(folder):
    """All of the host that leads is killed; the pause is from then until the next host's log has a step."""
    times = 10 if os.environ.get("MOTLEY_FULL") else 4
    rows = []
    with three_hosts(folder) as hosts:
        for i in range(times if hosts else 0):
            run = Running(hosts["a"], f"head{i}", RUN)
            killed = time.monotonic()
            hosts["a"].run("pkill -KILL -x motley; pkill -KILL -x motley-worker", check=False)
            run.child.wait(10)
            led = next_log(hosts["b"], f"head{i}", killed)
            before = len(led.read_text().splitlines())
            while len(led.read_text().splitlines()) <= before and time.monotonic() < killed + 60:
                time.sleep(0.005)
            pause = time.monotonic() - killed
            time.sleep(0.5)
            hosts["b"].run("pkill -TERM -f -- '[-]-succeed'")
            event = json.loads(wait_for(led.parent / "summary.json").read_text())["membership"][0]
            print(f"  the coordinator's host: pause {pause:.3f} s, {event['lost_steps']} steps done again")
            rows.append({"kind": "head", "case": f"three hosts, {i}", "policy": "motley", "pause_s": pause,
                         "said_pause_s": event["pause_s"], "lost_steps": event["lost_steps"]})  # fmt: skip
    return rows


def wait_for(path, seconds=60):
    limit = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < limit:
        time.sleep(0.002)
    return path


def next_log(host, name, begin):
    """That of the coordinator on the next host, once it is there."""
    while time.monotonic() < begin + 60:
        for found in (host.home() / ".cache/motley/hosts/led").glob(f"{name}-*/log.jsonl"):
            return found
        time.sleep(0.002)
    raise SystemExit(f"nobody leads {name} on")


def host_rows(folder):
    rows = []
    with three_hosts(folder) as hosts:
        if hosts is None:
            return []
        lead = hosts["a"]
        run = Running(lead, "tough", RUN)
        cases = []
        for case, act, words, timeout in lose_and_join(hosts, run):
            before = run.said().count(words)
            act()
            run.wait_for(lambda words=words, before=before: run.said().count(words) > before, 60)
            cases.append((case, timeout))
            run.goes_on()
        run.stop()
        events = summary(lead, "tough")["membership"]
    for (case, timeout), event in zip(cases, events, strict=True):
        row = {"kind": "host", "case": case, "policy": "motley", "pause_s": event["pause_s"], "lost_steps": event["lost_steps"]}
        if timeout:
            row.update(pause_s=timeout + event["pause_s"], timeout_s=timeout)
        print(f"  {case}: pause {row['pause_s']:.3f} s, {row['lost_steps']} steps done again")
        rows.append(row)
    return rows
