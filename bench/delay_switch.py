#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A switch that delays every frame, for bench/shaped.sh on kernels without netem.

usage: delay_switch.py DELAY INTERFACE...    DELAY is one way, such as 500us or 20ms

Forwards Ethernet frames between the interfaces after the delay. Offloaded frames keep their metadata, so a frame may
have 64 KB. One core forwards about 20,000 frames per second, which is enough for links of 200 Mb/s.
"""
from __future__ import annotations

import collections
import select
import socket
import sys
import time

SOL_PACKET, VNET_HEADER, IGNORE_OUTGOING = 263, 15, 23
SEND_BUFFER, RECEIVE_BUFFER = 32, 33  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
ALL_PROTOCOLS = 3
HEADER = 10  # Bytes of the metadata before a frame.
FRAME_MAX = HEADER + 65_550
BUFFER = 64 << 20
QUEUE_MAX = 256 << 20  # Bytes of delayed frames. The switch drops further frames, as a full queue does.


def seconds_of(text: str) -> float:
    for unit, scale in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * scale
    raise SystemExit(f"delay_switch.py: \"{text}\" is not a time: use one like 500us or 20ms")


def port_of(interface: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, VNET_HEADER, 1)
    port.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, SEND_BUFFER, BUFFER)
    port.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER, BUFFER)
    port.bind((interface, ALL_PROTOCOLS))
    port.setblocking(False)
    return port


class Switch:
    def __init__(self, delay: float, ports: list[socket.socket]):
        self.delay, self.ports = delay, ports
        self.addresses: dict[bytes, socket.socket] = {}
        self.queue: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
        self.queued = 0

    def receive(self, port: socket.socket) -> None:
        while True:
            try:
                frame = port.recv(FRAME_MAX)
            except BlockingIOError:
                return
            due = time.monotonic() + self.delay
            target, source = frame[HEADER:HEADER + 6], frame[HEADER + 6:HEADER + 12]
            self.addresses[source] = port
            known = self.addresses.get(target)
            for to in [known] if known else [other for other in self.ports if other is not port]:
                if to is port or self.queued + len(frame) > QUEUE_MAX:
                    continue
                self.queue.append((due, to, frame))
                self.queued += len(frame)

    def send_due(self) -> None:
        now = time.monotonic()
        while self.queue and self.queue[0][0] <= now:
            _, port, frame = self.queue.popleft()
            self.queued -= len(frame)
            try:
                port.send(frame)
            except OSError:
                pass  # The interface's queue is full, and the frame is lost, as in any switch.

    def run(self) -> None:
        poll = select.epoll()
        by_descriptor = {port.fileno(): port for port in self.ports}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while True:
            wait = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else -1
            for descriptor, _ in poll.poll(wait):
                self.receive(by_descriptor[descriptor])
            self.send_due()


def main() -> None:
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    Switch(seconds_of(sys.argv[1]), [port_of(interface) for interface in sys.argv[2:]]).run()


if __name__ == "__main__":
    main()
