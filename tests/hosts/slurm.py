"""A SLURM of the namespaces: slurmctld on the first host, a slurmd on each. Wants Debian's slurm-wlm."""

import contextlib
import shutil
import subprocess
import time

from hosts.namespaces import INSIDE

CONF = """
ClusterName=motley
SlurmctldHost={first}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={inside}/slurm
SlurmdSpoolDir={inside}/slurmd
SlurmctldPidFile={inside}/slurmctld.pid
SlurmdPidFile={inside}/slurmd.pid
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    return "" if shutil.which("slurmctld") or shutil.which("/usr/sbin/slurmctld") else "slurmctld is not installed (slurm-wlm)"


class Slurm:
    """`with Slurm(hosts) as slurm: slurm.command("srun hostname")` on the first host."""

    def __init__(self, hosts):
        self.hosts, self.first = list(hosts), next(iter(hosts))
        self.conf = hosts.keys / "slurm.conf"
        self.servers = []

    def __enter__(self):
        nodes = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs=2 State=UNKNOWN" for host in self.hosts)
        self.conf.write_text(CONF.format(first=self.first.name, address=self.first.address, inside=INSIDE, nodes=nodes,
                                         names=",".join(host.name for host in self.hosts)))
        self._serve(self.first, f"mkdir -p {INSIDE}/slurm; exec /usr/sbin/slurmctld -D")
        for host in self.hosts:
            self._serve(host, f"mkdir -p {INSIDE}/slurmd; exec /usr/sbin/slurmd -D -N {host.name}")
        deadline = time.monotonic() + 30
        while self.run("sinfo -h -o %D -t idle", check=False).stdout.strip() != str(len(self.hosts)):
            if time.monotonic() > deadline:
                raise RuntimeError("no SLURM: " + self.run("sinfo; cat slurmctld.log", check=False).stdout)
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
        for host in self.hosts:
            host.run("pkill -KILL slurm", check=False)

    def _serve(self, host, script):
        log = open(self.conf.parent / f"{script.rsplit('/', 1)[-1].split(' ')[0]}-{host.name}.log", "w")
        with contextlib.closing(log):
            self.servers.append(subprocess.Popen(host.command(f"export SLURM_CONF={self.conf}; {script}"), stdout=log,
                                                 stderr=log, stdin=subprocess.DEVNULL))

    def command(self, script):
        return self.first.command(f"export SLURM_CONF={self.conf}; {script}")

    def run(self, script, check=True, timeout=600):
        return subprocess.run(self.command(script), check=check, capture_output=True, text=True, timeout=timeout)
