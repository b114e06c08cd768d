"""The GPUs of this machine, and clusters with them."""

import json
import pathlib
import subprocess

import pytest

from conftest import BUILD

NODE = """[[node]]
name = "{name}"
  [[node.device]]
  kind = "{kind}"
"""


def pytest_configure(config):
    config.addinivalue_line("markers", "gpus(count): how many CUDA devices a test wants, if not one")


def found_gpus():
    """The CUDA devices that the worker finds, or why there are none."""
    done = subprocess.run([BUILD / "motley-worker", "version"], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return [], f"motley-worker version failed: {done.stderr.strip()}"
    found = json.loads(done.stdout.splitlines()[-1])
    note = found["cuda_note"].removeprefix("a cuda device was asked for, but ").partition("; ")[0]
    return found["cuda_devices"], note


GPUS, WHY_NONE = found_gpus()


def pytest_collection_modifyitems(items):
    """What this machine has no GPUs for is skipped by the item's name: the first line of the test's text."""
    for item in items:
        if pathlib.Path(item.fspath).parent != pathlib.Path(__file__).parent:
            continue
        mark = item.get_closest_marker("gpus")
        wanted = mark.args[0] if mark else 1
        if len(GPUS) < wanted:
            name = item.function.__doc__.strip().splitlines()[0].rstrip(".")
            why = WHY_NONE or f"this machine has {len(GPUS)} CUDA devices, wanted {wanted}"
            item.add_marker(pytest.mark.skip(reason=f"{name} ({why})"))


def cluster_text(*nodes, link=""):
    """A cluster file of nodes of one device each: (name, kind)."""
    text = 'schema = "motley.cluster/1"\nname = "gpu"\n'
    text += "".join(NODE.format(name=name, kind=kind) for name, kind in nodes)
    return text + (f"[[link]]\nall = true\n{link}\n" if link else "")


@pytest.fixture
def make_cluster(tmp_path):
    def make(*nodes, link="", name="gpu.toml"):
        path = tmp_path / name
        path.write_text(cluster_text(*nodes, link=link))
        return path

    return make


@pytest.fixture
def one_gpu(make_cluster):
    return make_cluster(("g", "cuda"))


@pytest.fixture
def one_cpu(make_cluster):
    return make_cluster(("c", "cpu"), name="cpu.toml")
