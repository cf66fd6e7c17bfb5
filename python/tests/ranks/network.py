# SPDX-License-Identifier: Apache-2.0
"""Starts servers at the ports and the addresses that the arguments name, and takes a step."""

from __future__ import annotations

import json
import socket
import sys

import common
import torch
from torch import nn

import sluice


def main() -> None:
    options = json.loads(sys.argv[1])
    if options.pop("hosts", False):  # Each rank plays a host of its own.
        socket.gethostname = lambda: f"host-{common.RANK}"
    common.begin()
    try:
        session = sluice.init(nn.Linear(20, 30), uplink="none", downlink="none", quiet=True, **options)
    except sluice.SluiceError as error:
        common.say(error=str(error), code=error.code)
        return
    session.submit(1, torch.full((30,), float(common.RANK)))
    session.submit(0, torch.zeros(30, 20))
    session.wait()
    mean = torch.empty(30)
    session.apply(1, mean)
    common.say(addresses=[shard.address for shard in session._shards], mean=float(mean[0]))
    session.close()
    common.end()


main()
