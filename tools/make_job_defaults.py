#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes protocol/job_defaults.h: the defaults of job-file keys as constants, from the schema in job.proto.

usage: make_job_defaults.py ROOT [--check]
  --check  only says whether the file is up to date (exit status 1 if it is not)

The schema states each default once. Structures that hold a resolved job start from these constants. Defaults that are 0, false
or the first word of an enumeration need no constant.
"""
import argparse
import pathlib
import re
import sys

HEADER = "protocol/job_defaults.h"
BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
DURATIONS = {"ms": "Milliseconds", "s": "Seconds", "m": "Minutes", "h": "Hours"}
TYPES = {"uint32": "uint32_t", "uint64": "uint64_t", "double": "double"}
FIELD = re.compile(r"optional (\w+) (\w+) = \d+ \[(.*?)\];", re.DOTALL)


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def constant(section, kind, key, options):
    """Returns a declaration, or None if the key needs none."""
    found = re.search(r'\(default_value\) = "([^"]*)"', options)
    if not found or "names_of" in options or "UNIT_CODEC_SPEC" in options:
        return None
    value = found.group(1)
    name = "k" + ("" if section == "Job" else section) + camel(key)
    if "UNIT_SECONDS" in options:
        number, unit = re.fullmatch(r"(\d+)(\D*)", value).groups()
        return f"inline constexpr absl::Duration {name} = absl::{DURATIONS[unit]}({number});" if number != "0" else None
    if "UNIT_BYTES" in options:
        number, unit = re.fullmatch(r"(\d+)(\D+)", value).groups()
        return f"inline constexpr uint64_t {name} = {int(number) * BYTES[unit]};"
    if kind == "string":
        return f'inline constexpr char {name}[] = "{value}";'
    if kind == "bool":
        return f"inline constexpr bool {name} = true;" if value == "true" else None
    return f"inline constexpr {TYPES[kind]} {name} = {value};" if float(value) != 0 else None


def header(schema):
    schema = re.sub(r"^\s*//.*$", "", schema, flags=re.MULTILINE)
    lines = ["// SPDX-License-Identifier: Apache-2.0",
             "// Defaults of the keys of job files, from proto/sluice/v1/job.proto, in bytes, durations and the",
             "// units of the keys. tools/make_job_defaults.py writes this file.",
             "#pragma once", "", "#include <cstdint>", "", '#include "absl/time/time.h"', "",
             "namespace sluice::protocol::defaults {", ""]
    for message in re.finditer(r"^message (\w+)Spec \{(.*?)^\}", schema, re.DOTALL | re.MULTILINE):
        declarations = [constant(message.group(1), *field.groups()) for field in FIELD.finditer(message.group(2))]
        declarations = [declaration for declaration in declarations if declaration]
        if declarations:
            lines += [f"// {message.group(1)}Spec.", *declarations, ""]
    return "\n".join([*lines, "}  // namespace sluice::protocol::defaults", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = header((options.root / "proto/sluice/v1/job.proto").read_text())
    file = options.root / HEADER
    if not options.check:
        file.write_text(text)
    elif not file.exists() or file.read_text() != text:
        sys.exit(f"{HEADER} does not match the defaults of job.proto: run tools/make_job_defaults.py .")


if __name__ == "__main__":
    main()
