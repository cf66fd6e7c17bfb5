#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""free_port() never returns one port twice, neither to one test nor to two tests that run at the same time."""
import pathlib
import subprocess
import sys
import unittest

from processes import free_port

HERE = pathlib.Path(__file__).resolve().parent
COUNT = 400  # Random choices among 16,384 ports would repeat about five times.


class FreePort(unittest.TestCase):
    def test_one_process_gets_each_port_once(self):
        ports = [free_port() for _ in range(COUNT)]
        self.assertEqual(len(set(ports)), COUNT)

    def test_two_processes_get_different_ports(self):
        program = f"from processes import free_port\nprint(*[free_port() for _ in range({COUNT})], flush=True)\ninput()"
        with subprocess.Popen([sys.executable, "-c", program], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as other:
            theirs = {int(port) for port in other.stdout.readline().split()}
            ours = {free_port() for _ in range(COUNT)}
            other.communicate("\n")
        self.assertEqual(len(theirs), COUNT)
        self.assertEqual(ours & theirs, set())


if __name__ == "__main__":
    unittest.main()
