# SPDX-License-Identifier: Apache-2.0
"""The addresses and the ports on which shards listen."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import re
import socket
import struct

from ._errors import SluiceError

_ANY_PORT = range(1)  # The kernel replaces port 0 by a free one.
_PORT_MAX = 65535
_SIOCGIFADDR = 0x8915  # linux/sockios.h: asks for the IPv4 address of an interface.
_IFNAME_MAX = 15


def read_ports(text: str | None) -> range:
    """Returns the ports of ``FIRST-LAST`` or of one number. None and an empty text stand for any free port."""
    if not text:
        return _ANY_PORT
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
    if match:
        first, last = int(match[1]), int(match[2] or match[1])
        if 1 <= first <= last <= _PORT_MAX:
            return range(first, last + 1)
    raise SluiceError(f'ports is {text!r}, and must be like "7070-7079", from 1 to {_PORT_MAX}', code="INVALID_ARGUMENT")


def show_ports(ports: range) -> str:
    return f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]}-{ports[-1]}"


def listen_at(host: str, port: int) -> str:
    """Returns HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_taken(host: str, port: int) -> bool:
    """Whether another socket listens on the port, or is about to."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As servers do.
        try:
            probe.bind((host, port))
        except OSError as failure:
            return failure.errno == errno.EADDRINUSE
    return False


def _interface_address(name: str) -> str:
    """Returns the IPv4 address of an interface of this host."""
    known = [found for _, found in socket.if_nameindex()]
    if name not in known:
        raise SluiceError(
            f"interface is {name!r}, which is neither an address nor an interface of {socket.gethostname()}: it has {', '.join(known)}",
            code="NOT_FOUND",
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:_IFNAME_MAX])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            raise SluiceError(
                f"the interface {name} of {socket.gethostname()} has no IPv4 address: give an address", code="NOT_FOUND"
            ) from None
    return socket.inet_ntoa(answer[20:24])  # struct ifreq: 16 bytes of name, then a sockaddr_in.


def _routed_address() -> str:
    """Returns the address of this host on the way to ``$MASTER_ADDR``."""
    master = os.environ.get("MASTER_ADDR", "")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))  # Sends nothing: it asks the kernel for a route.
            address: str = probe.getsockname()[0]
    except OSError as failure:
        raise SluiceError(
            f"no route to $MASTER_ADDR ({master!r}: {failure}): give interface=, or start the servers yourself and give coordinator=",
            code="UNAVAILABLE",
        ) from None
    if address.startswith("127."):
        raise SluiceError(
            f"$MASTER_ADDR, {master!r}, is this host's loopback address {address}, which other hosts cannot reach: "
            "give an address of the network between the hosts",
            code="FAILED_PRECONDITION",
        )
    return address


def own_address(hosts: list[str], interface: str | None) -> str:
    """Returns the address on which this host's shards listen, and under which the other hosts reach them.

    Args:
        hosts: The name of each rank's host.
        interface: The name of an interface of this host, or an address of it. None and an empty text: one that fits.
    """
    alone = len(set(hosts)) == 1
    if not interface:
        return "127.0.0.1" if alone else _routed_address()
    address = None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(interface)
    found = address or ipaddress.ip_address(_interface_address(interface))
    if found.is_unspecified or (found.is_loopback and not alone):
        raise SluiceError(
            f"interface is {interface!r}, and the other hosts cannot reach {found}: give an interface of the network between the hosts",
            code="FAILED_PRECONDITION",
        )
    return str(found)
