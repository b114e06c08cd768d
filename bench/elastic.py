"""What losses, leavings and comings cost a training, and whether they show. A row an instance; kinds may be named.

  kill      one of four devices is killed in a step, rank 0 too: pause until training goes on, steps lost
  silent    one stops answering: the same, beside the timeout of a wait
  notice, join   one leaves when it is told to, and comes back; and a machine comes that nobody knew
  campaign  random faults one after another, two at once too, while the training goes on
  sequence  drawn sequences of kills, leavings and comings in 20 SGD steps, of plans of all families, and a kill before
            each instruction, against one device
  host      one of three hosts (tests/hosts/namespaces.py; wants root): its process dies, its agent, its cable is pulled;
            and it comes back
  head      all of the host that leads is killed, and another of three leads on
  after     steps after a loss against those of a run begun by the survivors
  overhead  steps with --elastic against without, in turns
  mirrors   plans in which devices keep parts, sharded and staged: steps with --survive 1 against without, what mirrors
            hold and send; one is killed: pause and steps lost, when plans for losses are ready and at once

Prints a table a kind and writes build/bench/elastic.json. MOTLEY_FULL=1: all of it, not a tenth.
"""

import json
import math
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
FULL = os.environ.get("MOTLEY_FULL") == "1"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench"), str(ROOT / "examples"), str(ROOT / "python")]

import elastic_hosts  # noqa: E402
import emulated  # noqa: E402
import parity  # noqa: E402

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "python"))
FOUR = (0.5, 0.4, 0.3, 0.2)
DEVICES = ["a:0", "b:0", "c:0", "d:0"]


def cluster_text(speeds):
    return emulated.cluster_text(speeds) + '[[link]]\nall = true\nbandwidth = "4Gbps"\nlatency = "100us"\n'


class Place:
    """A CNN, its data, four devices of this machine."""

    def __init__(self, folder, speeds=FOUR):
        self.folder = folder
        self.model, self.cluster = folder / "cnn.motley", folder / "cluster.toml"
        export = [sys.executable, "-m", "motley.export", ROOT / "examples/digits_cnn.py:model", "-o", self.model]
        subprocess.run(export, check=True, capture_output=True, env=ENVIRONMENT)
        self.cluster.write_text(cluster_text(speeds))
        self.words = ["-m", self.model, "-C", self.cluster, "--data", ROOT / "examples/data/digits.npz",
                      "--global-batch", 48, "--profiles", folder / "p.db", "--lr", 0.01]  # fmt: skip
        self.number = 0

    def command(self, steps, *flags):
        self.number += 1
        self.run_dir = self.folder / f"run{self.number}"
        words = ["run", *self.words, "--steps", steps, "--run-dir", self.run_dir, "--json", "-q", *flags]
        return [str(BUILD / "motley"), *map(str, words)]

    def run(self, steps, *flags, limit=180):
        done = subprocess.run(self.command(steps, *flags), capture_output=True, text=True, env=ENVIRONMENT, timeout=limit)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError((done.stdout + done.stderr).strip()[-600:])
        return json.loads(done.stdout)

    def conditions(self, **what):
        path = self.folder / "conditions.json"
        path.write_text(json.dumps({"schema": "motley.conditions/1", **what}))
        return path


def elastic(*flags):
    return ["--elastic", "--adapt", "none", *flags]


def show(row):
    numbers = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
    print("  " + "  ".join(f"{key} {value}" for key, value in numbers.items() if key not in ("kind", "policy")))
    return row


def kill_rows(folder):
    """A fault in the middle of a step, by each device in turn."""
    place, rows = Place(folder), []
    for turn in range(5 if FULL else 2):
        for device in DEVICES:
            fault = {"device": device, "step": 20 + turn, "instruction": 7 + 11 * turn}
            found = place.run(40, *elastic("--conditions", place.conditions(faults=[fault])))
            rows += [{"kind": "kill", "case": f"{device}, instruction {fault['instruction']}", "policy": "motley",
                      "pause_s": each["pause_s"], "lost_steps": each["lost_steps"]} for each in found["membership"]]  # fmt: skip
    pauses = [row["pause_s"] for row in rows]
    print(f"  {len(rows)} kills: pause median {statistics.median(pauses):.3f} s, worst {max(pauses):.3f} s; "
          f"steps lost {max(row['lost_steps'] for row in rows)}")  # fmt: skip
    return rows


def silent_rows(folder):
    place, rows = Place(folder), []
    for device, timeout in [("a:0", 2), ("b:0", 2), ("d:0", 4)][: None if FULL else 2]:
        fault = {"device": device, "step": 20, "instruction": 10, "hangs": True}
        begin = time.monotonic()
        flags = elastic("--conditions", place.conditions(faults=[fault]), "--timeout", timeout)
        place.run(40, *flags)
        whole = time.monotonic() - begin
        path = place.run_dir / "log.jsonl"
        steps = [json.loads(line) for line in path.read_text().splitlines()]
        membership = json.loads((place.run_dir / "summary.json").read_text())["membership"]
        # Until it is noticed the others wait for it, in the step that is done again.
        pause = timeout + membership[0]["pause_s"]
        rows.append(show({"kind": "silent", "case": device, "policy": "motley", "pause_s": pause, "timeout_s": timeout,
                          "lost_steps": membership[0]["lost_steps"], "steps": len(steps), "whole_s": whole}))  # fmt: skip
    return rows


def wait_for_steps(run_dir, count, limit, goes_on=lambda: True):
    """Until so many were done. False: they were not in time, or it did not go on."""
    end, log = time.monotonic() + limit, run_dir / "log.jsonl"
    while time.monotonic() < end and goes_on():
        if log.exists() and len(log.read_text().splitlines()) >= count:
            return True
        time.sleep(0.02)
    return False


class Running:
    """An elastic run under way, whose devices are killed, leave and come."""

    def __init__(self, place, steps, *flags):
        command = [word for word in place.command(steps, *elastic(*flags)) if word != "-q"]
        self.run_dir = place.run_dir
        self.log = place.folder / f"{place.run_dir.name}.log"  # what it says while it trains
        with self.log.open("w") as log:
            self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=ENVIRONMENT)

    def ask(self, *words):
        done = subprocess.run([str(BUILD / "motley"), *map(str, words), "--json"], capture_output=True, text=True, env=ENVIRONMENT, timeout=120)  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def door(self):
        return json.loads((self.run_dir / "door.json").read_text())

    def wait_for_steps(self, count, limit=60):
        return wait_for_steps(self.run_dir, count, limit, lambda: self.child.poll() is None)

    def leave(self, device):
        return self.ask("leave", self.run_dir, device)

    def join(self, device, *flags):
        return self.ask("join", f"127.0.0.1:{self.door()['port']}", "--device", device, *flags)

    def pid(self, rank):
        name = f"{self.run_dir}/job.json --rank {rank} "
        for entry in pathlib.Path("/proc").iterdir():
            try:
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if "motley-worker" in text and name in text:
                return int(entry.name)
        return None

    def kill(self, rank):
        pid = self.pid(rank)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid is not None

    def end(self, limit=180):
        out, _ = self.child.communicate(timeout=limit)
        if self.child.returncode != 0:
            raise RuntimeError((out + self.log.read_text()).strip()[-600:])
        return json.loads(out)


def notice_rows(folder):
    """Devices of the cluster file; then one that neither it nor the profile has."""
    place, rows = Place(folder), []
    for device in DEVICES[: None if FULL else 2]:
        running = Running(place, 600)
        running.wait_for_steps(20)
        running.leave(device)
        running.join(device)
        rows += change_rows(running, device)
    for speed in (0.5, 0.3, 0.2)[: None if FULL else 2]:
        running = Running(place, 600)
        running.wait_for_steps(20)
        running.join("cpu", "--name", "new", "--speed", speed)
        rows += change_rows(running, f"unknown, {speed} of a core")
    return rows


def change_rows(running, case):
    """A row for each change of who trains, when the run is stopped now."""
    running.child.send_signal(signal.SIGTERM)
    running.child.communicate(timeout=60)
    summary = json.loads((running.run_dir / "summary.json").read_text())
    rows = []
    for each in summary["membership"]:
        kind = "notice" if each["left"] else "join"
        rows.append(show({"kind": kind, "case": case, "policy": "motley", "pause_s": each["pause_s"],
                          "lost_steps": each["lost_steps"]}))  # fmt: skip
    return rows


def campaign_rows(folder, faults=None):
    """Devices are killed at random times, now and then two at once, and come back; one training after another."""
    place, random_numbers = Place(folder), random.Random(11)
    wanted = faults or (1000 if FULL else 100)
    row = {"kind": "campaign", "case": "four devices", "policy": "motley", "faults": 0, "hung": 0, "lost_steps": 0,
           "events": 0, "pause_s": 0.0}  # fmt: skip
    pauses, worst = [], 0
    while row["faults"] < wanted:
        running = Running(place, 100000, "--timeout", "10", "--survive", 1)
        if not running.wait_for_steps(3):
            raise RuntimeError("it did not begin: " + running.log.read_text()[-600:])
        for _ in range(25):
            time.sleep(random_numbers.uniform(0.02, 0.5))
            before = len((running.run_dir / "log.jsonl").read_text().splitlines())
            victims = random_numbers.sample(range(4), 2 if random_numbers.random() < 0.2 else 1)
            alive = [rank for rank in range(4) if running.pid(rank)]
            victims = [rank for rank in victims if rank in alive]
            if not victims or len(alive) - len(victims) < 1:
                victims = []
            row["faults"] += sum(running.kill(rank) for rank in victims)
            if not running.wait_for_steps(before + 2, limit=30):
                if running.child.poll() is None:
                    row["hung"] += 1
                break
            if random_numbers.random() < 0.7:
                for rank in [rank for rank in range(4) if not running.pid(rank)]:
                    running.join(DEVICES[rank])
        if running.child.poll() is None:
            running.child.send_signal(signal.SIGTERM)
        running.child.communicate(timeout=60)
        summary = running.run_dir / "summary.json"
        if not summary.exists():
            print("  ended:", running.log.read_text().strip()[-400:])
            row["hung"] += 1
            continue
        for each in json.loads(summary.read_text())["membership"]:
            if each["lost"]:
                row["events"] += 1
                row["lost_steps"] += each["lost_steps"]
                worst = max(worst, each["lost_steps"])
                pauses.append(each["pause_s"])
        print(f"  {row['faults']} faults, {row['hung']} hung, {row['lost_steps']} steps done again "
              f"(at most {worst} a time), pause median {statistics.median(pauses):.3f} s, worst {max(pauses):.3f} s")  # fmt: skip
    row["pause_s"], row["worst_pause_s"], row["worst_lost_steps"] = statistics.median(pauses), max(pauses), worst
    return [show(row)]


LONG_S, SLOW = 0.3, 20  # a step where devices come back: 20 of them are longer than that takes; by so much slower devices at most


def slowed(factor):
    return [{"device": device, "from_s": 0, "factor": factor} for device in DEVICES[:3]]


def plan_ways():
    return [["--planner", "equal"], ["--planner", "split"], *(["--planner", "random"] for _ in range(8))]


def sequence_rows(folder):
    """Families of models under plans of all kinds, with drawn faults; the result is one device's."""
    rows, draws = [], random.Random(5)
    cluster = folder / "cluster.toml"
    cluster.write_text(cluster_text((0.5, 0.4, 0.3)))
    parity.profile(cluster, folder, ENVIRONMENT)
    names = ["mlp", "gpt_tied", "resnet"] if not FULL else [n for n in parity.NAMES]
    families, slower, path = {}, {}, folder / "conditions.json"
    for number in range(200 if FULL else 20):
        name = draws.choice(names)
        if name not in families:
            families[name] = parity.Family(name, folder / f"f{name}", cluster, ENVIRONMENT)
            path.write_text(json.dumps({"schema": "motley.conditions/1", "slow_downs": slowed(SLOW)}))
            families[name].run("slow", 0, "--adapt", "none", "--planner", "equal", "--conditions", path)
            slower[name] = min(SLOW, max(1.0, SLOW * LONG_S / statistics.median(steps_of(families[name].folder / "slow"))))
        family, way = families[name], draws.choice(plan_ways())
        faults = [{"device": draws.choice(DEVICES[:3]), "step": draws.randrange(1, 19),
                   "instruction": draws.randrange(0, 60), "in_move": draws.random() < 0.2}
                  for _ in range(draws.choice([1, 1, 2]))]  # fmt: skip
        devices = {fault["device"] for fault in faults}
        run_dir, notice, conditions = f"run{number}", folder / f"notice{number}", {"faults": faults}
        if number % 2:
            goes, leaves, stays = draws.sample(DEVICES[:3], 3)
            conditions["faults"] = [each for each in faults if each["device"] != stays]  # the job ends with the last one
            gone, back = draws.uniform(0.2, 2), draws.uniform(0.2, 1)
            conditions["absences"] = [{"device": goes, "from_s": gone, "until_s": gone + back}]
            conditions["slow_downs"] = slowed(slower[name])
            threading.Thread(target=give_notice, args=(notice, leaves, family.folder / run_dir, draws.randrange(1, 15)), daemon=True).start()
        path.write_text(json.dumps({"schema": "motley.conditions/1", **conditions}))
        flags = ["--elastic", "--adapt", "none", "--conditions", path, "--notice", f"file:{notice}", "--checkpoint-every", draws.choice([0, 5]), *way]
        found = family.run(run_dir, number, *flags)
        loss, worst, where = parity.differences(found, family.reference(number))
        summary = json.loads((family.folder / run_dir / "summary.json").read_text())
        events = summary["membership"]
        rows.append(show({"kind": "sequence", "case": f"{name} {way[1]} {number}", "policy": "motley",
                          "faults": len(devices), "events": len(events), "left": sum(bool(each["left"]) for each in events),
                          "joined": sum(bool(each["joined"]) for each in events),
                          "lost_steps": sum(each["lost_steps"] for each in events),
                          "max_param_diff": max(loss, worst)}))  # fmt: skip
    print(f"  worst {max(row['max_param_diff'] for row in rows):.2g} of {len(rows)}")
    return rows


def give_notice(path, device, run_dir, steps):
    """That a device will be gone, when so many steps were done."""
    wait_for_steps(run_dir, steps, 120)
    path.write_text(f"20 {device}")


def instruction_rows(folder):
    """A kill before each instruction of each device."""
    rows = []
    cluster = folder / "cluster.toml"
    cluster.write_text(cluster_text((0.5, 0.4, 0.3)))
    parity.profile(cluster, folder, ENVIRONMENT)
    family = parity.Family("mlp", folder / "fmlp", cluster, ENVIRONMENT)
    family.run("first", 5, "--elastic", "--adapt", "none", "--planner", "equal")
    counts, device = {}, None
    for line in (family.folder / "first/program.txt").read_text().splitlines():
        if line.startswith("device "):
            device = line.split('"')[1]
        if line.split(" ")[0] in ("compute", "transfer", "peer") and device:
            counts[device] = counts.get(device, 0) + 1
    for device, count in counts.items():
        for instruction in range(0, count, 1 if FULL else 6):
            path = folder / "conditions.json"
            fault = {"device": device, "step": 7, "instruction": instruction}
            path.write_text(json.dumps({"schema": "motley.conditions/1", "faults": [fault]}))
            name = f"k{device[0]}{instruction}"
            found = family.run(name, 5, "--elastic", "--adapt", "none", "--planner", "equal", "--conditions", path)
            loss, worst, _ = parity.differences(found, family.reference(5))
            events = json.loads((family.folder / name / "summary.json").read_text())["membership"]
            rows.append(show({"kind": "sequence", "case": f"{device} before ^{instruction} of {count}", "policy": "motley",
                              "faults": 1, "events": len(events), "lost_steps": sum(e["lost_steps"] for e in events),
                              "max_param_diff": max(loss, worst)}))  # fmt: skip
    print(f"  worst {max(row['max_param_diff'] for row in rows):.2g} of {len(rows)}")
    return rows


def steps_of(run_dir):
    return [json.loads(line)["step_s"] for line in (run_dir / "log.jsonl").read_text().splitlines()]


def after_rows(folder):
    place, rows = Place(folder), []
    for device in DEVICES[: None if FULL else 2]:
        fault = {"device": device, "step": 10, "instruction": 5}
        times = ([], [])
        for _ in range(3):
            place.run(80, *elastic("--conditions", place.conditions(faults=[fault])))
            times[0].append(statistics.median(steps_of(place.run_dir)[-50:]))
            place.run(80, *elastic("--exclude", device))
            times[1].append(statistics.median(steps_of(place.run_dir)[-50:]))
        rows.append(show({"kind": "after", "case": device, "policy": "motley", "step_s": min(times[0]),
                          "reference_step_s": min(times[1]), "ratio": min(times[0]) / min(times[1])}))  # fmt: skip
    return rows


def overhead_rows(folder):
    place, rows = Place(folder), []
    for speeds in (FOUR, (0.8, 0.4, 0.2))[: 2 if FULL else 1]:
        place.cluster.write_text(cluster_text(speeds))
        times = ([], [])
        for _ in range(5):
            for kind, flags in enumerate((["--elastic"], [])):
                place.run(100, *flags, "--adapt", "none", "--planner", "split")
                times[kind].append(statistics.median(steps_of(place.run_dir)[20:]))
        ratios = [a / b for a, b in zip(*times, strict=True)]
        rows.append(show({"kind": "overhead", "case": ":".join(map(str, speeds)), "policy": "motley",
                          "step_s": min(times[0]), "reference_step_s": min(times[1]),
                          "ratio": statistics.median(ratios)}))  # fmt: skip
    return rows


def find_plan(place, kind, adam):
    """The first drawn one that is sharded or has stages and that all four devices have a part in."""
    path = place.folder / f"{kind}.json"
    for seed in range(500):
        words = ["plan", *place.words[:4], *place.words[6:], *adam, "--planner", "random", "--seed", seed, "-o", path, "-q"]
        subprocess.run([str(BUILD / "motley"), *map(str, words)], check=True, capture_output=True, env=ENVIRONMENT)
        replicas = json.loads(path.read_text())["replicas"]
        regions = [region for replica in replicas for region in replica["regions"]]
        is_staged = any(len(replica["regions"]) > 1 for replica in replicas)
        is_split = any(split != "whole" for region in regions for split in region.get("operators", []))
        devices = {device for region in regions for device in region["devices"]}
        if len(devices) == 4 and is_staged == (kind == "staged") and (is_staged or is_split):
            return path
    raise RuntimeError(f"no {kind} plan was drawn")


def mirror_bytes(run_dir):
    """What mirrors hold, and what comes for them in a step, on all devices: from the program."""
    kept = sent = 0
    sizes = {}
    for line in (run_dir / "program.txt").read_text().splitlines():
        if found := re.match(r"buffer %(\d+): (\w+) (\w+)\[(.*?)\]", line):
            width = {"f64": 8, "i64": 8, "bf16": 2, "f16": 2}.get(found[3], 4)
            sizes[found[1]] = width * math.prod(int(size) for size in found[4].split(", ") if size)
            kept += sizes[found[1]] if found[2] == "mirror" else 0
        elif found := re.match(r'peer \^\d+: %(\d+) = motley::receive.* "mirror', line):
            sent += sizes[found[1]]
    return kept, sent


def mirror_rows(folder):
    place, rows = Place(folder), []
    adam = ["--optimizer", "adam"]
    place.run(2, "--planner", "equal", *adam)  # what is not known is measured
    for kind in ("sharded", "staged"):
        flags = ["--adapt", "none", *adam, "--plan", find_plan(place, kind, adam)]
        times = ([], [])
        for _ in range(5 if FULL else 3):
            for number, more in enumerate((["--survive", 1], [])):
                place.run(60, "--elastic", *more, *flags)
                times[number].append(statistics.median(steps_of(place.run_dir)[20:]))
                if more:
                    kept, sent = mirror_bytes(place.run_dir)
        rows.append(show({"kind": "mirrors", "case": kind, "policy": "motley", "step_s": min(times[0]),
                          "reference_step_s": min(times[1]), "ratio": min(times[0]) / min(times[1]),
                          "kept_bytes": kept, "step_bytes": sent}))  # fmt: skip
        for step in (1, 150):
            for device in DEVICES:
                path = place.conditions(faults=[{"device": device, "step": step, "instruction": 9}])
                found = place.run(200, "--elastic", "--survive", 1, "--conditions", path, *flags)
                rows += [{"kind": "mirrors", "case": f"{kind}, {device} in step {step}", "policy": "motley",
                          "pause_s": each["pause_s"], "lost_steps": each["lost_steps"]} for each in found["membership"]]  # fmt: skip
            pauses = [row["pause_s"] for row in rows if row["case"].startswith(kind) and row["case"].endswith(f" {step}")]
            lost = [row["lost_steps"] for row in rows if row["case"].startswith(kind) and "lost_steps" in row]
            print(f"  {kind}, {len(pauses)} kills in step {step}: pause median {statistics.median(pauses):.3f} s, "
                  f"worst {max(pauses):.3f} s; steps lost {max(lost)}")  # fmt: skip
    return rows


KINDS = {"kill": kill_rows, "silent": silent_rows, "notice": notice_rows, "campaign": campaign_rows,
         "sequence": sequence_rows, "instruction": instruction_rows, "host": elastic_hosts.host_rows,
         "head": elastic_hosts.head_rows,
         "after": after_rows, "overhead": overhead_rows, "mirrors": mirror_rows}  # fmt: skip


def main():
    rows = []
    for kind in sys.argv[1:] or KINDS:
        print(kind)
        with tempfile.TemporaryDirectory() as folder:
            rows += KINDS[kind](pathlib.Path(folder))
        target = BUILD / "bench/elastic.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
