#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that leaks memory or descriptors is found; one that holds a constant amount is not."""
import subprocess
import sys
import unittest

from process_watch import SAMPLES_MIN, ProcessWatch, Sample, Verdict
from processes import wait_until

PROGRAMS = {
    "flat": "import time\nkept = bytearray(20_000_000)\nprint(flush=True)\nwhile True: time.sleep(0.01)",
    "memory": "import time\nkept = []\nprint(flush=True)\nwhile True: kept.append(b'x' * 200_000); time.sleep(0.01)",
    "descriptors": "import os, time\nprint(flush=True)\nwhile True: os.dup(0); time.sleep(0.02)",
}


class ProcessWatchTest(unittest.TestCase):
    def complaints(self, name):
        with subprocess.Popen([sys.executable, "-c", PROGRAMS[name]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            process.stdout.readline()  # Its own start must not be part of the samples.
            watch = ProcessWatch(lambda: {name: process.pid}, 0.02)
            wait_until(lambda: len(watch.samples.get((name, process.pid), ())) >= 3 * SAMPLES_MIN, "enough samples", 60)
            watch.end()
            process.kill()
        return watch.verdicts([name])[0].complaints()

    def test_a_constant_process_is_flat(self):
        self.assertEqual(self.complaints("flat"), [])

    def test_a_leak_of_memory_is_found(self):
        self.assertRegex("".join(self.complaints("memory")), "the memory of memory grew by")

    def test_a_leak_of_descriptors_is_found(self):
        self.assertRegex("".join(self.complaints("descriptors")), "descriptors usually holds .* in the last third")

    def test_the_warm_up_does_not_count_and_peaks_do_not_count(self):
        sizes = [*range(100, 1000, 30), *[1000] * 29, 5000, *[1040] * 29, 9000]
        self.assertEqual(Verdict("a", [Sample(i, size, 20) for i, size in enumerate(sizes)]).complaints(), [])
        sizes = [1060 if size == 1040 else size for size in sizes]
        self.assertEqual(len(Verdict("a", [Sample(i, size, 20) for i, size in enumerate(sizes)]).complaints()), 1)

    def descriptors(self, numbers):
        return Verdict("a", [Sample(i, 1000, number) for i, number in enumerate(numbers)]).complaints()

    def test_cut_links_and_attacks_do_not_count_as_descriptors(self):
        warm_up, usual, fewer, more = [12] * 30, [13, 16] * 12, [8] * 6, [150] * 6
        self.assertEqual(self.descriptors([*warm_up, *usual, *fewer, *usual, *more]), [])

    def test_a_share_of_time_that_changes_is_no_leak(self):
        self.assertEqual(self.descriptors([*[12] * 30, *[13] * 17, *[16] * 13, *[13] * 13, *[16] * 17]), [])

    def test_a_leak_of_descriptors_between_cuts_and_attacks_is_found(self):
        leaked = [number + i // 10 for i, number in enumerate([8, 12, 12, 13, 150, 12, 12, 8, 13, 12] * 9)]
        self.assertEqual(len(self.descriptors(leaked)), 1)

    def test_a_process_that_was_not_watched_is_a_complaint(self):
        watch = ProcessWatch(dict, 0.01)
        watch.end()
        self.assertEqual(len(watch.verdicts(["a"])[0].complaints()), 1)


if __name__ == "__main__":
    unittest.main()
