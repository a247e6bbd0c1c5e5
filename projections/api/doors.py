"""Who gets in: by a token, also as the password of a name, or as a proxy in front has it. What is kept of a token is its hash."""

import base64
import binascii
import ipaddress
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Final, TypeAlias

import msgspec
from lru import LRU

from jobevents.boundary import check_name
from jobevents.errors import InvalidValue, Misconfigured
from projections.api.access import (
    AGAIN,
    READ_ONLY,
    ROLES,
    Access,
    Anonymous,
    Identity,
    NotIdentified,
    Role,
    TooManyTries,
)

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

CHALLENGE: Final = 'Basic realm="jobevents", charset="UTF-8", Bearer'  # a browser asks for name and password
TRIES: Final = 20  # wrong ones that an address has in a minute
_MINUTE_S: Final = 60.0
_ADDRESSES: Final = 10_000  # whose wrong tries are remembered


class Holder(msgspec.Struct, frozen=True):
    """Who holds a token."""

    name: str  # the `actor` of the events that come of it
    roles: frozenset[Role]
    digest: str  # SHA-256 of the token, in hexadecimal


def new_token() -> str:
    """Return a token that nobody guesses: 256 bits, which a fast hash keeps as well as a slow one."""
    return secrets.token_urlsafe(32)


def line_of(name: str, roles: Collection[str], token: str) -> str:
    """Return the line of a file of tokens.

    Raises:
        InvalidValue: the name cannot stand in it, or no role is named.
    """
    check_name("name", name)
    if any(one.isspace() for one in name) or ":" in name or name.startswith("#"):
        raise InvalidValue(f"name has spaces or a colon, or begins with # name={name!r}")
    unknown = set(roles) - set(ROLES)
    if unknown or not roles:
        raise InvalidValue(f"no such roles roles={', '.join(sorted(unknown)) or 'none'}; there are: {', '.join(ROLES)}")
    return f"{name} {','.join(role for role in ROLES if role in roles)} {_digest(token)}"


def read_holders(text: str, where: str) -> list[Holder]:
    """Return the holders that lines of `name roles digest` name; empty lines and those after # are passed over.

    Args:
        where: the lines are from, for messages.

    Raises:
        Misconfigured: a line is none of those; it is not shown, as it may be a token.
    """
    holders = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        roles = frozenset(role for role in ROLES if role in parts[1].split(",")) if len(parts) == 3 else frozenset()
        is_digest = len(parts) == 3 and len(parts[2]) == 64 and set(parts[2]) <= set("0123456789abcdef")
        if not is_digest or len(roles) != len(set(parts[1].split(","))):
            raise Misconfigured(
                f"line is not NAME ROLES SHA256 where={where} line={number}: make one with `jobevents token NAME --role read`"
            )
        holders.append(Holder(parts[0], roles, parts[2]))
    if not holders:
        raise Misconfigured(f"no tokens where={where}: make one with `jobevents token NAME --role read`")
    return holders


class Tokens:
    """Lets in who holds a token: as `Authorization: Bearer TOKEN`, or as the password of its name. Safe for threads."""

    is_open = False

    def __init__(self, holders: Sequence[Holder], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._holders = tuple(holders)
        self._throttle = Throttle(monotonic)

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        if not scheme:
            raise NotIdentified("no Authorization", challenge=CHALLENGE)
        name, token = _basic(rest) if scheme.lower() == "basic" else (None, rest.strip())
        found = self._find(name, token) if scheme.lower() in ("basic", "bearer") else None
        if found is None:
            self._throttle.check(peer)
            self._throttle.failed(peer)
            raise NotIdentified("no such token", challenge=CHALLENGE)
        return Identity(found.name, found.roles)

    def _find(self, name: str | None, token: str) -> Holder | None:
        """Return whose token it is; every holder's is compared, whole, so that the time it takes says nothing."""
        digest = _digest(token)
        found = None
        for holder in self._holders:
            if compare_digest(holder.digest, digest) and name in (None, holder.name):
                found = holder
        return found


class ProxyHeader:
    """Takes the word of a proxy in front, which has judged the caller, for who that is."""

    is_open = False

    def __init__(self, header: str, sources: Iterable[str], roles: Collection[Role]) -> None:
        """Believe a header of requests from these addresses alone, which comes once: a caller's own may be beside the proxy's.

        Args:
            header: such as X-Forwarded-User, its whole value the name, commas included; the proxy must take away one that a
                caller sends, and not add to it.
            sources: addresses or networks of the proxy.
            roles: of everybody whom it lets through.

        Raises:
            Misconfigured: one is no address.
        """
        self._header = header.lower()
        self._sources = [_network(one) for one in sources]
        self._roles = frozenset(roles)

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        if not self.trusts(peer):
            raise NotIdentified("not from the proxy")
        said = headers.get(self._header, "").strip(" \t")
        if AGAIN in said:
            raise NotIdentified(f"the header came twice: one may be the caller's own header={self._header}")
        try:
            name = check_name("name", said)
        except InvalidValue as error:
            raise NotIdentified(f"the proxy names nobody header={self._header}") from error
        return Identity(name, self._roles)

    def trusts(self, peer: str) -> bool:
        """Tell whether an address is the proxy's."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._sources)


class Doors:
    """Several ways in: the first that knows the caller."""

    is_open = False

    def __init__(self, doors: Sequence[Access]) -> None:
        self._doors = tuple(doors)

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        refusal: NotIdentified | None = None
        for door in self._doors:
            try:
                return door.identify(headers, peer)
            except NotIdentified as error:
                refusal = error
        raise refusal or NotIdentified("there is no way in")


def open_doors(
    *,
    tokens: tuple[str, str] = ("", ""),
    proxy_header: str = "",
    proxy_from: Collection[str] = (),
    proxy_roles: Collection[str] = ("read",),
    read_only: bool = False,
) -> Access:
    """Return who is let in, as a server is told: by a proxy's word, by tokens, or else whoever reaches the port.

    Args:
        tokens: lines as `read_holders` takes them, and where they are from; "" twice: there are none.

    Raises:
        Misconfigured: a line, a role or an address is none, or a header is to be believed from nowhere.
    """
    doors: list[Access] = []
    if proxy_header:
        if not proxy_from:
            raise Misconfigured("a proxy's header is believed from its own address alone: name that with --proxy-from")
        roles = [role for role in ROLES if role in proxy_roles]
        if len(roles) != len(set(proxy_roles)):
            raise Misconfigured(f"no such role; there are: {', '.join(ROLES)}")
        doors.append(ProxyHeader(proxy_header, proxy_from, roles))
    text, where = tokens
    if where:
        doors.append(Tokens(read_holders(text, where)))
    if not doors:
        return Anonymous(read_only=read_only)
    return ReadOnly(Doors(doors)) if read_only else Doors(doors)


class ReadOnly:
    """Lets in whom another lets in, for reading alone."""

    def __init__(self, door: Access) -> None:
        self.is_open = door.is_open
        self._door = door

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        found = self._door.identify(headers, peer)
        return Identity(found.name, found.roles & READ_ONLY)


class Throttle:
    """Counts wrong tries of each address, and has further wrong ones wait: who is right is never held up by a neighbour."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failed: LRU[str, tuple[float, int]] = LRU(_ADDRESSES)  # address -> when the minute began, how many since

    def check(self, peer: str) -> None:
        """Refuse an address that has tried too often.

        Raises:
            TooManyTries: it has.
        """
        began, tries = self._failed.get(peer, (0.0, 0))
        if tries >= TRIES and self._monotonic() - began < _MINUTE_S:
            raise TooManyTries(f"too many wrong tokens in a minute limit={TRIES}")

    def failed(self, peer: str) -> None:
        """Count a wrong try."""
        now = self._monotonic()
        began, tries = self._failed.get(peer, (now, 0))
        self._failed[peer] = (now, 1) if now - began >= _MINUTE_S else (began, tries + 1)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _basic(text: str) -> tuple[str, str]:
    """Return name and password; both empty when they cannot be read, which nobody has."""
    try:
        name, _, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeError, ValueError):
        return "", ""
    return name, password


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise Misconfigured(f"not an address or network value={text!r}: {error}") from error
