#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that TensorBoard and Python's csv read the scalars of a run that was interrupted and continued.

usage: read_scalars_test.py WRITE_SCALARS     the program of that name; PYTHONPATH has TensorBoard
"""
import csv
import pathlib
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing import event_accumulator

STEPS = list(range(1, 61))
TESTS = [20, 40, 60]
# Tag: column, scale, value at a step.
TRAINING = {
    "loss/train": ("loss", 1, lambda step: 2 / step),
    "learning_rate": ("learning_rate", 1, lambda step: 0.125),
    "samples_per_second": ("samples_per_second", 1, lambda step: 4096),
    "time/step_ms": ("step_ms", 1, lambda step: 125),
    "time/exposed_ms": ("exposed_seconds", 1000, lambda step: 62.5),
    "bytes/up": ("bytes_up", 1, lambda step: 1000 + step),
    "bytes/down": ("bytes_down", 1, lambda step: 2000),
    "ratio/up": ("ratio_up", 1, lambda step: 128),
    "ratio/down": ("ratio_down", 1, lambda step: 64),
}
TESTING = {
    "accuracy/test": ("test_accuracy", 1, lambda step: step / 128),
    "loss/test": ("test_loss", 1, lambda step: 1 / step),
}


def near(a, b):
    return abs(a - b) <= 1e-6 * abs(b)


def check_tensorboard(folder):
    events = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.SCALARS: 0})
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == sorted(TRAINING | TESTING), events.Tags()
    for tags, steps in ((TRAINING, STEPS), (TESTING, [20, 40, 60])):
        for tag, (_, _, value) in tags.items():
            points = events.Scalars(tag)
            # A real run repeats the test after step 40, so TensorBoard may have two points of a step.
            seen = sorted({point.step for point in points})
            assert seen == steps, (tag, seen)
            for point in points:
                assert near(point.value, value(point.step)), (tag, point)
    assert near(events.Scalars("loss/train")[-1].wall_time, 1_700_000_060)


def check_csv(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    training = [row for row in rows if row["loss"]]
    testing = [row for row in rows if row["test_loss"]]
    assert len(rows) == len(training) + len(testing)
    assert [int(row["step"]) for row in training] == STEPS
    # The test after step 40 comes after the checkpoint, so its row was removed. A real run would repeat it.
    assert [int(row["step"]) for row in testing] == [20, 60], testing
    for columns, lines in ((TRAINING, training), (TESTING, testing)):
        for column, scale, value in columns.values():
            for row in lines:
                assert near(float(row[column]) * scale, value(int(row["step"]))), (column, row)
    assert rows[0]["wall_seconds"] == "0.125" and rows[0]["epoch"] == "0"
    assert rows[0]["test_accuracy"] == "" and testing[0]["learning_rate"] == ""


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([sys.argv[1], folder / "new" / "output"], check=True)
        check_tensorboard(folder / "new" / "output" / "tensorboard")
        check_csv(folder / "new" / "output" / "scalars.csv")
    print("TensorBoard and csv read the same run")


if __name__ == "__main__":
    main()
