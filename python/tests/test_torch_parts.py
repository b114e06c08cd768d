"""motley.torch in its parts, without ranks and by told times: clocks, memory, logs, `verify`. With ranks: tests/test_torch.py."""

import ctypes
import json
import math
import os
import socket
import subprocess
import sys
import threading
import types

import motley.torch
import pytest
import torch
from motley.library import NO_MOST
from motley.torch import batches, clocks, ending, memory, mesh, norm, refusals, run_log, session, trial, verify
from torch import nn
from torch.utils.data import TensorDataset


class ToldTime:
    """In place of `time`."""

    def __init__(self):
        self.now, self.spent = 0.0, 0.0
        self.asleep = lambda: None

    def perf_counter(self):
        return self.now

    monotonic = perf_counter

    def process_time(self):
        return self.spent

    def sleep(self, seconds):
        self.now += seconds
        self.asleep()


@pytest.fixture
def told(monkeypatch):
    """Passes where a test says so; the host has the limits `told.limits`."""
    told = ToldTime()
    told.limits = {"cpu_quota": None, "memory": None}
    for module in (clocks, ending, memory):
        monkeypatch.setattr(module, "time", told)
    monkeypatch.setattr(clocks.library, "host_limits", lambda: told.limits)
    return told


def test_a_step_s_work_leaves_out_waits(told):
    clock = clocks.HostClock()
    assert clock.stop()() == clocks.UNKNOWN  # nothing has begun
    clock.begin()
    told.now += 3
    for _ in range(2):
        with clock.waiting():
            told.now += 10
    told.now += 2
    read = clock.stop()
    told.now += 100
    assert read() == 5
    clock.begin()  # waits are of one step
    told.now += 1
    assert clock.stop()() == 1
    clock.forget()
    assert clock.stop()() == clocks.UNKNOWN


def test_a_step_s_work_takes_what_a_quota_makes_of_it(told):
    """4 s of a processor under half a core are 8 s, however quickly they went by; a wait saves nothing up."""
    told.limits = {"cpu_quota": 0.5, "memory": None}
    clock = clocks.HostClock()
    clock.begin()
    clock.stop()
    clock.begin()
    told.now, told.spent = told.now + 5, told.spent + 4
    assert clock.stop()() == 8
    told.limits = {"cpu_quota": None, "memory": None}  # is seen a quarter of a second later
    clock.begin()
    told.now, told.spent = told.now + 0.2, told.spent + 4
    assert clock.stop()() == 8
    clock.begin()
    told.now, told.spent = told.now + 0.2, told.spent + 4
    assert clock.stop()() == pytest.approx(0.2)


def test_a_whole_step_begins_where_the_one_before_ended(told):
    steps = clocks.StepClock()
    told.now = 7
    steps.take()
    told.now = 9
    steps.end()
    assert steps.took == 2
    told.now = 12
    steps.take()
    told.now = 13
    steps.end()
    assert steps.took == 4
    told.now = 14  # a second backward pass of the step
    steps.end()
    assert steps.took == 5
    steps.forget()  # an evaluation
    told.now = 100
    steps.take()
    told.now = 101
    steps.end()
    assert steps.took == 1


def write_task(folder, name, state):
    (folder / "77").mkdir(exist_ok=True)
    (folder / "77/stat").write_text(f"77 (a) ({name}) {state} 1 77 77 0")


@pytest.mark.parametrize(("name", "busy_s", "is_idle", "least", "most"), [
    ("pt_gloo_runloop", 0.5, True, 0.5, 0.7),
    ("another", 9, True, 0, 0.2),
    ("pt_gloo_runloop", 9, False, 2, 2.1),  # is not waited for for ever
])  # fmt: skip
def test_a_script_ends_when_gloo_s_threads_are_idle(told, tmp_path, monkeypatch, name, busy_s, is_idle, least, most):
    monkeypatch.setattr(ending, "TASKS", str(tmp_path))
    monkeypatch.setattr(ending, "LOOK_S", 0.1)
    told.asleep = lambda: write_task(tmp_path, name, "R" if told.now < busy_s else "S")
    told.asleep()
    assert ending.await_idle() == is_idle and least <= told.now <= most


def test_threads_are_found_by_their_names():
    """One that works, and then waits for work."""
    rests, ends = threading.Event(), threading.Event()

    def work():
        ctypes.CDLL(None).prctl(15, ending.THREADS.encode(), 0, 0, 0)
        while not rests.is_set():
            pass
        ends.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:  # while this thread has the interpreter the other one waits for it
        assert any(ending.is_busy(task) for _ in range(10000) for task in os.listdir(ending.TASKS))
        rests.set()
        assert any(not ending.is_busy(str(thread.native_id)) for _ in range(10000))
    finally:
        rests.set()
        ends.set()
        thread.join()


class ToldMemory:
    keeps_rest = False

    def __init__(self, in_use, peak, there):
        self.values = in_use, peak, there

    def in_use(self):
        return self.values[0]

    def peak(self):
        return self.values[1]

    def there_is(self, sharing):
        return self.values[2] / sharing


def test_what_fits_follows_from_what_samples_took(told):
    """In use 100, at the peak 400 with 10 samples: 30 a sample. Of 1000 there are 950; the 550 left are 18 more samples."""
    line = nn.Linear(4, 4, bias=False)  # 64 bytes, and as many of gradients, which no step has had
    found = memory.Memory(torch.device("cpu"), lambda: list(line.parameters()))
    found.of = ToldMemory(in_use=36, peak=400, there=1000)
    assert found.most(10) == NO_MOST  # before a step
    told.now = 2
    found.begin()
    for _ in range(2):
        found.end()
        # For what an optimizer makes twice the parameters are kept free: 422 are left, 14 more.
        assert found.most(10) == 24
    found.end()
    assert found.most(10) == 28
    assert found.most(4) == 28  # the most that there were
    found.of.values = (36, 400, 700)
    assert found.most(10) == 28  # others come and go by the second
    told.now = 4
    assert found.most(10) == 18  # 265 left
    told.now, found.sharing = 6, 2
    assert found.most(10) == 10  # it has what it has


def test_a_control_group_limits_memory(told, monkeypatch):
    monkeypatch.setattr(memory, "_meminfo", {"MemTotal": 1000, "MemAvailable": 400}.get)
    host = memory.HostMemory()
    monkeypatch.setattr(host, "in_use", lambda: 100)
    assert host.there_is(2) == 300 and len(host.place()) == 1
    told.limits = {"cpu_quota": None, "memory": 500}
    host = memory.HostMemory()
    monkeypatch.setattr(host, "in_use", lambda: 100)
    assert host.there_is(2) == 250 and host.there_is(1) == 500 and socket.gethostname() in host.place()


def test_who_runs_out_of_memory_is_told_what_to_write():
    def said(samples, fitted):
        return session.Session.explain_memory(types.SimpleNamespace(rank=1, samples=samples, fitted=fitted))

    assert said([4, 9], 8) == (
        "motley.torch: rank 1 ran out of memory with 9 samples; 8 fitted. Say what it holds: share(loader, most=8 if rank == 1 else None)"
    )
    assert "with 9 samples; none fitted yet; try 4. Say what it holds: share(loader, most=4 if" in said([4, 9], 0)
    assert "rank 1 ran out of memory; none fitted yet; try 1. " in said(None, 0)


def test_an_error_of_memory_is_known(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    refusals.tell_on_memory(types.SimpleNamespace(explain_memory=lambda: "what fits"))
    for error, is_told in ((torch.OutOfMemoryError(), True), (MemoryError("can't allocate memory"), True), (RuntimeError("a shape"), False)):
        sys.excepthook(type(error), error, None)
        assert ("what fits" in capsys.readouterr().err) == is_told


def test_a_change_is_behind_what_is_drawn():
    """Three batches are drawn and one is taken of a loader that draws three ahead: the fifth is the first that nobody has."""
    drawn = batches.Drawn()
    drawn.begin([1, 1])
    for _ in range(3):
        assert drawn.next_weights() == [1, 1]
        drawn.draw([2, 2])
    assert drawn.take() == [2, 2]
    drawn.change(3, [3, 1])
    assert drawn.next_weights() == [1, 1]
    drawn.draw([2, 2])
    assert drawn.next_weights() == [3, 1]
    drawn.draw([3, 1])
    assert [drawn.take() for _ in range(4)] == [[2, 2]] * 3 + [[3, 1]]


def lines_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_a_log_has_what_ranks_said_of_a_step(tmp_path):
    log = run_log.RunLog(str(tmp_path / "run"), ["a:0", "b:0"])
    log.step(1.5, 2, [3, 1], [10.0, 20.0])  # two passes
    log.step(0.5, 1, [3, 1], [11.0, 20.0])
    log.tell([0.25, 0.5], [0.125, 0.5])
    log.tell([0.0, 0.5], [0.125, math.nan])  # rank 0 has evaluated; nobody knows the loss
    log.step(0.5, 1, [3, 1], [11.0, 20.0])
    log.close()
    first, second, third = lines_of(tmp_path / "run")
    assert first == {"step": 0, "loss": 0.625, "step_s": 1.5, "samples": [6, 2], "compute_s": [0.5, 1.0], "peak_bytes": [10, 20]}
    assert second == {"step": 1, "loss": None, "step_s": 0.5, "samples": [3, 1], "compute_s": [], "peak_bytes": [11, 20]}
    assert third["step"] == 2 and third["compute_s"] == []  # the last one's exchange never came
    found = read(tmp_path / "run", "summary.json")
    assert found == {"steps": 3, "losses": [0.625, None, None], "step_s_median": 0.5, "stopped": False, "run_dir": str(tmp_path / "run")}


def test_a_log_says_what_came_of_a_decision(tmp_path):
    """Steps take 2 s, then 1 s; the first of each split may take anything."""
    log = run_log.RunLog(str(tmp_path), ["a:0", "b:0"])
    log.decide("start", [2, 2], 0, "even")
    for step, took in enumerate([9, 2, 7, 1]):
        if step == 1:
            log.decide("motley", [3.0, 1.0], 1, "quicker", expected=1.25)
        log.step(took, 1, [2, 2], [0.0, 0.0])
        log.tell([1.0, 1.0], [0.0, 0.0])
    log.close()
    start, change = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    assert (start["before_s"], start["came_s"], start["begins"]) == (None, 2, 0)
    assert (change["seen_step"], change["at"], change["begins"], change["before_s"], change["came_s"], change["expected_s"]) == (1, 9, 2, 2, 1, 1.25)
    assert change["action"] == {"do": "split", "shares": [{"device": "a:0", "samples": 3}, {"device": "b:0", "samples": 1}]}


def test_a_log_goes_on_and_says_how_it_ended(tmp_path):
    log = run_log.RunLog(str(tmp_path), ["a:0"])
    log.step(1, 1, [2], [0.0])
    log.tell([1.0], [0.0])
    log.how = ValueError("no such thing\nat all")
    log.close()
    assert read(tmp_path, "failure.json") == {"code": "script.failed", "message": "ValueError: no such thing"}
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 5, "lo')  # cut off
    log = run_log.RunLog(str(tmp_path), ["a:0"])
    assert log.first == 1 and not (tmp_path / "failure.json").exists()
    log.how = KeyboardInterrupt()
    log.close()
    assert read(tmp_path, "summary.json")["stopped"] and not (tmp_path / "failure.json").exists()


def test_a_log_that_cannot_be_written_is_given_up(tmp_path, caplog):
    log = run_log.RunLog(str(tmp_path), ["a:0"])
    log.file.close()
    log.file = open("/dev/full", "w", buffering=1)
    for _ in range(2):
        log.step(1, 1, [2], [0.0])
        log.tell([1.0], [0.0])
    log.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} cannot be written, and is given up: [Errno 28] No space left on device"
    ]


def test_a_folder_of_the_engine_is_refused(tmp_path):
    (tmp_path / "job.json").touch()
    with pytest.raises(ValueError, match="is of `motley run`; give another folder"):
        run_log.RunLog(str(tmp_path), ["a:0"])


def test_a_folder_in_use_is_left_alone(tmp_path):
    code = "import sys; from motley.claim import claim; kept = claim(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment, **pipes) as other:
        other.stdout.readline()
        said = rf"^motley.torch.share: run_dir {tmp_path} is in use by process {other.pid}; wait for it, stop it \(kill {other.pid}\), or give another folder$"
        with pytest.raises(ValueError, match=said):
            run_log.RunLog(str(tmp_path), ["a:0"])
        assert os.listdir(tmp_path) == ["in_use"]
        other.stdin.close()
    for _ in range(2):
        run_log.RunLog(str(tmp_path), ["a:0"]).close()


def make_mesh(monkeypatch, rank, told):
    """That of a rank of two; `told`: what the other one said in the first exchange."""
    monkeypatch.setattr(mesh, "CONNECT_S", 0.2)

    def all_gather_object(found, own, group=None):
        found[:] = [own, own]
        if told:
            found[1 - rank] = told.pop()

    group = types.SimpleNamespace(get_rank=lambda _: rank, get_world_size=lambda _: 2, all_gather_object=all_gather_object, distributed_c10d=None)
    monkeypatch.setattr(mesh, "dist", group)
    return mesh.Mesh(None)


def test_a_rank_that_cannot_be_reached_is_named(monkeypatch):
    with socket.socket() as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"motley.torch: rank 1 cannot reach rank 0 at 127.0.0.1 port {port} within 0 s"):
            make_mesh(monkeypatch, 1, [None, (["127.0.0.1"], port, bytes(16))])
    with pytest.raises(RuntimeError, match=r"rank 0 heard nothing of ranks \[1\] within 0 s"):
        make_mesh(monkeypatch, 0, [None, ([], 1, bytes(16))])


def test_a_rank_that_does_not_answer_is_named(monkeypatch):
    here, there = socket.socketpair()
    with here, there:
        alone = mesh.Mesh.__new__(mesh.Mesh)
        alone.rank, alone.world, alone.peers, alone._posted, alone._own, alone._read, alone._frames = 0, 2, {1: here}, 0, {}, [0, 0], {}
        here.settimeout(0.01)
        with pytest.raises(RuntimeError, match="motley.torch: rank 0 waited 0 s for rank 1"):
            alone.take(alone.post(torch.ones(1, dtype=torch.float64), "a place"))
        there.close()
        with pytest.raises(RuntimeError, match="motley.torch: rank 1 has ended; rank 0 waited for it"):
            alone.take(alone.post(torch.ones(1, dtype=torch.float64), "a place"))


def test_gloo_s_interface_comes_first(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.7")
    assert mesh.own_addresses()[0] == "127.0.0.1"


def test_sums_of_a_batch_are_those_of_its_channels():
    x = torch.tensor([[[1.0, 2.0], [5.0, 5.0]], [[3.0, 4.0], [7.0, 7.0]]])  # two samples of two channels of two places
    assert norm.sums_of(x).tolist() == pytest.approx([4, 10, 24, 30, 148])
    # Their mean is no float32, and its rounding as much as they differ: all digits are there nevertheless.
    low, high = 1.0, 1.0 + 2**-23
    assert norm.sums_of(torch.tensor([[low], [high]])).tolist() == [2, low + high, low**2 + high**2]


def test_many_unused_parameters_are_counted():
    module = nn.Sequential(*(nn.Linear(1, 1) for _ in range(4)))
    said = refusals.explain_unused(module, "... did not receive grad for rank 0: 0 1 2 3 4 5 6 ...")
    assert "loss: 0.weight, 0.bias, 1.weight, 1.bias, 2.weight and 2 more; its gradients" in said
    assert "loss: some; its" in refusals.explain_unused(module, "otherwise")


def test_samples_are_those_of_the_first_tensor():
    x = torch.ones(3, 2)
    assert batches.count_samples((torch.tensor(7.0), x)) == batches.count_samples({"scale": 2, "x": x}) == 3
    assert batches.count_samples(["words"]) is None


def test_another_pytorch_is_refused():
    refusals.check_version("2.11.0+cu130")
    with pytest.raises(ImportError, match="found PyTorch 2.16.1, wanted 2.11 to 2.15"):
        refusals.check_version("2.16.1")


def test_without_a_process_group():
    calls = (motley.torch.DDP, motley.torch.weigh, lambda _: motley.torch.share(torch.utils.data.DataLoader(TensorDataset(torch.ones(1)))))
    for call in calls:
        with pytest.raises(RuntimeError, match="there is no process group; call torch.distributed.init_process_group first"):
            call(nn.Linear(1, 1))


def test_a_trial_s_parts(monkeypatch):
    assert trial.Trial.asked() is None
    monkeypatch.setenv(trial.VARIABLE, json.dumps({"folder": "/f", "kind": "uneven"}))
    uneven = trial.Trial.asked()
    assert uneven.shares(3) == [3, 2, 1] and uneven.part([4, 5, 6], [1, 2], 1) == [5, 6] and not uneven.is_plain
    whole, turned = trial.Trial("/f", "whole"), trial.Trial("/f", "turned")
    assert whole.shares(3) == [1, 1, 1] and whole.part([4, 5, 6], [1, 1, 1], 1) == [4, 5, 6] and whole.is_plain
    assert turned.part([4, 5, 6], [1, 1, 1], 1) == [6, 5, 4] and turned.file(2) == "/f/turned-2.pt"
    assert trial.Trial.shorten(list(range(9))) == [0, 1, 2, 3, 4, 8] and trial.Trial.shorten([1, 2]) == [1, 2]


def test_gradients_are_compared_by_their_norms():
    reference = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([1e-6, 0.0])}
    # |(0.3, 0.4)| / 5 = 0.1; b is noise beside a, so its 1e-6 is compared with a hundredth of 5.
    found = verify.compare({"a": torch.tensor([3.3, 4.4]), "b": torch.zeros(2)}, reference)
    assert found == {"a": pytest.approx((0.5, 0.1)), "b": pytest.approx((1e-6, 1e-6 / 5e-2))}
    never = (float("inf"), float("inf"))
    assert verify.compare({"a": torch.tensor([float("nan"), 0.0]), "b": reference["b"]}, reference) == {"a": never, "b": (0, 0)}
    assert verify.compare({"a": reference["a"]}, reference) == {"a": (0, 0), "b": never}


@pytest.fixture
def trials(tmp_path, capfd):
    """trials(whole=..., even=..., ...): what `verify` makes of a command whose only step had these gradients: exit code, object, line."""

    def call(**found):
        for kind, gradients in found.items():
            tensors = {name: torch.tensor(values) for name, values in gradients.items()}
            step = {"gradients": tensors, "buffers": {}, "samples": [3, 1] if kind == "uneven" else [2, 2]}
            torch.save(step, tmp_path / f"{kind}-0.pt")
        place = f"{sys.executable} -SE -c 'import json, os; print(json.loads(os.environ[\"{trial.VARIABLE}\"])[\"folder\"])'"
        command = ["--", "sh", "-c", f"cp {tmp_path}/*.pt $({place})"]
        code = verify.main(["--json", *command])
        as_object = json.loads(capfd.readouterr().out)
        assert verify.main(command) == code
        return code, as_object, capfd.readouterr().out

    return call


def test_equal_gradients_pass(trials):
    # 3e-4 of |(3, 4)|: 6e-5.
    one = {"a": [3.0, 4.0], "b": [5.0]}
    code, found, line = trials(whole=one, even=one, uneven={"a": [3.0, 4.0003], "b": [5.0]})
    assert code == 0 and found.pop("max_grad_diff") == pytest.approx(6e-5, rel=1e-2)
    assert found == {"against": "one device", "steps": 1, "grad_limit": 1e-4, "worst_tensor": "a", "worst_step": 0, "tensors": 2, "rounding": [],
                     "splits": [[2, 2], [3, 1]], "looks_like": None, "pass": True}  # fmt: skip
    assert line == "pass: 2 tensors of 1 optimizer steps under 3:1 and 2:2 samples differ from one device's by 6e-05 (limit 0.0001, worst 'a' in step 0)\n"


def test_gradients_that_differ_fail_with_what_they_look_like(trials):
    one, half = {"a": [3.0, 4.0], "b": [5.0]}, {"a": [1.5, 2.0], "b": [2.5]}
    others = {"turned": one, "ddp": one}
    code, found, line = trials(whole=one, even=one, uneven={"a": [3.0, 4.5], "b": [5.0]}, **others)
    assert code == 5 and not found["pass"] and found["max_grad_diff"] == pytest.approx(0.1)
    assert line.startswith("FAIL: 2 tensors ") and "it looks like a loss that depends on which samples a rank has" in line
    code, found, _ = trials(whole=one, even=one, uneven=half, **others)
    assert code == 5 and found["looks_like"].startswith("every gradient is 0.5 times what it should be")
    code, found, _ = trials(whole=one, even=one, uneven={"a": [3.0, 4.0]}, **others)
    assert code == 5 and found["looks_like"].startswith("b has a gradient in one of the runs alone")


def test_equal_wrongs_are_found(trials):
    """Two splits that are wrong alike."""
    one, wrong = {"a": [3.0, 4.0]}, {"a": [6.0, 8.0]}
    assert trials(whole=one, even=wrong, uneven=wrong, turned=one, ddp=one)[0] == 5


def test_a_loss_that_is_no_mean_is_compared_with_pytorch(trials):
    one, sums = {"a": [3.0, 4.0]}, {"a": [1.0, 1.0]}
    code, found, _ = trials(whole=one, even=sums, uneven=sums, turned=one, ddp=sums)
    assert code == 0 and found["against"] == "DistributedDataParallel"


def test_what_is_drawn_by_place_cannot_be_compared(trials):
    one = {"a": [3.0, 4.0]}
    code, found, _ = trials(whole=one, even={"a": [3.1, 4.0]}, uneven=one, turned={"a": [3.0, 4.1]}, ddp=one)
    assert code == 1 and found["error"]["code"] == "verify.draws"


def test_what_rounding_makes_is_left_out(trials):
    """b is 1e-5 off, of 1e-2 |a| a thousandth; another order makes as much of it, or a thirtieth, or a hundredth."""
    one = {"a": [1.0], "b": [0.0]}
    for turned, code in ((1e-5, 0), (1e-5 / 29, 0), (1e-5 / 100, 5)):
        found = trials(whole=one, even=one, uneven={"a": [1.0], "b": [1e-5]}, turned={"a": [1.0], "b": [turned]}, ddp=one)
        assert found[0] == code and found[1]["rounding"] == (["b"] if code == 0 else [])
    assert "left out, as rounding alone" not in found[2]


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["--fast", "--", "true"], 2, "motley: unknown --fast; wanted: motley verify [--json] -- COMMAND [cli.usage]"),
    (["--"], 2, "motley: no command; wanted: motley verify [--json] -- COMMAND, say torchrun --nproc-per-node 2 train.py [cli.usage]"),
    (["--", "no-such-program"], 2, "motley: cannot start no-such-program: No such file or directory [verify.command]"),
    (["--", "false"], 1, "motley: false: exit code 1 under DistributedDataParallel [verify.command]"),
    (["-q", "--", "true"], 1, "motley: true: took no optimizer step of a model in motley.torch.DDP [verify.no-step]"),
])  # fmt: skip
def test_verify_says_why_it_cannot(capfd, arguments, code, message):
    assert verify.main(arguments) == code
    said = capfd.readouterr()
    assert said.err == message + "\n" and said.out == ""
    assert verify.main(["--json", *arguments]) == code
    assert f"motley: {json.loads(capfd.readouterr().out)['error']['message']}" in message


def test_verify_says_what_a_script_lacks(trials):
    assert trials(whole={})[1]["error"]["message"].endswith("its optimizer steps had no gradients")
