#!/usr/bin/env python3
"""Installs the build, moves the installed tree, and uses it as a stranger would: projects of CMake and of pkg-config are built
against it, and its programs read an installed example.

usage: install_test.py BUILD SOURCE COMPILER
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command, fails=False, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(holds, what):
    if not holds:
        sys.exit(what)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    build, source, compiler = sys.argv[1:]
    external = pathlib.Path(source, "tests/packaging/external")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run("cmake", "--install", build, "--prefix", folder / "first")
        root = (folder / "first").rename(folder / "moved")
        library = root / "lib"

        for path in [*(root / "bin").iterdir(), library / "libsluice.so"]:
            runpaths = re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", run("readelf", "-d", path))
            check(all(part.startswith("$ORIGIN/") for paths in runpaths for part in paths.split(":")),
                  f"{path} searches {runpaths}: these paths are not relative to the program")
        exported = run("nm", "-DC", "--defined-only", library / "libsluice.so").splitlines()
        check(len(exported) > 10, "libsluice.so exports next to nothing")
        strange = [line for line in exported if "sluice::client::" not in line]
        check(not strange, "libsluice.so exports more than the interface:\n" + "\n".join(strange[:10]))
        for path in root.rglob("*"):
            if path.suffix in (".cmake", ".pc"):
                check(str(folder) not in path.read_text() and source not in path.read_text(), f"{path} contains a path of this machine")

        expected = "100 large values arrived, compressed: yes\n"
        project = ["cmake", "-S", external, f"-DCMAKE_PREFIX_PATH={root}", f"-DCMAKE_CXX_COMPILER={compiler}"]
        run(*project, "-B", folder / "project")
        run("cmake", "--build", folder / "project")
        check(run(folder / "project/external") == expected, "the program of the CMake project did not receive the values")
        message = run(*project, "-B", folder / "refused", "-DWANTED=torch", fails=True)
        check("Sluice has no component 'torch'" in " ".join(message.split()), f"the message does not name the missing component:\n{message}")

        flags = run("pkg-config", "--cflags", "--libs", "sluice", PKG_CONFIG_PATH=str(library / "pkgconfig")).split()
        run(compiler, "-std=c++20", external / "main.cc", *flags, "-o", folder / "by_pkg_config")
        check(run(folder / "by_pkg_config", LD_LIBRARY_PATH=str(library)) == expected, "the program of pkg-config did not receive the values")

        for path in (root / "bin").iterdir():
            check((root / f"share/man/man1/{path.name}.1").exists(), f"{path.name} has no manual page")
        schema = json.loads((root / "share/sluice/job.schema.json").read_text())
        check("batch_size_per_worker" in schema["properties"], "the installed schema does not describe job files")
        run(root / "bin/sluice", "validate", root / "share/sluice/examples/fashion-mnist.yaml")
        for program in ("sluice-server", "sluice-relay"):
            run(root / "bin" / program, "--help")
    print("the installed tree works after it was moved")


if __name__ == "__main__":
    main()
