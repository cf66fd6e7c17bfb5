#!/usr/bin/env python3
"""Checks that no field, enum value or method that was released changed its number, type or place: processes of neighbouring
versions, files and golden frames read them by number. What was removed must be reserved, by number and name.

usage: check_protos.py ROOT            exits 1 and names each change; what is new is free
       check_protos.py ROOT --record   at a release: writes ROOT/proto/released.txt anew
"""
import pathlib
import re
import subprocess
import sys

HEADER = "# What is released, and so never changes (tools/check_protos.py). Written by `check_protos.py . --record` at a release.\n"
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]|[^\s{}]+')


def parse(text):
    """protoc's text form as lists of (key, value), a value being a text or such a list."""
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


def message_lines(prefix, message, lines, reserved):
    name = f"{prefix}.{first(message, 'name')}"
    reserved[name] = {
        "numbers": [(int(first(part, "start")), int(first(part, "end"))) for part in values(message, "reserved_range")],
        "names": set(values(message, "reserved_name"))}
    for field in values(message, "field"):
        kind = first(field, "type_name") or first(field, "type").removeprefix("TYPE_").lower()
        label = "repeated " if first(field, "label") == "LABEL_REPEATED" else ""
        lines[f"{name}.{first(field, 'name')}"] = f"{first(field, 'number')} {label}{kind}"
    for inner in values(message, "nested_type"):
        message_lines(name, inner, lines, reserved)
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
    """{full name: "number type"}, and what each message and enum reserves."""
    files = sorted(path.relative_to(root / "proto").as_posix() for path in (root / "proto").rglob("*.proto"))
    if not files:
        sys.exit(f"check_protos: no .proto files below {root}/proto")
    descriptors = subprocess.run(["protoc", f"--proto_path={root}/proto", "--descriptor_set_out=/dev/stdout", *files],
                                 check=True, capture_output=True).stdout
    text = subprocess.run(["protoc", "--decode=google.protobuf.FileDescriptorSet", "google/protobuf/descriptor.proto"],
                          input=descriptors, check=True, capture_output=True).stdout.decode()
    lines, reserved = {}, {}
    for file in values(parse(text), "file"):
        package = first(file, "package")
        for message in values(file, "message_type"):
            message_lines(package, message, lines, reserved)
        for enum in values(file, "enum_type"):
            enum_lines(package, enum, lines, reserved)
        for service in values(file, "service"):
            for method in values(service, "method"):
                streams = [key for key in ("client_streaming", "server_streaming") if first(method, key) == "true"]
                lines[f"{package}.{first(service, 'name')}.{first(method, 'name')}"] = " ".join(
                    ["method", first(method, "input_type"), first(method, "output_type"), *streams])
    return lines, reserved


def problems(recorded, lines, reserved):
    for name, was in recorded.items():
        now = lines.get(name)
        if now == was:
            continue
        if now is not None:
            yield f"{name} was released as `{was}` and is `{now}`: give what changed a new number and name"
            continue
        owner, _, short = name.rpartition(".")
        kept = reserved.get(owner)
        number = was.split()[0]
        if kept is None or not number.lstrip("-").isdigit():
            yield f"{name} (`{was}`) was released and is gone: older processes still ask for it"
        elif short not in kept["names"] or not any(low <= int(number) < high for low, high in kept["numbers"]):
            yield f'{name} was released and is gone: write `reserved {number}; reserved "{short}";` in its place'


def main():
    root = pathlib.Path(sys.argv[1])
    record = root / "proto/released.txt"
    lines, reserved = read_protos(root)
    if "--record" in sys.argv:
        record.write_text(HEADER + "".join(f"{name} = {what}\n" for name, what in sorted(lines.items())))
        return
    recorded = dict(line.split(" = ", 1) for line in record.read_text().splitlines() if line and not line.startswith("#"))
    if not recorded:
        sys.exit(f"check_protos: {record} is empty")
    found = list(problems(recorded, lines, reserved))
    for problem in found:
        print(problem)
    if found:
        sys.exit(1)


if __name__ == "__main__":
    main()
