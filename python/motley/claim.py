"""A directory that one process has for itself: a lock on its file `in_use` (docs/formats/run_directory.md)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket


class InUseError(ValueError):
    """Another process has it: `pid`, or None where it is not known."""

    def __init__(self, folder: str, pid: int | None):
        self.pid = pid
        who, how = (f"process {pid}", f" (kill {pid})") if pid else ("another process", "")
        super().__init__(f"{folder} is in use by {who}; wait for it, stop it{how}, or give another folder")


def claim(folder: str):
    """An open file: while it is, or the process lives, the folder is its own. Where files cannot be locked nothing is claimed."""
    file = open(os.path.join(folder, "in_use"), "a+", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        pid = None
        with contextlib.suppress(ValueError, KeyError, TypeError), file:
            pid = json.load(file)["pid"]
        raise InUseError(folder, pid) from None
    except OSError:
        return file
    file.truncate(0)
    file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n")
    file.flush()
    return file
