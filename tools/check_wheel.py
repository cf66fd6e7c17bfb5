#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files of a wheel run on the systems that its name promises (manylinux_2_35: glibc 2.35 and GCC 12's libstdc++; and its
processor), and contain no path of the machine that built them.

usage: check_wheel.py WHEEL
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What PEP 600 allows by the name of the wheel: prefix of a symbol's version -> the newest version. It also lists libraries.
NEWEST = {"manylinux_2_35": {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}}
LIBRARIES = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"}
# The wheel's word for a processor -> readelf's word, and the loader of glibc.
MACHINES = {"x86_64": ("Advanced Micro Devices X86-64", "ld-linux-x86-64.so.2"), "aarch64": ("AArch64", "ld-linux-aarch64.so.1")}
# A relocation of code that takes static thread-local memory. A process on ARM has little of it for modules, and NumPy's may use it up.
STATIC_MEMORY = "R_AARCH64_TLS_TPREL"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def numbers(text):
    return tuple(int(part) for part in text.split("."))


def problems_of(versions, newest):
    """`versions` is what `readelf -V` printed."""
    for name, number in sorted(set(re.findall(r"Name: ([A-Z]+)_([\d.]+)", versions))):
        if name not in newest or numbers(number) > newest[name]:
            yield f"needs {name}_{number}"


def self_test():
    newest = NEWEST["manylinux_2_35"]
    assert not list(problems_of("Name: GLIBC_2.35  Flags: none\nName: GLIBCXX_3.4.9 ", newest))
    assert list(problems_of("Name: GLIBC_2.36 \n", newest)) == ["needs GLIBC_2.36"]
    assert list(problems_of("Name: OPENSSL_3.0 \n", newest)) == ["needs OPENSSL_3.0"]


def problems(wheel):
    newest = next((versions for name, versions in NEWEST.items() if f"-{name}_" in wheel.name), None)
    machine, loader = next((found for name, found in MACHINES.items() if wheel.stem.endswith(f"_{name}")), (None, None))
    if newest is None or machine is None:
        yield "its name promises nothing that this script knows"
        return
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        if len(files) < 3:
            yield f"has {len(files)} files of machine code, not the module and two programs"
        for file in files:
            dynamic = output("readelf", "-d", file)
            extra = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)) - LIBRARIES - {loader}
            found = [f"needs {name}" for name in sorted(extra)] + list(problems_of(output("readelf", "-V", file), newest))
            if f" {machine}\n" not in output("readelf", "-h", file):
                found.append(f"is not for {machine}")
            if file.suffix == ".so" and STATIC_MEMORY in output("readelf", "-rW", file):
                found.append("takes static thread-local memory: some library in it was compiled for programs alone")
            if "RUNPATH" in dynamic or "RPATH" in dynamic:
                found.append("has a RUNPATH")
            if str(ROOT).encode() in file.read_bytes():
                found.append(f"contains the path {ROOT}")
            yield from (f"{file.name} {problem}" for problem in found)
    if not any(name.endswith(".dist-info/licenses/LICENSES") for name in archive.namelist()):
        yield "has no licences of the libraries that it contains"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    self_test()
    wheel = pathlib.Path(sys.argv[1])
    found = list(problems(wheel))
    if found:
        sys.exit("\n".join(f"{wheel.name}: {problem}" for problem in found))


if __name__ == "__main__":
    main()
