"""`motley probe` and `doctor` with the workers and the libraries that are there. What verbs say and how they end:
motley/cli/verbs/*_test.cc."""

import subprocess
import tomllib


def test_probe_and_doctor(motley, mlp, cluster, workspace):
    path = workspace / "probed.toml"
    outcome = motley("probe", "-o", path, "--json")
    assert outcome.code == 0 and outcome.json["devices"]
    outcome = motley("doctor", "-C", cluster, "-m", mlp, "--json")
    assert outcome.code == 0, outcome.stdout
    assert all(finding["severity"] != "error" for finding in outcome.json["findings"])
    assert motley("plan", "-m", mlp, "-C", path, "--global-batch", 60).code == 0


FAKE_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { return *count = 2, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int length, int device) { return __builtin_strcpy(name, "NVIDIA A10"), 0; }
int cuDeviceTotalMem_v2(unsigned long* bytes, int device) { return *bytes = 22ul << 30, 0; }
int cuDeviceGetUuid(unsigned char* bytes, int device) { return __builtin_memset(bytes, device, 16), 0; }
int cuDeviceCanAccessPeer(int* can, int device, int peer) { return *can = 1, 0; }
"""
FAKE_MANAGEMENT = """
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) { return *device = (void*)uuid, 0; }
int nvmlDeviceGetP2PStatus(void* device, void* peer, int capability, int* status) { return *status = capability != 2, 0; }
"""


def test_probe_writes_gpus_and_how_they_reach_each_other(motley, workspace):
    fakes = workspace / "fakes"
    fakes.mkdir()
    path = workspace / "gpus.toml"

    def probe(**libraries):
        for name, source in libraries.items():
            (fakes / f"{name}.c").write_text(source)
            library = fakes / f"lib{name.replace('_', '-')}.so.1"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, fakes / f"{name}.c"], check=True)
        outcome = motley("probe", "-o", path, "--json", env={"LD_LIBRARY_PATH": str(fakes)})
        assert outcome.code == 0, outcome.stderr
        return tomllib.loads(path.read_text())["node"][0], outcome.json["notes"]

    node, notes = probe(cuda=FAKE_DRIVER)
    assert [device["uuid"][:12] for device in node["device"][1:]] == ["GPU-00000000", "GPU-01010101"]
    assert node["device"][1]["model"] == "NVIDIA A10" and node["device"][1]["memory"] == "22GiB"
    assert "peers" not in node and "cuda: devices reach each other not known how 0-1" in notes
    node, notes = probe(nvidia_ml=FAKE_MANAGEMENT)
    assert node["peers"] == "nvlink" and "cuda: devices reach each other by nvlink 0-1" in notes
    older = FAKE_DRIVER.replace("cuDeviceCanAccessPeer", "cuSomethingElse").replace("cuDeviceGetUuid", "cuAnother")
    node, _ = probe(cuda=older)
    assert "peers" not in node and "uuid" not in node["device"][1] and node["device"][1]["count"] == 2
