"""Reports of runs that finished, failed, were killed, or go on, by what their processes leave; pages that follow a run. What
reports say: motley/cli/verbs/verb_report_test.cc."""

import html.parser
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from conftest import BUILD, DIGITS

SPLIT = ["--batch-split", "30,20,10"]


def run_words(model, cluster, run_dir, steps, *more):
    return ["run", "-m", model, "-C", cluster, "--data", DIGITS, "--global-batch", 60, "--steps", steps, "--run-dir", run_dir,
            "--adapt", "none", *SPLIT, *more]


@pytest.fixture(scope="module")
def finished(motley, mlp, cluster, workspace):
    run_dir = workspace / "reported"
    outcome = motley(*run_words(mlp, cluster, run_dir, 12))
    assert outcome.code == 0, outcome.stderr
    return run_dir


@pytest.fixture
def started(environment, mlp, cluster, tmp_path):
    """Starts a long run that has done some steps; it and its directory."""
    begun = []

    def start(*more):
        run_dir = tmp_path / f"run-{len(begun)}"
        words = [str(BUILD / "motley"), *map(str, run_words(mlp, cluster, run_dir, 1000000, *more))]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
        begun.append(process)
        wait(lambda: (run_dir / "log.jsonl").exists() and (run_dir / "log.jsonl").read_text().count("\n") > 5)
        return process, run_dir

    yield start
    for process in begun:
        process.kill()
        process.wait()


def wait(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def workers_of(process):
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    return [int(pid) for pid in found]


class Reader(html.parser.HTMLParser):
    """The numbers of a page by their places, and what it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.numbers, self.fetched = {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "data-key" in attributes:
            self.numbers[attributes["data-key"]] = float(attributes["data-value"])
        link = attributes.get("src") or attributes.get("href") or ""
        if link and not link.startswith("data:"):
            self.fetched.append(link)


def at_place(figures, place):
    for part in place.split("/")[1:]:
        figures = figures[int(part) if isinstance(figures, list) else part]
    return figures


def check_page(path, figures):
    reader = Reader(path.read_text())
    assert len(reader.numbers) > 20 and reader.fetched == []
    for place, number in reader.numbers.items():
        assert number == at_place(figures, place), place


def test_a_finished_run_as_a_page(motley, finished, tmp_path):
    page = tmp_path / "page.html"
    figures = motley("report", finished, "-o", page, "--json").json
    assert figures["state"] == "finished" and figures["page"] == str(page)
    assert [each["name"] for each in figures["timelines"]] == ["predicted", "measured"]
    assert figures["command"].startswith("motley run -m ")
    assert page.stat().st_size < 300_000
    check_page(page, figures)


def test_a_failed_and_a_killed_run_say_where_each_rank_was(motley, started, tmp_path):
    process, run_dir = started()
    assert motley("report", run_dir, "--json").json["state"] == "running"
    os.kill(workers_of(process)[1], signal.SIGKILL)
    process.communicate(timeout=60)
    figures = motley("report", run_dir, "-o", tmp_path / "page.html", "--json").json
    assert figures["state"] == "failed" and "was killed by signal 9" in figures["verdict"]
    assert len(figures["ranks"]) == 3 and all("step " in rank["where"] and not rank["is_running"] for rank in figures["ranks"])
    check_page(tmp_path / "page.html", figures)
    process, run_dir = started()
    process.kill()
    process.wait()
    wait(lambda: motley("report", run_dir, "--json").json["state"] == "ended")
    outcome = motley("report", run_dir)
    assert outcome.code == 0 and "left no word" in outcome.stdout and "rank 2   c:0        gone" in outcome.stdout


def ask(port, method="GET", path="/", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_serve_gives_the_page_and_nothing_else(motley, environment, finished):
    process = subprocess.Popen([str(BUILD / "motley"), "serve", str(finished), "--json"], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        port = int(json.loads(text)["address"].rstrip("/").rpartition(":")[2])
        status, page = ask(port)
        assert status == 200 and "Finished: 12 steps on 3 devices" in page and "EventSource" in page
        assert ask(port, host=f"localhost:{port}")[0] == 200
        assert ask(port, host="evil.example")[0] == 403
        assert ask(port, method="POST")[0] == 405 and ask(port, method="DELETE")[0] == 405
        assert ask(port, path="/job.json")[0] == 404 and ask(port, path="/../job.json")[0] == 404
        assert ask(port, method="HEAD") == (200, "")
        outcome = motley("serve", finished, "--port", port)
        assert outcome.code == 2 and f"port {port} of 127.0.0.1: " in outcome.stderr and "give another one" in outcome.stderr
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"\0\xff" * 9000)
        assert ask(port)[0] == 200
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert motley("serve", finished.parent / "nothing").code == 2


def test_a_page_follows_a_run_to_its_end(started):
    process, _ = started("--serve")
    port = port_of(process)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/events", headers={"Host": f"127.0.0.1:{port}"})
    stream = connection.getresponse()
    assert stream.headers["Content-Type"] == "text/event-stream"
    steps, names = [], []
    for line in iter(stream.readline, b""):
        line = line.decode().rstrip("\n")
        if line.startswith("event: "):
            names.append(line[7:])
        if line.startswith("data: ") and names[-1] == "sections":
            head = "".join(html for name, html, _ in json.loads(line[6:]) if name == "head")
            found = re.search(r"(Running|Stopped)[^0-9]*(\d+) of", head)
            steps += [(found[1], int(found[2]))] if found else []
            if len(steps) == 4:
                process.terminate()
    assert process.wait(60) == 75
    assert names[-1] == "end" and steps[-1][0] == "Stopped"
    assert [step for _, step in steps] == sorted(step for _, step in steps) and steps[3][1] > steps[0][1]


def port_of(process):
    for line in process.stderr:
        if found := re.search(r"http://127.0.0.1:(\d+)/", line):
            return int(found[1])
    raise AssertionError("no address")
