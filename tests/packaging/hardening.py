#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that programs were built with SLUICE_HARDEN, so that a memory error in them is harder to exploit.

usage: hardening.py COMPILER LIBRARY.a PROGRAM...
LIBRARY.a is one of Sluice's own static libraries. Debian builds its static libraries with a stack protector and fortified
calls, so a program that contains them would show both even if Sluice's code had neither.
Before the programs, the test checks programs that it builds itself, each without one of the properties.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# By the machine of readelf: the name of the compiler's option that marks branch targets, its value, and the instruction that does so.
MARKS = {"Advanced Micro Devices X86-64": ("-fcf-protection", "full", b"\xf3\x0f\x1e\xfa"),  # endbr64
         "AArch64": ("-mbranch-protection", "standard", b"\x3f\x23\x03\xd5")}  # paciasp
# A program contains a few branch targets from the C runtime even if its own functions are not marked.
FEWEST_BRANCH_TARGETS = 20
SAMPLE = "#include <cstdio>\n#include <cstring>\n" + "".join(
    f"extern \"C\" int F{i}(const char* text) {{ char copy[64]; std::strcpy(copy, text); return copy[{i}]; }}\n" for i in range(30)
) + "int (*volatile functions[])(const char*) = {" + ", ".join(f"F{i}" for i in range(30)) + "};\n" + (
    "int main(int count, char** arguments) { return functions[count % 30](arguments[0]); }\n")
COMPILE = ["-O2", "-fPIE", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
LINK = ["-pie", "-Wl,-z,relro,-z,now,-z,noexecstack"]
# Each row removes one property: the flags to add at the end, and a word of the complaint.
WITHOUT = [
    (["-fno-pie", "-no-pie"], "position-independent"),
    (["-Wl,-z,norelro"], "RELRO"),
    (["-Wl,-z,lazy"], "BIND_NOW"),
    (["-Wl,-z,execstack"], "stack is executable"),
    (["-fno-stack-protector"], "stack protector"),
    (["-U_FORTIFY_SOURCE"], "fortified"),
]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def machine(path):
    return re.search(r"Machine:\s+(.+)", output("readelf", "-h", path))[1]


def imports(path):
    """The names of the symbols that the program or library takes from elsewhere, without their versions."""
    return set(re.findall(r" UND (\w+)", output("readelf", "-Ws", path)))


def missing_calls(path):
    names = imports(path)
    if "__stack_chk_fail" not in names:
        yield "has no stack protector: nothing calls __stack_chk_fail"
    if not any(re.fullmatch(r"__\w+_chk", name) for name in names):
        yield "has no fortified libc calls such as __memcpy_chk"


def missing_properties(path, program=True):
    """`program` is false for a shared library."""
    headers = output("readelf", "-Whl", path)
    dynamic = output("readelf", "-Wd", path)
    if not re.search(r"Type:\s+DYN", headers) or (program and not re.search(r"\(FLAGS_1\).*\bPIE\b", dynamic)):
        yield "is not a position-independent executable"
    if not re.search(r"^\s*GNU_RELRO\s", headers, re.M):
        yield "has no segment GNU_RELRO"
    if not re.search(r"\(BIND_NOW\)|\(FLAGS\).*\bBIND_NOW\b|\(FLAGS_1\).*\bNOW\b", dynamic):
        yield "binds lazily: BIND_NOW is not set"
    stack = re.search(r"^\s*GNU_STACK\s.*\s([R ][W ][E ])\s+0x\w+$", headers, re.M)
    if not stack:
        yield "does not say whether its stack is executable: it has no segment GNU_STACK"
    elif "E" in stack[1]:
        yield "asks for a writable stack that may run code: the stack is executable"
    yield from missing_calls(path)
    # The linker drops the CET note of a program if one object lacks it, as Debian 12's C runtime does. The instructions that
    # mark branch targets are there nevertheless.
    option, _, mark = MARKS.get(machine(path), ("", "", b""))
    if option and pathlib.Path(path).read_bytes().count(mark) < FEWEST_BRANCH_TARGETS:
        yield f"does not mark its branch targets ({option})"


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "sample.cc")
        source.write_text(SAMPLE)
        program = pathlib.Path(folder, "sample")

        def problems(removed):
            output(compiler, "-w", *COMPILE, *LINK, *removed, source, "-o", program)
            return list(missing_properties(program))

        problems([])  # The program tells the compiler's machine.
        option, value, _ = MARKS.get(machine(program), ("", "", b""))
        marked = [f"{option}={value}"] if option else []
        assert problems(marked) == [], problems(marked)
        for removed, complaint in WITHOUT + ([([f"{option}=none"], "branch targets")] if option else []):
            found = problems(marked + removed)
            assert len(found) == 1 and complaint in found[0], f"a program built with {removed}: {found}"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    compiler, library, *programs = sys.argv[1:]
    self_test(compiler)
    problems = [f"{library} {problem}" for problem in missing_calls(library)]
    problems += [f"{program} {problem}" for program in programs for problem in missing_properties(program)]
    if problems:
        sys.exit("\n".join(problems) + "\nConfigure with -DSLUICE_HARDEN=ON and -DCMAKE_BUILD_TYPE=Release.")
    print(f"{len(programs)} programs are hardened")


if __name__ == "__main__":
    main()
