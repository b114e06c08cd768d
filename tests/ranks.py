"""Starts the ranks of a script here, as torchrun does."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import warm
from conftest import BUILD, ROOT

LIMIT_S = 600  # of a hang


class Fresh:
    """A process with an interpreter of its own."""

    def __init__(self, words, environment, files):
        self._process = subprocess.Popen([sys.executable, *words], env=environment, stdout=files[0], stderr=files[1])
        self.kill = self._process.kill

    def wait(self, timeout):
        return self._process.wait(timeout)


def start_warm(words, environment, files):
    with open(os.devnull) as nothing:
        return warm.Started(warm.server().path, words, environment, files=[each.fileno() for each in (nothing, *files)])


def start(script, names, world, how=Fresh, **environment):
    """(exit code, stderr) of each rank, and the rows of rank 0 by case. `how`: Fresh, or start_warm."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]), "MOTLEY_PROGRAM": str(BUILD / "motley"),
              "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)} | environment  # fmt: skip
    said = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in range(world)]
    ranks = [how([str(script), *names], os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, said[rank]) for rank in range(world)]
    until = time.monotonic() + LIMIT_S
    codes, hangs = [], False
    for rank in ranks:
        try:
            codes.append(rank.wait(1 if hangs else max(1, until - time.monotonic())))
        except (TimeoutError, subprocess.TimeoutExpired):
            hangs = True
            rank.kill()
            codes.append("hangs")
    output, errors = [[file.seek(0) or file.read() for file in files] for files in zip(*said, strict=True)]
    rows = [json.loads(line) for line in output[0].splitlines() if line.startswith('{"')]
    return list(zip(codes, errors, strict=True)), {row["case"]: row for row in rows}
