"""What tests make once for all: kept under build/test-cache by what made it, for every process and the next `make test`."""

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import os
import pathlib
import pickle
import platform
import shutil
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build")).resolve() / "test-cache"
UNUSED_DAYS = 7  # then an entry goes: each change of a source leaves those of before behind

# What every export depends on: the exporter, and what traces for it.
EXPORTER = (ROOT / "python/motley", "torch", importlib.metadata.version("torch"), platform.python_version())


def kept(key_parts, make, cache=CACHE):
    """The path of what `make(path)` writes, a file or a folder, made at most once for these key parts.

    A part is a text (a number, a list of texts) that counts as printed, or a pathlib.Path, that counts by its contents, a
    folder by all that is in it. All that the result depends on must be a part. Processes that ask at once wait for the one
    that makes it; what `make` raises is raised, and nothing is kept. Who asks must not change what is there.
    """
    key = hashlib.sha256("\0".join(_printed(part) for part in key_parts).encode()).hexdigest()[:32]
    path = cache / key
    if path.exists():
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
            return path
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as folder:
                made = pathlib.Path(folder) / key
                make(made)
                os.utime(made)
                os.rename(made, path)
            _drop_unused(cache)
    return path


def _printed(part):
    if isinstance(part, pathlib.Path):
        return _contents(part)
    return repr(part)


@functools.cache
def _contents(path):
    """A digest of a file, or of the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    if not files:
        raise FileNotFoundError(path)
    for each in files:
        if "__pycache__" not in each.parts:
            digest.update(f"{each.relative_to(path)}\0".encode() + hashlib.sha256(each.read_bytes()).digest())
    return digest.hexdigest()


def _drop_unused(cache):
    """What no test asked for in the last days; a lock is younger than what it is of."""
    for each in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - each.stat().st_mtime > UNUSED_DAYS * 86400:
                shutil.rmtree(each) if each.is_dir() else each.unlink()


def kept_model(name, make, *sources):
    """A folder with NAME.motley, the model that `motley.export` writes of what `make()` returns, (module, inputs), with torch's seed 0,
    and exported.pickle, what it answers (motley.Exported). `sources`: the files that make it."""

    def write(folder):
        import motley  # noqa: PLC0415
        import torch  # noqa: PLC0415

        folder.mkdir()
        torch.manual_seed(0)
        module, inputs = make()
        exported = motley.export(module, inputs, folder / f"{name}.motley", name=name)
        (folder / "exported.pickle").write_bytes(pickle.dumps(exported))

    return kept([*EXPORTER, name, *sources], write)
