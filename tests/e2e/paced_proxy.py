# SPDX-License-Identifier: Apache-2.0
"""A link whose rate can change in use: an HTTP proxy (CONNECT) that gRPC's clients use (`grpc_proxy`)."""
import contextlib
import socket
import threading
import time

PIECE = 1 << 16


class PacedProxy:
    """In each direction, all its connections together have `bytes_per_second`. None means unlimited."""

    def __init__(self):
        self.bytes_per_second = None
        self.free_at = {"up": 0.0, "down": 0.0}
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):  # Closed.
            while True:
                threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, client):
        with client, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(4096)
            host, _, port = request.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=self.pump, args=(server, client, "down"), daemon=True)
                back.start()
                self.pump(client, server, "up")
                back.join()

    def pump(self, source, target, way):
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE):
                self.wait(len(piece), way)
                target.sendall(self.pass_on(piece, way))
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def pass_on(self, piece, way):
        """Returns what arrives at the other end. A subclass may change it."""
        return piece

    def wait(self, count, way):
        if self.bytes_per_second is None:
            return
        with self.lock:
            begin = max(self.free_at[way], time.monotonic())
            self.free_at[way] = begin + count / self.bytes_per_second
            until = self.free_at[way]
        time.sleep(max(0.0, until - time.monotonic()))
