#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the built documentation site: no page loads anything from another host, search knows every page, and a reader who wants to train
a model on four machines finds the steps with one click from the first page.

usage: check_site.py SITE            SITE is the folder that scripts/docs.sh builds; exits with 1 and names each fault
"""
import html.parser
import json
import pathlib
import re
import sys

OTHER_HOST = re.compile(r"(https?:)?//")
FOUR_MACHINES = "getting-started/#train-your-own-model-on-four-machines"
# A link element with one of these only tells where something is; the browser does not fetch it.
NOT_LOADED = {"canonical", "prev", "next", "alternate", "edit"}


class Page(html.parser.HTMLParser):
    """Collects the addresses that a browser fetches by itself, the links, and whether the theme would load a drawing program."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.draws = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "mermaid" in (values.get("class") or "").split():
            self.draws = True
        for name in ("src", "srcset", "poster", "data"):
            if values.get(name):
                self.loads.append(values[name])
        if tag == "link" and values.get("rel") not in NOT_LOADED:
            self.loads.append(values.get("href") or "")
        if tag == "a":
            self.links.append(values.get("href") or "")


def page_faults(site):
    for path in sorted(site.rglob("*.html")):
        page = Page(path.read_text())
        for address in page.loads:
            if OTHER_HOST.match(address):
                yield f"{path.relative_to(site)} loads {address}"
        if page.draws:
            yield f"{path.relative_to(site)} has a Mermaid diagram, which the theme draws with a program from another host"


def style_faults(site):
    for path in sorted(site.rglob("*.css")):
        for address in re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", path.read_text()):
            if OTHER_HOST.match(address):
                yield f"{path.relative_to(site)} loads {address}"


def search_faults(site):
    index = site / "search/search_index.json"
    if not index.exists():
        yield "search/search_index.json is missing"
        return
    known = {entry["location"].partition("#")[0] for entry in json.loads(index.read_text())["docs"]}
    for path in sorted(site.rglob("index.html")):
        page = path.parent.relative_to(site).as_posix()
        if ("" if page == "." else page + "/") not in known:
            yield f"search does not know {path.relative_to(site)}"


def first_page_faults(site):
    if FOUR_MACHINES not in Page((site / "index.html").read_text()).links:
        yield f"index.html has no link to {FOUR_MACHINES}"


def main():
    site = pathlib.Path(sys.argv[1])
    faults = [fault for check in (page_faults, style_faults, search_faults, first_page_faults) for fault in check(site)]
    for fault in faults:
        print(fault)
    print(f"{len(list(site.rglob('index.html')))} pages, {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
