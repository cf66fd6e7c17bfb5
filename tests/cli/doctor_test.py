#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sluice doctor` with real processes: two ends, unreachable addresses, strangers, rubbish and wrong tokens.

usage: doctor_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from processes import free_port

BIN = pathlib.Path()
LIMIT = 120  # Timeout in seconds for any operation, so that a hang fails the test instead of blocking it.
NAMES = ["reach there", "reach here", "version", "round trip", "rate there", "rate here", "descriptors", "clocks"]
LINE = re.compile(r"(ok|warning|failed) +(.{12}) (.*)")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def marks(output):
    """Returns the mark of each check by its name."""
    return {match[2].strip(): match[1] for match in map(LINE.fullmatch, output.splitlines()) if match}


class Doctor(unittest.TestCase):
    def start(self, *arguments):
        process = subprocess.Popen([str(BIN / "sluice"), "doctor", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env=os.environ | {"GRPC_VERBOSITY": "NONE"})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process

    def listen(self, *arguments, address="127.0.0.2:0"):
        """Returns the process and its address, once it listens."""
        process = self.start("--listen", address, *arguments)
        line = process.stdout.readline()
        self.assertRegex(line, r"^listens on \S+; run this on the other machine: sluice doctor --connect \S+$")
        return process, line.split()[2].rstrip(";")

    def end(self, process):
        """Returns (exit code, output)."""
        output, _ = process.communicate(timeout=LIMIT)
        return process.returncode, output

    def check_good(self, process):
        code, output = self.end(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(marks(output), dict.fromkeys(NAMES, "ok"), output)
        self.assertIn("Transfer of one step of 25000000 parameters", output)
        return output

    def test_both_ends_report_a_good_link(self):
        port = free_port()
        listener, address = self.listen(address=f"127.0.0.2:{port}")
        # Without --listen, the same port at this end's own address is tried. 127.0.0.1 is free.
        self.check_good(self.start("--connect", address))
        self.check_good(listener)

    def test_the_table_follows_the_number_of_parameters(self):
        listener, address = self.listen("--parameters", "1000")
        output = self.end(self.start("--connect", address, "--listen", "127.0.0.1:0", "--parameters", "1000000000"))[1]
        large = [float(line.split()[3]) for line in output.splitlines() if re.match(r"none |fp16 |int8 |topk:", line)]
        self.assertEqual(large, sorted(large, reverse=True), output)
        self.assertEqual(len(large), 4, output)
        self.assertIn("Transfer of one step of 1000 parameters", self.end(listener)[1])

    def test_an_address_without_a_listener(self):
        address = f"127.0.0.1:{free_port()}"
        code, output = self.end(self.start("--connect", address))
        self.assertEqual(code, 1, output)
        self.assertRegex(output, rf"^failed +reach +{address} cannot be reached: connection refused; check the address")

    def test_a_port_that_is_taken_here_fails_one_check(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            wanted = f"127.0.0.1:{taken.getsockname()[1]}"
            listener, address = self.listen()
            code, output = self.end(self.start("--connect", address, "--listen", wanted))
        self.assertEqual(code, 1, output)
        self.assertEqual({name for name, mark in marks(output).items() if mark != "ok"}, {"reach here"}, output)
        self.assertIn(f"cannot listen on {wanted}: Address already in use", output)
        code, output = self.end(listener)
        self.assertEqual(code, 1, output)
        self.assertEqual({name for name, mark in marks(output).items() if mark != "ok"}, {"reach there"}, output)

    def test_no_peer_connects(self):
        code, output = self.end(self.start("--listen", "127.0.0.1:0", "--wait", "1"))
        self.assertEqual(code, 1, output)
        self.assertIn("no machine began within 1s; check that", output)

    def test_rubbish_and_silence_do_not_keep_the_peer_out(self):
        listener, address = self.listen()
        host, port = address.split(":")
        pieces = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100_000, os.urandom(100_000), PREFACE + os.urandom(10_000),
                  PREFACE + b"\xff\xff\xff\0\0\0\0\0\0" + b"\0" * 50_000, b"\x16\x03\x01\xff\xff" + os.urandom(1000)]
        strangers = []
        for piece in pieces * 3:
            stranger = socket.create_connection((host, int(port)), timeout=LIMIT)
            self.addCleanup(stranger.close)
            try:
                stranger.sendall(piece)
            except OSError:
                pass  # The listener closed the connection.
            strangers.append(stranger)
        self.check_good(self.start("--connect", address, "--listen", "127.0.0.1:0"))
        self.check_good(listener)

    def test_a_listener_of_rubbish(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            def answer():
                while True:
                    try:
                        client, _ = server.accept()
                    except OSError:
                        return
                    with client:
                        client.sendall(os.urandom(50_000))

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            code, output = self.end(self.start("--connect", f"127.0.0.1:{server.getsockname()[1]}"))
            server.shutdown(socket.SHUT_RDWR)
        thread.join(LIMIT)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"^failed +reach ")
        self.assertEqual(len(output.splitlines()), 1, output)

    def test_one_machine_at_a_time(self):
        listener, address = self.listen()
        ends = [self.start("--connect", address, "--listen", "127.0.0.1:0") for _ in range(2)]
        results = sorted(self.end(end) for end in ends)
        self.assertEqual([code for code, _ in results], [0, 1], results)
        self.assertIn("failed", results[1][1])
        self.check_good(listener)

    def test_a_token(self):
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = pathlib.Path(folder, "right"), pathlib.Path(folder, "wrong")
            for path, token in ((right, "a" * 64), (wrong, "b" * 64)):
                path.write_text(token + "\n")
                path.chmod(0o600)
            listener, address = self.listen("--token-file", str(right))
            for arguments in ([], ["--token-file", str(wrong)]):
                code, output = self.end(self.start("--connect", address, *arguments))
                self.assertEqual(code, 1, output)
                self.assertIn("token", output)
            self.check_good(self.start("--connect", address, "--listen", "127.0.0.1:0", "--token-file", str(right)))
            self.check_good(listener)

    def test_wrong_flags(self):
        for arguments in ([], ["--listen", "nonsense"], ["--listen", "127.0.0.1:0", "--token-file", "/nonexistent"],
                          ["--listen", "127.0.0.1:0", "--wait", "0"]):
            code, output = self.end(self.start(*arguments))
            self.assertEqual(code, 2, output)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
