"""Packages for pip: what `make wheel` builds, in an environment that has nothing else."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
from conftest import BUILD, ROOT


@pytest.fixture(scope="module")
def wheels():
    environment = dict(os.environ, VENV=os.environ.get("VENV", ".venv"), BUILD=os.path.relpath(BUILD, ROOT))
    done = subprocess.run([ROOT / "tools/wheel.sh"], env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.split("-")[0]: path for path in (BUILD / "wheels").glob("*.whl")}


@pytest.fixture(scope="module")
def empty(wheels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    make_venv(folder, wheels["motley"])
    return folder


def make_venv(folder, *packages):
    """An environment that has only these; where its packages lie. The pip of this one installs them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "venv", "install", "-q", "--no-deps", *packages], check=True)
    (own,) = (folder / "venv/lib").glob("python*/site-packages")
    return own


def call(folder, *words, **environment):
    environment |= {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_planner_needs_no_torch(empty, mlp):
    """It plans for kinds of devices that nobody here has, by their data sheets."""
    assert call(empty, "motley", "--version").stdout == "motley 0.1.0\n"
    (empty / "c.toml").write_text(
        'schema = "motley.cluster/1"\nname = "c"\n[[node]]\nname = "a"\n[[node.device]]\nkind = "a100-40g"\n'
        '[[node]]\nname = "b"\n[[node.device]]\nkind = "t4"\n[[link]]\nall = true\nbandwidth = "10Gbps"\nlatency = "50us"\n'
    )
    done = call(empty, "motley", "plan", "-m", mlp, "-C", "c.toml", "--global-batch", 4096, "--profile", "never", "-o", "plan.json")
    assert done.returncode == 0, done.stderr
    assert (empty / "plan.json").exists() and "a:0" in done.stdout
    script = "import sys, motley, motley.library as l; print(l.share_batch({script}), 'torch' in sys.modules, 'numpy' in sys.modules)"
    loaded = call(empty, "python", "-c", script.format(script="8, [1.0, 3.0], [8, 8]"))
    assert loaded.stdout == "[2, 6] False False\n", loaded.stderr


def test_what_wants_the_worker_says_so(empty):
    done = call(empty, "motley", "demo")
    assert done.returncode == 2 and "install the package motley-worker-2-15" in done.stderr, done.stderr


def test_the_worker_has_no_torch_in_it(wheels):
    """Its libraries are those of the package beside it, wherever that environment lies."""
    (worker,) = [path for name, path in wheels.items() if name.startswith("motley_worker_")]
    names = zipfile.ZipFile(worker).namelist()
    assert "motley/bin/motley-worker" in names and "motley/bin/motley-worker.json" in names
    assert not [name for name in names if "torch" in pathlib.Path(name).name or "libc10" in name]
    assert worker.stat().st_size < 20e6


def test_the_worker_finds_a_torch_that_lies_elsewhere(wheels, tmp_path, mlp, cluster):
    """As in an environment over a system's packages; the program is called as a shell does, and as ssh does on another host."""
    own, program = make_venv(tmp_path, *wheels.values()), tmp_path / "venv/bin/motley"
    before = call(tmp_path, program, "doctor")
    assert "pip install torch==2.15.*" in before.stdout and "worker.torch" in before.stdout, before.stdout
    (torch,) = importlib.util.find_spec("torch").submodule_search_locations
    (own / "elsewhere.pth").write_text(f"{pathlib.Path(torch).parent}\n")
    for path in (program, own / "motley/bin/motley"):
        assert "motley-worker runs PyTorch 2.15" in call(tmp_path, path, "doctor").stdout, path
    measured = call(tmp_path, own / "motley/bin/motley", "profile", "-m", mlp, "-C", cluster, "--global-batch", 8, "-q", MOTLEY_PROFILE_ROUNDS="1")
    assert measured.returncode == 0, measured.stderr
    (own / "elsewhere.pth").unlink()
    assert "motley-worker runs PyTorch 2.15" in call(tmp_path, program, "doctor", MOTLEY_TORCH=torch).stdout
