#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces of real processes: spans nest, a worker's spans cover its steps, and a killed process leaves its spans so far.

usage: trace_test.py FOLDER_OF_PROGRAMS
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from processes import wait_until

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path()
LIMIT = 120  # In seconds, for anything. A hang fails instead of blocking.
STEPS = 60
SLACK = 2.0  # In microseconds. Rounding can cost this much.


def load(path):
    """Reads a trace as viewers do: a killed process leaves no end of the file."""
    text = path.read_text()
    return json.loads(text if text.endswith("]\n") else text.rstrip().rstrip(",") + "]")


def spans_of(events):
    """Returns (begin, end, name, step) of each thread, outer spans first."""
    threads = collections.defaultdict(list)
    for event in events:
        if event.get("ph") == "X":
            threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"], event["args"].get("step")))
    for spans in threads.values():
        spans.sort(key=lambda span: (span[0], -span[1]))
    return threads


class TraceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = []
        self.addCleanup(self.stop)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def start(self, program, name, *arguments):
        command = [str(BIN / program), "--job", str(HERE / "survival.yaml"), "--set", "shards=1", "--set", "server.lease_timeout=3600s", "--trace-file",
                   str(self.folder / f"{name}.json"), *arguments]
        with (self.folder / f"{name}.log").open("w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        return self.processes[-1]

    def start_job(self, steps):
        server = self.start("sluice-server", "shard", "--listen", "127.0.0.1:0", "--http-listen", "off")
        log = self.folder / "shard.log"
        address = wait_until(lambda: next((line.split("listens on ")[1].split()[0] for line in log.read_text().splitlines()
                                           if "listens on " in line), None), "an address", LIMIT)
        workers = [self.start("synthetic_worker", f"worker-{rank}", "--coordinator", address, "--rank", str(rank), "--parameters",
                              "400000", "--compute-ms", "2", "--steps", str(steps)) for rank in range(2)]
        return server, workers

    def check_nesting(self, events):
        names = collections.Counter()
        for spans in spans_of(events).values():
            open_spans = []
            for begin, end, name, _ in spans:
                names[name] += 1
                while open_spans and open_spans[-1] <= begin + SLACK:
                    open_spans.pop()
                self.assertTrue(not open_spans or end <= open_spans[-1] + SLACK, f"{name} ends after the span that contains it")
                open_spans.append(end)
        return names

    def check_steps(self, events, steps):
        """The spans of a worker's steps add up to the steps."""
        training = next(spans for spans in spans_of(events).values() if any(name == "step" for _, _, name, _ in spans))
        of = collections.defaultdict(dict)
        for begin, end, name, step in training:
            if name in ("step", "compute", "wait"):
                of[step][name] = (begin, end)
        self.assertGreaterEqual(len(of), steps)
        for step, parts in of.items():
            self.assertAlmostEqual(parts["compute"][0], parts["step"][0], delta=SLACK)
            self.assertAlmostEqual(parts["compute"][1], parts["wait"][0], delta=SLACK)
            self.assertAlmostEqual(parts["wait"][1], parts["step"][1], delta=SLACK)
        ends = sorted(parts["step"] for parts in of.values())
        for (_, end), (begin, _) in zip(ends, ends[1:]):
            self.assertAlmostEqual(end, begin, delta=SLACK, msg="each step must begin when the previous one ends")
        return ends[-1][1]

    def check_overlapping(self, events, name):
        begun = collections.Counter(event["ph"] for event in events if event.get("name") == name)
        self.assertGreater(begun["b"], 0, name)
        self.assertEqual(begun["b"], begun["e"], name)

    def test_a_job(self):
        server, workers = self.start_job(STEPS)
        for process in [*workers, server]:
            self.assertEqual(process.wait(LIMIT), 0)
        for rank in range(2):
            events = load(self.folder / f"worker-{rank}.json")
            self.assertEqual(events[0]["args"]["name"], f"worker {rank}")
            names = self.check_nesting(events)
            for name in ("step", "compute", "wait", "decode", "encode", "send", "receive"):
                self.assertGreaterEqual(names[name], STEPS, name)
            self.check_steps(events, STEPS)
            self.check_overlapping(events, "exchange")
        events = load(self.folder / "shard.json")
        names = self.check_nesting(events)
        for name in ("receive", "sum", "encode", "send"):
            self.assertGreaterEqual(names[name], STEPS, name)
        self.check_overlapping(events, "wait")

    def test_killed(self):
        _, workers = self.start_job(1000000)
        trace = self.folder / "worker-1.json"
        wait_until(lambda: trace.exists() and trace.read_text().count('"name":"step"') > STEPS, "steps", LIMIT)
        workers[1].kill()
        workers[1].wait()
        self.assertFalse(trace.read_text().endswith("]\n"))
        self.check_steps(load(trace), STEPS)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
