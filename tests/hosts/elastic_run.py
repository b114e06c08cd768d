"""A run over hosts that goes on while they come and go."""

import contextlib
import json
import re
import subprocess
import time

TIMEOUT = 3  # seconds that a wait for a peer takes in it


def summary(lead, name):
    return json.loads((lead.home() / name / "summary.json").read_text())


class Running:
    """A long run, once it trains."""

    def __init__(self, lead, name, command):
        self.lead, self.name = lead, name
        self.child = subprocess.Popen(lead.command(f"exec {command} --run-dir {name} >{name}.out 2>{name}.err"))
        self.wait_for(lambda: self.steps() > 3, 60)

    def wait_for(self, what, seconds=30):
        limit = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < limit and self.child.poll() is None, self.said()
            time.sleep(0.1)

    def steps(self):
        with contextlib.suppress(OSError, ValueError, IndexError):
            return json.loads((self.lead.home() / self.name / "log.jsonl").read_text().splitlines()[-1])["step"]
        return 0

    def last(self):
        """Of the log; none: it has no step yet."""
        path = self.lead.home() / self.name / "log.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")] if path.exists() else []
        return next((each for each in reversed(found) if "loss" in each), None)

    def said(self):
        return (self.lead.home() / f"{self.name}.err").read_text()

    def address(self):
        """As the run prints it."""
        return re.search(r"motley join (\S+)\)", self.said())[1]

    def goes_on(self):
        before = self.steps()
        self.wait_for(lambda: self.steps() > before + 3)

    def stop(self):
        self.lead.run("pkill -TERM -x motley")
        self.child.wait(30)
        return summary(self.lead, self.name)
