"""Starts the ranks of a script here, as torchrun does."""

import json
import os
import socket
import subprocess
import sys

from conftest import BUILD, ROOT


def start(script, names, world, **environment):
    """(exit code, stderr) of each rank, and the rows of rank 0 by case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), *names], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]), "MOTLEY_PROGRAM": str(BUILD / "motley"), "GLOO_SOCKET_IFNAME": "lo",
                              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank),
                              "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)} | environment,
        )
        for rank in range(world)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=300) for rank in ranks]
    rows = [json.loads(line) for line in outputs[0][0].splitlines() if line.startswith('{"')]
    return [(rank.returncode, errors) for rank, (_, errors) in zip(ranks, outputs, strict=True)], {row["case"]: row for row in rows}
