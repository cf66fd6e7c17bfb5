#!/usr/bin/env python3
"""The pages of documentation have at most 45,000 words, so that a person can read them. Generated pages and tables do not count.

usage: size_test.py ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT = 45_000
GENERATED_PAGES = ("docs/flags.md",)
GENERATED = re.compile(r"<!-- keys of .*?<!-- end of keys -->|<!-- states of .*?<!-- end of states -->|<!-- support table -->.*?<!-- end of support table -->|^\| `sluice_[a-z_]+` \|.*?$",
                       re.M | re.S)


def words(text):
    """A word contains a letter or a digit, so that the borders of tables do not count."""
    return sum(re.search(r"\w", word) is not None for word in GENERATED.sub("", text).split())


class Size(unittest.TestCase):
    def test_generated_tables_and_borders_do_not_count(self):
        self.assertEqual(words("one | two |\n<!-- keys of a -->\n| b |\n<!-- end of keys -->\n| `sluice_step` | gauge | step |\n|---|\n"), 2)

    def test_pages(self):
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        sizes = {str(page.relative_to(ROOT)): words(page.read_text()) for page in pages}
        total = sum(size for page, size in sizes.items() if page not in GENERATED_PAGES)
        self.assertGreater(total, 20_000)
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
        self.assertLessEqual(total, LIMIT, f"shorten the pages; the largest are {largest}")


if __name__ == "__main__":
    unittest.main()
