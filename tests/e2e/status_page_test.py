#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The status page of a running job in a headless Chromium: charts move, warnings come and go, the console has no errors, and the page
fits a phone.

usage: status_page_test.py FOLDER_OF_PROGRAMS [--screenshots FOLDER]     exits with 77 (skipped) if chromium is missing
"""
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from browser import Browser, find_chromium
from processes import wait_until

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path()
SCREENSHOTS = None
LIMIT = 120  # In seconds, for anything. A hang fails instead of blocking.
TEXT = "(document.getElementById('{}') || {{}}).textContent"  # Empty before the page has loaded.


class StatusPageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = {}
        self.addCleanup(self.stop)

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, kind, number, *arguments):
        command = [str(BIN / f"sluice-{kind}"), "--job", str(HERE / "survival.yaml"), *arguments]
        for change in ("name=page", "steps=10000000", "server.lease_timeout=3600s", f"checkpoint.dir={self.folder}/checkpoints", "checkpoint.interval=500",
                       "control={policy: schedule, schedule: exponential, dense_steps: 10, start: 0.2, end: 0.05, steps: 200, stages: 2}"):
            command += ["--set", change]
        log = self.folder / f"{kind}-{number}.log"
        with log.open("w") as out:
            self.processes[kind, number] = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        return log

    def address(self, log, words):
        """Returns the text after `words` in a log."""
        return wait_until(lambda: next((line.split(words)[1].split()[0] for line in log.read_text().splitlines() if words in line), None),
                          f"'{words}' in {log.name}", LIMIT)

    def start_job(self):
        log = self.start("server", 0, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
        self.page = self.address(log, "status page: ")
        coordinator = self.address(log, "listens on ")
        self.start("server", 1, "--shard", "1", "--listen", "127.0.0.1:0", "--coordinator", coordinator)
        for rank in range(2):
            self.start("worker", rank, "--rank", str(rank), "--threads", "1", "--coordinator", coordinator)

    def status(self):
        with urllib.request.urlopen(self.page + "status.json", timeout=LIMIT) as answer:
            return json.loads(answer.read())

    def text(self, element):
        return self.browser.value(TEXT.format(element))

    def paths(self):
        return self.browser.value("[...document.querySelectorAll('svg path')].map(path => path.getAttribute('d'))")

    def take(self, name):
        if SCREENSHOTS:
            self.browser.screenshot(SCREENSHOTS / f"{name}.png")

    def test_page(self):
        self.start_job()
        wait_until(lambda: any(self.status()["history"]["step_compute_seconds"]), "steps in the history", LIMIT)
        self.browser = Browser(self.folder, LIMIT)
        self.addCleanup(self.browser.close)
        self.browser.look(1200, 900, "light")
        self.browser.open(self.page)
        wait_until(lambda: "The job is running: step" in (self.text("summary") or ""), "a summary", LIMIT)
        self.check_content()
        self.check_motion()
        self.check_looks()
        self.assertEqual(self.browser.errors, [])
        self.check_paused_worker()
        self.assertEqual(self.browser.errors, [])
        self.check_server_gone()

    def check_content(self):
        self.assertEqual(self.text("job"), "page")
        # The page cannot know this after seconds without a step, for example on a busy machine.
        wait_until(lambda: re.search("A step takes .*computing", self.text("summary")), "what a step is made of", LIMIT)
        wait_until(self.says_checkpoint, "a checkpoint", LIMIT)
        self.assertEqual(self.browser.value("document.querySelectorAll('#workers tbody tr').length"), 2)
        self.assertEqual(self.browser.value("document.querySelectorAll('#shards tbody tr').length"), 2)
        wait_until(lambda: "since step 211" in self.text("codecs"), "the last plan in force", LIMIT)
        self.assertIn("control policy schedule changes that", self.text("codecs"))
        self.assertEqual(self.browser.value("document.querySelectorAll('#plans tbody tr').length"), 4)
        self.assertIn("the schedule begins dense", self.text("plans"))
        # Every drawing has a text that describes it, and every section has a name.
        unnamed = "[...document.querySelectorAll('[role=img]')].filter(e => !(e.getAttribute('aria-label') || '').match(/[0-9]/)).length"
        wait_until(lambda: self.browser.value(unnamed) == 0, "every drawing in words", LIMIT)
        self.assertEqual(self.browser.value("[...document.querySelectorAll('section')].filter(e => !document.getElementById(e.getAttribute('aria-labelledby'))).length"), 0)

    def says_checkpoint(self):
        """Returns whether the page shows a checkpoint. Compares the page's text with the status that it is made from, both read at once."""
        step, text = self.browser.value(f"[shown.checkpoint.step, {TEXT.format('checkpoint')}]")
        self.assertIn(f"Newest checkpoint: after step {step:,}" if step else "No checkpoint yet", text)
        return step > 0

    def check_motion(self):
        wait_until(lambda: len(self.paths()) > 8, "the charts", LIMIT)
        step, drawn = self.browser.value("shown.step"), self.paths()
        self.assertNotIn("NaN", str(drawn))
        wait_until(lambda: all(new != old for new, old in zip(self.paths(), drawn) if old), "every chart to move", LIMIT)
        wait_until(lambda: self.browser.value("shown.step") > step, "the step to rise", LIMIT)

    def check_looks(self):
        back = {}
        for scheme in ("light", "dark"):
            for name, width, height in (("page", 1200, 900), ("window", 970, 900), ("phone", 360, 740)):
                self.browser.look(width, height, scheme)
                wait_until(lambda: self.browser.value("innerWidth") == width, "the window", LIMIT)
                self.browser.value("show(shown)")
                self.assertEqual(self.browser.value("document.documentElement.scrollWidth"), width, f"{name}: no element is wider than the window")
                back[scheme] = self.browser.value("getComputedStyle(document.body).backgroundColor")
                self.take(f"{name}-{scheme}")
        self.assertNotEqual(back["light"], back["dark"])
        self.browser.look(1200, 900, "light")

    def check_paused_worker(self):
        self.processes["worker", 1].send_signal(signal.SIGSTOP)
        told = wait_until(lambda: next((line for line in self.text("warnings").split(".") if "worker 1" in line.lower() and "reported" in line), None),
                          "a warning about the paused worker", LIMIT)
        print(told)
        self.take("paused")
        self.processes["worker", 1].send_signal(signal.SIGCONT)
        wait_until(lambda: "has not reported" not in self.text("warnings"), "the warning gone", LIMIT)

    def check_server_gone(self):
        self.processes["server", 0].kill()
        wait_until(lambda: "has not answered since" in self.text("stale"), "word that the server is gone", LIMIT)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if "--screenshots" in sys.argv:
        at = sys.argv.index("--screenshots")
        SCREENSHOTS = pathlib.Path(sys.argv[at + 1]).resolve()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        del sys.argv[at:at + 2]
    if find_chromium() is None:
        print("chromium is missing (Debian: chromium): skipped")
        sys.exit(77)
    unittest.main()
