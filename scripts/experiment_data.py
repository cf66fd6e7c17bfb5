#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares the data sets of bench/experiments in build/data, from Debian 12's packages. Existing sets are left alone.

usage: scripts/experiment_data.py [fashion-mnist] [bible] [letter] [digits] [clipart]        (default: all)

Installs nothing and needs no root: apt-get downloads the packages, and a hash pins each of them.
"""
import gzip
import hashlib
import lzma
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

DATA = pathlib.Path(__file__).resolve().parent.parent / "build/data"
HASHES = {"dataset-fashion-mnist": "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
          "bible-kjv": "75a49c032a6efa9faa2beb4a9acb70974380122906329d0e100de36cc88ff02d",
          "bible-kjv-text": "d61b6aad4c51ba9e2800b825325fa6a09e99a0d02a9bb6dc4724fcc4995a1b7a",
          "r-cran-mlbench": "2f1127f7b5e7d08703b13b52ef1976a0c355a7660d6ac575e29b87b13921bc06",
          "python3-sklearn": "ca0c6be401d14871c7e93cfdd8d1f561595dc65e6e2ad2501d568aee7f7efc58",
          "openclipart-png": "f07f1545a2970c2cf3fa339bc2405da1a95cf2b1827bfa05bf73eb1c20291c02"}
# These are the hashes of the prepared sets. Two machines with equal hashes train on the same bytes.
TEXT_BYTES = 4_404_412
LETTERS, LETTERS_TRAINED = 20_000, 16_000  # The last 4,000 are the customary test set.
DIGITS, DIGITS_TRAINED = 1797, 1437
CATEGORIES = ("animals", "food", "people", "recreation", "shapes", "signs_and_symbols", "tools", "transportation")
PIXELS_MAX = 4_000_000  # Decoding larger images would take most of the time of an epoch.


def unpack(package: str, folder: pathlib.Path) -> None:
    """Downloads a package and unpacks it into the folder."""
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(["apt-get", "download", "-q", package], cwd=name, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = list(pathlib.Path(name).glob("*.deb"))
        if done.returncode != 0 or len(found) != 1:
            sys.exit(f"experiment_data: cannot download {package}: {done.stdout.strip()}\nThis needs Debian 12 and `apt-get update`.")
        digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
        if digest != HASHES[package]:
            sys.exit(f"experiment_data: {package} has the hash {digest}; {HASHES[package]} is expected. Results with other data do not compare.")
        subprocess.run(["dpkg-deb", "-x", str(found[0]), str(folder)], check=True)


def write_idx(folder: pathlib.Path, prefix: str, images: list[bytes], side: int, labels: list[int]) -> None:
    """MNIST's file format."""
    (folder / f"{prefix}-images").write_bytes(struct.pack(">4I", 0x803, len(images), side, side) + b"".join(images))
    (folder / f"{prefix}-labels").write_bytes(struct.pack(">2I", 0x801, len(labels)) + bytes(labels))


def write_parts(folder: pathlib.Path, images: list[bytes], side: int, labels: list[int], trained: int) -> None:
    write_idx(folder, "train", images[:trained], side, labels[:trained])
    write_idx(folder, "test", images[trained:], side, labels[trained:])


def fashion_mnist(packages: pathlib.Path, folder: pathlib.Path) -> None:
    unpack("dataset-fashion-mnist", packages)
    for path in (packages / "usr/share/datasets/fashion-mnist").glob("*.gz"):
        shutil.copy(path, folder)


def bible(packages: pathlib.Path, folder: pathlib.Path) -> None:
    unpack("bible-kjv", packages)
    unpack("bible-kjv-text", packages)
    text = subprocess.run([str(packages / "usr/bin/bible"), "-p", str(packages / "usr/lib"), "-f", "gen1:1-rev22:21"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout
    if len(text) != TEXT_BYTES:
        sys.exit(f"experiment_data: the text has {len(text)} bytes; {TEXT_BYTES} are expected")
    (folder / "bible.txt").write_bytes(text)


def letter_columns(data: bytes) -> list[tuple]:
    """The label column and the 16 features of R's serialized data frame. A column begins with its type and its length."""
    label_head, head = struct.pack(">2I", 0x30D, LETTERS), struct.pack(">2I", 0x0E, LETTERS)
    start = data.index(label_head) + len(label_head)
    columns = [struct.unpack(f">{LETTERS}i", data[start:start + 4 * LETTERS])]
    start = data.index(head, start + 4 * LETTERS)
    for _ in range(16):
        if data[start:start + len(head)] != head:
            raise ValueError("LetterRecognition.rda: a column of 20,000 numbers is missing")
        start += len(head)
        columns.append(struct.unpack(f">{LETTERS}d", data[start:start + 8 * LETTERS]))
        start += 8 * LETTERS
    return columns


def png(rows: list[bytes]) -> bytes:
    """A grayscale image with 8 bits per pixel."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">2I5B", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def letter(packages: pathlib.Path, folder: pathlib.Path) -> None:
    """An `image_folder`, because `idx` has 10 classes only: 16 features from 0 to 15 become 4 x 4 squares of 4 x 4 equal pixels."""
    unpack("r-cran-mlbench", packages)
    path = packages / "usr/lib/R/site-library/mlbench/data/LetterRecognition.rda"
    labels, *features = letter_columns(lzma.decompress(path.read_bytes()))
    for at, (label, *row) in enumerate(zip(labels, *features)):
        place = folder / ("train" if at < LETTERS_TRAINED else "val") / chr(ord("A") + label - 1)
        place.mkdir(parents=True, exist_ok=True)
        lines = [bytes(17 * int(value) for value in row[at:at + 4] for _ in range(4)) for at in range(0, 16, 4)]
        (place / f"{at:05}.png").write_bytes(png([line for line in lines for _ in range(4)]))


def digits(packages: pathlib.Path, folder: pathlib.Path) -> None:
    """Images of 8 x 8 pixels from 0 to 16."""
    unpack("python3-sklearn", packages)
    path = packages / "usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
    rows = [[int(float(value)) for value in line.split(",")] for line in gzip.decompress(path.read_bytes()).decode().split()]
    if len(rows) != DIGITS:
        sys.exit(f"experiment_data: digits.csv has {len(rows)} rows; {DIGITS} are expected")
    write_parts(folder, [bytes(min(255, 16 * value) for value in row[:64]) for row in rows], 8, [row[64] for row in rows], DIGITS_TRAINED)


def pixels(path: pathlib.Path) -> int:
    """Size of a PNG by its header, 0 for other files."""
    head = path.read_bytes()[:24]
    return 0 if head[:8] != b"\x89PNG\r\n\x1a\n" else struct.unpack(">I", head[16:20])[0] * struct.unpack(">I", head[20:24])[0]


def clipart(packages: pathlib.Path, folder: pathlib.Path) -> None:
    """An `image_folder` with a class for each category. A hash of its name puts a fifth of the images into `val`."""
    unpack("openclipart-png", packages)
    root = packages / "usr/share/openclipart/png"
    for category in CATEGORIES:
        for path in sorted((root / category).rglob("*.png")):
            if path.is_symlink() or not 0 < pixels(path) <= PIXELS_MAX:
                continue
            name = path.relative_to(root / category).as_posix().replace("/", "-")
            part = "val" if hashlib.sha256(name.encode()).digest()[0] % 5 == 0 else "train"
            (folder / part / category).mkdir(parents=True, exist_ok=True)
            shutil.move(path, folder / part / category / name)


SETS = {"fashion-mnist": fashion_mnist, "bible": bible, "letter": letter, "digits": digits, "clipart": clipart}


def main() -> int:
    wanted = sys.argv[1:] or list(SETS)
    for name in wanted:
        if name not in SETS:
            print(__doc__.strip(), file=sys.stderr)
            return 2
    for name in wanted:
        if (DATA / name).exists():
            print(f"experiment_data: {name}: already prepared")
            continue
        DATA.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=DATA) as temporary:
            packages, folder = pathlib.Path(temporary) / "packages", pathlib.Path(temporary) / "set"
            packages.mkdir()
            folder.mkdir()
            SETS[name](packages, folder)
            os.rename(folder, DATA / name)  # A set is whole or absent.
        print(f"experiment_data: {name}: in {DATA / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
