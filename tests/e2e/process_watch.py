# SPDX-License-Identifier: Apache-2.0
"""Records the resident memory and the descriptors of processes, and decides whether they stay flat."""
import math
import os
import pathlib
import statistics
import threading
import time

# The samples of a process are split into thirds. The first third is the warm-up. The median memory of the last third may exceed that of the
# second third by this share, and the usual number of descriptors by this number.
MEMORY_GROWTH_MAX = 0.05
DESCRIPTORS_GROWTH_MAX = 2
SAMPLES_MIN = 30


class Sample:
    def __init__(self, seconds, resident, descriptors):
        self.seconds, self.resident, self.descriptors = seconds, resident, descriptors


def sample_of(pid, seconds):
    """Returns None if the process has ended. Memory is in bytes."""
    try:
        resident = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return Sample(seconds, resident, len(os.listdir(f"/proc/{pid}/fd"))) if resident else None
    except (FileNotFoundError, ProcessLookupError):
        return None


def usual(numbers):
    """Returns the mean of the middle half. Neither peaks, when attacks hold connections, nor dips, when links are cut, count. The median would
    not do: where a process often changes between two numbers of connections, it jumps from one to the other."""
    ordered, quarter = sorted(numbers), len(numbers) // 4
    return statistics.fmean(ordered[quarter:len(ordered) - quarter])


class Verdict:
    """Compares the last third of a process's samples with the third before it."""

    def __init__(self, name, samples):
        self.name, self.samples = name, samples
        size = len(samples) // 3
        before, last = samples[size:2 * size] or samples, samples[2 * size:]
        self.memory = [statistics.median(sample.resident for sample in third) for third in (before, last)]
        self.descriptors = [usual([sample.descriptors for sample in third]) for third in (before, last)]
        self.growth = self.memory[1] / self.memory[0] - 1

    def complaints(self):
        if len(self.samples) < SAMPLES_MIN:
            return [f"{self.name} has only {len(self.samples)} samples; {SAMPLES_MIN} are needed"]
        found = []
        if self.growth > MEMORY_GROWTH_MAX:
            found.append(f"the memory of {self.name} grew by {self.growth:.1%} in the last third; {MEMORY_GROWTH_MAX:.0%} are allowed")
        if self.descriptors[1] > self.descriptors[0] + DESCRIPTORS_GROWTH_MAX:
            found.append(f"{self.name} usually holds {self.descriptors[1]:.1f} descriptors in the last third, {self.descriptors[0]:.1f} before")
        return found


class ProcessWatch:
    """Samples processes in a thread for `seconds`. `pids` returns the process of each name, which may change."""

    def __init__(self, pids, interval, seconds=math.inf):
        self.pids, self.interval, self.begun, self.seconds = pids, interval, time.monotonic(), seconds
        self.samples, self.over = {}, threading.Event()  # By (name, process).
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(self.interval) and time.monotonic() < self.begun + self.seconds:
            for name, pid in self.pids().items():
                sample = sample_of(pid, time.monotonic() - self.begun)
                if sample is not None:
                    self.samples.setdefault((name, pid), []).append(sample)

    def end(self):
        self.over.set()
        self.thread.join()

    def verdicts(self, names):
        """Returns the verdict on each name. A name whose process was replaced has that of the process that was watched longest."""
        found = []
        for name in names:
            of_name = [samples for (owner, _), samples in self.samples.items() if owner == name]
            found.append(Verdict(name, max(of_name, key=len, default=[Sample(0, 1, 0)])))
        return found
