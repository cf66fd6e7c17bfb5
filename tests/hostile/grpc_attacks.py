# SPDX-License-Identifier: Apache-2.0
"""Attacks on the gRPC ports of a running job that has a token, by a stranger who can open a TCP connection and has neither token nor
certificate.

Each attack is a function of a Target. It must leave the target able to answer, and raises AssertionError if anything is wrong.
"""
import contextlib
import os
import pathlib
import random
import select
import socket
import ssl
import struct
import time

from http_attacks import expect

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4
METHODS = ("sluice.v1.Coordinator/Join", "sluice.v1.Coordinator/Heartbeat", "sluice.v1.Coordinator/Leave", "sluice.v1.Coordinator/GetStatus",
           "sluice.v1.Coordinator/ReportCheckpoint", "sluice.v1.Coordinator/RequestCheckpoint", "sluice.v1.Coordinator/EvictRank",
           "sluice.v1.Coordinator/ChangeSettings", "sluice.v1.ParameterShard/Exchange", "sluice.v1.ParameterShard/GetUsage",
           "sluice.v1.ShardControl/Attach", "sluice.v1.ShardControl/Enter", "sluice.v1.CheckpointStore/PutPart",
           "sluice.v1.CheckpointStore/GetPart", "grpc.health.v1.Health/Check",
           "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "no.such.Service/Method")
STRANGERS_TIME = 10  # In seconds, after which a stranger's connection ends.
MENDED = (1, 56, 2)  # The first gRPC that limits endless headers.


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


HELLO = PREFACE + frame(SETTINGS, 0, 0)


def length(number):
    """Encodes a number as HPACK does, with a prefix of seven bits."""
    if number < 127:
        return bytes((number,))
    out, number = b"\x7f", number - 127
    while number >= 128:
        out, number = out + bytes((number % 128 + 128,)), number // 128
    return out + bytes((number,))


def field(name, value):
    return b"\0" + length(len(name)) + name + length(len(value)) + value


def call(method="sluice.v1.Coordinator/GetStatus", *fields):
    """Returns the header block of a call: POST, http, and the headers that gRPC requires."""
    return b"".join((b"\x83\x86", field(b":path", b"/" + method.encode()), field(b":authority", b"x"), field(b"te", b"trailers"),
                     field(b"content-type", b"application/grpc"), *fields))


def headers(stream, block, end_stream=False):
    pieces = [block[at:at + 16000] for at in range(0, len(block), 16000)]
    return b"".join(frame(CONTINUATION if at else HEADERS,
                          (END_HEADERS if at == len(pieces) - 1 else 0) | (END_STREAM if end_stream and not at else 0), stream, piece)
                    for at, piece in enumerate(pieces))


def dial(port):
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def try_send(client, data):
    """Returns whether the other side still accepts the bytes."""
    try:
        client.sendall(data)
        return True
    except OSError:
        return False


def heard(client, seconds):
    """Returns the bytes until none has arrived for this long, or until the end."""
    client.settimeout(seconds)
    got = b""
    with contextlib.suppress(OSError):
        while len(got) < 1 << 22 and (piece := client.recv(1 << 16)):
            got += piece
    client.settimeout(5)
    return got


def discard(client):
    client.setblocking(False)
    with contextlib.suppress(OSError):
        while client.recv(1 << 20):
            pass
    client.settimeout(5)


def frames(data):
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        yield data[3], int.from_bytes(data[5:9], "big") & 0x7fffffff, data[9:9 + size]
        data = data[9 + size:]


def processor_seconds(pid):
    """Returns the processor time of its threads."""
    total = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def is_ended(client):
    """Returns whether the other side ends the connection within five seconds. Its bytes before that do not matter."""
    client.settimeout(5)
    try:
        while client.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def flood(port, number, beginnings, during):
    """Holds this many connections for longer than strangers are allowed. All must end without the client's help."""
    clients = []
    try:
        begun = time.monotonic()
        for i in range(number):
            with contextlib.suppress(OSError):
                clients.append(dial(port))
                clients[-1].sendall(beginnings[i % len(beginnings)])
        during()
        while time.monotonic() < begun + STRANGERS_TIME + 2:
            during()
            time.sleep(1)
        open_ones = sum(not is_ended(client) for client in clients[-100:])
        expect(open_ones == 0, f"{open_ones} of the last 100 connections are open after {STRANGERS_TIME} s")
    finally:
        for client in clients:
            client.close()


def more_grpc_connections_than_descriptors(target):
    """A third is silent, a third sends the HTTP/2 preface, a third makes a call without the token."""
    beginnings = (b"", HELLO, HELLO + headers(1, call("sluice.v1.ParameterShard/Exchange")))
    flood(target.job.ports[0], target.descriptors + 100, beginnings, lambda: target.expect_all_ports("beside idle connections"))


def random_bytes(target):
    noise = random.Random(1)
    for port in target.job.ports:
        for size in (1, 10, 100, 10_000, 200_000):
            for beginning in (b"", PREFACE, HELLO):
                with dial(port) as client:
                    try_send(client, beginning + noise.randbytes(size))
                    heard(client, 0.02)


def tls_to_plaintext(target):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for port in target.job.ports:
        for _ in range(5):
            with contextlib.suppress(OSError), dial(port) as client, context.wrap_socket(client):
                raise AssertionError("a plaintext port speaks TLS")


def malformed_frames(target):
    """For each type: bad flags and streams, a wrong size, a size without a payload."""
    noise = random.Random(2)
    for kind in range(12):
        for stream in (0, 1, 2, 0x7fffffff):
            with dial(target.job.ports[kind % 2]) as client:
                try_send(client, HELLO + frame(kind, 0xff, stream, noise.randbytes(noise.randrange(40))))
                try_send(client, b"\xff\xff\xff" + bytes((kind, 0)) + struct.pack(">I", stream))
                heard(client, 0.01)


def large_metadata(target):
    """1 kB to 2 MB."""
    for size in (1000, 7000, 9000, 20_000, 200_000, 2_000_000):
        with dial(target.job.ports[0]) as client:
            try_send(client, HELLO + headers(1, call("sluice.v1.Coordinator/GetStatus", field(b"x-large", b"v" * size)), True))
            expect_no_answer(heard(client, 0.1), f"metadata of {size} bytes")


def headers_that_grpc_refuses(target):
    """Alone, and before others that are too large."""
    for name in (b"te", b":scheme", b"grpclb_client_stats"):
        for more in ((), (field(b"x-a", b"v" * 9000), field(b"x-b", b"v" * 9000))):
            for port in target.job.ports:
                with dial(port) as client:
                    try_send(client, HELLO + headers(1, call("sluice.v1.Coordinator/GetStatus", field(name, b"x"), *more), True))
                    expect_no_answer(heard(client, 0.1), f"header {name}")


def expect_no_answer(received, what):
    empty = b"\0\0\0\0\0"  # A message without content.
    answers = [stream for kind, stream, payload in frames(received) if kind == DATA and payload not in (b"", empty)]
    expect(not answers, f"{what}: streams {answers} are answered")


def calls_without_the_token(target):
    """All methods, with no token and with wrong ones. No call gets a message in reply."""
    right = target.token.encode()
    values = ((), (b"Bearer " + b"x" * len(right),), (b"Bearer " + right[:-1],), (b"Bearer " + right + b"a",), (b"bearer " + right,),
              (b"Basic " + right,), (b"Bearer ",), (b"Bearer " + right, b"Bearer " + b"x" * len(right)), (right,))
    for port in target.job.ports:
        for tokens in values:
            with dial(port) as client:
                shown = [field(b"authorization", token) for token in tokens]
                for number, method in enumerate(METHODS):
                    stream = 2 * number + 1
                    client.sendall((b"" if number else HELLO) + headers(stream, call(method, *shown)) +
                                   frame(DATA, END_STREAM, stream, b"\0\0\0\0\0"))
                received = heard(client, 0.2)
                expect_no_answer(received, f"authorization {tokens}")
                ended = {stream for kind, stream, _ in frames(received) if kind in (HEADERS, RST_STREAM)}
                expect(len(ended) == len(METHODS), f"of {len(METHODS)} calls with authorization {tokens} {len(ended)} end")


def messages_that_stop(target):
    """Calls that announce 60 MB, send a little and wait."""
    body = b"\0" + struct.pack(">I", 60_000_000) + b"a" * 15_000
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(dial(target.job.ports[0]))
            client.sendall(HELLO + headers(1, call("sluice.v1.ParameterShard/Exchange")) + frame(DATA, 0, 1, body))
        target.expect_grpc("beside calls that announce 60 MB")


def reset_streams(target):
    """20,000 that are opened and reset at once."""
    with dial(target.job.ports[0]) as client:
        client.sendall(HELLO)
        for number in range(20_000):
            stream = 2 * number + 1
            if not try_send(client, headers(stream, call()) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))):
                break
            if number % 500 == 0:
                discard(client)
        target.expect_grpc("beside streams that are reset")


def small_frames(target, unit, number):
    """Pings whose acknowledgements the client does not read."""
    with dial(target.job.ports[0]) as client:
        client.sendall(HELLO)
        for _ in range(number // 200):
            if not select.select([], [client], [], 5)[1] or not try_send(client, unit * 200):
                break
        target.expect_grpc("beside many small frames")


def many_settings(target):
    small_frames(target, frame(SETTINGS, 0, 0), 40_000)


def many_pings(target):
    small_frames(target, frame(PING, 0, 0, b"12345678"), 500_000)


ENDLESS_STRING = frame(HEADERS, 0, 3, b"\x83\x86" + field(b":path", b"/x") + b"\0\x03x-b" + b"\x7f\x81\xff\xff\xff\x03")  # Announces 1 GB.
MORE_OF_IT = frame(CONTINUATION, 0, 3, b"v" * 16_000)
ENDLESS_HEADERS = frame(HEADERS, 0, 3, call())
MORE_OF_THEM = frame(CONTINUATION, 0, 3, b"".join(field(b"x-%04d" % i, b"v" * 50) for i in range(250)))


def headers_without_end(target):
    """A stranger's connection ends before they fill the memory or take the processor."""
    for beginning, more in ((ENDLESS_HEADERS, MORE_OF_THEM), (ENDLESS_STRING, MORE_OF_IT)):
        with dial(target.job.ports[0]) as client:
            client.sendall(HELLO + beginning)
            sent = 0
            while sent < 60_000_000 and try_send(client, more):
                sent += len(more)
            expect(sent < 60_000_000, "a stranger's headers of 60 MB are taken")


def string_without_end(target):
    """From a client that has the token. A gRPC without the fix reads everything again for each frame, unless it is so busy that it reads
    many frames at once."""
    for _ in range(5):
        held, what = try_string_without_end(target)
        if not held:
            break
    expect_as_known(target, held, what)


def try_send_alone(client, data):
    """So that the server reads it before more arrives."""
    time.sleep(0.003)
    return try_send(client, data)


def try_string_without_end(target):
    pid, steps = target.servers[0], []
    wait_until_idle(pid)
    with dial(target.job.ports[0]) as client:
        client.sendall(HELLO + headers(1, call("sluice.v1.ParameterShard/GetUsage", field(b"authorization", b"Bearer " + target.token.encode()))) +
                       frame(DATA, END_STREAM, 1, b"\0\0\0\0\0"))
        expect(any(kind == DATA and payload for kind, _, payload in frames(heard(client, 0.5))), "a call with the token is not answered")
        client.sendall(ENDLESS_STRING)
        for _ in range(3):
            before = processor_seconds(pid)
            taken = all(try_send_alone(client, MORE_OF_IT) for _ in range(150))
            wait_until_idle(pid)
            steps.append(round(processor_seconds(pid) - before, 3))
    held = not taken or steps[2] < 2 * steps[0]
    return held, f"2.4 MB of one header, three times: {steps} s of the processor, all taken: {taken}"


def is_expected_to_fail(attack, target):
    return attack is string_without_end and target.grpc_version < MENDED


def expect_as_known(target, held, what):
    """Fails if a fixed gRPC does not withstand the attack, and also if an older one does, so that the suite reports when that changes."""
    should = target.grpc_version >= MENDED
    version = ".".join(map(str, target.grpc_version))
    print(f"  gRPC {version}: {what}: {'held' if held else 'not held'}", flush=True)
    expect(held == should, f"gRPC {version} is expected to {'hold' if should else 'fail'} here: {what}")


def wait_until_idle(pid):
    last, quiet = processor_seconds(pid), 0
    end = time.monotonic() + 30
    while quiet < 3:
        expect(time.monotonic() < end, "the server is busy for 30 s")
        time.sleep(0.05)
        now = processor_seconds(pid)
        last, quiet = now, quiet + 1 if now - last <= 0.02 else 0


ALL = (headers_without_end, more_grpc_connections_than_descriptors, random_bytes, tls_to_plaintext, malformed_frames, large_metadata,
       headers_that_grpc_refuses, calls_without_the_token, messages_that_stop, reset_streams, many_settings, many_pings, string_without_end)
