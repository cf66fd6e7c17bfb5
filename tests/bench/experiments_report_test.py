# SPDX-License-Identifier: Apache-2.0
"""Tests bench/experiments/report.py and its statistics against figures computed by hand."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/experiments"))
import experiment  # noqa: E402
import figures  # noqa: E402
import plot  # noqa: E402
import report  # noqa: E402

INF = math.inf
YAML = """
name: made-up
question: Which one?
time_limit: 60
baseline: dense
target: dense
parts:
  - kind: train
    models: {m: {job: examples/fashion-mnist.yaml, rates: {low: [optimizer.lr=0.1], high: [optimizer.lr=0.2]}}}
    methods: {dense: {set: [x=1]}, sparse: {set: [x=2]}}
"""


def record(method="dense", seed=1, losses=(0.9, 0.5), rate="low", state="ok", others=0.0, model="m"):
    """A training run whose test after k epochs has the k-th loss, after k seconds and 100 k bytes."""
    curve = [{"step": 10 * at, "seconds": 1.0 * at, "bytes": 100.0 * at, "test_loss": loss, "test_accuracy": 1 - loss}
             for at, loss in enumerate(losses, 1)]
    return {"state": state, "reason": "" if state == "ok" else "status 1: no memory", "others": others, "curve": curve, "date": "2026-11-27T00:00:00",
            "version": "sluice 1", "commit": "abc", "programs": "def", "machine": {"processor": "P", "cores": 2, "kernel": "K"},
            "trial": {"kind": "train", "model": model, "method": method, "link": "unshaped", "workers": None, "rate": rate, "seed": seed},
            "cost": {"wall_seconds": 3600.0, "cpu_seconds": 1800.0, "bytes_up": 1e9, "bytes_down": 2e9},
            "report": {"test_loss": losses[-1], "test_accuracy": 1 - losses[-1], "train_seconds": 7200.0, "workers": 4, "ratio_up": 2.0,
                       "ratio_down": 3.0} if state == "ok" else None}


class Profile(unittest.TestCase):
    # Method a: 10 s and 30 s; b: 20 s and 20 s; c reaches only the first target, in 40 s.
    COSTS = {"a": {"s1": 10.0, "s2": 30.0}, "b": {"s1": 20.0, "s2": 20.0}, "c": {"s1": 40.0, "s2": INF}}

    def test_ratios_are_to_the_best_method_of_each_set(self):
        self.assertEqual(figures.ratios(self.COSTS), {"a": [1.0, 1.5], "b": [2.0, 1.0], "c": [4.0, INF]})

    def test_the_profile_is_the_share_of_sets_within_a_ratio(self):
        found = figures.ratios(self.COSTS)
        self.assertEqual([figures.profile(found["a"], at) for at in (1, 1.4, 1.5)], [0.5, 0.5, 1.0])
        self.assertEqual([figures.profile(found["c"], at) for at in (1, 3.9, 4, 1000)], [0, 0, 0.5, 0.5])

    def test_the_score_is_the_area_under_the_profile(self):
        found = figures.ratios(self.COSTS)
        # From 1 to 4, a: 0.5 for 0.5 and 1 for 2.5; b: 0.5 for 1 and 1 for 2; c: nothing.
        for method, area in (("a", 0.25 + 2.5), ("b", 0.5 + 2), ("c", 0)):
            self.assertAlmostEqual(figures.score(found[method]), area / 3)

    def test_a_set_that_no_method_reaches_counts_for_none(self):
        found = figures.ratios({"a": {"s1": 1.0, "s2": INF}, "b": {"s1": 2.0}})
        self.assertEqual(found, {"a": [1.0, INF], "b": [2.0, INF]})


class Statistics(unittest.TestCase):
    def test_the_target_is_the_mean_final_loss_of_the_best_rate(self):
        runs = [record(seed=seed, losses=(0.9, loss)) for seed, loss in ((1, 0.4), (2, 0.6), (3, 0.8))]
        runs += [record(seed=seed, losses=(0.9, 0.7), rate="high") for seed in (1, 2, 3)]
        self.assertAlmostEqual(figures.target_loss({"dense": runs}, "dense"), 0.6)
        self.assertIsNone(figures.target_loss({"dense": runs}, "other"))

    def test_a_rate_with_a_failure_or_nan_ranks_behind(self):
        runs = [record(seed=1, losses=(0.1,)), record(seed=2, state="failed"), *(record(seed=seed, rate="high", losses=(0.7,)) for seed in (1, 2))]
        self.assertEqual({run["trial"]["rate"] for run in figures.best_rate(runs)}, {"high"})
        runs[1] = record(seed=2, losses=(math.nan,))
        self.assertEqual({run["trial"]["rate"] for run in figures.best_rate(runs)}, {"high"})

    def test_the_cost_to_the_target_is_that_of_the_first_test_below_it(self):
        run = record(losses=(0.9, 0.5, 0.6, 0.4))
        self.assertEqual([figures.to_target(run, 0.5, cost) for cost in ("seconds", "bytes", "step")], [2.0, 200.0, 20])
        self.assertEqual(figures.to_target(run, 0.39, "seconds"), INF)

    def test_a_failed_seed_never_reaches_the_target(self):
        runs = [record(seed=1), record(seed=2, state="failed", losses=()), record(seed=3)]
        self.assertEqual(figures.median_to_target(runs, 0.5, "seconds"), 2.0)
        runs[2] = record(seed=3, state="timeout", losses=())
        self.assertEqual(figures.median_to_target(runs, 0.5, "seconds"), INF)

    def test_differences_are_of_equal_seeds(self):
        dense = [record(seed=1, losses=(0.5,)), record(seed=2, losses=(0.9,)), record(seed=3, state="failed")]
        sparse = [record(seed=3, losses=(0.1,)), record(seed=2, losses=(1.0,)), record(seed=1, losses=(0.8,))]
        self.assertEqual([round(each, 6) for each in figures.differences(sparse, dense, "test_loss")], [0.1, 0.3])
        dense[0]["report"]["test_loss"] = None  # A run without a finite loss.
        self.assertEqual([round(each, 6) for each in figures.differences(sparse, dense, "test_loss")], [0.1])

    def test_times_count_only_on_a_quiet_machine(self):
        self.assertTrue(figures.times_are_valid([record(others=0.1), record(others=0.05), record(others=0.9)]))
        self.assertFalse(figures.times_are_valid([record(others=0.11)]))


class Page(unittest.TestCase):
    TESTED = experiment.parse(YAML, "e.yaml")

    def page(self, records, **more):
        found = report.Report(self.TESTED, records, True, **more)
        return found.page(), found.charts

    def test_the_page_has_the_means_differences_and_times(self):
        runs = [record(seed=seed, losses=(0.9, 0.5)) for seed in (1, 2, 3)]
        runs += [record("sparse", seed, (0.9, 0.8, loss)) for seed, loss in ((1, 0.5), (2, 0.6), (3, 0.4))]
        page, charts = self.page(runs)
        self.assertTrue(page.startswith(report.GENERATED))
        self.assertIn("12 trials: 6 finished, 0 failed, 0 exceeded the time limit, 0 were not possible on this machine, and 6 have not been run.", page)
        self.assertIn("took 6.00 hours and 3.00 processor hours", page)
        self.assertIn("| `sparse` | low | 1 | 3 of 3 | 0.5000 ± 0.1000 | +0.0000 ± 0.1000 | 50.00 ± 10.00 | +0.00 ± 10.00 | 2x | 3x | 2 of 3 | 3 | 7200.0 ± 0.0 |", page)
        self.assertEqual(set(charts), {"made-up-m.svg", "made-up-profile.svg"})

    def test_a_busy_machine_gives_a_page_without_times(self):
        page, _ = self.page([record(seed=seed, others=0.5) for seed in (1, 2, 3)])
        self.assertIn("the report has none", page)
        for word in ("seconds", "hours", "s a run"):
            self.assertNotIn(word, page)

    def test_failures_are_listed_and_counted(self):
        page, _ = self.page([record(), record("sparse", 1, (), state="failed")])
        self.assertIn("| kind=train model=m method=sparse link=unshaped rate=low seed=1 | failed | status 1: no memory |", page)
        self.assertIn("| `sparse` | low | 1 | 0 of 1 | - |", page)
        self.assertIn("not reached", page)
        self.assertNotIn("nan", page)

    def test_a_set_without_any_result_has_a_page(self):
        failed = {"state": "failed", "report": None, "curve": [], "reason": "status 1"}
        for kind in experiment.KINDS:
            page, charts = self.page([{**record(), **failed, "trial": {**record()["trial"], "kind": kind}}], prices={"currency": "EUR", "egress_per_gb": 1,
                                                                                                         "accelerator_per_hour": 1})
            self.assertIn("0 of 1", page)
            self.assertNotIn("nan", page)
            self.assertEqual(charts, {})

    def test_other_kinds_of_trials_have_tables(self):
        shared = {"state": "ok", "others": 0.0}
        reports = {"codecs": {"codecs": [{"bits_per_element": 1.5, "ratio": 21.0, "nmse_gradient": 0.5, "nmse_accumulator": 0.25, "encode_gb_per_s": 1.0,
                                          "add_gb_per_s": 2.0}]},
                   "exchange": {"bytes_up": 1500.0, "bytes_down": 2500.0, "exchange_ms": {"median": 8.0}},
                   "ddp": {"rows": [{"bytes_sent": 7e6, "exchange_ms": {"median": 9.0}}]}}
        page, _ = self.page([{**record(), **shared, "report": of_kind, "trial": {**record()["trial"], "kind": kind}} for kind, of_kind in reports.items()])
        for row in ("| m | `dense` | 1 of 1 | 1.500 | 21.0 | 0.5000 | 0.2500 | 1.00 | 2.00 |", "| m | `dense` | 1 of 1 | 1.5k | 2.5k | 8.0 |",
                    "| m | `dense` | 1 of 1 | 7M | 9.0 |"):
            self.assertIn(row, page)

    def test_costs_come_from_the_price_table(self):
        page, _ = self.page([record()], prices={"currency": "EUR", "egress_per_gb": 0.5, "accelerator_per_hour": 2})
        # 3 GB at 0.5, and 4 workers for 2 hours at 2.
        self.assertIn("| 1.5000 EUR | 16.0000 EUR |", page)

    def test_charts_are_well_formed_and_skip_what_is_not_finite(self):
        svg = plot.chart("a < b", "x", "y", {"one": [(1, 2), (2, INF), (3, 4)], "none": []}, log_x=True, steps=True)
        root = xml.etree.ElementTree.fromstring(svg)
        self.assertEqual(root.find("{http://www.w3.org/2000/svg}text").text, "a < b")
        self.assertNotIn("inf", svg)
        self.assertNotIn("nan", svg)

    def test_the_program_reads_only_records_of_the_experiment(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "e.yaml").write_text(YAML)
            (folder / "out/made-up").mkdir(parents=True)
            command = [sys.executable, str(ROOT / "bench/experiments/report.py"), str(folder / "e.yaml"), "--out", str(folder / "out"), "--docs", str(folder / "docs")]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((done.returncode, "has no record" in done.stderr), (1, True))
            first, second = self.TESTED.trials[:2]
            for name, trial, words, date, loss in (("a", first, first.words, "2026-11-26", 0.7), ("b", first, first.words, "2026-11-27", 0.6),
                                                   ("c", second, ("older",), "2026-11-27", 0.1)):
                found = {**record(trial.method, losses=(loss,)), "trial": trial.axes(), "command": list(words), "date": date}
                (folder / f"out/made-up/{name}.json").write_text(json.dumps(found))
            subprocess.run(command, check=True, capture_output=True)
            page = (folder / "docs/made-up.md").read_text()
            self.assertIn("1 of 1 | 0.6000", page)
            self.assertNotIn("0.7000", page)
            self.assertNotIn("0.1000", page)


if __name__ == "__main__":
    unittest.main()
