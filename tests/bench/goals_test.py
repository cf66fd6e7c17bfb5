# SPDX-License-Identifier: Apache-2.0
"""Tests bench/exchange_goals.py: the results of rounds, and a run with a fake `sluice`."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import exchange_goals as goals  # noqa: E402
import exchange_run  # noqa: E402
sys.path.insert(0, str(BENCH.parent / "tests/e2e"))
import processes  # noqa: E402

FIGURES = {"exchange_ms": {"min": 8.0, "median": 9.0, "p95": 12.0}, "exposed_ms": 9.0, "bytes_up": 2e6, "bytes_down": 3e6,
           "floor_ms": None, "goodput_bits_per_second": 1e9, "goodput_fraction": None,
           "cpu_seconds": {"worker": 0.006, "server": 0.004, "workers_per_gb": 1.5, "servers_per_gb": 1.0}}
FAKE = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
table = pathlib.Path(words[words.index("--table") + 1])
assert table.read_text() == "t0 1000\\n" + "".join(f"t{i} 1000\\n" for i in range(1, 1000))
if "FAILS" == "True": sys.exit("shard 1 ended")
if "FAILS" == "hangs": print(input())
pathlib.Path(words[words.index("--report") + 1]).write_text(json.dumps(FIGURES))
"""


def rounds(*rows):
    return {"rounds": list(rows), "failed": {}, "load": 1.0, "others": 0.25}


class Judge(unittest.TestCase):
    def judged(self, setting, what, result):
        found = [each for each in goals.judge({setting: result}) if what in each["what"]]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_a_goal_is_judged_by_the_median_of_rounds(self):
        result = rounds(*({"topk": {"ms": ms}} for ms in (44.0, 90.0, 40.0)))
        each = self.judged("2+2", "exchange, `", result)
        self.assertEqual((each["measured"], each["met"], each["text"]), (44.0, True, "44.0 (40.0-90.0) ms"))
        result["rounds"][2]["topk"]["ms"] = 46.0
        self.assertIs(self.judged("2+2", "exchange, `", result)["met"], False)

    def test_ratios_are_of_one_round(self):
        result = rounds({"topk": {"ms": 10.0}, "fp16": {"ms": 200.0}}, {"topk": {"ms": 100.0}, "fp16": {"ms": 1000.0}},
                        {"topk": {"ms": 1.0}, "fp16": {"ms": 5.0}})
        each = self.judged("4+2", "own dense", result)
        self.assertEqual((each["values"], each["met"]), ([20.0, 10.0, 5.0], True))

    def test_the_fastest_ddp_counts(self):
        result = rounds({"topk": {"ms": 50.0}, "ddp dense": {"ms": 868.0}, "ddp powersgd1": {"ms": 143.0}})
        self.assertAlmostEqual(self.judged("2+2", "fastest DDP", result)["measured"], 2.86)

    def test_fp16_stands_in_for_bf16(self):
        for name in ("ddp bf16", "ddp fp16"):
            result = rounds({"fp16": {"ms": 250.0}, "ddp dense": {"ms": 1.0}, name: {"ms": 200.0}})
            self.assertIs(self.judged("unshaped 4+2", "16 bits", result)["met"], True)

    def test_what_was_not_measured_is_not_met(self):
        result = rounds({"topk": {"ms": 50.0}})
        each = self.judged("2+2", "own dense", result)
        self.assertEqual((each["measured"], each["met"], each["text"]), (None, None, "-"))

    def test_every_goal_is_of_a_setting(self):
        self.assertLessEqual({goal.setting for goal in goals.goals()}, set(goals.SETTINGS))


class Table(unittest.TestCase):
    def test_the_gpt_has_100_million(self):
        counts = []
        for line in exchange_run.gpt_like(12, 18_688).splitlines():
            count = 1
            for word in line.split()[1:]:
                count *= int(word)
            counts.append(count)
        self.assertEqual((len(counts), sum(counts)), (148, 100_194_816))


class Run(unittest.TestCase):
    def make_sluice(self, folder, fails):
        sluice = pathlib.Path(folder) / "sluice"
        sluice.write_text(FAKE.replace("FAILS", str(fails)).replace("FIGURES", repr(FIGURES)))
        sluice.chmod(0o755)
        (pathlib.Path(folder) / "sluice-server").touch()  # Never started.
        return str(sluice)

    def run_goals(self, folder, fails):
        self.make_sluice(folder, fails)
        self.json, markdown = pathlib.Path(folder) / "json", pathlib.Path(folder) / "markdown"
        done = subprocess.run([sys.executable, str(BENCH / "exchange_goals.py"), "small tensors", "--bin", folder, "--rounds",
                               "2", "--json", str(self.json), "--markdown", str(markdown)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, markdown.read_text())
        return done.stdout

    def test_a_table_and_json(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.run_goals(folder, fails=False)
            self.assertIn("| small tensors | exchange over loopback | <= 10 ms | 9.0 (9.0-9.0) ms | met |", text)
            self.assertIn("| topk | 9.0 (9.0-9.0) | - | 2.00 (2.00-2.00) | 3.00 (3.00-3.00) |", text)
            result = json.loads(self.json.read_text())
            self.assertEqual(len(result["settings"]["small tensors"]["rounds"]), 2)
            self.assertEqual([each["met"] for each in result["goals"]], [True])

    def test_a_failure_is_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.run_goals(folder, fails=True)
            self.assertIn("| <= 10 ms | - | not measured |", text)
            self.assertRegex(text, "Not measured in every round: topk: .* ended with status 1: shard 1 ended")

    def test_nothing_stays_when_it_is_killed(self):
        def running(program):
            return [path for path in pathlib.Path("/proc").glob("[0-9]*") if program in processes.command_line(path.name)]

        with tempfile.TemporaryDirectory() as folder:
            program = self.make_sluice(folder, "hangs")
            command = [sys.executable, str(BENCH / "exchange_goals.py"), "small tensors", "--bin", folder]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as goals_process:
                processes.wait_until(lambda: running(program), "sluice", 30)
                goals_process.kill()
                processes.wait_until(lambda: not running(program), "the end of sluice", 30)


if __name__ == "__main__":
    unittest.main()
