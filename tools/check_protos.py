#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no released field, enum value or method changed its number, type or place, because neighbouring versions, files and golden
frames read them by number. A field may be renamed if its option `old_name` has the old name. A removed field or value must be reserved,
by number and name. A method or a whole message cannot be reserved: its lines in released.txt stay, marked `removed`, and its name is
never used again.

usage: check_protos.py ROOT            exits 1 and names each change; additions are allowed
       check_protos.py ROOT --record   at a release: rewrites ROOT/proto/released.txt and keeps the lines marked `removed`
"""
import pathlib
import re
import subprocess
import sys

HEADER = ("# Released fields, values and methods, which never change (tools/check_protos.py). Written by `check_protos.py . --record` at a release.\n"
          "# If you remove a released method or a whole message, mark its lines `removed`. Its name is never used again.\n")
REMOVED = "removed "
OLD_NAME = "old_name"  # An option of any package.
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]|[^\s{}]+')


def parse(text):
    """Parses protoc's text form into lists of (key, value). A value is a text or a list of that kind."""
    root = []
    stack = [root]
    key = None
    for token in TOKEN.findall(text):
        if token == "{":
            inner = []
            stack[-1].append((key, inner))
            stack.append(inner)
        elif token == "}":
            stack.pop()
        elif key is not None and key.endswith(":"):
            stack[-1].append((key[:-1], token.strip('"')))
            key = None
            continue
        else:
            key = token
            continue
        key = None
    return root


def values(message, key):
    return [value for name, value in message if name == key]


def first(message, key, default=""):
    return next(iter(values(message, key)), default)


def message_lines(prefix, message, lines, reserved, renamed):
    name = f"{prefix}.{first(message, 'name')}"
    reserved[name] = {
        "numbers": [(int(first(part, "start")), int(first(part, "end"))) for part in values(message, "reserved_range")],
        "names": set(values(message, "reserved_name"))}
    for field in values(message, "field"):
        kind = first(field, "type_name") or first(field, "type").removeprefix("TYPE_").lower()
        label = "repeated " if first(field, "label") == "LABEL_REPEATED" else ""
        lines[f"{name}.{first(field, 'name')}"] = f"{first(field, 'number')} {label}{kind}"
        old_name = next((value for key, value in first(field, "options", []) if key.strip("[]").endswith("." + OLD_NAME)), None)
        if old_name:
            renamed[f"{name}.{old_name}"] = lines[f"{name}.{first(field, 'name')}"]
    for inner in values(message, "nested_type"):
        message_lines(name, inner, lines, reserved, renamed)
    for inner in values(message, "enum_type"):
        enum_lines(name, inner, lines, reserved)


def enum_lines(prefix, enum, lines, reserved):
    name = f"{prefix}.{first(enum, 'name')}"
    reserved[name] = {
        "numbers": [(int(first(part, "start")), int(first(part, "end")) + 1) for part in values(enum, "reserved_range")],
        "names": set(values(enum, "reserved_name"))}
    for value in values(enum, "value"):
        lines[f"{name}.{first(value, 'name')}"] = f"{first(value, 'number', '0')} value"


def read_protos(root):
    """Returns {full name: "number type"}, the reserved numbers and names of each message and enum, and {former full name: "number type"}."""
    files = sorted(path.relative_to(root / "proto").as_posix() for path in (root / "proto").rglob("*.proto"))
    if not files:
        sys.exit(f"check_protos: no .proto files below {root}/proto")
    descriptors = subprocess.run(["protoc", f"--proto_path={root}/proto", "--descriptor_set_out=/dev/stdout", *files],
                                 check=True, capture_output=True).stdout
    # Includes the files themselves, so that their own options are decoded by name.
    text = subprocess.run(["protoc", f"--proto_path={root}/proto", "--decode=google.protobuf.FileDescriptorSet",
                           "google/protobuf/descriptor.proto", *files],
                          input=descriptors, check=True, capture_output=True).stdout.decode()
    lines, reserved, renamed = {}, {}, {}
    for file in values(parse(text), "file"):
        package = first(file, "package")
        for message in values(file, "message_type"):
            message_lines(package, message, lines, reserved, renamed)
        for enum in values(file, "enum_type"):
            enum_lines(package, enum, lines, reserved)
        for service in values(file, "service"):
            for method in values(service, "method"):
                streams = [key for key in ("client_streaming", "server_streaming") if first(method, key) == "true"]
                lines[f"{package}.{first(service, 'name')}.{first(method, 'name')}"] = " ".join(
                    ["method", first(method, "input_type"), first(method, "output_type"), *streams])
    return lines, reserved, renamed


def removed_problem(name, now, reserved):
    """Returns what is wrong with a line marked `removed`, or None."""
    owner, _, short = name.rpartition(".")
    if now is not None:
        return f"{name} was removed, and so its name may not be used again: it is now `{now}`"
    if owner in reserved:
        return f"{owner} still exists, or its name is used again: reserve {short} there, and remove {name} from the list"
    return None


def problems(recorded, lines, reserved, renamed):
    for name, was in recorded.items():
        now = lines.get(name)
        if was.startswith(REMOVED):
            wrong = removed_problem(name, now, reserved)
            if wrong is not None:
                yield wrong
            continue
        if now == was or (now is None and renamed.get(name) == was):
            continue
        if now is not None:
            yield f"{name} was released as `{was}` and is `{now}`: give the changed field a new number and name"
            continue
        owner, _, short = name.rpartition(".")
        kept = reserved.get(owner)
        number = was.split()[0]
        if kept is None or not number.lstrip("-").isdigit():
            yield (f"{name} (`{was}`) was released and is gone: older processes still ask for it. If none of them can, "
                   "write `removed ` before its value in proto/released.txt")
        elif short not in kept["names"] or not any(low <= int(number) < high for low, high in kept["numbers"]):
            yield f'{name} was released and is gone: write `reserved {number}; reserved "{short}";` in its place'


def read_record(path):
    if not path.exists():
        return {}
    return dict(line.split(" = ", 1) for line in path.read_text().splitlines() if line and not line.startswith("#"))


def main():
    root = pathlib.Path(sys.argv[1])
    record = root / "proto/released.txt"
    lines, reserved, renamed = read_protos(root)
    recorded = read_record(record)
    if "--record" in sys.argv:
        kept = {name: what for name, what in recorded.items() if what.startswith(REMOVED)}
        record.write_text(HEADER + "".join(f"{name} = {what}\n" for name, what in sorted((kept | lines).items())))
        return
    if not recorded:
        sys.exit(f"check_protos: {record} is missing or empty")
    found = list(problems(recorded, lines, reserved, renamed))
    for problem in found:
        print(problem)
    if found:
        sys.exit(1)


if __name__ == "__main__":
    main()
