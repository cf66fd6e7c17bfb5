#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the files of a release as a stranger would: checks the sums, unpacks the tarball elsewhere and exchanges gradients
with its programs in an empty environment; checks the Debian packages, the wheel, the chart and the bills of materials, and that programs and
library are hardened. The package of sluice-worker is checked if the release has one.

usage: release_test.py RELEASE [AGAIN]     folders that scripts/release.sh made; AGAIN must have the same bytes
"""
import filecmp
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from hardening import missing_properties
from install_test import check_symbols

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ("sluice", "sluice-server", "sluice-relay")
GLIBC = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    check(done.returncode == 0, f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check(holds, what):
    if not holds:
        sys.exit(what)


def check_hardened(path, program=True):
    problems = list(missing_properties(path, program))
    check(not problems, f"{path} {', '.join(problems)}")


def the_only(folder, pattern):
    found = list(folder.glob(pattern))
    check(len(found) == 1, f"{folder} has {len(found)} files {pattern}")
    return found[0]


def check_program(path):
    """The program needs only glibc and libgcc, an old glibc is enough, and the program contains no path of the machine that built it."""
    dynamic = run("readelf", "-d", path)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    check(needed and needed <= GLIBC, f"{path} needs {sorted(needed - GLIBC)}")
    newest = max(tuple(map(int, number.split("."))) for number in re.findall(r"Name: GLIBC_([\d.]+)", run("readelf", "-V", path)))
    check(newest <= (2, 34), f"{path} needs glibc {'.'.join(map(str, newest))}")
    check("RUNPATH" not in dynamic and "RPATH" not in dynamic, f"{path} has a RUNPATH")
    check(str(SOURCE).encode() not in path.read_bytes(), f"{path} contains the path {SOURCE}")


def check_tree(root, grpc):
    """The programs of an unpacked tree work from another folder in an empty environment."""
    empty = {"cwd": "/", "env": {}}
    for program in PROGRAMS:
        check_program(root / "bin" / program)
        run(root / "bin" / program, "--help", **empty)
    for program in ("sluice-server", "sluice-relay"):
        said = run(root / "bin" / program, "--version", **empty)
        check(f"(gRPC {grpc})" in said, f"the bill of materials names gRPC {grpc}, but {program} says: {said}")
    run(root / "bin/sluice", "validate", root / "share/sluice/examples/fashion-mnist.yaml", **empty)
    said = run(root / "bin/sluice", "bench", "exchange", "--elements", "100000", "--warmup", "1", "--repeats", "3", "--no-baselines", **empty)
    check("median" in said, f"sluice bench exchange printed no times:\n{said}")


def check_materials(path, *others):
    """Returns the version of gRPC."""
    document = json.loads(path.read_text())
    names = {package["SPDXID"]: package for package in document["packages"]}
    check(len(names) == len(document["packages"]) > 10, "packages of the bill of materials are missing or have equal names")
    related = {relation["relatedSpdxElement"] for relation in document["relationships"]}
    check(related == set(names), f"packages without a relationship: {sorted(set(names) - related)}")
    for name, package in names.items():
        check(package["versionInfo"] and package["licenseDeclared"], f"{name} has no version or no licence")
    for name in ("grpc", "protobuf", "abseil", "openssl", "glibc", *others):
        check(f"SPDXRef-{name}" in names, f"the bill of materials lacks {name}")
    return names["SPDXRef-grpc"]["versionInfo"]


def check_library(release, folder):
    """The library contains gRPC, exports its interface alone, and is in the package that its soname names. Developers get the same version."""
    check_materials(the_only(release, "libsluice-*.spdx.json"), "highway", "yaml-cpp")
    development = the_only(release, "libsluice-dev_*.deb")
    package = the_only(release, "libsluice[0-9]*.deb")
    name, version = run("dpkg-deb", "-f", package, "Package").split()[-1], run("dpkg-deb", "-f", package, "Version").split()[-1]
    check(f"{name} (= {version})" in run("dpkg-deb", "-f", development, "Depends"), f"{development} does not need {name} of its own version")
    run("dpkg-deb", "-R", package, folder)
    run("dpkg-deb", "-x", development, folder)
    library = the_only(folder, "usr/lib/*/libsluice.so").resolve()
    dynamic = run("readelf", "-d", library)
    soname = re.search(r"\(SONAME\).*\[libsluice\.so\.(.*)\]", dynamic)[1]
    check(name == f"libsluice{soname}", f"the package {name} has a library with the version {soname} in its soname")
    shlibs = (folder / "DEBIAN/shlibs").read_text()
    check(shlibs == f"libsluice {soname} {name} (>= {version})\n", f"the package tells dependent packages: {shlibs}")
    check("grpc" not in dynamic and "RUNPATH" not in dynamic, f"{library} loads the system's gRPC or has a RUNPATH:\n{dynamic}")
    check(str(SOURCE).encode() not in library.read_bytes(), f"{library} contains the path {SOURCE}")
    check_hardened(library, program=False)
    check_symbols(library, SOURCE / "client/exported_symbols.txt")
    check(not list(folder.rglob("Sluice_torch_targets*")), "the component torch needs the system's gRPC, but the package has it")


def check_worker(release, folder, programs):
    """The worker's package has LibTorch, all of which the program finds there, and trains with the programs of the other package."""
    packages = list(release.glob("sluice-worker_*.deb"))
    if not packages:
        return "without sluice-worker"
    check_materials(the_only(release, "sluice-worker-*.spdx.json"), "torch", "nvidia-cuda-runtime", "libpng1.6")
    depends = run("dpkg-deb", "-f", packages[0], "Depends")
    names = {name.split()[0] for name in depends.split(", ")}
    check(names == {"sluice", "libc6", "libgcc-s1", "libstdc++6"}, f"{packages[0]} depends on {depends}")
    installed = folder / "worker"
    run("dpkg-deb", "-x", packages[0], installed)
    check((installed / "usr/share/man/man1/sluice-worker.1.gz").exists(), "sluice-worker has no manual page in its package")
    copyright = (installed / "usr/share/doc/sluice-worker/copyright").read_text()
    check("Facebook" in copyright and "NVIDIA" in copyright, "the licences of LibTorch are missing")
    worker = installed / "usr/bin/sluice-worker"
    check(str(SOURCE).encode() not in worker.read_bytes(), f"{worker} contains the path {SOURCE}")
    check_hardened(worker)
    loaded = re.findall(r"=> (\S+)", run("ldd", worker, env={}))
    own = [path for path in loaded if pathlib.Path(path).resolve().is_relative_to(installed)]
    check({pathlib.Path(path).name for path in own} >= {"libtorch_cpu.so", "libc10.so", "libcudart.so.13"}, f"{worker} loads {loaded}")
    for program in PROGRAMS:  # The programs find each other in the folder that they are in.
        shutil.copy2(programs / program, installed / "usr/bin")
    job = folder / "job.yaml"
    job.write_text("{name: release, model: {name: mlp}, data: {format: synthetic}, batch_size_per_worker: 8, steps: 10, optimizer: {lr: 0.1}}\n")
    said = run(installed / "usr/bin/sluice", "run", job, cwd="/", env={})
    check("parameters" in said, f"the worker's job printed no hash of its parameters:\n{said}")
    return "with sluice-worker"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    release = pathlib.Path(sys.argv[1]).resolve()
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release)
    check((release / "NOTES.md").read_text().strip(), "the notes are empty")
    grpc = check_materials(the_only(release, "sluice-[0-9]*.spdx.json"))
    package = the_only(release, "sluice_*.deb")
    depends = run("dpkg-deb", "-f", package, "Depends").strip()
    check(re.fullmatch(r"libc6 \(>= [\d.]+\), libgcc-s1 \(>= [\d.]+\)", depends), f"{package} depends on {depends}")
    with tempfile.TemporaryDirectory() as folder:
        run("tar", "-xf", the_only(release, "*.tar.gz"), "-C", folder)
        unpacked = the_only(pathlib.Path(folder), "sluice-*")
        check((unpacked / "LICENSES").read_text().count("=" * 80) > 20, "licences are missing")
        check_tree(unpacked, grpc)
        for program in PROGRAMS:
            check_hardened(unpacked / "bin" / program)
        installed = pathlib.Path(folder, "package")
        run("dpkg-deb", "-x", package, installed)
        check_tree(installed / "usr", grpc)
        for program in PROGRAMS:
            check((installed / f"usr/share/man/man1/{program}.1.gz").exists(), f"{program} has no manual page in the package")
        check_library(release, pathlib.Path(folder).resolve() / "library")
        worker = check_worker(release, pathlib.Path(folder).resolve(), installed.resolve() / "usr/bin")
    for wheel in release.glob("*.whl"):
        run(SOURCE / "tools/check_wheel.py", wheel)
    wheel = the_only(release, f"sluice_train-*_{platform.machine()}.whl")
    print(run(SOURCE / "tests/packaging/wheel_test.py", wheel, grpc), end="")
    run(SOURCE / "tests/packaging/chart_registry_test.py", the_only(release, "sluice-*.tgz"), SOURCE / ".deps/chart/bin/helm")
    if len(sys.argv) == 3:
        again = pathlib.Path(sys.argv[2])
        names = sorted(os.listdir(release))
        check(names == sorted(os.listdir(again)), f"{release} and {again} have different files")
        _, differ, errors = filecmp.cmpfiles(release, again, names, shallow=False)
        check(not differ and not errors, f"these files differ between {release} and {again}: {differ + errors}")
    print(f"the release with gRPC {grpc} works, {worker}")


if __name__ == "__main__":
    main()
