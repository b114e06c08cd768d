"""A Python that has PyTorch imported, and starts others by a fork: each costs some ten milliseconds in place of seven seconds of a processor.

    python warm.py serve SOCKET MODULE...          imports the modules, and serves
    python warm.py python SOCKET ARGUMENT...       does as `python ARGUMENT...` does
    python warm.py torchrun SOCKET ARGUMENT...     does as `torchrun --nproc-per-node N SCRIPT ARGUMENT...` does

What is started has the caller's environment, folder and first three files, nothing of what ran before it, and ends as an interpreter does, but
that its objects are not freed. A request is one connection: JSON {"arguments", "environment", "folder"} with the files; answered by a line
with the process's number, and one with its status as waitpid has it. All ends with the server, and the server with who started it.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types

PR_SET_PDEATHSIG = 1
LENGTH = struct.Struct("<I")
LARGEST_REQUEST = 1 << 20
FILES = 3
MODULES = ("numpy", "safetensors.torch", "torch._dynamo", "torch.distributed.fsdp", "torch.export")  # of nobody who is tested


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# The side that asks.


class Started:
    """A process that the server has started."""

    def __init__(self, path, arguments, environment=None, folder=None, files=(0, 1, 2)):
        request = {"arguments": [str(each) for each in arguments], "environment": dict(os.environ if environment is None else environment)}
        data = json.dumps(request | {"folder": str(folder or os.getcwd())}).encode()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(path))
        socket.send_fds(self._connection, [LENGTH.pack(len(data))], list(files))
        self._connection.sendall(data)
        self._answers = self._connection.makefile("r")
        self.pid = int(self._answers.readline())

    def wait(self, timeout=None):
        """Its exit code, or the negative number of the signal that ended it. TimeoutError: it runs on."""
        self._connection.settimeout(timeout)
        status = int(self._answers.readline())
        self._answers.close()
        self._connection.close()
        return os.waitstatus_to_exitcode(status)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Server:
    """Serves for as long as who makes it lives. In `folder` are `python`, `python3` and `torchrun` that do as those."""

    def __init__(self, modules=MODULES):
        self._folder = tempfile.TemporaryDirectory(prefix="warm")
        self.path = os.path.join(self._folder.name, "socket")
        self._process = subprocess.Popen([sys.executable, __file__, "serve", self.path, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
        assert self._process.stdout.readline() == "serving\n", self._process.wait()
        for name, verb in (("python", "python"), ("python3", "python"), ("torchrun", "torchrun")):
            program = pathlib.Path(self._folder.name, name)
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {os.path.abspath(__file__)} {verb} {self.path} "$@"\n')
            program.chmod(0o755)
        self.folder = self._folder.name

    def run(self, arguments, timeout, environment=None, folder=None):
        """As subprocess.run with what it printed, as text."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors, open(os.devnull) as nothing:
            started = Started(self.path, arguments, environment, folder, [file.fileno() for file in (nothing, output, errors)])
            try:
                code = started.wait(timeout)
            except TimeoutError:
                started.kill()
                raise
            said = [file.seek(0) or file.read() for file in (output, errors)]
        return subprocess.CompletedProcess(arguments, code, *said)


@functools.cache
def server():
    """That of this process."""
    return Server()


IS_REAL = os.environ.get("MOTLEY_SLOW") == "1"  # then interpreters are started


def folder():
    """Where `python`, `python3` and `torchrun` lie."""
    return os.path.dirname(sys.executable) if IS_REAL else server().folder


def python():
    """The program that stands for the interpreter."""
    return os.path.join(folder(), "python")


def torchrun(world):
    """The words before a script that start so many ranks of it."""
    return [os.path.join(folder(), "torchrun"), "--nproc-per-node", str(world)]


def start_ranks(path, arguments):
    """Starts the ranks of `--nproc-per-node N SCRIPT ARGUMENT...`; the first exit code that is not 0."""
    flag, world, *arguments = arguments
    assert flag == "--nproc-per-node", flag
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    ranks = [Started(path, arguments, os.environ | places | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(int(world))]
    return next((code for code in [rank.wait() for rank in ranks] if code != 0), 0)


# The side that starts.


def receive(connection):
    """A request: its object, and its files."""
    head, files, _, _ = socket.recv_fds(connection, LENGTH.size, FILES)
    (size,) = LENGTH.unpack(head)
    assert size <= LARGEST_REQUEST and len(files) == FILES
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the request ends early"
        data += part
    return json.loads(data), files


def take_place(request, files):
    """Makes this process one that was started so."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["environment"])
    after = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    # The first place is the script's.
    sys.path[:] = [sys.path[0], *after, *(each for each in sys.path[1:] if each not in before and each not in after)]
    sys.orig_argv[:] = ["python", *request["arguments"]]


def keep(connection, server):
    """Starts what is asked for and tells of it; returns in what was started, with its arguments."""
    server.close()
    request, files = receive(connection)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        connection.close()
        take_place(request, files)
        return request["arguments"]
    for file in files:
        os.close(file)
    with contextlib.suppress(OSError):  # who asked has gone
        connection.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        connection.sendall(f"{status}\n".encode())
    os._exit(0)


def serve(path, modules):
    """Returns in each process that is started, with its arguments."""
    end_with_parent()
    for name in modules:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has one of the threads that there are"
    gc.freeze()  # else the first collection of each fork would copy all that is here
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        print("serving", flush=True)
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready:
                os._exit(0)
            connection, _ = server.accept()
            if os.fork() == 0:
                end_with_parent()
                return keep(connection, server)
            connection.close()


def run(arguments):
    """As the interpreter runs -m MODULE, -c CODE or SCRIPT."""
    first, *rest = arguments
    if first == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        code, sys.argv, sys.path[0] = compile(rest[0], "<string>", "exec"), ["-c", *rest[1:]], ""
    else:
        main.__file__, sys.argv, sys.path[0] = first, arguments, os.path.dirname(os.path.abspath(first))
        with open(first, encoding="utf-8") as file:
            code = compile(file.read(), first, "exec")
    exec(code, main.__dict__)


def run_to_the_end(arguments):
    """And as it ends, at once: to free what PyTorch has takes longer than most of what is run."""
    code = 0
    try:
        run(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        error.with_traceback(error.__traceback__.tb_next.tb_next)  # what was run has no more
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed
            file.flush()
    leave(code)


def leave(code):
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL cannot be heard
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main(verb, path, *words):
    if verb == "serve":
        run_to_the_end(serve(path, words))
    elif verb == "torchrun":
        leave(start_ranks(path, words))
    else:
        leave(Started(path, words).wait())


if __name__ == "__main__":
    main(*sys.argv[1:])
