"""Which network addresses this process may talk to on others' behalf, and connections to just those.

A name is resolved and checked where the connection is made, and the very address checked is the one connected to:
a name that answers differently a moment later changes nothing. TLS and `Host` keep the name.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpcore

from runs.tools.bounds import MAX_ADDRESSES, RESOLVE_THREADS, RESOLVE_TIMEOUT_S

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a name and port to addresses as text; raises OSError where there is none."""

_METADATA = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"))
)
"""Where clouds hand out credentials to whoever asks from the inside (the last one is a public address of Azure)."""
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_V4_COMPATIBLE = ipaddress.ip_network("::/96")
_SPECIAL: tuple[Network, ...] = (ipaddress.ip_network("192.0.0.0/24"), ipaddress.ip_network("fec0::/10"))
"""Protocol assignments and old site-local addresses, which Python's `is_global` judges differently by version."""


class AddressRefused(Exception):
    """The address must not be connected to. Nothing was sent. The message names the host and why."""


class NameUnknown(OSError):
    """The name has no address, or none came in time. Nothing was sent."""


class AddressGuard:
    """Decides about addresses; `backend()` makes connections by it.

    `allowed` lists names (`api.internal`, `*.corp.example`), addresses and networks (`10.1.0.0/16`). A listed
    network admits whatever is in it; a listed name admits private and loopback addresses it resolves to, but never
    link-local ones, where metadata services live: DNS is not always in the hands of whoever wrote the list.
    Raises ValueError for an entry that is neither.
    """

    def __init__(
        self, allow_loopback: bool = False, allowed: Iterable[str] = (), *, resolver: Resolver | None = None
    ) -> None:
        self._allow_loopback = allow_loopback
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._suffixes: tuple[str, ...] = ()
        self._resolver = resolver or _resolve
        for entry in allowed:
            self._allow(entry.strip().lower())

    def _allow(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            return
        except ValueError:
            # Not an address: a name.
            pass
        name = entry.removeprefix("*.").rstrip(".")
        if not name or not all(c.isalnum() or c in "-._" for c in name):
            raise ValueError(f"neither a host name nor an address or network: {entry!r}")
        if entry.startswith("*."):
            self._suffixes += (f".{name}",)
        else:
            self._names.add(name)

    def check_url(self, url: str) -> None:
        """Raises AddressRefused for what no address can make right: another scheme, credentials, no host.

        Also for a literal address that is refused. Names are checked when the connection is made.
        """
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise AddressRefused("the address cannot be read") from None
        if parts.scheme not in ("http", "https"):
            raise AddressRefused(f"only http and https are allowed, not {parts.scheme[:20]!r}")
        if parts.username is not None or parts.password is not None:
            raise AddressRefused("user name or password in the address")
        if not host:
            raise AddressRefused("the address names no host")
        literal = _literal(host)
        if literal is not None:
            why = self._why_not(literal, named=False)
            if why:
                raise AddressRefused(f"{host}: {why}")

    async def check(self, url: str) -> None:
        """`check_url`, and the name's addresses as of now: for a friendly answer when an address is entered.

        Raises AddressRefused and NameUnknown.
        """
        self.check_url(url)
        parts = urlsplit(url)
        await self.addresses(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of `host` that may be connected to. Raises AddressRefused if none, NameUnknown if no such."""
        literal = _literal(host)
        name = host.rstrip(".").lower()
        named = name in self._names or name.endswith(self._suffixes)
        found = [host] if literal is not None else await self._look_up(host, port)
        good: list[str] = []
        reasons: list[str] = []
        for text in found:
            address = _literal(text)
            why = "not an address" if address is None else self._why_not(address, named=named)
            if why:
                reasons.append(why)
            elif text not in good:
                good.append(text)
        if not good:
            raise AddressRefused(f"{host[:200]}: {reasons[0] if reasons else 'no address'}")
        return good[:MAX_ADDRESSES]

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                return await self._resolver(host, port)
        except TimeoutError:
            raise NameUnknown(f"{host[:200]}: no answer from the resolver") from None
        except (OSError, UnicodeError) as exc:
            raise NameUnknown(f"{host[:200]}: the name cannot be resolved") from exc

    def _why_not(self, address: Address, *, named: bool) -> str | None:
        """Why the address is refused; None if it is not. An address inside another one must pass as well."""
        if _in(address, self._networks):
            return None
        inner = _embedded(address)
        if inner is not None:
            return self._why_not(inner, named=named)
        kind = _kind(address)
        if kind is None or (kind == "loopback" and self._allow_loopback):
            return None
        if named and kind in ("loopback", "private"):
            return None
        return f"{kind} address"

    def backend(self) -> httpcore.AsyncNetworkBackend:
        """A network backend for httpcore that connects to checked addresses only."""
        return _GuardedBackend(self)


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._guard.addresses(host, port)
        except NameUnknown as exc:
            raise httpcore.ConnectError(str(exc)) from exc
        # One bound for all addresses together: a name with many dead ones must not multiply it.
        share = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(addresses[-1], port, share, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefused("unix sockets are not for upstreams")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def _in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _embedded(address: Address) -> Address | None:
    """The IPv4 address that an IPv6 one leads to: mapped, compatible, 6to4, Teredo or NAT64."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    compatible = address in _V4_COMPATIBLE and int(address) > 0xFFFF
    if compatible or any(address in network for network in _NAT64):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _kind(address: Address) -> str | None:
    """What is wrong with a plain address; None for a public one."""
    if address in _METADATA:
        return "metadata"
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if not address.is_global or address.is_reserved or _in(address, _SPECIAL):
        return "private"
    return None


_threads = ThreadPoolExecutor(RESOLVE_THREADS, thread_name_prefix="resolve")


async def _resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
