#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests mutants.py."""
import unittest

from mutants import mutants

SOURCE = '''\
// A comment about a < b and 3 things.
#include "a/b.h"
constexpr int kMax = 7;
int Least(int a, int b) {
  if (a < b) return a;
  Log("a >= b", a - b);
  --count_;
  const bool late = state.Later(a, true) ||
                    other(b);
  return late ? std::min(a, 16) : b + 1;  // The smaller one, 1.
}
'''


class Mutants(unittest.TestCase):
    def of(self, line):
        return [mutant.after.strip() for mutant in mutants("x.cc", SOURCE) if mutant.line == line]

    def test_comments_preprocessor_and_constants_have_none(self):
        self.assertEqual([self.of(line) for line in (1, 2, 3, 4, 11)], [[]] * 5)

    def test_conditions_change(self):
        self.assertEqual(self.of(5), ["if (a <= b) return a;", "if (!(a < b)) return a;"])

    def test_texts_stay_and_statements_are_left_out(self):
        self.assertEqual(self.of(6), ['Log("a >= b", a + b);', ";"])
        self.assertEqual(self.of(7), [";"])

    def test_parts_of_statements_change_but_are_not_left_out(self):
        self.assertEqual(self.of(8), ["const bool late = state.Later(a, true) &&", "const bool late = state.Later(a, false) ||"])
        self.assertEqual(self.of(9), [])

    def test_numbers_calls_and_operators_change(self):
        self.assertEqual(
            self.of(10),
            [
                "return late ? std::min(a, 16) : b - 1;  // The smaller one, 1.",
                "return late ? std::max(a, 16) : b + 1;  // The smaller one, 1.",
                "return late ? std::min(a, 17) : b + 1;  // The smaller one, 1.",
                "return late ? std::min(a, 16) : b + 2;  // The smaller one, 1.",
            ],
        )

    def test_a_mutant_keeps_the_original_line(self):
        first = next(mutants("x.cc", SOURCE))
        self.assertEqual((first.path, first.line, first.before), ("x.cc", 5, "  if (a < b) return a;"))


if __name__ == "__main__":
    unittest.main()
