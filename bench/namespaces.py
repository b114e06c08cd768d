"""Hosts of one machine: network namespaces behind a switch, each on a cable of limited rate. Needs root
and the package iproute2.

The rate is what data gets through: a cable carries 1,448 bytes of it in a frame of 1,514.
"""

import contextlib
import os
import shutil
import subprocess

FRAME, PAYLOAD = 1514, 1448
BURST = 16 << 10  # bytes that a port may send at once after a pause
QUEUE = "200ms"  # of what waits in a port
TRAIN = 15 << 10  # bytes of frames that stay together: below BURST, or the kernel cuts each train


def are_possible():
    return os.geteuid() == 0 and shutil.which("tc") is not None


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def limit(namespace, port, rate):
    """Bits of data a second that leave a port."""
    ip("-n", namespace, "link", "set", port, "gso_max_size", str(TRAIN))
    subprocess.run(
        ["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", port, "root", "tbf", "rate",
         f"{round(rate * FRAME / PAYLOAD)}bit", "burst", str(BURST), "latency", QUEUE],
        check=True, capture_output=True, text=True,
    )


@contextlib.contextmanager
def hosts(count, rate):
    """Yields (namespace, address) of each host; `rate` bits of data a second each way."""
    prefix = f"motley{os.getpid()}"
    switch = f"{prefix}-switch"
    names = [f"{prefix}-{i}" for i in range(count)]
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for i, name in enumerate(names):
            ip("netns", "add", name)
            ip("-n", switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", switch, "link", "set", f"port{i}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            limit(name, "eth0", rate)
            limit(switch, f"port{i}", rate)
        yield [(name, f"10.77.0.{i + 1}") for i, name in enumerate(names)]
    finally:
        for name in [*names, switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
