#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the binary interface of the client library with the description of its minor version in tests/packaging, so that
programs linked with one patch release run with the next. Additions are allowed; removed functions and changed types are not. Needs
abidw and abidiff of Debian's abigail-tools, and a folder that CMake configured.

usage: check_abi.py BUILD [--update]
  --update     replaces the description. Use it only before the first release of a minor version.
"""
import json
import lzma
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include/sluice"
# A change that the comparison must notice: header, text, replacement.
PLANTED = ("session.h", "double outer_lr = 1;", "float outer_lr = 1;")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def checked(*command, **options):
    done = run(*command, **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def compile_commands(build):
    """Words and folder of each compilation of the client library."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if any("/sluice_client.dir/" in word for word in words):
            yield words, entry["directory"]


def describe(build, folder, headers):
    """Compiles the client library against `headers`, with the debugging information that abidw reads, and returns the path of abidw's
    output. The library hides all other parts of Sluice, so they can be missing."""
    folder.mkdir()
    objects = []
    for words, directory in compile_commands(build):
        objects.append(folder / f"{len(objects)}.o")
        words[words.index("-o") + 1] = objects[-1]
        words = [word for word in words if not re.match(r"-O|-D_FORTIFY", str(word))]
        checked(*words[:1], "-I", headers.parent, *words[1:], "-g", "-O0", "-w", cwd=directory)
    if not objects:
        sys.exit(f"{build} does not compile the client library")
    library, description = folder / "libsluice.so", folder / "libsluice.abi"
    checked("c++", "-shared", "-o", library, *objects, f"-Wl,--version-script={ROOT}/client/symbols.map")
    checked("abidw", "--headers-dir", headers, "--drop-private-types", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs",
            "--exported-interfaces-only", "--out-file", description, library)
    return description


def difference(former, current):
    """The incompatible differences, as text."""
    done = run("abidiff", "--no-added-syms", former, current)
    return done.stdout + done.stderr if done.returncode != 0 else ""


def check_planted(build, folder, current):
    headers = folder / "planted/sluice"
    shutil.copytree(HEADERS, headers)
    file, text, replacement = PLANTED
    changed = (headers / file).read_text().replace(text, replacement)
    (headers / file).write_text(changed)
    if replacement not in changed or not difference(current, describe(build, folder / "changed", headers)):
        sys.exit(f"the comparison does not notice that {file} has '{replacement}' in place of '{text}'")


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--update"]):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    minor = re.search(r"^project\(sluice VERSION (\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    kept = ROOT / f"tests/packaging/libsluice-{minor}.abi.xz"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        current = describe(build, folder / "current", HEADERS)
        if sys.argv[2:]:
            kept.write_bytes(lzma.compress(current.read_bytes(), preset=9))
            return
        former = folder / "former.abi"
        former.write_bytes(lzma.decompress(kept.read_bytes()))
        found = difference(former, current)
        if found:
            sys.exit(f"{found}\nPrograms linked with the library of {kept.relative_to(ROOT)} may not run with this one. Keep the interface; or, "
                     f"if no release has it yet: tools/check_abi.py {sys.argv[1]} --update")
        check_planted(build, folder, current)
    print(f"the client library has the binary interface of {minor}, and a planted change is noticed")


if __name__ == "__main__":
    main()
