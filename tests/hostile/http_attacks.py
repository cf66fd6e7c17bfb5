# SPDX-License-Identifier: Apache-2.0
"""Attacks on the HTTP ports of a running job, by a stranger who can open a TCP connection and has neither token nor certificate.

Each attack is a function of a Target. It must leave the target able to answer, and raises AssertionError if an answer is wrong.
"""
import contextlib
import socket
import threading
import time

PATIENCE = 5  # Seconds that a probe waits, as in the chart.
FLOOD = 150_000_000  # In bytes.


def answer(port, request, limit=PATIENCE, most=1 << 30):
    """Returns the bytes until the other side closes, at most `most`. Raises OSError if the connection is not accepted or no byte arrives."""
    with socket.create_connection(("127.0.0.1", port), timeout=limit) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # It may answer before it has read everything.
            client.sendall(request)
        received = b""
        while len(received) < most:
            try:
                piece = client.recv(1 << 16)
            except ConnectionResetError:
                break
            if not piece:
                break
            received += piece
        return received


def get(path, *headers, host="127.0.0.1"):
    return "".join(line + "\r\n" for line in (f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "")).encode()


def status_of(text):
    return int(text.split()[1]) if text.startswith(b"HTTP/1.") else None


def is_answered(port, path="/livez", limit=PATIENCE):
    try:
        return status_of(answer(port, get(path), limit)) == 200
    except OSError:
        return False


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


class Slow:
    """Connections that begin a request and add a byte to it every half second."""

    def __init__(self, port, number):
        self.over = threading.Event()
        self.clients = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(number)]
        for client in self.clients:
            client.sendall(b"GET /livez HTTP/1.1\r\nX: ")
        self.thread = threading.Thread(target=self.feed, daemon=True)
        self.thread.start()

    def feed(self):
        while not self.over.wait(0.5):
            for client in self.clients:
                with contextlib.suppress(OSError):
                    client.sendall(b"a")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for client in self.clients:
            client.close()


def slow_requests(target):
    """They hold up no other client, and the server closes them in the end."""
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Slow(port, number)) for port in target.http_ports for number in (4, 30)]
        begun = time.monotonic()
        while time.monotonic() < begun + 7:
            for port in target.http_ports:
                expect(is_answered(port), f"port {port} does not answer a probe beside slow requests")
        for one in slow:
            for client in one.clients:
                with contextlib.suppress(ConnectionResetError):
                    expect(client.recv(1) == b"", "a slow request is answered")  # A timeout is an OSError.


def slow_readers(target):
    """Clients that do not read their answers."""
    with contextlib.ExitStack() as stack:
        for port in target.http_ports:
            for _ in range(100):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.settimeout(PATIENCE)
                client.connect(("127.0.0.1", port))
                with contextlib.suppress(ConnectionError):
                    client.sendall(get("/"))
            expect(is_answered(port), f"port {port} does not answer beside clients that do not read")


def flood(port, beginning, unit):
    """Sends until the other side accepts no more."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(beginning)
            for _ in range(FLOOD // len(unit)):
                client.sendall(unit)
            raise AssertionError(f"port {port} accepted a request of {FLOOD} bytes")


def requests_without_end(target):
    fields = b"".join(b"X-%06d: %s\r\n" % (i, b"v" * 40) for i in range(1000))
    for port in target.http_ports:
        flood(port, b"GET /", b"a" * 65536)
        flood(port, b"GET /livez HTTP/1.1\r\nX: ", b"a" * 65536)
        flood(port, b"GET /livez HTTP/1.1\r\n", fields)


def ranges(target):
    """The page many times over, or a number that exhausts a recursive reader's stack."""
    whole = answer(target.page_port, get("/"))
    values = {"many ranges": ",".join(["0-"] * 2600), "a long number": "1" * 8000 + "-",
              "ranges that end badly": ",".join(["1-2"] * 1900) + "x", "spaces": "1-2," + " " * 7900 + "1-2"}
    for name, value in values.items():
        for port in target.http_ports:
            expect(status_of(answer(port, get("/livez", "Range: bytes=" + value))) == 200, f"{name}: port {port}")
    request = get("/", "Range: bytes=" + values["many ranges"])
    sizes = []
    threads = [threading.Thread(target=lambda: sizes.append(len(answer(target.page_port, request, 30)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(sizes == [len(whole)] * 4, f"the page has {len(whole)} bytes, answers to ranges {sizes}")


def odd_requests(target):
    """No malformed request is answered as if it were valid, and the server waits for none."""
    requests = (b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /../../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /%2e%2e/%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                b"GET /livez HTTP/9.9\r\nHost: x\r\n\r\n", b"GET /livez\r\n\r\n", b"GET /livez HTTP/1.1\r\n\r\n",
                b"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"GET /li\0vez HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
                b"GET /livez HTTP/1.1\r\nHost: x\r\nX\x1b[2J: y\r\n\r\n", b"\0" * 1000 + b"\r\n\r\n", b"\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100 + b"\r\n\r\n")
    for port in target.http_ports:
        for request in requests:
            status = status_of(answer(port, request))
            expect(status is None or 400 <= status < 600, f"port {port} answers {request[:60]} with {status}")


def other_names(target):
    """A web page of another site that points its name here, to read the port's answers through a browser."""
    for path in ("/", "/status.json", "/metrics"):
        got = answer(target.page_port, get(path, host="evil.example"))
        expect(status_of(got) == 421 and b"sluice_" not in got and b"members" not in got, f"{path} under another name: {got[:200]}")
    expect(status_of(answer(target.page_port, get("/status.json", host="localhost:7071"))) == 200, "status.json under localhost")


def more_connections_than_descriptors(target):
    """To each port in turn. The process keeps descriptors for its gRPC port."""
    for port in target.http_ports:
        clients = []
        try:
            for _ in range(target.descriptors + 100):
                with contextlib.suppress(OSError):
                    clients.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            expect(is_answered(port), f"port {port} does not answer beside {len(clients)} idle connections")
            target.expect_grpc(f"beside {len(clients)} idle connections to port {port}")
        finally:
            for client in clients:
                client.close()


ALL = (slow_requests, slow_readers, requests_without_end, ranges, odd_requests, other_names, more_connections_than_descriptors)
