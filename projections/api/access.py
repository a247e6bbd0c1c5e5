"""Who may do what: the roles, the identity of a caller, and the port by which an app tells one from the other."""

import ipaddress
from collections.abc import Collection, Mapping
from typing import Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec

from jobevents.errors import JobEventsError, Misconfigured

Role: TypeAlias = Literal["read", "submit", "cancel", "retry", "delete", "pause", "admin"]

ROLES: tuple[Role, ...] = ("read", "submit", "cancel", "retry", "delete", "pause", "admin")
READ_ONLY: frozenset[Role] = frozenset({"read"})
AGAIN = "\n"
"""Between the values of a header that came twice: a comma may be within one, as in `CN=Ana,O=Example`."""


class NotIdentified(JobEventsError):
    """Nobody is known by what the request carries; `challenge` is what to ask for (RFC 9110, WWW-Authenticate)."""

    def __init__(self, message: str, *, challenge: str = "Bearer") -> None:
        super().__init__(message)
        self.challenge = challenge


class NotAllowed(JobEventsError):
    """The caller is known and may not do this."""


class TooManyTries(JobEventsError):
    """An address has tried too many wrong tokens: it has to wait."""


class WrongHost(JobEventsError):
    """The request names a host that this server is not: a page somewhere may have its name lead here."""


class Identity(msgspec.Struct, frozen=True):
    """Who calls, and what they may do."""

    name: str  # the `actor` of the events that come of it
    roles: frozenset[Role]


class Access(Protocol):
    """Tells who calls. Called once a request, before anything is read; must not block."""

    is_open: bool  # anybody who reaches the port is let in

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        """Return who calls.

        Args:
            headers: of the request, names in lower case; the values of one that came twice with AGAIN between, which no
                header holds by itself.
            peer: address of who opened the connection; "" where it is not known.

        Raises:
            NotIdentified: nobody is known by them.
        """
        ...


class Anonymous:
    """Lets in whoever reaches the port: for loopback, and behind something that has judged the caller."""

    is_open = True

    def __init__(self, *, name: str = "anonymous", read_only: bool = False) -> None:
        """Give everybody this name, and all roles or `read` alone."""
        self._identity = Identity(name, READ_ONLY if read_only else frozenset(ROLES))

    def identify(self, headers: Mapping[str, str], peer: str) -> Identity:
        return self._identity


def check_role(identity: Identity, role: Role) -> None:
    """Refuse who has not the role.

    Raises:
        NotAllowed: they have not.
    """
    if role not in identity.roles:
        held = ", ".join(sorted(identity.roles)) or "none"
        raise NotAllowed(f"this needs the role {role} caller={identity.name} roles={held}")


def check_site(headers: Mapping[str, str]) -> None:
    """Refuse a command that a browser sends for another site's page: what the browser lets through carries our caller's rights.

    Raises:
        NotAllowed: it comes from another site.
    """
    fetched = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin", "")
    if fetched not in ("same-origin", "none") or (origin and origin.partition("://")[2] != headers.get("host", "")):
        raise NotAllowed(f"commands are taken from pages of this server alone origin={origin:.200}")


def check_host(headers: Mapping[str, str], hosts: Collection[str]) -> None:
    """Refuse a request for another host than these; any is taken where none is named.

    Raises:
        WrongHost: it is for another.
    """
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        host = ""
    if hosts and host not in hosts:
        raise WrongHost(f"this server is not called so host={host!r:.200}; name it with --allowed-host")


def check_bind(host: str, access: Access, *, open_to_all: bool = False) -> None:
    """Refuse to listen beyond this machine while anybody would be let in.

    Raises:
        Misconfigured: it would.
    """
    if access.is_open and not open_to_all and not is_loopback(host):
        raise Misconfigured(
            f"without authentication this would be open to whoever reaches the port host={host}: "
            "listen on 127.0.0.1, or give --open-to-all if something in front judges the callers"
        )


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address reaches this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
