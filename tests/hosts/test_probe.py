"""What `motley probe` finds of networks that `tc` has made, and `motley profile` of hosts.

Rates are those of TCP's payload: of a cable of 200 Mbit/s, which tc counts with all headers, 191 are left.
"""

import re
import subprocess

import pytest

from hosts import namespaces
from hosts.conftest import MOTLEY, ROOT, PYTHON, run_json, slow

pytestmark = pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())

PAYLOAD = 1448 / 1514  # of an Ethernet frame with TCP's time stamps


def bits(rate):
    return None if rate is None else 8 * rate / 1e6 / PAYLOAD  # Mbit/s of the cable


def probe(hosts, names, flags=""):
    first = hosts[names.split(",")[0]]
    found = run_json(first, f"{MOTLEY} probe --hosts {names} --json {flags}")
    cards = {host["node"]: bits(host["bandwidth_bytes_per_s"]) for host in found["hosts"]}
    links = {tuple(link["between"]): (bits(link["bandwidth_bytes_per_s"]), bits(link["capacity_bytes_per_s"]))
             for link in found["links"]}
    return found, links, cards


def about(rate):
    return pytest.approx(rate, rel=0.1)


@slow
@pytest.mark.parametrize("rate", [50, 200, 1000])
def test_bandwidth_is_what_tc_allows(tmp_path, rate):
    with namespaces.Hosts(tmp_path, {"a": 2, "b": 2}, rate=f"{rate}mbit") as hosts:
        _, links, _ = probe(hosts, "a,b")
    assert links[()][0] == about(rate)


@slow
def test_latency_is_what_the_cable_takes(tmp_path):
    with namespaces.Hosts(tmp_path, dict.fromkeys("abc", 1), rate="20mbit") as hosts:
        hosts.delay("c", 0.01)
        found, links, cards = probe(hosts, "a,b,c")
    latencies = {tuple(link["between"]): link["latency_s"] for link in found["links"]}
    assert latencies["a", "b"] < 0.001
    for pair in (("a", "c"), ("b", "c")):
        assert latencies[pair] == pytest.approx(0.01, rel=0.2)


def test_alike_hosts_have_one_link_and_say_what_they_are(hosts, lead):
    found, links, cards = probe(hosts, "a,b,c")
    assert list(links) == [()] and links[()] == (about(200), None)
    assert cards == {"a": None, "b": None, "c": None}
    for host in found["hosts"]:
        assert host["motley"] and host["torch"] and host["processor"] and host["instructions"] and host["cores"] > 0
        assert abs(host["clock_ahead_s"]) < 0.2


@slow
def test_a_slow_cable_is_its_hosts_bandwidth(tmp_path):
    with namespaces.Hosts(tmp_path, {"a": 1, "b": 1, "c": 1}) as hosts:
        hosts["c"].limit("50mbit")
        _, links, cards = probe(hosts, "a,b,c")
    assert list(links) == [()] and links[()] == (about(200), None)
    assert cards == {"a": None, "b": None, "c": about(50)}


@slow
def test_a_shared_switch_has_a_capacity(tmp_path):
    with namespaces.Hosts(tmp_path, {"a": 1, "b": 1, "c": 1}) as hosts:
        hosts.share("300mbit")
        _, links, cards = probe(hosts, "a,b,c")
    assert list(links) == [()] and links[()] == (about(200), about(300))
    assert set(cards.values()) == {None}


@slow
def test_two_racks_are_found(tmp_path):
    with namespaces.Hosts(tmp_path, dict.fromkeys("abcde", 1)) as hosts:
        hosts.split("de", "60mbit")
        _, links, cards = probe(hosts, "a,b,c,d,e")
    assert links["a", "b", "c"] == (about(200), None) and links["d", "e"] == (about(200), None)
    # Both ways of the uplink, whose long queue delays each way's acknowledgements.
    assert links[()] == (about(60), pytest.approx(105, rel=0.2)) and len(links) == 3
    # A host's own cable takes 200 of its rack's 200 and the uplink's 60.
    assert all(card is None or card == about(200) for card in cards.values())


def test_two_names_of_one_host_are_an_error(hosts, lead):
    lead.run(f"echo '{hosts['b'].address} bee' >> /etc/hosts")
    done = lead.run(f"{MOTLEY} probe --hosts a,b,bee", check=False)
    assert done.returncode == 2
    assert "b and bee are one machine: name it once" in done.stderr


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec* time) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(id, time);
  time->tv_sec += id == CLOCK_REALTIME ? 90 : id == CLOCK_MONOTONIC ? 1000000 : 0;
  return done;
}
int clock_nanosleep(clockid_t id, int flags, const struct timespec* until, struct timespec* left) {
  static int (*real)(clockid_t, int, const struct timespec*, struct timespec*);
  if (!real) real = dlsym(RTLD_NEXT, "clock_nanosleep");
  struct timespec time = *until;
  if (flags == TIMER_ABSTIME) time.tv_sec -= id == CLOCK_REALTIME ? 90 : id == CLOCK_MONOTONIC ? 1000000 : 0;
  return real(id, flags, &time, left);
}
"""


@pytest.fixture(scope="module")
def b_is_ahead(hosts):
    """Programs of host b see a calendar 90 s, and a monotonic clock many days, ahead of the others'."""
    (hosts.keys / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", hosts.keys / "clock.so", hosts.keys / "clock.c", "-ldl"], check=True)
    (hosts.keys / "ahead").write_text(f"#!/bin/sh\nLD_PRELOAD={hosts.keys}/clock.so exec {hosts.keys}/motley \"$@\"\n")
    (hosts.keys / "ahead").chmod(0o755)
    subprocess.run(["cp", MOTLEY, hosts.keys / "motley"], check=True)
    for name in ("motley-worker", "libmotley_cuda.so"):
        if (MOTLEY.parent / name).exists():
            (hosts.keys / name).symlink_to(MOTLEY.parent / name)
    hosts["b"].run(f"mount --bind {hosts.keys}/ahead {MOTLEY}")
    yield hosts["b"]
    hosts["b"].run(f"umount {MOTLEY}")


@slow
def test_a_clock_that_is_off_is_said_and_disturbs_nothing(hosts, lead, b_is_ahead):
    found, _, _ = probe(hosts, "a,b")
    assert [round(host["clock_ahead_s"]) for host in found["hosts"]] == [0, 90]
    assert any(note.startswith("b: its clock is 90.0 s ahead") for note in found["notes"])
    lead.run(f"{MOTLEY} probe --hosts a,b -o two.toml")
    done = lead.run(f"{MOTLEY} run -m cnn.motley -C two.toml --planner equal --global-batch 60 --data digits.npz --steps 6 "
                    "--profile-rounds 1 --run-dir ahead --trace-steps 3", check=False)
    assert done.returncode == 0, done.stderr
    assert "note: b: its clock is 90.0 s ahead" in done.stderr
    # The exchanges of both end together, though their clocks are days apart.
    lead.run(f"{MOTLEY} trace ahead")
    events = run_json(lead, "cat ahead/trace.json")["traceEvents"]
    ends = [{event["ts"] + event["dur"] for event in events
             if event.get("pid") == device and "all_reduce" in event["name"] and event["ph"] == "X"} for device in (0, 1)]
    assert len(ends[0]) >= 3 and abs(max(ends[0]) - max(ends[1])) < 0.05e6


@slow
def test_a_host_slower_than_its_like_is_named(tmp_path):
    with namespaces.Hosts(tmp_path, dict.fromkeys("abc", 0.4)) as hosts:
        a = hosts["a"]
        subprocess.run([PYTHON, "-m", "motley.export", str(ROOT / "examples/digits_cnn.py") + ":model", "-o",
                        str(hosts.keys / "cnn.motley")], check=True, capture_output=True,
                       env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"})
        a.run(f"cp {hosts.keys}/cnn.motley .; {MOTLEY} probe --hosts a,b,c -o cluster.toml")
        hosts["a"].give(0.2)  # the first, which a profile would take for its like
        said = run_json(a, f"{MOTLEY} profile -m cnn.motley -C cluster.toml --global-batch 60 --each --json")
        assert [(slow["device"], slow["host"]) for slow in said["slower"]] == [("a:0", "a")]
        assert said["slower"][0]["ratio"] > 1.5  # half of the time, and the coordinator works there, too
        a.run("sed -i '0,/model = \"\\(.*\\)\"/s//model = \"\\1 (slow)\"/' cluster.toml")
        assert re.search(r'\(slow\)"', a.run("cat cluster.toml").stdout)
        said = run_json(a, f"{MOTLEY} profile -m cnn.motley -C cluster.toml --global-batch 60 --profile-rounds 1 --each --json")
        assert [each["device"] for each in said["compared"]] == ["b:0", "c:0"]
