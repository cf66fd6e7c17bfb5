# SPDX-License-Identifier: Apache-2.0
"""``python -m sluice.try train.py``: runs a script whose DDP models exchange their gradients through Sluice."""

from ._trial import main

if __name__ == "__main__":
    main()
