# SPDX-License-Identifier: Apache-2.0
"""Draws dashboards without Grafana: a page of SVG for each, from the series that Prometheus returns for its panels' queries. The pages
show whether a new reader could understand a job from the dashboards."""
import html
import math
import re

WIDTH, HEIGHT = 560, 190  # Size of a panel's drawing.
LEFT, BOTTOM, TOP = 62, 22, 8
COLOURS = ("#3366cc", "#dc6b19", "#228833", "#aa3377", "#887711", "#117788", "#cc3333", "#666666")
STYLE = """body{font:13px sans-serif;margin:16px;background:#fff;color:#222;width:1180px}h1{font-size:19px}
.panels{display:flex;flex-wrap:wrap;gap:14px}figure{margin:0;border:1px solid #ccc;border-radius:4px;padding:8px;width:562px}
figure.stat{width:267px}figcaption b{font-size:14px}figcaption{color:#444;min-height:34px}.big{font-size:26px;padding:8px 0}
.key{display:inline-block;margin-right:12px}.key i{display:inline-block;width:10px;height:10px;margin-right:4px}text{font-size:11px;fill:#444}"""


def scaled(value, base, names):
    """Formats 1500000 with a base of 1000 as 1.5 M."""
    for name in names[:-1]:
        if abs(value) < base:
            return f"{value:.3g} {name}".strip()
        value /= base
    return f"{value:.3g} {names[-1]}"


def shown(value, unit):
    if not math.isfinite(value):
        return str(value)
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return f"{value:.3g} s" if abs(value) >= 1 or value == 0 else f"{1000 * value:.3g} ms"
    if unit in ("bytes", "Bps"):
        return scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB")) + ("/s" if unit == "Bps" else "")
    if unit == "ops":
        return scaled(value, 1000, ("", "k", "M")) + " /s"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}" if abs(value) < 1e6 else scaled(value, 1000, ("", "k", "M", "G"))


def legend(template, labels):
    return re.sub(r"\s+", " ", re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template)).strip()


def stacks(series):
    """Stacks each series on the previous ones, at the times that all have."""
    times = sorted(set.intersection(*(set(dict(points)) for _, points in series))) if series else []
    below = dict.fromkeys(times, 0.0)
    result = []
    for name, points in series:
        of = dict(points)
        floor = dict(below)
        below = {time: below[time] + of[time] for time in times}
        result.append((name, [(time, floor[time], below[time]) for time in times]))
    return result


def chart(series, unit, stacked):
    rows = stacks(series) if stacked else [(name, [(time, 0.0, value) for time, value in points]) for name, points in series]
    rows = [(name, [row for row in points if math.isfinite(row[2])]) for name, points in rows]
    every = [row for _, points in rows for row in points]
    if not every:
        return "<p>no data</p>"
    begin, end = min(row[0] for row in every), max(row[0] for row in every)
    low, high = min(0.0, min(row[2] for row in every)), max(row[2] for row in every)
    high = high if high > low else low + 1

    def x(time):
        return LEFT + (WIDTH - LEFT - 4) * (time - begin) / max(end - begin, 1)

    def y(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)
    parts = []
    for i in range(5):
        value = low + (high - low) * i / 4
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{shown(value, unit)}</text>')
    for i, (_, points) in enumerate(rows):
        colour = COLOURS[i % len(COLOURS)]
        top = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, _, value in points)
        if stacked:
            under = " ".join(f"{x(time):.1f},{y(floor):.1f}" for time, floor, _ in reversed(points))
            parts.append(f'<polygon points="{top} {under}" fill="{colour}" fill-opacity=".6"/>')
        else:
            parts.append(f'<polyline points="{top}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 5}">{end - begin:.0f} s ago</text><text x="{WIDTH}" y="{HEIGHT - 5}" text-anchor="end">now</text>')
    keys = "".join(f'<span class="key"><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{html.escape(name)} {shown(points[-1][2] - (points[-1][1] if stacked else 0), unit)}</span>'
                   for i, (name, points) in enumerate(rows) if points)
    return f'<svg width="{WIDTH}" height="{HEIGHT}">{"".join(parts)}</svg><div>{keys}</div>'


def page(dashboard, job, series_of):
    """`series_of(expression)` returns [(labels, [(time, value)])] of the last minutes."""
    figures = []
    for panel in dashboard["panels"]:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        series = [(legend(target["legendFormat"], labels), points)
                  for target in panel["targets"] for labels, points in series_of(target["expr"])]
        if panel["type"] == "stat":
            names = panel["options"]["textMode"] == "value_and_name"
            body = "".join(f'<div class="big">{html.escape(name + ": " if names else "")}{shown(points[-1][1], unit)}</div>'
                           for name, points in series if points) or "<p>no data</p>"
        else:
            body = chart(series, unit, "custom" in panel["fieldConfig"]["defaults"])
        figures.append(f'<figure class="{panel["type"]}"><figcaption><b>{html.escape(panel["title"])}</b><br>'
                       f'{html.escape(panel["description"])}</figcaption>{body}</figure>')
    return (f'<!DOCTYPE html><meta charset="utf-8"><title>{dashboard["title"]}</title><style>{STYLE}</style>'
            f'<h1>{html.escape(dashboard["title"])}, job {html.escape(job)}</h1><div class="panels">{"".join(figures)}</div>')
