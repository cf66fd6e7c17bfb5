# SPDX-License-Identifier: Apache-2.0
"""Tests bench/exchange_sweep.py: it recovers the costs behind generated figures, and writes its files."""
import dataclasses
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
try:
    import exchange_sweep as sweep
except SystemExit as why:
    print(f"skipped: {why}")
    sys.exit(77)

COSTS = {"step": 3.0, "wire": 1.05, "elements": 0.8, "bytes": 2.0, "tensors": 0.5}


def made_up(costs, rate="1gbit"):
    """A sweep of all axes on two cores with times computed from `costs`."""
    swept = {"machine": {"processor": "P", "cores": 2, "kernel": "K", "stream_bytes_per_second": {"1": 40e9, "2": 60e9}},
             "rate": rate, "axes": list(sweep.AXES), "points": [], "others": 0.0, "load": 1.0}
    for point in dict.fromkeys(point for name, axis in sweep.AXES.items() for point in axis.points(name)):
        up, down = point.elements * point.density * 0.015, point.elements * point.density * 0.04
        row = {"point": dataclasses.asdict(point), "results": [
            {"bytes_up": up, "bytes_down": down, "busiest_link": {"bytes": down * max(1, point.workers / point.shards)}}]}
        features = sweep.features_of(swept, row)
        row["ms"] = [sum(cost * features[name] for name, cost in costs.items())]
        swept["points"].append(row)
    return swept


class Fit(unittest.TestCase):
    def test_costs_are_found(self):
        fitted = sweep.fit(made_up(COSTS))
        self.assertEqual(list(fitted["coefficients"]), list(COSTS))
        for name, cost in COSTS.items():
            self.assertAlmostEqual(fitted["coefficients"][name], cost, places=6)
        self.assertLess(fitted["error_max"], 1e-6)

    def test_no_cost_is_below_zero(self):
        fitted = sweep.fit(made_up({**COSTS, "tensors": -0.05}))
        self.assertNotIn("tensors", fitted["coefficients"])
        self.assertGreater(fitted["error_max"], 1e-3)

    def test_without_a_rate_there_is_no_wire(self):
        fitted = sweep.fit(made_up({**COSTS, "wire": 0}, rate="none"))
        self.assertNotIn("wire", fitted["coefficients"])
        self.assertAlmostEqual(fitted["coefficients"]["bytes"], COSTS["bytes"], places=6)

    def test_floors(self):
        swept = made_up(COSTS)
        by_workers = dict(sweep.rows_of(swept, "workers"))
        # The traffic is 12 bytes for each of 25 M elements. One worker has one core's speed; several workers have
        # the machine's speed.
        self.assertAlmostEqual(sweep.memory_ms(swept, by_workers[1]), 7.5)
        self.assertAlmostEqual(sweep.memory_ms(swept, by_workers[2]), 10)
        self.assertAlmostEqual(sweep.memory_ms(swept, by_workers[8]), 40)
        self.assertAlmostEqual(sweep.wire_ms(swept, by_workers[4]), 2e6 * 8 / 1e9 * 1e3)


class Points(unittest.TestCase):
    def test_tables_have_the_elements_they_say(self):
        for name, axis in sweep.AXES.items():
            for point in axis.points(name):
                lines = point.table().splitlines()
                self.assertEqual(len(lines), point.tensors)
                self.assertEqual(sum(math.prod(map(int, line.split()[1:])) for line in lines), point.elements, point)

    def test_specs_stay_below_everything(self):
        self.assertEqual(sweep.Point(density=0.1).specs(), ("topk:0.1%+int4", "topk:0.3%+int4"))
        self.assertEqual(sweep.Point(density=50).specs()[1], "topk:100%+int4")


class Run(unittest.TestCase):
    def test_what_is_wrong_is_said_before_anything_is_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, status, complaint in ((["wrkers"], 2, 'no such axis: "wrkers"; there are workers, shards'),
                                             (["--bin", folder], 1, f"there is no sluice in {folder}"),
                                             (["--from", folder + "/none.json"], 1, "No such file")):
                command = [sys.executable, str(BENCH / "exchange_sweep.py"), "--out", folder, *words]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(complaint, done.stderr)
                self.assertIn("exchange_sweep.py: ", done.stderr)

    def test_figures_are_fitted_and_drawn_again(self):
        try:
            sweep.plotter()
        except sweep.Failed as why:
            self.skipTest(str(why))
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            (out / "made-up.json").write_text(json.dumps(made_up(COSTS)))
            command = [sys.executable, str(BENCH / "exchange_sweep.py"), "--from", str(out / "made-up.json"), "--out", str(out)]
            subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=120)
            text = (out / "sweep.md").read_text()
            self.assertIn("| wire | 1.05 | of the bytes", text)
            self.assertIn("| elements | 0.8 ms per million | elements", text)
            self.assertEqual(json.loads((out / "sweep.json").read_text())["fit"]["coefficients"].keys(), COSTS.keys())
            for name in sweep.AXES:
                drawn = (out / f"{name}.svg").read_bytes()
                self.assertIn(b"</svg>", drawn)
            subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=120)
            self.assertEqual((out / f"{name}.svg").read_bytes(), drawn)


if __name__ == "__main__":
    unittest.main()
