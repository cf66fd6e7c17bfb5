#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build, moves the installed tree, and uses it as a stranger would: projects of CMake and of pkg-config are built
against it and train with its servers, and its programs run installed examples.

usage: install_test.py BUILD SOURCE COMPILER LAUNCHER LIBTORCH
LAUNCHER is ccache or empty. LIBTORCH is an unpacked LibTorch, or empty if the build is without it.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

SYNTHETIC_JOB = """
name: synthetic
workers: 2
model: {name: mlp}
data: {format: synthetic}
batch_size_per_worker: 16
steps: 20
optimizer: {name: sgd, lr: 0.05}
"""


def run(*command, fails=False, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(holds, what):
    if not holds:
        sys.exit(what)


def check_files(root, strange_paths):
    """RUNPATHs are relative, the library exports its interface alone, and text files contain no path of this machine."""
    programs = sorted((root / "bin").iterdir())
    for path in [*programs, root / "lib/libsluice.so"]:
        runpaths = re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", run("readelf", "-d", path))
        check(all(part.startswith("$ORIGIN/") for paths in runpaths for part in paths.split(":")),
              f"{path} searches {runpaths}: these paths are not relative to the program")
    exported = run("nm", "-DC", "--defined-only", root / "lib/libsluice.so").splitlines()
    check(len(exported) > 10, "libsluice.so exports next to nothing")
    strange = [line for line in exported if "sluice::client::" not in line]
    check(not strange, "libsluice.so exports more than the interface:\n" + "\n".join(strange[:10]))
    for path in root.rglob("*"):
        if path.suffix in (".cmake", ".pc"):
            check(not any(name in path.read_text() for name in strange_paths), f"{path} contains a path of this machine")
    for path in programs:
        check((root / f"share/man/man1/{path.name}.1").exists(), f"{path.name} has no manual page")
    schema = json.loads((root / "share/sluice/job.schema.json").read_text())
    check("batch_size_per_worker" in schema["properties"], "the installed schema does not describe job files")


def check_symbols(library, listed):
    """The library exports the symbols of the list. A program that was linked with an earlier 0.2 release needs all of them."""
    exported = set(run("nm", "-D", "--defined-only", "--format=just-symbols", library).split())
    lost = sorted(set(listed.read_text().split()) - exported)
    check(not lost, "libsluice.so no longer exports these symbols, so programs of earlier releases with this SONAME do not start. Keep them, or "
          f"raise the minor version of Sluice and remove them from {listed}:\n" + "\n".join(lost))
    new = sorted(exported - set(listed.read_text().split()))
    check(not new, f"libsluice.so exports symbols that are not in {listed}. If they shall stay, add them:\n" + "\n".join(new))


def check_headers(root):
    """Each header that an installed one includes is installed, too, or belongs to the system."""
    folders = [root / "include", root / "include/sluice", root / "share/sluice/source", pathlib.Path("/usr/include")]
    headers = [path for folder in folders[:3] for path in folder.rglob("*.h")]
    check(len(headers) > 200, f"only {len(headers)} headers are installed")
    for path in headers:
        for name in re.findall(r'^#include "(.+)"', path.read_text(), re.M):
            check(any((folder / name).exists() for folder in folders), f"{path} includes {name}, which is not installed")


def check_projects(root, external, folder, compiler, launcher, libtorch):
    expected = "100 large values arrived, compressed: yes\n"
    wanted = ["client", "server", "compress", *(["torch"] if libtorch else [])]
    project = ["cmake", "-G", "Ninja", "-S", external, f"-DCMAKE_PREFIX_PATH={root}", f"-DCMAKE_CXX_COMPILER={compiler}"]
    run(*project, "-B", folder / "project", f"-DWANTED={';'.join(wanted)}", f"-DLIBTORCH_ROOT={libtorch}",
        f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}")
    run("cmake", "--build", folder / "project")
    check(run(folder / "project/external") == expected, "the program of the CMake project did not receive the values")
    check("fewer bytes" in run(folder / "project/compress_alone"), "the example with the codecs alone printed no result")
    message = run(*project, "-B", folder / "refused", "-DWANTED=nonsense", fails=True)
    check("This Sluice has no component 'nonsense'" in " ".join(message.split()), f"the message does not name the missing component:\n{message}")

    flags = run("pkg-config", "--cflags", "--libs", "sluice", PKG_CONFIG_PATH=str(root / "lib/pkgconfig")).split()
    run(compiler, "-std=c++20", external / "main.cc", *flags, "-o", folder / "by_pkg_config")
    check(run(folder / "by_pkg_config", LD_LIBRARY_PATH=str(root / "lib")) == expected, "the program of pkg-config did not receive the values")


def check_training(root, source, folder, libtorch):
    """Programs of the other project train with the installed servers."""
    job = folder / "job.yaml"
    job.write_text("name: external\nworkers: 2\ncompression: {uplink: int8, downlink: int8}\n")
    sluice = root / "bin/sluice"
    run(sluice, "run", job, "--", folder / "project/train", OUT=str(folder / "result"))
    for rank in (0, 1):
        said = (folder / f"result{rank}").read_text()
        check(said == "trained with servers", f"worker {rank} of the other project: {said}")
    run(sluice, "validate", root / "share/sluice/examples/fashion-mnist.yaml")
    run(root / "bin/sluice-relay", "--help")
    if not libtorch:
        return
    programs = folder / "programs"
    programs.mkdir()
    (programs / "sluice-server").symlink_to(root / "bin/sluice-server")
    (programs / "own_loop").symlink_to(folder / "project/own_loop")
    said = run(source / "tests/e2e/own_loop_test.sh", programs, root / "share/sluice/examples/own-loop.yaml")
    check("parameters " in said, f"the program with LibTorch printed no hash of its parameters:\n{said}")
    # The installed worker finds its LibTorch in the installed tree.
    libraries = run("ldd", root / "bin/sluice-worker", LD_LIBRARY_PATH="")
    found = re.search(r"libtorch_cpu\.so => (\S+)", libraries)
    check(found and pathlib.Path(found[1]).resolve().is_relative_to(root), f"sluice-worker loads other libraries:\n{libraries}")
    job.write_text(SYNTHETIC_JOB)
    report = folder / "report.json"
    run(sluice, "run", job, "--quiet", "--report", report)
    check(json.loads(report.read_text()), "the report of the installed worker's job is empty")


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    build, source, compiler, launcher, libtorch = sys.argv[1:]
    external = pathlib.Path(source, "tests/packaging/external")
    # The folder has the same name in each run, so that ccache finds what the other project compiles.
    folder = pathlib.Path(build, "install_test").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run("cmake", "--install", build, "--prefix", folder / "first")
    root = (folder / "first").rename(folder / "moved")
    check_files(root, [str(folder), source])
    check_symbols(root / "lib/libsluice.so", pathlib.Path(source, "client/exported_symbols.txt"))
    check_headers(root)
    check_projects(root, external, folder, compiler, launcher, libtorch)
    check_training(root, pathlib.Path(source), folder, libtorch)
    shutil.rmtree(folder)  # LibTorch is large. After a failure, the folder stays for a look.
    print("the installed tree works after it was moved")


if __name__ == "__main__":
    main()
