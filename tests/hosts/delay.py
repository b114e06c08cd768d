"""Carries frames between two interfaces, each so many seconds after it came: kernels without netem are common.

`python delay.py SECONDS FIRST SECOND`; of hosts at both ends first `python delay.py INTERFACE`. For pings and a few megabits: all goes through this process.
"""

import collections
import ctypes
import fcntl
import select
import socket
import struct
import sys
import time

OUTGOING = 4  # as packet sockets say it of what this machine has sent


def whole_frames(interface):
    """Sums are in the frames, and none is larger than the wire takes: without the card's help."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in (0x17, 0x1F, 0x24, 0x2C):  # transmit sums, TSO, GSO, GRO
            value = bytearray(struct.pack("II", command, 0))
            address = (ctypes.c_char * len(value)).from_buffer(value)
            request = struct.pack("16sQ16x", interface.encode(), ctypes.addressof(address))
            try:
                fcntl.ioctl(any_socket, 0x8946, request)
            except OSError:
                pass  # this kernel has no such help


def opened(interface):
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind((interface, 0))
    return made


def carry(seconds, interfaces):
    ends = [opened(name) for name in interfaces]
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting = collections.deque()  # when, to where, frame
    while True:
        left = None if not waiting else max(0.0, waiting[0][0] - time.monotonic())
        for end in select.select(ends, [], [], left)[0]:
            frame, address = end.recvfrom(1 << 16)
            if address[2] != OUTGOING:
                waiting.append((time.monotonic() + seconds, other[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, frame = waiting.popleft()
            try:
                end.send(frame)
            except OSError:
                pass  # as a full cable drops it


if __name__ == "__main__":
    if len(sys.argv) == 2:
        whole_frames(sys.argv[1])
    else:
        carry(float(sys.argv[1]), sys.argv[2:])
