"""Small sums between all ranks: a socket to each other rank, each rank adds in the order of ranks.

A batch norm waits for the other ranks twice; all_reduce of gloo wakes some 25 threads for that, 1 to 5 ms of a processor, whatever
the size. A message to each rank and one from each are one hop, and 0.1 ms. All ranks have the same bits.

A frame is its length in bytes and that of the words that say what it is of (u32 each, little-endian), these, and float64 values. Frames are
posted in the same order by all ranks, as collectives are; ranks at different places are told so.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import select
import socket
import struct
import time

import torch
import torch.distributed as dist

CONNECT_S = 60.0
LARGEST = 1 << 16  # bytes of a frame: what sockets hold without anyone reading
SIOCGIFADDR = 0x8915
HEAD = struct.Struct("<II")
HELLO = struct.Struct("<16sI")  # token of the rank that is called, rank of the caller
HELLO_S = 5.0


def own_addresses() -> list[str]:
    """By which other ranks may reach this one, the likeliest first: on the interface that gloo is told to use, on the way to rank 0, by name, and
    on the way to elsewhere. A name alone is often a loopback address."""
    found = []
    if names := os.environ.get("GLOO_SOCKET_IFNAME"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("256s", names.split(",")[0].encode()[:15])
            found.append(socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)[20:24]))
    for target in (os.environ.get("MASTER_ADDR"), "192.0.2.1"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((target or "127.0.0.1", 9))  # sends nothing
            found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        found += socket.gethostbyname_ex(socket.gethostname())[2]
    return list(dict.fromkeys(found))


def timeout_of(group) -> float:
    """Seconds that the process group waits for a rank."""
    group = group or dist.distributed_c10d._get_default_group()
    for device in group._device_types:
        with contextlib.suppress(AttributeError, RuntimeError):
            return group._get_backend(device).options._timeout.total_seconds()
    return dist.distributed_c10d.default_pg_timeout.total_seconds()


def read_exactly(connection: socket.socket, size: int) -> bytearray:
    """ConnectionError: it was closed before."""
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        got = connection.recv_into(view[have:])
        if got == 0:
            raise ConnectionError("closed")
        have += got
    return data


class Mesh:
    """Made by all ranks of a group together. RuntimeError: a rank that cannot be reached, ended, or does not answer, by number."""

    def __init__(self, group):
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.peers: dict[int, socket.socket] = {}
        self._posted, self._own = 0, {}  # frames of this rank that were not taken yet
        self._read = [0] * self.world
        self._frames: dict[tuple[int, int], bytearray] = {}  # (rank, number) that came before they were wanted
        with socket.create_server(("0.0.0.0", 0), backlog=self.world) as server:
            token = secrets.token_bytes(16)
            told = [None] * self.world
            dist.all_gather_object(told, (own_addresses(), server.getsockname()[1], token), group=group)
            failure = self._connect(server, told, token)
        failures = [None] * self.world
        dist.all_gather_object(failures, failure, group=group)
        if any(failures):
            self.close()
            raise RuntimeError("motley.torch: " + "; ".join(each for each in failures if each))
        seconds = timeout_of(group)
        for peer in self.peers.values():
            peer.settimeout(seconds)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _connect(self, server: socket.socket, told: list, token: bytes) -> str | None:
        """Calls the ranks before this one, is called by those behind; what went wrong."""
        until = time.monotonic() + CONNECT_S
        for rank in range(self.rank):
            addresses, port, theirs = told[rank]
            while rank not in self.peers:
                for address in addresses:
                    with contextlib.suppress(OSError):
                        self.peers[rank] = self._call(address, port, theirs)
                        break
                else:
                    if time.monotonic() > until:
                        return f"rank {self.rank} cannot reach rank {rank} at {', '.join(addresses)} port {port} within {CONNECT_S:.0f} s"
                    time.sleep(0.1)
        while len(self.peers) < self.world - 1:
            server.settimeout(max(0.01, until - time.monotonic()))
            try:
                connection, _ = server.accept()
            except OSError:
                missing = [rank for rank in range(self.rank + 1, self.world) if rank not in self.peers]
                return f"rank {self.rank} heard nothing of ranks {missing} within {CONNECT_S:.0f} s"
            self._answer(connection, token)
        return None

    def _call(self, address: str, port: int, token: bytes) -> socket.socket:
        connection = socket.create_connection((address, port), timeout=HELLO_S)
        try:
            connection.sendall(HELLO.pack(token, self.rank))
            if read_exactly(connection, len(token)) != token:
                raise ConnectionError("another program")
        except OSError:
            connection.close()
            raise
        return connection

    def _answer(self, connection: socket.socket, token: bytes) -> None:
        connection.settimeout(HELLO_S)
        with contextlib.suppress(OSError):
            theirs, rank = HELLO.unpack(read_exactly(connection, HELLO.size))
            if theirs == token and self.rank < rank < self.world and rank not in self.peers:
                connection.sendall(token)
                self.peers[rank] = connection
                return
        connection.close()  # a stranger

    def post(self, values: torch.Tensor, what: str) -> int:
        """Sends values (float64, on the CPU) to all ranks without waiting; the number by which `take` wants them. `what`: alike on all ranks."""
        words = what.encode()
        data = words + ctypes.string_at(values.data_ptr(), values.numel() * 8)
        if len(data) > LARGEST:
            raise ValueError(f"motley.torch: {values.numel()} numbers at once; ranks exchange at most {LARGEST // 8}")
        frame = HEAD.pack(len(data), len(words)) + data
        for rank, peer in self.peers.items():
            try:
                peer.sendall(frame)
            except OSError as error:
                raise self._lost(rank, error, what) from None
        self._own[self._posted] = what, bytearray(data[len(words) :])
        self._posted += 1
        return self._posted - 1

    def take(self, number: int) -> list[torch.Tensor]:
        """What each rank posted under that number, in their order. Waits for them. RuntimeError: one of them is at another place."""
        what, own = self._own.pop(number)
        frames = []
        for rank in range(self.world):
            theirs, values = (what, own) if rank == self.rank else self._frame(rank, number, what)
            if theirs != what:
                raise RuntimeError(f"motley.torch: rank {self.rank} is at {what}, rank {rank} at {theirs}: the ranks do not do the same")
            frames.append(torch.frombuffer(values, dtype=torch.float64) if values else torch.empty(0, dtype=torch.float64))
        return frames

    def sum(self, number: int) -> torch.Tensor:
        first, *others = self.take(number)
        for each in others:  # one after the other: a reduction's order would be its processor's
            first += each
        return first

    def _frame(self, rank: int, number: int, what: str) -> tuple[str, bytearray]:
        while (rank, number) not in self._frames:
            self._frames[rank, self._read[rank]] = self._receive(rank, what)
            self._read[rank] += 1
        return self._frames.pop((rank, number))

    def _receive(self, rank: int, what: str) -> tuple[str, bytearray]:
        try:
            size, words = HEAD.unpack(read_exactly(self.peers[rank], HEAD.size))
            data = read_exactly(self.peers[rank], size)
        except OSError as error:
            raise self._lost(rank, error, what) from None
        return data[:words].decode(), data[words:]

    def _lost(self, rank: int, error: OSError, what: str) -> RuntimeError:
        if isinstance(error, TimeoutError):
            return RuntimeError(f"motley.torch: rank {self.rank} waited {self.peers[rank].gettimeout():.0f} s for rank {rank}, at {what}")
        return RuntimeError(f"motley.torch: rank {rank} has ended; rank {self.rank} waited for it, at {what}")

    def find_ended(self) -> list[int]:
        """Ranks that closed their sockets, or whose machines did."""
        ended = []
        for rank, peer in self.peers.items():
            try:
                if select.select([peer], [], [], 0)[0] and not peer.recv(1, socket.MSG_PEEK):
                    ended.append(rank)
            except OSError:
                ended.append(rank)
        return ended

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()
