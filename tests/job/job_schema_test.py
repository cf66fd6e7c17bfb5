#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of `sluice explain --schema` against job files and against the loader, `sluice validate`.

usage: job_schema_test.py SLUICE ROOT
"""
import concurrent.futures
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(sys.argv.pop(2)).resolve()
SLUICE = pathlib.Path(sys.argv.pop(1)).resolve()
FILES = ("examples/*.yaml", "deploy/docker/trial.yaml", "bench/experiments/jobs/*.yaml", "tests/e2e/*.yaml", "tests/compatibility/*/*/job.yaml")
LEAST = {"name": "tiny", "model": {"name": "mlp"}, "data": {"format": "synthetic"}, "batch_size_per_worker": 8, "steps": 5, "optimizer": {"lr": 0.1}}
# Sections that make the loader accept a key of this path, beside LEAST.
KINDS = {"control": {"policy": "auto"}, "relays": {"workers": [1]}, "checkpoint": {"dir": "/d"},
         "baseline": {"optimizer": {"lr": 0.1}, "lr_schedule": {"name": "constant"}}}


class Core(yaml.SafeLoader):
    """Reads scalars as YAML 1.2 does, like editors; PyYAML's own rules take 1e-8 for a text and `on` for a boolean."""
    yaml_implicit_resolvers = {}


for tag, pattern in (("null", r"~|null|Null|NULL|"), ("bool", "true|True|TRUE|false|False|FALSE"), ("int", "[-+]?[0-9]+"),
                     ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), None)
Core.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(loader.construct_scalar(node)))
Core.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))


def schema_of_program():
    return json.loads(subprocess.run([SLUICE, "explain", "--schema"], check=True, capture_output=True, text=True).stdout)


SCHEMA = schema_of_program()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def problems(job):
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(job)]


def keys(schema, path=()):
    """(path, schema) of each key that has its current name; the entry of a list of sections has the path of the list and 0."""
    for name, key in schema.get("properties", {}).items():
        if key.get("deprecated"):
            continue
        yield (*path, name), key
        yield from keys(key, (*path, name))
        if "items" in key:
            yield from keys(key["items"], (*path, name, 0))


def job_with(path, value, base):
    """A copy of `base` in which the key at `path` has this value."""
    job = copy.deepcopy(base)
    section = job
    for at, part in enumerate(path[:-1]):
        if part == 0:
            section = section[0]
            continue
        if part not in section:
            section[part] = [{}] if path[at + 1] == 0 else copy.deepcopy(KINDS.get(part, {}))
        section = section[part]
    section[path[-1]] = value
    return job


def of_the_right_kind(path, job):
    """Names a kind of section that takes the key, if the schema has a rule about it."""
    schema, section, kind = SCHEMA, job, None
    for part in path:
        rule = schema.get("dependentSchemas", {}).get(part, {}).get("properties", {})
        kind = next(((name, test["enum"]) for name, test in rule.items() if isinstance(test, dict) and "enum" in test), None)
        if kind is not None and section.get(kind[0]) not in kind[1]:
            section[kind[0]] = kind[1][0]
        schema = schema["items"] if part == 0 else schema["properties"][part]
        section = section[part] if isinstance(section, (dict, list)) else section
    return job


def loader_says(job):
    """What the loader says about a job; an empty text if it accepts the job. YAML 1.2 contains JSON."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(json.dumps(job))
        file.flush()
        done = subprocess.run([SLUICE, "validate", file.name], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr


def of_loader(jobs):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(loader_says, jobs))


def name_of(path):
    return ".".join(map(str, path)).replace(".0", "[0]")


class JobSchema(unittest.TestCase):
    def refused(self, text, *words):
        found = problems(yaml.load(text, Core))
        self.assertTrue(found, f"the schema accepts\n{text}")
        for word in words:
            self.assertIn(word, "\n".join(found))

    def test_it_is_a_schema(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        self.assertEqual(SCHEMA["$schema"], "https://json-schema.org/draft/2020-12/schema")

    def test_it_accepts_all_job_files(self):
        files = [file for pattern in FILES for file in sorted(ROOT.glob(pattern))]
        self.assertGreater(len(files), 20)
        for file in files:
            with self.subTest(file=file.relative_to(ROOT)):
                self.assertEqual(problems(yaml.load(file.read_text(), Core)), [])

    def test_it_accepts_the_charts_jobs(self):
        jobs = 0
        for file in [ROOT / "helm/sluice/values.yaml", *sorted((ROOT / "helm/sluice/ci").glob("*-values.yaml"))]:
            job = yaml.load(file.read_text(), Core).get("job")
            if not job:
                continue
            # The chart adds these.
            job.setdefault("name", "release")
            job.setdefault("data", {"format": "custom"})
            job.setdefault("checkpoint", {}).setdefault("dir", "/var/lib/sluice")
            jobs += 1
            with self.subTest(file=file.relative_to(ROOT)):
                self.assertEqual(problems(job), [])
        self.assertGreater(jobs, 3)

    def test_every_key_has_a_description(self):
        for path, key in keys(SCHEMA):
            self.assertTrue(key.get("description"), name_of(path))

    def test_broken_files(self):
        least = json.dumps(LEAST)[1:-1]
        self.refused(f"{{{least}, lr_shedule: {{name: step}}}}", "lr_shedule")
        self.refused(f"{{{least}, workers: four}}", "$.workers", "integer")
        self.refused(f"{{{least}, workers: 1025}}", "$.workers", "1024")
        self.refused(f"{{{least}, mode: sink}}", "$.mode", "sink")
        self.refused(f"{{{least}, checkpoint: {{interval: 5}}}}", "$.checkpoint", "'dir' is a required property")
        self.refused(f"{{{least}, compression: {{uplink: tpok:1%}}}}", "$.compression.uplink")
        self.refused(f"{{{least}, server: {{max_memory: 8 Gigabyte}}}}", "$.server.max_memory")
        self.refused(f"{{{least}, server: {{lease_timeout: 5 days}}}}", "$.server.lease_timeout")
        self.refused(f"{{{least}, epochs: 5}}", "$.steps")
        self.refused(f"{{{least}, command: []}}", "$.command")
        self.refused(f"{{{least}, control: {{policy: schedule}}}}", "'schedule' is a required property")
        self.refused(f"{{{least}, local_steps: 5, sync_every: 5}}", "$.local_steps")
        for key in LEAST:
            self.refused(json.dumps({name: value for name, value in LEAST.items() if name != key}), "is")

    def test_keys_of_another_kind_of_section(self):
        self.refused(json.dumps({**LEAST, "optimizer": {"lr": 0.1, "beta1": 0.5}}), "'name' is a required property")
        self.refused(json.dumps({**LEAST, "optimizer": {"lr": 0.1, "name": "adam", "momentum": 0.5}}), "$.optimizer.name")
        self.assertEqual(problems({**LEAST, "optimizer": {"lr": 0.1, "momentum": 0.5}}), [])
        # `baseline` may rely on the name that `optimizer` gives.
        self.assertEqual(problems({**LEAST, "optimizer": {"lr": 0.1, "name": "adam"}, "baseline": {"optimizer": {"beta1": 0.5}}}), [])

    def test_a_program_of_the_users_own_needs_few_keys(self):
        self.assertEqual(problems({"name": "own"}), [])
        self.assertEqual(problems({"name": "own", "model": {"name": "custom"}, "data": {"format": "custom"}}), [])
        self.assertEqual(problems({"name": "own", "command": ["python3", "train.py", "--lr", 0.1, True]}), [])

    def test_old_names_are_deprecated(self):
        for old, now in (("grace", "straggler_timeout"), ("sync_every", "local_steps")):
            self.assertTrue(SCHEMA["properties"][old]["deprecated"])
            self.assertIn(now, SCHEMA["properties"][old]["description"])

    def test_limits_are_those_of_the_loader(self):
        """Beyond each limit of a number, the loader refuses this key; at the limit, it does not complain about the range."""
        cases = []
        for path, key in keys(SCHEMA):
            value = key.get("items", key)
            wrap = (lambda number: [number]) if "items" in key else (lambda number: number)
            step = 1 if "integer" in value.get("type", ()) else 1e-3
            for limit, beyond, inside in (("minimum", -step, 0), ("maximum", step, 0), ("exclusiveMinimum", 0, step), ("exclusiveMaximum", 0, -step)):
                if limit not in value or value[limit] >= 2**53:
                    continue
                for distance, fits in ((beyond, False), (inside, True)):
                    job = of_the_right_kind(path, job_with(path, wrap(value[limit] + distance), LEAST))
                    cases.append((path, value[limit] + distance, fits, job))
        self.assertGreater(len(cases), 150)
        for (path, number, fits, job), said in zip(cases, of_loader([job for *_, job in cases])):
            with self.subTest(key=name_of(path), number=number):
                about_key = [line for line in problems(job) if line.startswith(f"$.{name_of(path)}")]
                self.assertEqual(bool(about_key), not fits, about_key)
                ranges = re.findall(rf"{re.escape(name_of(path))}\S*: must be (?:above|at least|at most|below|-?[\d.^]+\w* to|a whole|a duration) .*found", said)
                self.assertEqual(bool(ranges), not fits, said)

    def test_it_refuses_nothing_that_the_loader_accepts(self):
        values = (0.5, True, "1KiB", ["int8"], [{}])
        cases = [(path, value, of_the_right_kind(path, job_with(path, value, LEAST))) for path, _ in keys(SCHEMA) for value in values]
        cases = [case for case in cases if problems(case[2])]
        self.assertGreater(len(cases), 300)
        for (path, value, job), said in zip(cases, of_loader([job for *_, job in cases])):
            with self.subTest(key=name_of(path), value=value):
                self.assertTrue(said, f"the loader accepts this, and the schema says: {problems(job)}")


if __name__ == "__main__":
    unittest.main()
