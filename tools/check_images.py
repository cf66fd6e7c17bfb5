#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks deploy/docker/Dockerfile and its files without building them: copied files exist, bases and wheels are pinned, images have
labels and run as a user, packages leave nothing behind, and the programs are compiled with gRPC of scripts/setup.sh --grpc.

usage: check_images.py ROOT
"""
import pathlib
import re
import sys

TARGETS = {"sluice-server": {"sluice", "sluice-server", "sluice-relay"}, "sluice-worker": {"sluice-worker"}, "sluice-python": set()}
LABELS = ("title", "description", "version", "revision", "licenses")


def instructions(text):
    """Yields (word, rest) of each instruction, with continued lines joined and without comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, rest.strip()


def stages(text):
    """Returns {name: (parent, instructions)}, and the ARGs before the first stage."""
    found, before, current = {}, {}, None
    for word, rest in instructions(text):
        if word == "FROM":
            parent, _, name = rest.partition(" AS ")
            current = []
            found[name] = (parent, current)
        elif current is None:
            before.__setitem__(*rest.split("=", 1))
        else:
            current.append((word, rest))
    return found, before


def inherited(found, name, word):
    """Returns the operands of `word` in the stage and in its base stages, oldest first."""
    parent, own = found[name]
    older = inherited(found, parent, word) if parent in found else []
    return older + [rest for each, rest in own if each == word]


def problems_of_target(found, name, programs):
    copied = " ".join(rest for word, rest in found[name][1] if word == "COPY")
    for program in sorted(programs):
        if f"/programs/bin/{program} " not in copied:
            yield f"{name}: {program} is not copied"
    if programs and "/programs/doc/" not in copied:
        yield f"{name}: the licences of its programs and their bill of materials are not copied"
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", (inherited(found, name, "USER") or ["0"])[-1]):
        yield f"{name}: runs as root and not as a numbered user, which runAsNonRoot needs"
    labels = " ".join(inherited(found, name, "LABEL"))
    yield from (f"{name}: no label {label}" for label in LABELS if f"image.{label}=" not in labels)
    for run in (rest for word, rest in found[name][1] if word == "RUN" and "apt-get install" in rest):
        for needed in ("--no-install-recommends", "rm -rf /var/lib/apt/lists/*"):
            if needed not in run:
                yield f"{name}: a RUN installs packages without {needed}"


def problems(root):
    folder = root / "deploy" / "docker"
    found, before = stages((folder / "Dockerfile").read_text())
    if not re.search(r":\d[\w.]*-|@sha256:", before.get("BASE", "")):
        yield f"BASE={before.get('BASE')}: names no version"
    for name, (parent, own) in found.items():
        if parent not in found and parent not in [f"${{{arg}}}" for arg in before]:
            yield f"{name}: its base {parent} is neither a stage nor an ARG"
        for rest in (rest for word, rest in own if word == "COPY" and "--from=" not in rest):
            yield from (f"{name}: copies {source}, which is not there" for source in rest.split()[:-1] if not (root / source).exists())
    if not any("cmake --preset static" in rest for word, rest in found.get("build", ("", []))[1] if word == "RUN"):
        yield "build: the preset is not `static`, so the programs load Debian's gRPC, which has known vulnerabilities"
    for name, programs in TARGETS.items():
        if name in found:
            yield from problems_of_target(found, name, programs)
        else:
            yield f"no stage {name}"
    for wheels in (folder / "cuda-wheels.txt", folder / "python-wheels.txt", root / "scripts/torch-wheels.txt"):
        for line in wheels.read_text().splitlines():
            if not line.startswith("#") and not re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line):
                yield f"{wheels.name}: {line}: not pinned by version and hash"


def main():
    found = list(problems(pathlib.Path(sys.argv[1])))
    for problem in found:
        print(f"check_images: {problem}", file=sys.stderr)
    print("check_images: no problems" if not found else f"check_images: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
