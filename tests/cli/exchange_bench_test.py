#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sluice bench exchange` with real processes: its figures, servers elsewhere, and every way to interrupt it.

usage: exchange_bench_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from processes import command_line, free_port, is_running, wait_until

BIN = pathlib.Path()
LIMIT = 120  # Timeout in seconds for any operation, so that a hang fails the test instead of blocking it.
TABLE = "a.weight 300 400\nb.weight 200 300\nb.bias 300\n"
ELEMENTS = 300 * 400 + 200 * 300 + 300


def children_of(pid):
    """Returns process ids by name: "shard 0", "worker 1"."""
    found = {}
    try:
        listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return found
    for child in map(int, listed):
        line = command_line(child)
        for role, flag in (("shard", "--shard"), ("worker", "--rank")):
            if flag in line:
                found[f"{role} {line[line.index(flag) + 1]}"] = child
    return found


class ExchangeBench(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.addCleanup(self.holder.cleanup)
        self.folder = pathlib.Path(self.holder.name)
        (self.folder / "table.txt").write_text(TABLE)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.json = self.folder / "figures.json"

    def command(self, *arguments):
        return [str(BIN / "sluice"), "bench", "exchange", "--table", str(self.folder / "table.txt"), *arguments]

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "TMPDIR": str(self.temporary)})

    def measure(self, *arguments):
        """Returns (exit code, output) and checks that no process is left."""
        process = self.start("--report", str(self.json), *arguments)
        output, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(list(self.temporary.iterdir()), [], output)
        return process.returncode, output

    def figures(self, *arguments):
        code, output = self.measure("--warmup", "2", "--repeats", "3", *arguments)
        self.assertEqual(code, 0, output)
        return json.loads(self.json.read_text())

    def check_sane(self, figures):
        times = figures["exchange_ms"]
        self.assertGreater(times["min"], 0)
        self.assertLessEqual(times["min"], times["median"])
        self.assertLessEqual(times["median"], times["p95"])
        for key in ("bytes_up", "bytes_down"):
            self.assertGreater(figures[key], 0, key)
        self.assertGreater(figures["cpu_seconds"]["worker"], 0)
        self.assertGreater(figures["cpu_seconds"]["server"], 0)
        for side, stages in (("worker", ("encode", "send", "receive", "apply")), ("server", ("receive", "sum", "encode", "send"))):
            costs = dict(figures["cpu_seconds"][side + "_stages"])
            for stage in stages:
                self.assertGreater(costs[stage], 0, f"{side}, {stage}")
            self.assertGreater(costs["other"], 0, side)
            self.assertAlmostEqual(sum(costs.values()), figures["cpu_seconds"][side], places=9)
        self.assertGreater(figures["peak_rss_bytes"]["worker"], 4 * ELEMENTS)
        self.assertGreater(figures["peak_rss_bytes"]["server"], 1 << 20)

    def test_figures_of_the_run_and_of_its_baselines(self):
        figures = self.figures("--link-rate", "1gbit")
        self.check_sane(figures)
        self.assertEqual(figures["elements"], ELEMENTS)
        self.assertEqual(figures["repeats"], 3)
        self.assertEqual(figures["exposed_ms"], figures["exchange_ms"]["median"])
        # Each link of a shard carries half of the bytes of two workers. A worker's link carries half of its bytes for each of two shards.
        self.assertAlmostEqual(figures["goodput_fraction"],
                               figures["floor_ms"] / figures["exchange_ms"]["median"], places=9)
        for name, bytes_each in (("none", 4), ("fp16", 2)):
            baseline = figures["baselines"][name]
            self.check_sane(baseline)
            for key in ("bytes_up", "bytes_down"):
                self.assertGreater(baseline[key], bytes_each * ELEMENTS)
                self.assertLess(baseline[key], 1.02 * bytes_each * ELEMENTS)

    def test_bytes_are_those_of_the_codec(self):
        exchanged = self.figures("--spec", "int8", "--no-baselines")
        self.assertEqual(exchanged["baselines"], {})
        codecs = self.folder / "codecs.json"
        subprocess.run([BIN / "sluice", "bench", "codecs", "--table", self.folder / "table.txt", "--spec", "int8",
                        "--settle", "2", "--steps", "3", "--report", codecs],
                       check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
        frames = json.loads(codecs.read_text())["codecs"][0]["bytes_per_step"]
        for key in ("bytes_up", "bytes_down"):
            self.assertGreater(exchanged[key], frames)
            self.assertLess(exchanged[key], 1.03 * frames)

    def test_a_key_of_the_job_changes_what_is_measured(self):
        # With so few bytes per message, the headers are noticeable.
        usual = self.figures("--spec", "none", "--no-baselines")
        small = self.figures("--spec", "none", "--no-baselines", "--set", "compression.chunk_bytes=1KiB",
                             "--set", "compression.bundle_bytes=1KiB")
        self.assertGreater(small["bytes_up"], 1.02 * usual["bytes_up"])

    def test_computing_hides_a_part_of_the_exchange(self):
        figures = self.figures("--no-baselines", "--compute-ms", "40", "--spec", "none")
        self.assertGreater(figures["exposed_ms"], 0)
        self.assertNotEqual(figures["exposed_ms"], figures["exchange_ms"]["median"])
        self.assertEqual(figures["compute_ms"], 40)

    def test_words_before_commands_and_places_of_servers(self):
        ports = (free_port(), free_port())
        figures = self.figures("--no-baselines", "--server-hosts", ",".join(f"127.0.0.1:{port}" for port in ports),
                               "--wrap-worker", "env RANK={}", "--wrap-server", "nice -n 1")
        self.check_sane(figures)

    def start_servers(self, *arguments):
        job = self.folder / "job.yaml"
        job.write_text(subprocess.run(self.command("--print-job", *arguments), check=True, capture_output=True,
                                      text=True, timeout=LIMIT).stdout)
        addresses = [f"127.0.0.1:{port}" for port in (free_port(), free_port())]
        servers = []
        for shard, address in enumerate(addresses):
            servers.append(subprocess.Popen(
                [BIN / "sluice-server", "--job", job, "--shard", str(shard), "--listen", address, "--http-listen", "off",
                 *(["--coordinator", addresses[0]] if shard > 0 else [])], stderr=subprocess.DEVNULL))
            self.addCleanup(servers[-1].wait)
            self.addCleanup(servers[-1].kill)
        status = [BIN / "sluice", "status", "--coordinator", addresses[0]]
        wait_until(lambda: subprocess.run(status, capture_output=True, timeout=LIMIT).returncode == 0, "servers", LIMIT)
        return addresses[0], servers

    def test_servers_elsewhere(self):
        coordinator, servers = self.start_servers()
        for arguments, complaint in ((["--workers", "3"], "for 2 workers, not 3"),
                                     (["--shards", "1"], "on 2 shards, not 1")):
            code, output = self.measure("--connect", coordinator, *arguments)
            self.assertEqual(code, 1, output)
            self.assertIn(complaint, output)
            self.assertIn("--print-job", output)
        figures = self.figures("--connect", coordinator)
        self.assertEqual(figures["baselines"], {})
        self.check_sane(figures)
        for server in servers:
            self.assertEqual(server.wait(LIMIT), 0)
        code, output = self.measure("--connect", coordinator)
        self.assertEqual(code, 1)
        self.assertIn("no coordinator answers at " + coordinator, output)

    def test_servers_elsewhere_with_other_codecs(self):
        coordinator, _ = self.start_servers("--spec", "int8")
        code, output = self.measure("--connect", coordinator, "--spec", "fp16")
        self.assertEqual(code, 1)
        self.assertIn("--print-job", output)

    def test_what_is_wrong_is_said_before_anything_starts(self):
        for arguments, complaint in ((["--spec", "topk:1%+int9"], "--spec: "),
                                     (["--set", "workers=3"], "--workers"),
                                     (["--link-rate", "fast"], "--link-rate: "),
                                     (["--server-hosts", "a"], "1 hosts for 2 shards")):
            code, output = self.measure(*arguments)
            self.assertEqual(code, 2, output)
            self.assertIn(complaint, output)

    def start_endless(self, *arguments):
        process = self.start("--report", str(self.json), "--no-baselines", "--repeats", "100000", *arguments)
        wait_until(lambda: len(children_of(process.pid)) == 4 or process.poll() is not None, "all processes", LIMIT)
        children = children_of(process.pid)
        self.assertEqual(len(children), 4, "the program ended early")
        return process, children

    def check_all_gone(self, children):
        for name, pid in children.items():
            wait_until(lambda pid=pid: not is_running(pid), f"{name} ended", LIMIT)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_the_death_of_a_process_ends_all_and_is_named(self):
        for name in ("worker 1", "shard 1"):
            process, children = self.start_endless()
            os.kill(children[name], signal.SIGKILL)
            output, _ = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 1, output)
            self.assertIn(f"error: {name} (process {children[name]}) was killed by signal 9", output)
            self.check_all_gone(children)
            failed = json.loads(self.json.read_text())
            self.assertFalse(failed["ok"])
            self.assertIn(name, failed["failure"])

    def test_stop_signals_end_all(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, children = self.start_endless()
            process.send_signal(number)
            output, _ = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 128 + number, output)
            self.check_all_gone(children)

    def test_nothing_outlives_a_killed_parent(self):
        process, children = self.start_endless()
        process.kill()
        process.communicate(timeout=LIMIT)
        for name, pid in children.items():
            wait_until(lambda pid=pid: not is_running(pid), f"{name} ended", LIMIT)

    def test_a_wait_has_a_limit(self):
        process, children = self.start_endless("--timeout", "15")
        os.kill(children["worker 0"], signal.SIGSTOP)
        output, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("worker 0", output)
        self.assertIn("--timeout", output)
        self.check_all_gone(children)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1))
    unittest.main()
