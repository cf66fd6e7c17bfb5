# SPDX-License-Identifier: Apache-2.0
"""Statistics of records: summaries over seeds, paired differences, cost to the target and performance profiles. All functions are pure."""
from __future__ import annotations

import collections
import math
import statistics

PROFILE_LIMIT = 4.0  # The score is the area under a profile from the ratio 1 to this ratio.
QUIET = 0.1  # Times are published if other programs had at most this share of the processors.


def mean(values: list[float]) -> float:
    return statistics.mean(values) if values else math.nan


def spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


def times_are_valid(records: list[dict]) -> bool:
    return bool(records) and statistics.median(record["others"] for record in records) <= QUIET


def group_of(record: dict) -> tuple:
    """What methods are compared within: a set."""
    trial = record["trial"]
    return trial["model"], trial["link"], trial["workers"]


def grouped(records: list[dict]) -> dict[tuple, dict[str, list[dict]]]:
    """The records by set and method, in order of seeds."""
    found: dict[tuple, dict[str, list[dict]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for record in sorted(records, key=lambda each: each["trial"]["seed"]):
        found[group_of(record)][record["trial"]["method"]].append(record)
    return {group: dict(methods) for group, methods in found.items()}


def final_losses(records: list[dict]) -> list[float]:
    """Test losses at the end. NaN, the loss of a run that diverged, counts as infinite."""
    losses = [record["report"]["test_loss"] for record in records if record["state"] == "ok" and record["report"].get("test_loss") is not None]
    return [math.inf if math.isnan(loss) else loss for loss in losses]


def best_rate(records: list[dict]) -> list[dict]:
    """The records of the rate with the lowest mean final loss. A rate with fewer finished runs ranks behind."""
    rates = collections.defaultdict(list)
    for record in records:
        rates[record["trial"]["rate"]].append(record)

    def rank(found: list[dict]) -> tuple:
        losses = final_losses(found)
        return (-len(losses), mean(losses) if losses else math.inf)

    return min(rates.values(), key=rank)


def target_loss(methods: dict[str, list[dict]], target: str | None) -> float | None:
    """Mean final loss of the target's method at its best rate, or None if it never finished."""
    losses = final_losses(best_rate(methods[target])) if target in methods else []
    return mean(losses) if losses else None


def to_target(record: dict, target: float | None, cost: str) -> float:
    """`seconds`, `bytes` or `step` of the first test that reaches the target; infinite if none does."""
    if target is not None:
        for test in record["curve"]:
            if test["test_loss"] <= target:
                return test[cost]
    return math.inf


def median_to_target(records: list[dict], target: float | None, cost: str) -> float:
    """Median over all seeds. Failed trials never reach the target, so their cost is infinite."""
    return statistics.median_high([to_target(record, target, cost) for record in records])


def differences(records: list[dict], baseline: list[dict], key: str) -> list[float]:
    """By pairs with equal seeds: the method minus the baseline. A seed that failed on either side is left out."""
    def by_seed(found: list[dict]) -> dict[int, float]:
        return {record["trial"]["seed"]: record["report"][key] for record in found
                if record["state"] == "ok" and record["report"].get(key) is not None}

    other = by_seed(baseline)
    return [value - other[seed] for seed, value in by_seed(records).items() if seed in other]


def ratios(costs: dict[str, dict[tuple, float]]) -> dict[str, list[float]]:
    """Each method's cost in each set, divided by the lowest cost of any method. A set without a method's cost counts as not reached."""
    sets = sorted({each for found in costs.values() for each in found}, key=str)
    least = {each: min(found.get(each, math.inf) for found in costs.values()) for each in sets}
    return {method: [found.get(each, math.inf) / least[each] if least[each] not in (0, math.inf) else math.inf for each in sets]
            for method, found in costs.items()}


def profile(found: list[float], at: float) -> float:
    """Share of the sets in which the ratio is at most `at`."""
    return sum(ratio <= at for ratio in found) / len(found)


def score(found: list[float], limit: float = PROFILE_LIMIT) -> float:
    """Area under the profile from 1 to the limit, as a share: 1 if the method is the best one in every set."""
    return sum(max(0.0, limit - ratio) for ratio in found) / (len(found) * (limit - 1))


def mean_curve(records: list[dict], cost: str) -> list[tuple[float, float]]:
    """Mean cost and mean test loss of the finished runs, test by test. Runs of one method have tests at the same steps."""
    curves = [record["curve"] for record in records if record["state"] == "ok"]
    return [(mean([test[cost] for test in tests]), mean([test["test_loss"] for test in tests])) for tests in zip(*curves)]
