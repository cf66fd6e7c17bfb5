# SPDX-License-Identifier: Apache-2.0
"""A slow reader of patches, written from docs/patch-format.md and docs/wire-format.md without Sluice's code. It checks sizes, but not checksums."""
import struct

CHUNK = 1 << 20
WIDTHS = {0: 2, 1: 2, 2: 4}


class Bytes:
    """Reads from the front of a byte string."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        part = self.data[self.at:self.at + size]
        if len(part) != size:
            raise ValueError("the patch ends early")
        self.at += size
        return part

    def number(self, size):
        return int.from_bytes(self.take(size), "little")

    def rest(self):
        return self.take(len(self.data) - self.at)


def bits_of(plane):
    """The bits of a plane as one number, whose lowest bit comes first."""
    return int.from_bytes(plane, "little")


def fixed(plane, width, count):
    bits = bits_of(plane)
    return [bits >> (i * width) & ((1 << width) - 1) for i in range(count)]


def unary(plane):
    """The numbers of zeros before each one."""
    numbers, zeros = [], 0
    for bit in range(8 * len(plane)):
        if plane[bit // 8] >> (bit % 8) & 1:
            numbers.append(zeros)
            zeros = 0
        else:
            zeros += 1
    return numbers


def plane_bytes(bits):
    return (bits + 7) // 8


def gaps_in_blocks(data, count, last_size):
    parameters = data.take((((count + 15) // 16) + 1) // 2)
    parameters = [byte >> shift & 15 for byte in parameters for shift in (0, 4)]
    lows = []
    for block in range((count + 15) // 16):
        size = min(16, count - 16 * block)
        lows += fixed(data.take(plane_bytes(size * parameters[block])), parameters[block], size)
    return [(quotient << parameters[i // 16]) + lows[i] for i, quotient in enumerate(unary(data.take(last_size)))]


def gaps_in_codes(plane, width, count):
    gaps, gap = [], 0
    for code in fixed(plane, width, 8 * len(plane) // width):
        gap += code
        if code != (1 << width) - 1:
            gaps.append(gap)
            gap = 0
    return gaps[:count]


def read_gaps(data, coding, count, last_size):
    if coding == 96:
        return gaps_in_blocks(data, count, last_size)
    if coding > 64:
        return gaps_in_codes(data.take(last_size), coding - 64, count)
    parameter, thirds = coding % 32, [0] * count
    lows = fixed(data.take(plane_bytes(count * parameter)), parameter, count)
    if coding >= 32:
        thirds = [byte // 3**digit % 3 for byte in data.take((count + 4) // 5) for digit in range(5)]
    factor = 3 if coding >= 32 else 1
    return [((factor * quotient + thirds[i]) << parameter) + lows[i] for i, quotient in enumerate(unary(data.take(last_size)))]


def read_positions(data):
    """The positions and their coding."""
    count, coding = data.number(3), data.number(1)
    if count == 0:
        return [], coding
    last_size = data.number(4)
    positions, next_position = [], 0
    for gap in read_gaps(data, coding, count, last_size):
        positions.append(next_position + gap)
        next_position += gap + 1
    if len(positions) != count:
        raise ValueError("another number of positions")
    return positions, coding


def read_magnitudes(data, count, large):
    magnitudes = [1] * count
    if large:
        size, b = data.number(3), data.number(1)
        lows = fixed(data.take(plane_bytes(b * len(large))), b, len(large))
        classes = unary(data.take(size))
        extras = bits_of(data.rest())
        for rank, low, c in zip(large, lows, classes):
            quotient = (1 << c) + (extras & ((1 << c) - 1)) - 1
            extras >>= c
            magnitudes[rank] = (quotient << b) + low + 2
    return magnitudes


def ordered(pattern, count):
    return count - 1 - pattern if pattern >= count // 2 else pattern + count // 2


def from_ordered(number, count):
    return number - count // 2 if number >= count // 2 else count - 1 - number


def apply(patch, base):
    """Returns the new weights and the set of codings that the patch uses."""
    data, codings = Bytes(patch), set()
    if data.take(8) != b"SLUICEPT" or data.number(2) != 1:
        raise ValueError("no patch")
    width = WIDTHS[data.number(1)]
    count, form = 1 << (8 * width), {2: "<H", 4: "<I"}[width]
    data.take(1)
    table = data.number(4)
    elements = data.number(8)
    data.take(152 - data.at + table)
    weights = bytearray(base)
    for start in range(0, elements, CHUNK):
        size, method = data.number(3), data.number(1)
        data.take(4)
        payload = Bytes(data.take(size))
        if method == 1:
            weights[start * width:start * width + size] = payload.rest()
        if method != 2:
            continue
        positions, coding = read_positions(payload)
        directions = fixed(payload.take(plane_bytes(len(positions))), 1, len(positions))
        large, second = read_positions(payload)
        codings |= {coding, second}
        for position, down, magnitude in zip(positions, directions, read_magnitudes(payload, len(positions), large)):
            at = (start + position) * width
            number = ordered(struct.unpack_from(form, weights, at)[0], count) + (-magnitude if down else magnitude)
            struct.pack_into(form, weights, at, from_ordered(number % count, count))
    data.take(0)
    if data.at != len(patch):
        raise ValueError("bytes after the last part")
    return bytes(weights), codings
