# SPDX-License-Identifier: Apache-2.0
"""The ports and the addresses of the servers that ranks start."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import socket
from collections.abc import Iterator

import pytest
from conftest import Start, await_all

from sluice import SluiceError, _network

FREE = 3  # Ports of a range.


def _bind(port: int, listen: bool = False) -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("0.0.0.0", port))
        if listen:
            held.listen()
    except OSError:
        held.close()
        raise
    return held


@pytest.fixture
def ports() -> range:
    """Ports that are free, and that the kernel gives to no connection."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        chosen = random.randrange(first // 2, first - FREE)
        found = range(chosen, chosen + FREE)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in found:
                held.enter_context(_bind(port))
            return found


@pytest.fixture
def taken(ports: range) -> Iterator[list[socket.socket]]:
    """Other programs listen on the first port."""
    held = [_bind(ports[0], listen=True)]
    yield held
    for one in held:
        one.close()


def _text(ports: range) -> str:
    return f"{ports[0]}-{ports[-1]}"


def test_servers_take_the_free_ports_of_a_range(start: Start, ports: range, taken: list[socket.socket]) -> None:
    ranks = start("network.py", json.dumps({"ports": _text(ports), "shards": 2, "interface": "127.0.0.2"}))
    assert ranks[0].await_word("addresses") == [f"127.0.0.2:{ports[1]}", f"127.0.0.2:{ports[2]}"]
    assert [rank.await_word("mean") for rank in ranks] == [0.5, 0.5]
    await_all(ranks)


def test_all_ranks_are_told_that_no_port_is_free(start: Start, ports: range, taken: list[socket.socket]) -> None:
    taken.extend(_bind(port, listen=True) for port in ports[1:])
    ranks = start("network.py", "{}", SLUICE_PORTS=_text(ports))
    first, second = (rank.await_word("error") for rank in ranks)
    assert first.startswith(f"shard 0 found no free port at 127.0.0.1: ports {_text(ports)} are all taken on "), first
    assert second == f"rank 0 could not start the servers: {first}"
    assert [rank.await_word("code") for rank in ranks] == ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]


def test_a_failure_other_than_a_taken_port_is_not_hidden(start: Start, ports: range) -> None:
    ranks = start("network.py", "{}", SLUICE_PORTS=_text(ports), SLUICE_INTERFACE="192.0.2.77")
    error = ranks[0].await_word("error")
    assert f"cannot listen on 192.0.2.77:{ports[0]}" in error, error


def _networks() -> list[tuple[str, str]]:
    """Interfaces of this host that other hosts may reach, and their addresses."""
    found = []
    for _, name in socket.if_nameindex():
        with contextlib.suppress(SluiceError):
            found.append((name, _network.own_address(["a", "b"], name)))
    return found


def test_each_host_advertises_its_interface(start: Start, ports: range) -> None:
    """Two ranks play two hosts. $MASTER_ADDR is not set: the interface makes it superfluous."""
    networks = _networks()
    if not networks:
        pytest.skip("this host has no network")
    name, address = networks[0]
    ranks = start("network.py", json.dumps({"hosts": True, "ports": _text(ports)}), SLUICE_INTERFACE=name)
    found = [rank.await_word("addresses") for rank in ranks]
    assert sorted(port for [port] in found) == [f"{address}:{port}" for port in ports[:2]]
    assert [rank.await_word("mean") for rank in ranks] == [0.5, 0.5]
    await_all(ranks)


@pytest.mark.parametrize("text", ["7079-7070", "0-5", "70000", "7070-", "a-b", "7070,7071", "٧٠٧٠"])
def test_wrong_ports_are_refused(text: str) -> None:
    with pytest.raises(SluiceError, match='ports is .* and must be like "7070-7079"') as error:
        _network.read_ports(text)
    assert error.value.code == "INVALID_ARGUMENT"


def test_addresses() -> None:
    assert list(_network.read_ports("7070-7072")) == [7070, 7071, 7072]
    assert list(_network.read_ports("7070")) == [7070]
    assert list(_network.read_ports(None)) == [0]
    assert _network.own_address(["a", "a"], None) == "127.0.0.1"
    assert _network.own_address(["a", "a"], "lo") == "127.0.0.1"
    assert _network.listen_at(_network.own_address(["a", "b"], "fd00::2"), 7070) == "[fd00::2]:7070"
    for interface, message in [
        ("nothing0", r"interface is 'nothing0', which is neither an address nor an interface of .*: it has .*\blo\b"),
        ("lo", "other hosts cannot reach 127.0.0.1"),
        ("0.0.0.0", "other hosts cannot reach 0.0.0.0"),
    ]:
        with pytest.raises(SluiceError, match=message):
            _network.own_address(["a", "b"], interface)
