#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds another project that takes Sluice's sources with FetchContent, and runs its program, which has every codec.

usage: fetch_content_test.py SOURCE COMPILER LAUNCHER     LAUNCHER is ccache or empty
Only the compression library is built, without optimization and for one instruction set: all of Sluice would take minutes.
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, compiler, launcher = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        configured = run("cmake", "-G", "Ninja", "-S", pathlib.Path(source, "tests/packaging/fetched"), "-B", folder, f"-DFETCHCONTENT_SOURCE_DIR_SLUICE={source}",
                         "-DFETCHCONTENT_FULLY_DISCONNECTED=ON", "-DSLUICE_UNITY=ON", f"-DCMAKE_CXX_COMPILER={compiler}",
                         f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", "-DCMAKE_CXX_FLAGS=-DHWY_COMPILE_ONLY_STATIC")
        if re.search("Test .* left out|with torch", configured):
            sys.exit(f"Sluice's own tests are a part of the other project:\n{configured}")
        run("cmake", "--build", folder, "--target", "fetched")
        said = run(pathlib.Path(folder, "fetched"))
    made = re.fullmatch(r"made (\d+) codecs\n", said)
    if not made or int(made[1]) < 20:
        sys.exit(f"the program said: {said}")
    print("a project builds Sluice's sources as a part of its own")


if __name__ == "__main__":
    main()
