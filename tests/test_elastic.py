"""Runs that go on when devices are lost, leave or come: by kills at instructions of steps and of moves, hangs, commands,
times and notices. What they train is what one device trains."""

import copy
import json
import os
import random
import re
import signal
import subprocess
import threading
import time

import pytest
from conftest import BUILD, DIGITS, ROOT, SLOW
from parity import LIMIT, Family, differences

pytestmark = pytest.mark.usefixtures("priced")


@pytest.fixture(scope="session")
def priced(profiled, mlp, cluster):
    """Times of one model, from which those of all others are modelled."""
    profiled(mlp, cluster, "--global-batch", 60)


@pytest.fixture(scope="session")
def trained_mlp(workspace, cluster, environment):
    return Family("mlp", workspace, cluster, environment)


@pytest.fixture
def family(trained_mlp, tmp_path):
    """The model of the session, and what one device makes of it; runs are in a folder of the test's own."""
    own = copy.copy(trained_mlp)
    own.folder = tmp_path
    return own


def conditions(folder, **what):
    path = folder / "conditions.json"
    path.write_text(json.dumps({"schema": "motley.conditions/1", **what}))
    return path


def fault(device, step, instruction, **more):
    return {"device": device, "step": step, "instruction": instruction, **more}


def membership(family, run_dir):
    return json.loads((family.folder / run_dir / "summary.json").read_text())["membership"]


def train(family, name, faults, *flags, seed=5):
    path = conditions(family.folder, faults=faults)
    found = family.run(name, seed, "--elastic", "--adapt", "none", "--conditions", path, *flags)
    loss, worst, where = differences(found, family.reference(seed))
    assert max(loss, worst) < LIMIT, (name, loss, worst, where)
    return membership(family, name)


def count_instructions(family, run_dir):
    text = (family.folder / run_dir / "program.txt").read_text()
    own = text[text.index('device "') :].split('device "')[1]
    return sum(line.split(" ")[0] in ("compute", "transfer", "peer") for line in own.splitlines())


def test_a_kill_before_any_instruction_does_not_show(family):
    assert train(family, "none", [], "--planner", "equal") == []
    count = count_instructions(family, "none")
    draws = random.Random(3)
    instructions = range(count) if SLOW else sorted({*draws.sample(range(count), 4), count - 1})
    for instruction in instructions:
        device = draws.choice(["a:0", "b:0", "c:0"])
        events = train(family, f"kill{instruction}", [fault(device, 7, instruction)], "--planner", "equal")
        assert len(events) == 1, (device, instruction, count)
        lost = events[0]
        assert lost["lost"] == [device]
        assert lost["lost_steps"] <= 1
        assert lost["step"] in (7, 8)
        assert lost["pause_s"] < 5


@pytest.mark.parametrize("seed", range(20) if SLOW else [3, 8])
def test_kills_under_drawn_plans_do_not_show(tmp_path, cluster, environment, seed):
    draws = random.Random(seed)
    family = Family(draws.choice(["mlp", "gpt_tied", "resnet"]), tmp_path, cluster, environment)
    faults = [fault(draws.choice(["a:0", "b:0", "c:0"]), draws.randrange(1, 19), draws.randrange(40),
                    in_move=draws.random() < 0.3) for _ in range(2)]  # fmt: skip
    train(family, "drawn", faults, "--planner", "random", "--checkpoint-every", 4, seed=seed)


@pytest.mark.parametrize("seed", range(12) if SLOW else [5])
def test_drawn_plans_whose_prices_nobody_knows_are_outlived(motley, cnn, cluster, tmp_path, seed):
    """The batch is split as the plan had it, over the micro-batches that batch normalisation shows."""
    plan, none = tmp_path / "plan.json", tmp_path / "none.db"
    words = ["-m", cnn, "-C", cluster, "--global-batch", 60]
    drawn = motley("plan", *words, "--planner", "random", "--seed", seed, "--profile", "model", "-o", plan)
    assert drawn.code == 0, drawn.stderr
    run = ["run", *words[:4], "--plan", plan, "--profiles", none, "--data", DIGITS, "--steps", 16, "--adapt", "none", "--json"]
    whole = motley(*run, "--run-dir", tmp_path / "whole")
    faults = conditions(tmp_path, faults=[fault("a:0", 6, 9)])
    done = motley(*run, "--run-dir", tmp_path / "run", "--elastic", "--checkpoint-every", 4, "--conditions", faults)
    assert done.code == 0, done.stderr
    assert done.json["losses"] == pytest.approx(whole.json["losses"], rel=1e-5)


def test_two_at_once(family):
    (lost,) = train(family, "two", [fault("a:0", 5, 9), fault("c:0", 5, 9)], "--planner", "equal")
    assert sorted(lost["lost"]) == ["a:0", "c:0"]


def test_a_loss_in_the_first_step(family):
    (lost,) = train(family, "first", [fault("a:0", 0, 9)], "--planner", "equal")
    assert lost["lost"] == ["a:0"] and lost["step"] == 0


def test_one_that_hangs_is_found_by_the_timeout(family):
    (lost,) = train(family, "hangs", [fault("b:0", 5, 9, hangs=True)], "--planner", "equal", "--timeout", 2)
    assert lost["lost"] == ["b:0"]
    assert lost["pause_s"] < 3


def test_evaluations_and_checkpoints_are_made_once(family):
    """A loss while they are due: what is due after a step is done by those that are left."""
    path = conditions(family.folder, faults=[fault("b:0", 10, 3)])
    flags = ["--elastic", "--adapt", "none", "--planner", "equal", "--conditions", path, "--checkpoint-every", 5,
             "--eval-data", family.data, "--eval-every", 5]  # fmt: skip
    family.run("lost", 5, *flags)
    summary = json.loads((family.folder / "lost/summary.json").read_text())
    assert [each["step"] for each in summary["evaluations"]] == [5, 10, 15, 20]
    family.run("whole", 5, "--adapt", "none", "--planner", "equal", "--eval-data", family.data, "--eval-every", 5)
    whole = json.loads((family.folder / "whole/summary.json").read_text())
    for found, wanted in zip(summary["evaluations"], whole["evaluations"], strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-5)


def kill_when(run_dir, rank, steps):
    """The process of a rank, when so many steps were done."""
    log, status = run_dir / "log.jsonl", run_dir / f"status/rank-{rank}"
    end = time.monotonic() + 60
    while time.monotonic() < end and not (log.exists() and len(log.read_text().splitlines()) >= steps):
        pass
    os.kill(int.from_bytes(status.read_bytes()[:8], "little"), signal.SIGKILL)


@pytest.mark.parametrize(("rank", "seed"), [(0, 3), (1, 3), (2, 3)] if SLOW else [(0, 3), (2, 3)])
def test_a_kill_while_a_checkpoint_is_written_does_not_show(family, rank, seed):
    """One a step, which takes longer than the step, with parts of each device: what is killed behind a step is in one."""
    killing = threading.Thread(target=kill_when, args=(family.folder / "kept", rank, 6))
    killing.start()
    (lost,) = train(family, "kept", [], "--planner", "random", "--checkpoint-every", 1, seed=seed)
    killing.join()
    assert " part " in (family.folder / "kept/program.txt").read_text()
    assert lost["lost_steps"] <= 1


RUNNING = []


@pytest.fixture(autouse=True)
def nothing_runs_on():
    """A run that a test leaves behind, as it fails, ends with it."""
    yield
    while RUNNING:
        with RUNNING.pop() as child:
            child.kill()


class Running:
    """A long elastic run under way."""

    def __init__(self, family, environment, *flags, steps=100000):
        self.run_dir = family.folder / "long"
        self.environment = environment
        words = ["run", "-m", family.path, "-C", family.cluster, "--data", family.data, "--global-batch", family.batch,
                 "--steps", steps, "--profile", "model", "--run-dir", self.run_dir, "--elastic", "--adapt", "none",
                 "--planner", "equal", *flags]  # fmt: skip
        self.child = subprocess.Popen([str(BUILD / "motley"), *map(str, words)], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, env=environment)  # fmt: skip
        RUNNING.append(self.child)
        self.wait_for(3)

    def steps(self):
        log = self.run_dir / "log.jsonl"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def wait_for(self, steps):
        end = time.monotonic() + 60
        while self.steps() < steps and time.monotonic() < end and self.child.poll() is None:
            time.sleep(0.05)
        assert self.child.poll() is None, self.child.communicate()
        assert self.steps() >= steps

    def ask(self, *words):
        done = subprocess.run([str(BUILD / "motley"), *map(str, words), "--json"], capture_output=True, text=True,
                              timeout=60, env=self.environment, check=False)  # fmt: skip
        return done.returncode, json.loads(done.stdout)

    def address(self):
        door = json.loads((self.run_dir / "door.json").read_text())
        return f"{door['word']}@127.0.0.1:{door['port']}"

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        out, err = self.child.communicate(timeout=60)
        assert self.child.returncode == 75, (out, err)
        return json.loads((self.run_dir / "summary.json").read_text())["membership"], err


def test_devices_leave_and_come_by_commands(family, environment):
    running = Running(family, environment)
    code, left = running.ask("leave", running.run_dir, "a:0")
    assert code == 0 and left["device"] == "a:0"
    code, again = running.ask("leave", running.run_dir, "a:0")
    assert code == 2 and again["error"]["code"] == "elastic.absent"
    code, come = running.ask("join", running.address())
    assert code == 0 and come["device"] == "a:0" and come["step"] >= left["step"]
    code, full = running.ask("join", running.address())
    assert code == 2 and full["error"]["code"] == "elastic.nobody"
    code, unknown = running.ask("join", running.address(), "--device", "z:9")
    assert code == 2 and unknown["error"]["code"] == "elastic.unknown"
    assert os.stat(running.run_dir / "door.json").st_mode & 0o077 == 0
    events, _ = running.stop()
    assert [each["left"] for each in events] == [["a:0"], []]
    assert [each["joined"] for each in events] == [[], ["a:0"]]
    assert all(each["lost_steps"] == 0 for each in events)
    assert not (running.run_dir / "door.json").exists()
    code, nobody = running.ask("leave", running.run_dir, "a:0")
    assert code == 2 and nobody["error"]["code"] == "run.not-elastic"


def join_new(running, *flags):
    return running.ask("join", running.address(), "--device", "cpu", *flags)


def test_a_device_that_the_cluster_file_has_not_comes(family, environment):
    """It loads while the others train, leaves and comes back as any other, and a run that goes on with this one has it."""
    running = Running(family, environment)
    code, come = join_new(running, "--name", "d", "--speed", 0.4)
    assert code == 0 and come["device"] == "d:0" and come["state"] in ("training", "idle"), come
    code, taken = join_new(running, "--name", "d", "--speed", 0.3)
    assert code == 2 and taken["error"]["code"] == "elastic.taken"
    code, left = running.ask("leave", running.run_dir, "d:0")
    assert code == 0, left
    code, again = running.ask("join", running.address())
    assert code == 0 and again["device"] == "d:0"
    assert running.ask("leave", running.run_dir, "c:0")[0] == 0
    code, other = join_new(running, "--name", "e", "--speed", 0.2)
    assert code == 0 and other["device"] == "e:0", other
    running.wait_for(running.steps() + 5)
    events, said = running.stop()
    assert [each["joined"] for each in events if each["joined"]] == [["d:0"], ["d:0"], ["e:0"]], said
    assert all(each["lost"] == [] and each["lost_steps"] == 0 for each in events)
    assert "d:0" in (running.run_dir / "plan.json").read_text()
    assert "d:0: priced as b:0 at 1 times its speed" in said
    done = running.steps()
    running = Running(family, environment, "--absent", "c:0")
    while not (running.run_dir / "door.json").exists():
        running.wait_for(0)
        time.sleep(0.05)
    for device in ("d:0", "e:0"):
        code, there = running.ask("join", running.address(), "--device", device)
        assert code == 2 and there["error"]["code"] == "elastic.present", "it is of the run that is gone on with"
    running.wait_for(done + 5)
    running.stop()


def test_what_newcomers_train_is_what_one_device_trains(family, environment):
    """One comes, is killed, and comes again, beside a cluster of one device."""
    flags = ["--lr", family.lr, "--seed", 5, "--checkpoint-every", 50]
    running = Running(family, environment, "--exclude", "b:0", "--exclude", "c:0", *flags)
    code, come = join_new(running, "--name", "d", "--speed", 0.4, "--threads", 2)
    assert code == 0 and come["state"] == "training", come
    running.wait_for(running.steps() + 3)
    found = subprocess.run(["pgrep", "-f", f"{running.run_dir}/job.json --rank 1"], capture_output=True, text=True, check=True)
    os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
    running.wait_for(running.steps() + 3)
    code, again = running.ask("join", running.address())
    assert code == 0 and again["device"] == "d:0", again
    running.wait_for(running.steps() + 3)
    events, said = running.stop()
    assert [each["lost"] for each in events if each["lost"]] == [["d:0"]], said
    assert [each["joined"] for each in events if each["joined"]] == [["d:0"], ["d:0"]], said
    losses = json.loads((running.run_dir / "summary.json").read_text())["losses"]
    wanted = family.run("one", 5, "--exclude", "b:0", "--exclude", "c:0", steps=len(losses))
    assert losses == pytest.approx(wanted.losses, rel=1e-5, abs=1e-6)  # after thousands of steps


REFUSED = [
    (["--memory", "4kB"], 3, "elastic.absent", "KiB"),
    (["--host", "nowhere.invalid"], 2, "elastic.one-machine", "nowhere.invalid"),
    (["--speed", 3], 2, "cluster.invalid", "speed"),
    (["--name", "a"], 2, "elastic.taken", "--name"),
    (["--name", "a b"], 2, "cluster.invalid", "name"),
    (["--host", "-oProxyCommand=true"], 2, "", ""),
    (["--latency", "1ms"], 2, "cli.latency", "--bandwidth"),
]


def test_newcomers_that_cannot_come(family, environment):
    """Each is told why; who trains goes on, and nothing is left of them."""
    running = Running(family, environment)
    for flags, code, error, words in REFUSED:
        found, answer = join_new(running, *(["--name", "d"] if "--name" not in flags else []), *flags)
        assert found == code, (flags, answer)
        assert not error or answer["error"]["code"] == error, (flags, answer)
        assert words in answer["error"]["message"], flags
    running.wait_for(running.steps() + 3)
    events, _ = running.stop()
    assert events == []
    assert not (running.run_dir / "newcomers.json").exists()


def test_the_last_device_does_not_leave(family, environment):
    running = Running(family, environment, "--absent", "a:0", "--absent", "b:0")
    code, answer = running.ask("leave", running.run_dir, "c:0")
    assert code == 1 and answer["error"]["code"] == "run.nobody-left"
    running.wait_for(running.steps() + 3)
    code, come = running.ask("join", running.address(), "--device", "b:0")
    assert code == 0 and come["device"] == "b:0"
    running.stop()


def test_a_notice_lets_devices_leave_or_stops_the_run(family, environment):
    notice, told = family.folder / "notice", family.folder / "told"
    hook = f'echo "$MOTLEY_NOTICE_DEVICES" > {told}'
    running = Running(family, environment, "--notice", f"file:{notice}", "--notice-hook", hook)
    notice.write_text("20 b:0")
    end = time.monotonic() + 30
    while running.ask("join", running.address())[1].get("device") != "b:0" and time.monotonic() < end:
        time.sleep(0.2)  # it can come back as soon as it has left
    assert told.read_text() == "b:0\n"
    notice.unlink()
    time.sleep(0.5)
    notice.write_text("20 the whole machine")
    out, err = running.child.communicate(timeout=60)
    assert running.child.returncode == 75, (out, err)
    assert "stopping, with a checkpoint" in err
    events = json.loads((running.run_dir / "summary.json").read_text())["membership"]
    assert events[0]["left"] == ["b:0"] and events[0]["lost_steps"] == 0


@pytest.mark.parametrize(("source", "sent"), [("slurm", signal.SIGUSR1), ("kubernetes", signal.SIGTERM)])
def test_a_signal_that_is_a_notice_stops_the_run(family, environment, source, sent):
    told = family.folder / "told"
    hook = f'echo "$MOTLEY_NOTICE_SOURCE $MOTLEY_NOTICE_LEFT_S" > {told}.new; mv {told}.new {told}'
    running = Running(family, environment, "--notice", f"{source}:45", "--notice-hook", hook)
    running.child.send_signal(sent)
    out, err = running.child.communicate(timeout=60)
    assert running.child.returncode == 75, (out, err)
    assert f"notice of {source}" in err
    end = time.monotonic() + 10  # nobody waits for a hook
    while not told.exists() and time.monotonic() < end:
        time.sleep(0.05)
    found, left = told.read_text().split()
    assert found == source and 40 < float(left) <= 45


def test_plans_that_do_not_outlive_a_loss_are_not_begun(family):
    """Of those that are tried in turn, too."""
    faults = [fault("a:0", 70, 3), fault("c:0", 75, 3)]
    path = conditions(family.folder, faults=faults)
    flags = ["--elastic", "--survive", 1, "--adapt", "plan", "--planner", "auto", "--conditions", path]
    family.run("survives", 5, *flags, steps=200)
    decisions = (family.folder / "survives/decisions.jsonl").read_text().splitlines()
    plans = [json.loads(json.loads(line)["plan"]) for line in decisions if json.loads(line)["plan"]]
    events = membership(family, "survives")
    assert sum(len(each["lost"]) for each in events) >= 1
    assert all(each["lost_steps"] <= 1 for each in events)
    before = [plan for plan, line in zip(plans, decisions, strict=False) if json.loads(line)["begins"] < 70]
    devices = [{name for replica in plan["replicas"] for region in replica["regions"] for name in region["devices"]} for plan in before]
    assert devices and all(len(names) >= 2 for names in devices), devices


def test_absences_of_conditions(family):
    path = conditions(family.folder, absences=[{"device": "b:0", "from_s": 0.05, "until_s": 0.1}])
    family.run("away", 5, "--elastic", "--adapt", "none", "--planner", "equal", "--conditions", path, steps=2000)
    events = membership(family, "away")
    assert events[0]["lost"] == ["b:0"] and events[1]["joined"] == ["b:0"]


def test_too_small_survivors_save_and_stop(motley, cnn, cluster, tmp_path):
    """Two machines hold the batch, one does not: arithmetic, a checkpoint, exit 75; with more it goes on."""
    words = ["-m", cnn, "-C", cluster, "--global-batch", 48, "--profile", "model", "--planner", "equal"]
    peaks = {}
    for excluded in (["c:0"], ["b:0", "c:0"]):
        flags = [word for name in excluded for word in ("--exclude", name)]
        peaks[len(excluded)] = max(json.loads(motley("plan", *words, *flags, "--json").stdout)["peak_bytes"].values())
    small = tmp_path / "small.toml"
    limit = (peaks[1] + peaks[2]) // 2
    small.write_text(re.sub(r"(?m)^(\s*)speed = ", rf'\1memory = "{limit}B"\n\1speed = ', cluster.read_text()))
    words[3] = small
    run = ["run", *words, "--data", ROOT / "examples/data/digits.npz", "--steps", 20, "--run-dir", tmp_path / "run", "--elastic", "--adapt", "none"]
    done = motley(*run, "--conditions", conditions(tmp_path, faults=[fault("a:0", 6, 9), fault("b:0", 9, 9)]))
    assert done.code == 75, done.stderr
    assert "those that are left cannot go on" in done.stderr and "MiB" in done.stderr
    again = motley(*run, "--json")
    assert again.code == 0, again.stderr
    answer = json.loads(again.stdout)
    assert answer["first_step"] == 9 and len(answer["losses"]) == 20


def test_nobody_gives_such_notices(motley, family):
    done = motley("run", "-m", family.path, "-C", family.cluster, "--data", family.data, "--global-batch", family.batch,
                  "--steps", 4, "--profile", "model", "--elastic", "--adapt", "none", "--notice", "moon")  # fmt: skip
    assert done.code == 2 and "moon" in done.stderr, done.stderr
