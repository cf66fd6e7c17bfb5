# SPDX-License-Identifier: Apache-2.0
"""A client of gRPC on a bare HTTP/2 connection, for messages that no worker sends and for clients that stop halfway."""
import contextlib
import re
import socket
import struct
import time

from grpc_attacks import DATA, END_STREAM, HEADERS, HELLO, PING, PREFACE, RST_STREAM, SETTINGS, call, dial, field, frame, headers
from messages import METHODS, encode

OK, INVALID, NOT_FOUND, EXISTS, DENIED, EXHAUSTED, PRECONDITION, ABORTED, UNAVAILABLE = 0, 3, 5, 6, 7, 8, 9, 10, 14
NO_WINDOW = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))  # The server may send no content.
WINDOW_UPDATE, ACK = 8, 1
STATUS = re.compile(rb"grpc-status(?:\x01(\d)|\x02(\d\d))", re.S)
# gRPC sends a header's name and value only the first time in a connection, so that only the first call shows its status.


class Call:
    def __init__(self):
        self.answers, self.ended, self.status, self.rest = [], False, None, b""

    def take(self, payload):
        self.rest += payload
        while len(self.rest) >= 5 and len(self.rest) >= 5 + (size := int.from_bytes(self.rest[1:5], "big")):
            self.answers.append(self.rest[5:5 + size])
            self.rest = self.rest[5 + size:]


class Client:
    """One connection. `token` is the one that its calls show."""

    def __init__(self, port, token, hello=HELLO):
        self.socket, self.token, self.calls, self.rest, self.closed = dial(port), token, [], b"", False
        self.socket.sendall(hello)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # Also ends a read() of another thread.
        self.socket.close()

    def begin(self, method, *messages, end=True):
        """Starts a call and sends messages: bytes, or the values of the method's request."""
        stream = 2 * len(self.calls) + 1
        self.calls.append(Call())
        self.write(headers(stream, call(method, field(b"authorization", b"Bearer " + self.token.encode()))))
        for number, message in enumerate(messages):
            data = message if isinstance(message, bytes) else encode(METHODS[method], message)
            self.send(stream, data, end and number == len(messages) - 1)
        if end and not messages:
            self.write(frame(DATA, END_STREAM, stream))
        return stream

    def send(self, stream, data, end=False):
        data = b"\0" + struct.pack(">I", len(data)) + data
        pieces = [data[at:at + 16000] for at in range(0, len(data), 16000)]
        for number, piece in enumerate(pieces):
            self.write(frame(DATA, END_STREAM if end and number == len(pieces) - 1 else 0, stream, piece))

    def write(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True

    def read(self, until, seconds=10):
        """Reads frames until the condition holds or the connection ends; returns whether the condition holds."""
        end = time.monotonic() + seconds
        while not until() and not self.closed and (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                self.receive()
        return until()

    def receive(self):
        try:
            piece = self.socket.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError:
            piece = b""
        self.closed = self.closed or not piece
        self.rest += piece
        while len(self.rest) >= 9 and len(self.rest) >= 9 + (size := int.from_bytes(self.rest[:3], "big")):
            self.take(self.rest[3], self.rest[4], int.from_bytes(self.rest[5:9], "big") & 0x7fffffff, self.rest[9:9 + size])
            self.rest = self.rest[9 + size:]

    def take(self, kind, flags, stream, payload):
        if kind in (PING, SETTINGS) and not flags & ACK:
            self.write(frame(kind, ACK, 0, payload if kind == PING else b""))
        if not stream or stream // 2 >= len(self.calls):
            return
        one = self.calls[stream // 2]
        if kind == DATA:
            one.take(payload)
            if payload:
                self.write(b"".join(frame(WINDOW_UPDATE, 0, of, struct.pack(">I", len(payload))) for of in (0, stream)))
        elif kind == HEADERS and (status := STATUS.search(payload)):
            one.status = int(status[1] or status[2])
        one.ended = one.ended or kind == RST_STREAM or (kind in (DATA, HEADERS) and bool(flags & END_STREAM))

    def wait(self, seconds=10):
        """Waits until all calls have ended; returns whether they have."""
        return self.read(lambda: all(one.ended for one in self.calls), seconds)


def ask(port, token, method, *messages, seconds=10):
    """Makes one call on a connection of its own; returns it when it has ended."""
    with Client(port, token) as client:
        client.begin(method, *messages)
        client.wait(seconds)
        return client.calls[0]
