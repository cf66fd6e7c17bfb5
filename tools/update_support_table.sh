#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the output of `sluice codecs --support` into docs/compression.md.
#
# usage: tools/update_support_table.sh [BUILD_DIR]     default: build/release
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
"$build/bin/sluice" codecs --support > "$build/support_table.md"
python3 - "$build/support_table.md" docs/compression.md <<'PYTHON'
import sys
table, page = sys.argv[1:]
text = open(page).read()
begin, end = "<!-- support table -->\n", "<!-- end of support table -->"
at = text.index(begin) + len(begin)
open(page, "w").write(text[:at] + open(table).read() + text[text.index(end):])
PYTHON
