"""Hosts for tests: namespaces of this machine, joined by cables that `tc` limits. Wants root.

Each host has a network, mounts, processes and a name of its own, a home and an sshd that the others log in to
without a password, and a share of the processors (cgroup). What lies in /run and /dev/shm is its own (through the latter
ranks of one machine exchange, which these are not to be); the rest of the file system, the program too, is this machine's. Needs Debian's openssh-server and iproute2.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import time

INSIDE = "/run/motley-host"  # home, temporary files and keys of a host, seen in its mounts only
CGROUP = pathlib.Path("/sys/fs/cgroup/cpu")
DELAY = pathlib.Path(__file__).with_name("delay.py")
CGROUP2 = pathlib.Path("/sys/fs/cgroup")


def missing():
    """Why there can be no such hosts here; "" if there can."""
    if os.geteuid() != 0:
        return "hosts of namespaces want root"
    for program, package in (("/usr/sbin/sshd", "openssh-server"), ("ip", "iproute2"), ("tc", "iproute2"),
                             ("nsenter", "util-linux"), ("ssh", "openssh-client")):
        if shutil.which(program) is None and not pathlib.Path("/usr/sbin", program).exists():
            return f"{program} is not installed (Debian's {package})"
    done = subprocess.run(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"], capture_output=True)
    return "" if done.returncode == 0 else "namespaces cannot be made here"


def sh(script, check=True):
    return subprocess.run(["sh", "-ec", script], check=check, capture_output=True, text=True)


SETUP = """
hostname {name}
mount -t tmpfs none /run
mount -t tmpfs -o size=1g none /dev/shm
mkdir -p /run/sshd {inside}/home/.ssh {inside}/tmp
chmod 700 {inside}/home/.ssh
sed 's#^root:\\(.*\\):/root:#root:\\1:{inside}/home:#' /etc/passwd > {inside}/passwd
mount --bind {inside}/passwd /etc/passwd
cp {keys}/hosts {inside}/hosts
mount --bind {inside}/hosts /etc/hosts
cp {keys}/id {inside}/home/.ssh/id_ed25519
cp {keys}/id.pub {inside}/home/.ssh/authorized_keys
chmod 600 {inside}/home/.ssh/*
printf 'StrictHostKeyChecking no\\nUserKnownHostsFile /dev/null\\nLogLevel ERROR\\n' > {inside}/home/.ssh/config
cp {keys}/host_{name} {inside}/host_key
chmod 600 {inside}/host_key
ip link set lo up
exec /usr/sbin/sshd -D -e -h {inside}/host_key -o UsePAM=no -o StrictModes=no -o MaxStartups=100 \
  -o PermitRootLogin=yes -o PasswordAuthentication=no -o PidFile=none \
  -o SetEnv='TMPDIR={inside}/tmp HOME={inside}/home'
"""


def bucket_of(rate):
    """For tc. What a bucket holds must last until the kernel looks again: 64 kB do for 300 Mbit/s, not for a gigabit."""
    return f"root tbf rate {rate} burst {max(64, int(rate.removesuffix('mbit')) // 4)}kb latency 100ms"


class Host:
    """One of them. `pid` is that of its first process, whose end ends the host."""

    def __init__(self, name, address, cores, net=0):
        self.name, self.address, self.cores, self.net = name, address, cores, net
        self.process = self.pid = None

    def start(self, keys):
        script = SETUP.format(name=self.name, inside=INSIDE, keys=keys)
        self.log = open(keys / f"{self.name}.log", "w")
        self.process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script],
            stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while self.pid is None and time.monotonic() < deadline:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            with contextlib.suppress(OSError, ValueError, IndexError):
                self.pid = int(children.read_text().split()[0])
            time.sleep(0.02)
        self._share_processors()

    def _group(self):
        name = f"motley-{self.net}-{self.name}"
        return CGROUP / name if CGROUP.is_dir() else CGROUP2 / name

    def _share_processors(self):
        group = self._group()
        group.mkdir(exist_ok=True)
        quota = int(self.cores * 10000)
        if CGROUP.is_dir():
            (group / "cpu.cfs_period_us").write_text("10000")
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} 10000")
        (group / "cgroup.procs").write_text(str(self.pid))

    def plug(self, rate):
        """Its cable: `rate` as tc says it ("200mbit"), each way."""
        inside, outside = f"eth-{self.name}", self.outside()
        sh(f"ip link add {outside} type veth peer name {inside}; ip link set {inside} netns {self.pid};"
           f"ip link set {outside} master motley-{self.net} up")
        self.run(f"ip addr add {self.address}/24 dev {inside}; ip link set {inside} up")
        self.limit(rate)

    def outside(self):
        return f"veth{self.net}-{self.name}"

    def limit(self, rate):
        """By tc's token buckets: kernels without netem, which delays, are common."""
        bucket = bucket_of(rate)
        self.run(f"tc qdisc replace dev eth-{self.name} {bucket}")
        sh(f"tc qdisc replace dev {self.outside()} {bucket}")

    def give(self, cores):
        """Another share of the processors than it was made with, of which nobody tells it."""
        self.cores = cores
        self._share_processors()

    def unplug(self):
        sh(f"ip link set {self.outside()} down")

    def plug_again(self):
        sh(f"ip link set {self.outside()} up")

    def command(self, script):
        """A command of ours that runs a shell script there, as one who has logged in."""
        group = self._group() / "cgroup.procs"
        enter = (f"echo $$ > {group}; exec nsenter --target {self.pid} --net --mount --uts --pid "
                 f"env HOME={INSIDE}/home TMPDIR={INSIDE}/tmp sh -c \"cd; $0\"")
        return ["sh", "-c", enter, script]

    def home(self):
        """Its home, as this machine sees it."""
        return pathlib.Path(f"/proc/{self.pid}/root{INSIDE}/home")

    def run(self, script, check=True, timeout=600, env=None):
        return subprocess.run(self.command(script), check=check, capture_output=True, text=True, timeout=timeout,
                              env=env)

    def processes(self):
        """Command lines of what runs there, its sshd's and shells' aside."""
        lines = self.run("ps -eo args --no-headers", check=False).stdout.splitlines()
        return [line for line in lines if "motley" in line.split(" ")[0].rsplit("/", 1)[-1]]

    def stop(self):
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(timeout=10)
        for _ in range(50):  # until its processes are gone
            try:
                self._group().rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)


def take_number():
    """Of a network that no other process of this machine has made; it is ours while the file is open."""
    for number in range(256):
        lock = open(f"/tmp/motley-hosts-{number}.lock", "w")
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number, lock
        lock.close()
    raise RuntimeError("no number is free for the hosts' network")


class Hosts:
    """Several, by name: `with Hosts(folder, {"a": 0.8, "b": 0.4}) as hosts`."""

    def __init__(self, folder, cores, rate="200mbit"):
        self.keys, self.rate = pathlib.Path(folder) / "keys", rate
        self.net, self.lock = take_number()
        self.bridge = f"motley-{self.net}"
        self.made, self.servers = [], []  # interfaces and processes beside the hosts'
        self.hosts = {name: Host(name, f"10.77.{self.net}.{i + 1}", share, self.net)
                      for i, (name, share) in enumerate(cores.items())}

    def __getitem__(self, name):
        return self.hosts[name]

    def __iter__(self):
        return iter(self.hosts.values())

    def __enter__(self):
        self._make_keys()
        sh(f"ip link del {self.bridge} 2>/dev/null || true; ip link add {self.bridge} type bridge; ip link set {self.bridge} up")
        try:
            for host in self:
                host.start(self.keys)
            for host in self:
                self._wait_for_mounts(host)
                host.plug(self.rate)
            for host in self:
                self._wait_for_sshd(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self:
            host.stop()
        for link in [self.bridge, *self.made, *(host.outside() for host in self)]:
            sh(f"ip link del {link}", check=False)
        for server in self.servers:
            server.kill()
            server.wait()
        self.lock.close()

    def delay(self, name, seconds):
        """What the host sends and is sent takes so much longer, each way."""
        ends = [f"dl{self.net}-{i}" for i in (1, 2)]
        self.made.append(ends[0])
        sh(f"ip link add {ends[0]} type veth peer name {ends[1]}; ip link set {self[name].outside()} nomaster; "
           f"ip link set {ends[0]} master {self.bridge} up; ip link set {ends[1]} up")
        for host in self:
            host.run(f"python3 {DELAY} eth-{host.name}")
        self.servers.append(subprocess.Popen(["python3", DELAY, str(seconds), self[name].outside(), ends[1]]))

    def split(self, names, rate):
        """Takes hosts to a switch of their own, whose cable to the others has `rate`, each way."""
        other, ends = f"{self.bridge}-2", [f"up{self.net}-1", f"up{self.net}-2"]
        self.made += [other, ends[0]]
        sh(f"ip link add {other} type bridge; ip link add {ends[0]} type veth peer name {ends[1]}")
        for bridge, end in ((self.bridge, ends[0]), (other, ends[1])):
            sh(f"ip link set {bridge} up; ip link set {end} master {bridge} up; "
               f"tc qdisc replace dev {end} {bucket_of(rate)}")
        for name in names:
            sh(f"ip link set {self[name].outside()} master {other}")

    def share(self, rate):
        """All that hosts send each other goes through one router, whose cable has `rate`."""
        name, address = f"rt{self.net}", f"10.77.{self.net}.254"
        router = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.servers.append(router)
        time.sleep(0.5)
        self.made.append(name)
        inside = f"nsenter --target {router.pid} --net"
        sh(f"ip link add {name} type veth peer name eth0 netns {router.pid}; ip link set {name} master {self.bridge} up; "
           f"{inside} sh -ec 'ip addr add {address}/24 dev eth0; ip link set eth0 up; cd /proc/sys/net/ipv4; "
           f"echo 1 > ip_forward; echo 1 > conf/eth0/proxy_arp_pvlan; echo 0 > conf/eth0/send_redirects; "
           f"echo 0 > conf/all/send_redirects; tc qdisc replace dev eth0 {bucket_of(rate)}'")
        for host in self:
            sh(f"bridge link set dev {host.outside()} isolated on")
            host.run("ip neigh flush all", check=False)

    def _make_keys(self):
        self.keys.mkdir(parents=True, exist_ok=True)
        for name in ("id", *(f"host_{host.name}" for host in self)):
            if not (self.keys / name).exists():
                sh(f"ssh-keygen -q -t ed25519 -N '' -f {self.keys / name}")
        lines = ["127.0.0.1 localhost"] + [f"{host.address} {host.name}" for host in self]
        (self.keys / "hosts").write_text("\n".join(lines) + "\n")

    @staticmethod
    def _wait_for_mounts(host):
        deadline = time.monotonic() + 10
        while host.run(f"test -e {INSIDE}/host_key", check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"host {host.name} did not start: {host.log.name}")
            time.sleep(0.05)

    def _wait_for_sshd(self, host):
        deadline = time.monotonic() + 20
        while host.run("ssh -o BatchMode=yes -o ConnectTimeout=5 localhost true", check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no sshd on host {host.name}: {host.log.name}")
            time.sleep(0.1)
