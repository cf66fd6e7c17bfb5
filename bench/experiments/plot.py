# SPDX-License-Identifier: Apache-2.0
"""Line charts as SVG. Equal figures give equal bytes, so a committed chart only changes with its figures."""
from __future__ import annotations

import math
from xml.sax.saxutils import escape

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444", "#8c510a")  # Distinct for colour-blind readers.
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 400, 70, 36, 170, 50

Points = list[tuple[float, float]]


def number(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def linear_ticks(low: float, high: float) -> list[float]:
    """About five round numbers."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [step * at for at in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [factor * 10.0 ** power for power in powers for factor in (1, 2, 5)]
    found = [tick for tick in found if low <= tick <= high]
    return found if len(found) <= 8 else [tick for tick in found if math.log10(tick).is_integer()]


class Axis:
    """Maps values to pixels."""

    def __init__(self, values: list[float], begin: float, end: float, log: bool):
        low, high = min(values), max(values)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 1, high + 1)
        self.low, self.high, self.begin, self.end, self.log = low, high, begin, end, log

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        return (log_ticks if self.log else linear_ticks)(self.low, self.high)


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def chart(title: str, x_label: str, y_label: str, series: dict[str, Points], log_x: bool = False, steps: bool = False) -> str:
    """A chart of all finite points. With `steps`, a line keeps its value until the next point."""
    finite = {name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x)]
              for name, points in series.items()}
    everything = [point for points in finite.values() for point in points]
    if not everything:
        raise ValueError(f"the chart \"{title}\" has no point")
    across = Axis([x for x, _ in everything], LEFT, WIDTH - RIGHT, log_x)
    up = Axis([y for _, y in everything] + ([0.0, 1.0] if steps else []), HEIGHT - BOTTOM, TOP, False)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(LEFT, 20, title, 'font-size="14"'),
             text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, 'text-anchor="middle"'),
             text(0, 0, y_label, f'text-anchor="middle" transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)"')]
    for tick in across.ticks():
        x = across.at(tick)
        parts += [f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>', text(x, HEIGHT - BOTTOM + 16, number(tick), 'text-anchor="middle"')]
    for tick in up.ticks():
        y = up.at(tick)
        parts += [f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>', text(LEFT - 6, y + 4, number(tick), 'text-anchor="end"')]
    for at, (name, points) in enumerate(finite.items()):
        color, place = COLORS[at % len(COLORS)], TOP + 14 + 18 * at
        dash = "" if at < len(COLORS) else ' stroke-dasharray="6 3"'
        path, last = "", None
        for x, y in points:
            pixel = (across.at(x), up.at(y))
            if steps and last:
                path += f"H{pixel[0]:.1f}"
            path += f"{'L' if last else 'M'}{pixel[0]:.1f} {pixel[1]:.1f}"
            last = pixel
        parts += [f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"{dash}/>' if path else "",
                  f'<path d="M{WIDTH - RIGHT + 12} {place - 4}h20" stroke="{color}" stroke-width="2"{dash}/>',
                  text(WIDTH - RIGHT + 38, place, name)]
    return "\n".join(part for part in [*parts, "</svg>"] if part) + "\n"
