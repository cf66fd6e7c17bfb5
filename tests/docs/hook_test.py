#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documentation site's hook and checks (tools/docs_hook.py, tools/check_site.py) on small pages, and the links of README.md, which is no
page of the site. Needs no MkDocs.

usage: hook_test.py ROOT
"""
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tools"))
import check_site  # noqa: E402
import docs_hook  # noqa: E402

FIRST = '<a href="getting-started/#train-your-own-model-on-four-machines">four machines</a>'
INDEX = '{"docs": [{"location": ""}, {"location": "relay/"}, {"location": "relay/#limits"}]}'


class Links(unittest.TestCase):
    def test_out_of_docs(self):
        self.assertEqual(docs_hook.with_site_links("training.md", "[b](../bench/README.md#accuracy)"), "[b](bench/README.md#accuracy)")
        self.assertEqual(docs_hook.with_site_links("decisions/index.md", "[c](../../CONTRIBUTING.md)"), "[c](../CONTRIBUTING.md)")
        self.assertEqual(docs_hook.with_site_links("training.md", "[e](../examples/own_loop.cc)"), "[e](examples/own_loop.cc)")

    def test_into_docs(self):
        self.assertEqual(docs_hook.with_site_links("bench/README.md", "[t](../docs/training.md#results)"), "[t](../training.md#results)")
        self.assertEqual(docs_hook.with_site_links("bench/README.md", "![p](../docs/images/links-that-change.png)"),
                         "![p](../images/links-that-change.png)")

    def test_the_readme_is_the_first_page(self):
        self.assertEqual(docs_hook.with_site_links("training.md", "[r](../README.md)"), "[r](index.md)")

    def test_within_docs_and_elsewhere_nothing_changes(self):
        for text in ("[a](relay.md#limits)", "[a](#limits)", "[a](https://example.org/x)", "[a](../no/such/file.md)"):
            self.assertEqual(docs_hook.with_site_links("training.md", text), text)

    def test_words_in_code_are_no_obstacle(self):
        self.assertEqual(docs_hook.with_site_links("training.md", "[`x`](../bench/README.md)"), "[`x`](bench/README.md)")
        self.assertEqual(docs_hook.with_site_links("training.md", "`[x](../bench/README.md)`"), "`[x](../bench/README.md)`")

    def test_files_that_become_pages(self):
        text = "[a](../bench/README.md#accuracy) [b](../helm/sluice/ci) [c](../README.md) [d](relay.md) [e](../no/such) `[f](../CONTRIBUTING.md)`"
        self.assertEqual(docs_hook.linked_files("training.md", text), ["bench/README.md", "helm/sluice/ci"])
        self.assertIn("\n~~~ yaml\n", docs_hook.page_of("examples/own-loop.yaml"))
        self.assertIn("](ci/", docs_hook.page_of("helm/sluice/ci"))
        self.assertIn("\n~~~ diff\n", docs_hook.page_of("examples/python/diffs/mnist.diff"))

    def test_a_notebook(self):
        text = '{"cells": [{"cell_type": "markdown", "source": ["# A\\n", "b"]}, {"cell_type": "code", "source": ["c = 1\\n", "d"]}]}'
        self.assertEqual(docs_hook.notebook_page(text), "# A\nb\n\n```python\nc = 1\nd\n```\n")

    def test_pages_of_the_navigation(self):
        nav = [{"Home": "index.md"}, {"Results": ["bench/README.md", {"More": "relay.md"}]}]
        self.assertEqual(docs_hook.pages_of_nav(nav), ["index.md", "bench/README.md", "relay.md"])


class Readme(unittest.TestCase):
    def test_its_links_lead_somewhere(self):
        targets = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text())
        self.assertGreater(len(targets), 20)
        for target in targets:
            path, _, anchor = target.partition("#")
            with self.subTest(target=target):
                self.assertTrue((ROOT / path).exists())
                if anchor:
                    headings = re.findall(r"^#+ (.+)$", (ROOT / (path or "README.md")).read_text(), re.M)
                    self.assertIn(anchor, [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings])


class BlankLines(unittest.TestCase):
    def test_lists_and_tables_get_one(self):
        self.assertEqual(docs_hook.with_blank_lines("a:\n- b\n- c"), "a:\n\n- b\n- c")
        self.assertEqual(docs_hook.with_blank_lines("<!-- t -->\n| a |\n|---|"), "<!-- t -->\n\n| a |\n|---|")

    def test_others_do_not(self):
        for text in ("- a\n  goes on\n- b", "a\n\n- b", "| a |\n|---|\n| b |", "```\na\n- b\n```"):
            self.assertEqual(docs_hook.with_blank_lines(text), text)


class Site(unittest.TestCase):
    def faults(self, first=FIRST, relay="<p>", css="", index=INDEX):
        with tempfile.TemporaryDirectory() as folder:
            site = pathlib.Path(folder)
            for name, text in {"index.html": first, "relay/index.html": relay, "a.css": css, "search/search_index.json": index}.items():
                (site / name).parent.mkdir(exist_ok=True)
                (site / name).write_text(text)
            checks = (check_site.page_faults, check_site.style_faults, check_site.search_faults, check_site.first_page_faults)
            return [fault for check in checks for fault in check(site)]

    def test_a_good_one(self):
        self.assertEqual(self.faults(relay='<a href="https://example.org">x</a><img src="../a.png"><link rel="canonical" href="https://x.org">'), [])

    def test_other_hosts(self):
        for relay in ('<script src="https://x.org/a.js">', '<img src="//x.org/a.png">', '<link rel="stylesheet" href="https://x.org/a.css">',
                      '<link rel="preconnect" href="https://x.org">', '<pre class="mermaid">'):
            self.assertEqual(len(self.faults(relay=relay)), 1, relay)
        self.assertEqual(len(self.faults(css="@font-face { src: url(https://x.org/a.woff) }")), 1)

    def test_search_and_first_page(self):
        self.assertEqual(self.faults(index='{"docs": [{"location": ""}]}'), ["search does not know relay/index.html"])
        self.assertEqual(len(self.faults(first="<p>")), 1)


if __name__ == "__main__":
    unittest.main()
