"""What it costs a training over three hosts when one of them, or its process, is lost or comes back (kind `host` of
bench/elastic.py)."""

import os
import pathlib
import shutil
import subprocess
import sys

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
    yield "a process on the lead's host", lambda: a.run("pkill -KILL -x motley-worker"), "a:0 lost; went on", None


def host_rows(folder):
    if missing := namespaces.missing():
        print(f"  not measured: {missing}")
        return []
    export = [sys.executable, "-m", "motley.export", ROOT / "examples/digits_cnn.py:model", "-o", folder / "cnn.motley"]
    subprocess.run(export, check=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
    rows = []
    with namespaces.Hosts(folder, {"a": 0.8, "b": 0.4, "c": 0.2}, rate="200mbit") as hosts:
        lead = hosts["a"]
        shutil.copy(folder / "cnn.motley", lead.home())
        shutil.copy(ROOT / "examples/data/digits.npz", lead.home())
        lead.run(f"{MOTLEY} probe --hosts a,b,c -o cluster.toml")
        lead.run(f"{RUN.replace('100000', '3')} --run-dir measured")
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
