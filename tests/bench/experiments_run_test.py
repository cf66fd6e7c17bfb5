# SPDX-License-Identifier: Apache-2.0
"""Tests bench/experiments/run.py with a fake `sluice`."""
import functools
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/experiments"))
import experiment  # noqa: E402
sys.path.insert(0, str(ROOT / "scripts"))
import experiment_data  # noqa: E402

RUN = ROOT / "bench/experiments/run.py"
LIMIT = 30  # Seconds after which a state that does not come fails a test.
# Notes each start in the file `starts`. `behave` of --set decides what it does.
FAKE = f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys, time
words = sys.argv[1:]
here = pathlib.Path(sys.argv[0]).resolve().parent
if words == ["--version"]: sys.exit(print((here / "version").read_text()))
changes = dict(word.partition("=")[::2] for flag, word in zip(words, words[1:]) if flag == "--set")
with (here / "starts").open("a") as file: file.write(f"{{os.getpid()}} {{changes['behave']}} {{changes['seed']}}\\n")
if changes["behave"] == "fails": sys.exit("shard 1 ended: no memory")
if changes["behave"] == "silent": sys.exit(0)
if changes["behave"] == "orphan":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    (here / "orphan").write_text(str(child.pid))
if changes["behave"] == "hangs" or (changes["behave"] == "waits" and (here / "wait").exists()): time.sleep(600)
folder = pathlib.Path(changes["output"])
folder.mkdir()
(folder / "scalars.csv").write_text("step,wall_seconds,bytes_up,bytes_down,test_loss,test_accuracy\\n10,1.0,5,7,,\\n"
                                    "20,2.0,1,2,0.9,0.5\\n30,3.0,1,2,0.8,0.6\\n")
pathlib.Path(words[words.index("--report") + 1]).write_text(json.dumps(
    {{"workers": 4, "steps": 30, "bytes_up": 2.0, "bytes_down": 3.0, "test_loss": 0.8, "test_accuracy": 0.6}}))
"""
YAML = """
name: made-up
question: Does it work?
time_limit: LIMIT
parts:
  - kind: train
    models: {m: {job: examples/fashion-mnist.yaml}}
    methods: {METHODS}
"""


def gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the state did not come")
        time.sleep(0.01)


class Run(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "sluice").write_text(FAKE)
        (self.folder / "sluice").chmod(0o755)
        (self.folder / "version").write_text("sluice 1")

    def write(self, *behaviours, limit="60", more=""):
        methods = ", ".join(f"{each}: {{set: [behave={each}]}}" for each in behaviours)
        (self.folder / "e.yaml").write_text(YAML.replace("METHODS", methods).replace("LIMIT", limit) + more)

    def start(self, *flags):
        command = [sys.executable, str(RUN), str(self.folder / "e.yaml"), "--build", str(self.folder), "--out", str(self.folder / "out"), *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        return process

    def run_it(self, *flags, status=0):
        process = self.start(*flags)
        output = process.communicate(timeout=LIMIT)[0]
        self.assertEqual(process.returncode, status, output)
        return output

    def starts(self):
        path = self.folder / "starts"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def records(self):
        found = [json.loads(path.read_text()) for path in (self.folder / "out/made-up").glob("*.json")]
        return sorted(found, key=lambda record: (record["trial"]["method"], record["trial"]["seed"]))

    def test_a_record_has_the_result_the_curve_and_the_cost(self):
        self.write("ok")
        self.run_it()
        records = self.records()
        self.assertEqual([record["trial"]["seed"] for record in records], [1, 2, 3])
        self.assertEqual({record["state"] for record in records}, {"ok"})
        self.assertEqual(records[0]["report"]["test_loss"], 0.8)
        # 10 steps with 12 bytes each, then steps with 3.
        self.assertEqual([(each["step"], each["bytes"]) for each in records[0]["curve"]], [(20, 150.0), (30, 180.0)])
        cost = records[0]["cost"]
        self.assertEqual((cost["bytes_up"], cost["bytes_down"]), (2.0 * 30 * 4, 3.0 * 30 * 4))
        self.assertGreater(cost["cpu_seconds"], 0)
        self.assertGreaterEqual(cost["wall_seconds"], cost["cpu_seconds"] / (os.cpu_count() or 1) / 2)

    def test_a_finished_trial_does_not_run_again(self):
        self.write("ok")
        self.run_it("--only", "seed=1,2")
        self.run_it()
        self.assertEqual([seed for _, _, seed in self.starts()], ["1", "2", "3"])

    def test_a_run_continues_after_signals_and_leaves_no_process(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            with self.subTest(number.name):
                self.setUp()
                self.write("ok", "waits")
                (self.folder / "wait").touch()
                process = self.start("--only", "seed=2")
                wait_for(lambda: len(self.starts()) == 2)
                process.send_signal(number)
                process.communicate(timeout=LIMIT)
                self.assertEqual(process.returncode, status)
                pid = self.starts()[1][0]
                wait_for(functools.partial(gone, pid))
                self.assertEqual([record["trial"]["method"] for record in self.records()], ["ok"])
                (self.folder / "wait").unlink()
                self.run_it("--only", "seed=2")
                self.assertEqual([behaviour for _, behaviour, _ in self.starts()], ["ok", "waits", "waits"])
                self.assertEqual([record["state"] for record in self.records()], ["ok", "ok"])

    def test_failures_are_recorded_and_run_again_only_if_asked(self):
        self.write("fails", "silent")
        output = self.run_it("--only", "seed=1")
        self.assertIn("2 failed", output)
        fails, silent = self.records()
        self.assertEqual((fails["state"], fails["reason"], fails["report"]), ("failed", "status 1: shard 1 ended: no memory", None))
        self.assertEqual(silent["state"], "failed")
        self.assertIn("no report", silent["reason"])
        self.run_it("--only", "seed=1")
        self.assertEqual(len(self.starts()), 2)
        self.run_it("--only", "seed=1", "--retry")
        self.assertEqual(len(self.starts()), 4)

    def test_a_trial_ends_at_its_time_limit(self):
        self.write("hangs", limit="0.5")
        self.run_it("--only", "seed=1")
        record, = self.records()
        self.assertEqual((record["state"], record["reason"]), ("timeout", "did not end within 0.5 s"))
        self.assertTrue(gone(self.starts()[0][0]))

    def test_a_process_that_a_trial_left_is_ended(self):
        self.write("orphan")
        self.run_it("--only", "seed=1")
        self.assertEqual(self.records()[0]["state"], "ok")
        self.assertTrue(gone((self.folder / "orphan").read_text()))

    def test_another_version_runs_again(self):
        self.write("ok")
        self.run_it("--only", "seed=1")
        (self.folder / "version").write_text("sluice 2")
        self.run_it("--only", "seed=1")
        self.assertEqual(len(self.starts()), 2)
        self.assertEqual({record["version"] for record in self.records()}, {"sluice 1", "sluice 2"})

    def test_two_runs_do_not_share_a_folder(self):
        self.write("waits")
        (self.folder / "wait").touch()
        first = self.start()
        wait_for(self.starts)
        self.assertIn("another run.py writes there", self.run_it(status=1))
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=LIMIT)

    def test_wrong_filters_and_files_are_refused(self):
        self.write("ok")
        self.assertIn("no trial has these values", self.run_it("--only", "method=none", status=1))
        self.assertIn("use AXIS=VALUE", self.run_it("--only", "colour=red", status=1))
        self.write("ok", more="sedes: [1]\n")
        self.assertIn('there is no key "sedes"', self.run_it(status=2))


class Keys(unittest.TestCase):
    TEXT = YAML.replace("LIMIT", "60").replace("METHODS", "a: {set: [x=1]}, b: {set: [x=2]}")

    def keys(self, text, version="1"):
        return [trial.key(version) for trial in experiment.parse(text, "e.yaml").trials]

    def test_equal_configurations_have_equal_keys(self):
        self.assertEqual(self.keys(self.TEXT), self.keys(self.TEXT.replace("Does it work?", "Another question.")))
        self.assertEqual(len(set(self.keys(self.TEXT))), 6)

    def test_each_change_of_a_configuration_changes_the_key(self):
        before = set(self.keys(self.TEXT))
        for old, new in (("x=1", "x=3"), ("m: {", "n: {"), ("60", "61"), ("fashion-mnist.yaml", "char-gpt.yaml")):
            after = set(self.keys(self.TEXT.replace(old, new)))
            self.assertEqual(len(before & after), 3 if old == "x=1" else 0, old)
        self.assertFalse(before & set(self.keys(self.TEXT, "2")))

    def test_fewer_than_three_seeds_are_refused(self):
        with self.assertRaisesRegex(experiment.Wrong, "give at least 3"):
            self.keys(self.TEXT + "seeds: [1, 2]\n")

    def test_every_experiment_of_the_project_can_be_read(self):
        names = {path.stem for path in experiment.HERE.glob("*.yaml")} - {"prices"}
        self.assertLessEqual({"quick_validation", "compression", "training", "scalability", "ablation", "links", "cost", "matrix"}, names)
        for name in names:
            tested = experiment.load(name)
            self.assertEqual(tested.name, name)
            for method in (tested.baseline, tested.target):
                self.assertIn(method, {None, *(trial.method for trial in tested.trials)})

    def words(self, part):
        return experiment.parse(YAML.partition("  - kind")[0].replace("LIMIT", "60") + part, "e.yaml").trials[0].words

    def test_links_are_shaped_around_exchanges_and_inside_of_training(self):
        part = "  - {kind: KIND, workers: [4], models: {m: {job: examples/fashion-mnist.yaml}}, methods: {a: {}}, links: {l: {rate: 9mbit, MORE}}}\n"
        words = self.words(part.replace("KIND", "exchange").replace("MORE", "up_rate: 3mbit, delay: 5ms"))
        self.assertEqual(words[:13], ("{root}/bench/shaped.sh", "--workers", "4", "--shards", "2", "--rate", "9mbit", "--up-rate", "3mbit", "--delay",
                                      "5ms", "--bin", "{bin}"))
        words = self.words(part.replace("KIND", "train").replace(", MORE", ""))
        self.assertEqual(words[words.index("--link-rate") + 1], "9mbit")
        with self.assertRaisesRegex(experiment.Wrong, "a `rate` only"):
            self.words(part.replace("KIND", "train").replace("MORE", "delay: 5ms"))

    def test_the_matrix_ends_within_eight_hours(self):
        trials = experiment.load("matrix").trials
        self.assertLessEqual(sum(trial.time_limit for trial in trials), 8 * 3600)
        self.assertEqual(len([trial for trial in trials if trial.kind == "train"]), 3 * 6 * 4 * 3)


class Data(unittest.TestCase):
    def test_columns_of_letters_are_read_in_order(self):
        count = experiment_data.LETTERS
        columns = [[(at + row) % 16 for row in range(count)] for at in range(17)]
        data = b"RDX2 and more" + struct.pack(f">2I{count}i", 0x30D, count, *columns[0]) + b"names of the levels"
        data += b"".join(struct.pack(f">2I{count}d", 0x0E, count, *column) for column in columns[1:])
        self.assertEqual([list(column) for column in experiment_data.letter_columns(data)], columns)
        with self.assertRaisesRegex(ValueError, "is missing"):
            experiment_data.letter_columns(data[:-8 * count - 8] + b"x" * 16)

    def test_images_are_png_files_with_the_given_pixels(self):
        data = experiment_data.png([bytes([1, 2, 3]), bytes([4, 5, 6])])
        self.assertEqual((data[:8], struct.unpack(">2I", data[16:24])), (b"\x89PNG\r\n\x1a\n", (3, 2)))
        start = data.index(b"IDAT")
        size, = struct.unpack(">I", data[start - 4:start])
        self.assertEqual(zlib.decompress(data[start + 4:start + 4 + size]), bytes([0, 1, 2, 3, 0, 4, 5, 6]))
        self.assertEqual(struct.unpack(">I", data[start + 4 + size:start + 8 + size])[0], zlib.crc32(data[start:start + 4 + size]))


if __name__ == "__main__":
    unittest.main()
