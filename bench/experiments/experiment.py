# SPDX-License-Identifier: Apache-2.0
"""Experiments as data: reads a YAML file and lists its trials. Nothing here reads a clock or starts a program.

bench/README.md explains the files' format.
"""
from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import pathlib

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SEEDS_MIN = 3
KINDS = ("train", "codecs", "exchange", "ddp")
AXES = ("kind", "model", "method", "link", "workers", "rate", "seed")
KEYS = {"name", "question", "seeds", "time_limit", "baseline", "target", "parts"}
PART_KEYS = {"kind", "models", "methods", "links", "workers", "seeds", "time_limit", "arguments", "set"}
ENTRY_KEYS = {"job", "set", "arguments", "rates", "only"}
LINK_KEYS = {"rate", "up_rate", "delay"}


class Wrong(ValueError):
    """An experiment file that cannot be used: what, where, and what to do."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of one program. `words` has the placeholders {bin}, {root}, {python} and {folder}."""
    kind: str
    model: str
    method: str
    link: str
    workers: int | None
    rate: str
    seed: int
    time_limit: float
    words: tuple[str, ...]
    job_hash: str = ""  # The hash of the job file's text.

    def axes(self) -> dict:
        return {axis: getattr(self, axis) for axis in AXES}

    def name(self) -> str:
        return " ".join(f"{axis}={value}" for axis, value in self.axes().items() if value not in (None, ""))

    def key(self, version: str) -> str:
        """Equal for equal configurations of equal program versions."""
        text = json.dumps({"trial": dataclasses.asdict(self), "version": version}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    question: str
    baseline: str | None  # Method that others are compared with, in pairs of seeds.
    target: str | None    # Method whose mean final test loss is the target.
    trials: tuple[Trial, ...]


def check_keys(found: dict, known: set[str], where: str) -> None:
    for key in found:
        if key not in known:
            raise Wrong(f"{where}: there is no key \"{key}\"; use one of {', '.join(sorted(known))}")


def entries(part: dict, name: str, where: str, known: set[str]) -> dict[str, dict]:
    """The entries of `models`, `methods` or `links`, which may be empty."""
    found = {str(key): value or {} for key, value in (part.get(name) or {}).items()}
    for key, value in found.items():
        check_keys(value, known, f"{where}.{name}.{key}")
    return found


def sets(*lists: list[str]) -> list[str]:
    return [word for change in itertools.chain(*lists) for word in ("--set", change)]


def link_words(kind: str, link: dict, workers: int | None, shards: int) -> tuple[list[str], list[str]]:
    """Words before and inside of the command."""
    if not link:
        return [], []
    if kind == "train":
        if set(link) != {"rate"}:
            raise Wrong("`sluice run` has links with a `rate` only: use the kind `exchange` for a link with `up_rate` or `delay`")
        return [], ["--link-rate", link["rate"]]
    words = ["{root}/bench/shaped.sh", "--workers", str(workers), "--shards", str(shards), "--rate", link.get("rate", "none")]
    if "up_rate" in link:
        words += ["--up-rate", link["up_rate"]]
    if "delay" in link:
        words += ["--delay", link["delay"]]
    return (words + ["--exec"] if kind == "ddp" else words + ["--bin", "{bin}", "--"]), []


def words_of(kind: str, part: dict, model: dict, method: dict, link: dict, workers: int | None, rate: list[str], seed: int) -> list[str]:
    arguments = [str(word) for each in (part, model, method) for word in each.get("arguments", [])]
    changes = [*part.get("set", []), *model.get("set", []), *method.get("set", []), *rate]
    before, inside = link_words(kind, link, workers or 2, 1 if kind == "ddp" else 2)
    report = ["--report", "{folder}/report.json"]
    if kind == "train":
        counted = ["--workers", str(workers)] if workers else []
        return ["{bin}/sluice", "run", "{root}/" + model["job"], "--quiet", "--http-listen", "off", *report, "--log-dir", "{folder}/logs",
                *counted, *inside, *arguments, *sets(["output={folder}/output"], changes, [f"seed={seed}"])]
    if kind == "codecs":
        return ["{bin}/sluice", "bench", "codecs", *report, "--seed", str(seed), *arguments]
    if kind == "exchange":
        counted = [] if before else ["{bin}/sluice", "bench", "exchange", "--workers", str(workers or 2), "--shards", "2"]
        return [*before, *counted, *report, "--seed", str(seed), *arguments, *sets(changes)]
    return [*before, "{python}", "{root}/bench/peers/ddp.py", "--workers", str(workers or 2), "--json", "{folder}/report.json", *arguments]


def trials_of_part(part: dict, where: str, seeds: list[int], time_limit: float, root: pathlib.Path) -> list[Trial]:
    check_keys(part, PART_KEYS, where)
    kind = part.get("kind")
    if kind not in KINDS:
        raise Wrong(f"{where}.kind: \"{kind}\" is none of {', '.join(KINDS)}")
    models, methods = entries(part, "models", where, ENTRY_KEYS), entries(part, "methods", where, ENTRY_KEYS)
    links = entries(part, "links", where, LINK_KEYS) or {"unshaped": {}}
    seeds, limit = part.get("seeds", seeds), float(part.get("time_limit", time_limit))
    found = []
    # Seeds are the outermost loop, so that an unfinished run has whole pairs.
    for seed, (model, of_model), (link, of_link), workers in itertools.product(
            seeds, models.items(), links.items(), part.get("workers", [None])):
        job_hash = ""
        if kind == "train":
            job = root / of_model.get("job", "")
            if not job.is_file():
                raise Wrong(f"{where}.models.{model}.job: there is no file {job}")
            job_hash = hashlib.sha256(job.read_bytes()).hexdigest()
        for (rate, of_rate), (method, of_method) in itertools.product(of_model.get("rates", {"": []}).items(), methods.items()):
            if model in of_method.get("only", [model]):
                words = words_of(kind, part, of_model, of_method, of_link, workers, of_rate, seed)
                found.append(Trial(kind, model, method, link, workers, str(rate), seed, limit, tuple(words), job_hash))
    return found


def parse(text: str, where: str, root: pathlib.Path = ROOT) -> Experiment:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Wrong(f"{where}: {error}") from None
    if not isinstance(found, dict):
        raise Wrong(f"{where}: an experiment is a mapping with `name`, `question`, `seeds`, `time_limit` and `parts`")
    check_keys(found, KEYS, where)
    for key in ("name", "question", "time_limit", "parts"):
        if key not in found:
            raise Wrong(f"{where}: `{key}` is missing")
    seeds = found.get("seeds", [1, 2, 3])
    trials = [trial for at, part in enumerate(found["parts"])
              for trial in trials_of_part(part, f"{where}: parts[{at}]", seeds, found["time_limit"], root)]
    if len(set(trials)) != len(trials):
        raise Wrong(f"{where}: two trials are equal; give one of their methods another `set` or another name")
    for each in {(trial.kind, trial.model, trial.method) for trial in trials}:
        count = len({trial.seed for trial in trials if (trial.kind, trial.model, trial.method) == each})
        if count < SEEDS_MIN:
            raise Wrong(f"{where}: {' '.join(each)} has {count} seeds; give at least {SEEDS_MIN}")
    return Experiment(found["name"], " ".join(found["question"].split()), found.get("baseline"), found.get("target"),
                      tuple(sorted(trials, key=lambda trial: trial.seed)))


def file_of(name: str) -> pathlib.Path:
    """The file of a name in this folder, or of a path."""
    for candidate in (HERE / f"{name}.yaml", pathlib.Path(name)):
        if candidate.is_file():
            return candidate
    known = ", ".join(sorted(path.stem for path in HERE.glob("*.yaml") if path.stem != "prices"))
    raise Wrong(f"there is no experiment or file \"{name}\"; the experiments are {known}")


def load(name: str) -> Experiment:
    path = file_of(name)
    return parse(path.read_text(), path.name)
