#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the bill of materials (SPDX 2.3, JSON) and the licence texts of programs or a library that contain libraries.

usage: make_sbom.py BUILD VERSION SBOM LICENSES FILE...     FILE is a program or a shared library below BUILD, such as bin/sluice
BUILD is a build folder with SLUICE_GRPC_PREFIX. A library is listed if the link command of a FILE names its archive, or if
the FILE loads it from Debian's folders, and LibTorch with all that its wheels brought, if the command names libtorch_cpu.so. The
Python module also has nanobind. Of a cross-compiled BUILD, the packages are those of its CMAKE_SYSROOT (scripts/arm64.sh).
SOURCE_DATE_EPOCH gives the time in the file, so that equal inputs make equal bytes.
"""
import datetime
import gzip
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import uuid

from make_third_party import libraries as loaded_libraries
from make_third_party import package as debian_package

ROOT = pathlib.Path(__file__).resolve().parent.parent
# By Debian source package: licence of the library's files in SPDX's terms.
LICENCES = {
    "abseil": "Apache-2.0",
    "c-ares": "MIT",
    "cli11": "BSD-3-Clause",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "grpc": "Apache-2.0 AND BSD-3-Clause",  # BSD: upb, which it contains.
    "highway": "Apache-2.0",
    "libjpeg-turbo": "BSD-3-Clause AND IJG AND Zlib",
    "libpng1.6": "libpng-2.0",
    "nanobind": "BSD-3-Clause",
    "nlohmann-json3": "MIT",
    "nvidia-cuda-cupti": "LicenseRef-NVIDIA-CUDA",
    "nvidia-cuda-runtime": "LicenseRef-NVIDIA-CUDA",
    "openssl": "Apache-2.0",
    "prometheus-cpp": "MIT",
    "protobuf": "BSD-3-Clause",
    "re2": "BSD-3-Clause",
    "torch": "BSD-3-Clause",
    "yaml-cpp": "MIT",
    "zlib": "Zlib",
}
# Packages that no archive of a link command belongs to: headers that programs compile in, and the compiler's libraries.
LIBRARY_HEADERS_AND_COMPILER = ("nlohmann-json3-dev", "libhwy-dev", "libstdc++6")
HEADERS_AND_COMPILER = (*LIBRARY_HEADERS_AND_COMPILER, "libcli11-dev", "prometheus-cpp-dev")
SHARED = "libc6"
CROSS_COMPILER = "libstdc++-12-dev-arm64-cross"  # It has its own libgcc and libstdc++.


def archives(command):
    """The static libraries that a link command names, without those of the build itself."""
    return {word for word in shlex.split(command) if word.startswith("/") and word.endswith(".a")}


def libtorch_root(command):
    """The folder of LibTorch, or None if the link command does not name it."""
    found = [word for word in shlex.split(command) if word.endswith("/lib/libtorch_cpu.so")]
    return pathlib.Path(found[0]).parent.parent if found else None


def self_test():
    assert libtorch_root("c++ -o a '/a b/lib/libtorch_cpu.so' -lm") == pathlib.Path("/a b")
    assert libtorch_root("c++ -o a libtorch_cpu.a") is None
    found = archives("c++ -o bin/a main.o base/libsluice_base.a /usr/lib/libz.a -Wl,--as-needed '/a b/libgrpc.a' -lm")
    assert found == {"/usr/lib/libz.a", "/a b/libgrpc.a"}, found


def is_program(file):
    return file.startswith("bin/")


def needed(file, sysroot):
    """The paths of the shared libraries that the file itself names and that the system has in its own folders."""
    names = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", file)))
    if sysroot:
        return [path for path in map(installed, names) if path]
    return [path for path in loaded_libraries(file) if pathlib.Path(path).name in names and path.startswith(("/lib/", "/usr/lib/"))]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def described(package, sysroot):
    """Source package, version, and licence text of an installed Debian package, or of one that is unpacked in the sysroot."""
    documents = pathlib.Path(sysroot or "/", "usr/share/doc", package)
    if sysroot:
        with gzip.open(documents / "changelog.Debian.gz", "rt") as changelog:
            source, version = re.match(r"(\S+) \((\S+)\)", changelog.readline()).groups()
        if source == "gcc-12":
            version = output("dpkg-query", "-W", "-f", "${Version}", CROSS_COMPILER).partition("cross")[0]
    else:
        source, version = output("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package).split()
    return source, version, (documents / "copyright").read_text()


def installed(name):
    """The path of an installed library. In a sysroot, nothing tells its package, but the package has the same name there."""
    return next(pathlib.Path("/usr/lib").glob(f"*/{name}"), None)


def counterpart(archive, prefix, sysroot):
    """Debian's library of the same source, if the archive is in the prefix or in the sysroot. The other ones there are gRPC, which
    linked() adds, and libraries whose headers are in the list above."""
    if sysroot and not any(pathlib.Path(sysroot, "usr/lib").glob(f"*/{archive.name}")):
        return None
    return installed(archive.name) if sysroot or archive.is_relative_to(prefix) else archive


def cached(cache, name):
    """The value of a variable in CMakeCache.txt, or None."""
    found = re.search(rf"^{name}:\w+=(.+)$", cache, re.M)
    return found and found[1]


def linked(build, files):
    """Source package -> (version, licence text, where it comes from), and what described() says about SHARED."""
    cache = (build / "CMakeCache.txt").read_text()
    prefix, sysroot = cached(cache, "SLUICE_GRPC_PREFIX"), cached(cache, "CMAKE_SYSROOT")
    if not prefix:
        sys.exit(f"{build} was configured without SLUICE_GRPC_PREFIX, so its files contain no libraries")
    prefix = pathlib.Path(ROOT, prefix).resolve()
    found = {}
    for package in HEADERS_AND_COMPILER if any(map(is_program, files)) else LIBRARY_HEADERS_AND_COMPILER:
        source, version, text = described(package, sysroot)
        found[source] = (version, text, "debian")
    for library in [path for file in files for path in needed(build / file, sysroot)]:
        source, version, text = described(debian_package(library), sysroot)
        if source != described(SHARED, sysroot)[0]:
            found[source] = (version, text, "loaded")
    nanobind = cached(cache, "nanobind_DIR")
    if nanobind:
        folder = next(pathlib.Path(nanobind).parent.parent.glob("nanobind-*.dist-info"))
        found["nanobind"] = (folder.stem.partition("-")[2], (folder / "licenses/LICENSE").read_text(), "pypi")
    commands = [output("ninja", "-C", build, "-t", "commands", "-s", file) for file in files]
    for archive in sorted({name for command in commands for name in archives(command)}):
        path = counterpart(pathlib.Path(archive).resolve(), prefix, sysroot)
        if path and not path.is_relative_to(build.resolve()):
            source, version, text = described(debian_package(str(path)), sysroot)
            found[source] = (version, text, "debian")
    for root in filter(None, map(libtorch_root, commands)):
        for folder in (root / "licenses").iterdir():
            name, _, version = folder.name.replace("_", "-").rpartition("-")
            found[name] = (version, "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()), "wheel")
    documents = prefix / "share/doc/grpc"
    texts = "\n".join(path.read_text() for path in sorted(documents.iterdir()) if path.name != "version")
    found["grpc"] = ((documents / "version").read_text().strip(), texts, "crate")
    return found, described(SHARED, sysroot)


def entry(name, version, licence, purl):
    return {"SPDXID": f"SPDXRef-{name}", "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            **({"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]} if purl else {})}


def document(version, files, libraries, shared, build):
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    digests = [hashlib.sha256((build / file).read_bytes()).hexdigest() for file in files]
    identity = uuid.uuid5(uuid.NAMESPACE_OID, version + "".join(sorted(digests)))
    purls = {**dict.fromkeys(("debian", "loaded"), "pkg:deb/debian/{0}@{1}?arch=source"), "crate": "pkg:generic/{0}@{1}",
             **dict.fromkeys(("wheel", "pypi"), "pkg:pypi/{0}@{1}")}
    packages = [entry("sluice", version, "Apache-2.0", None)]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-sluice")]
    for name, (number, _, origin) in sorted(libraries.items()):
        if name not in LICENCES:
            sys.exit(f"no licence is known for {name}, which {' and '.join(files)} link: add it to tools/make_sbom.py")
        packages.append(entry(name, number, LICENCES[name], purls[origin].format(name, number.replace("+", "%2B"))))
        relations.append(("SPDXRef-sluice", "DYNAMIC_LINK" if origin in ("wheel", "loaded") else "STATIC_LINK", f"SPDXRef-{name}"))
    source, number, _ = shared
    packages.append(entry(source, number, LICENCES[source], None))
    relations.append(("SPDXRef-sluice", "DYNAMIC_LINK", f"SPDXRef-{source}"))
    texts = {LICENCES[name]: text for name, (_, text, _) in sorted(libraries.items()) if LICENCES[name].startswith("LicenseRef-")}
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"sluice-{version}",
            "documentNamespace": f"urn:uuid:{identity}",
            "creationInfo": {"created": created, "creators": ["Tool: tools/make_sbom.py"]},
            "packages": packages,
            **({"hasExtractedLicensingInfos": [{"licenseId": name, "extractedText": text} for name, text in texts.items()]} if texts else {}),
            "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations]}


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    self_test()
    build, version, sbom, texts, *files = sys.argv[1:]
    build = pathlib.Path(build)
    libraries, shared = linked(build, files)
    for path in (sbom, texts):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(sbom).write_text(json.dumps(document(version, files, libraries, shared, build), indent=2) + "\n")
    parts = [("Sluice", (ROOT / "LICENSE").read_text())]
    parts += [(f"{name} {number}", text) for name, (number, text, _) in sorted(libraries.items())]
    pathlib.Path(texts).write_text("".join(f"{'=' * 80}\n{name}\n{'=' * 80}\n\n{text.rstrip()}\n\n" for name, text in parts))


if __name__ == "__main__":
    main()
