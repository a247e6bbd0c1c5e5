"""Google's OIDC tokens, by which Cloud Tasks, Pub/Sub and Cloud Scheduler say who they are: checked by google-auth."""

import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import google.auth.exceptions
import google.auth.jwt
import msgspec

from jobevents.errors import Misconfigured, PermissionDenied, Unavailable
from jobevents.trouble import Trouble

KEYS_URL = "https://www.googleapis.com/oauth2/v1/certs"  # key id -> certificate; Google changes them about once a week
ISSUERS = ("https://accounts.google.com", "accounts.google.com")
KEYS_S = 3600.0  # how long keys are used before they are fetched again; Google lets them be cached for some six hours
STALE_S = 24 * 3600.0  # how long the last keys are used while none can be fetched
REFETCH_S = 10.0  # between two fetches for a key that is not known: or anybody could have us fetch all the time
SKEW_S = 10.0  # by which two clocks may differ
LONGEST_S = 24 * 3600.0  # from issue to end; Google's are good for an hour
TOKEN_LIMIT = 8192  # characters; Google's have about 1,000

Keys = Mapping[str, str]
"""Key id -> certificate or public key, PEM."""

_NOT_GOOD = (  # OverflowError: int() of an infinite time
    google.auth.exceptions.GoogleAuthError, ValueError, TypeError, AttributeError, RecursionError, OverflowError,
)  # fmt: skip

logger = logging.getLogger(__name__)


class TokenCheck:
    """Tells who a token is of. Safe for threads; reads keys over the network, at most once in ten seconds."""

    def __init__(
        self,
        audience: str | Sequence[str],
        accounts: str | Sequence[str],
        *,
        fetch_keys: Callable[[], Keys] | None = None,
        issuers: Sequence[str] = ISSUERS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fetch nothing yet.

        Args:
            audience: what tokens must be for: anybody can get a token of Google's for some other.
            accounts: emails of the service accounts that may call: anybody can get one of theirs for this audience.
            fetch_keys: returns the keys that are good now; default: Google's.

        Raises:
            Misconfigured: no audience or no account is named.
        """
        self._audience = _named("audience", audience)
        self._accounts = frozenset(_named("account", accounts))
        self._fetch_keys = fetch_keys or google_keys
        self._issuers = issuers
        self._monotonic = monotonic
        self._keys: Keys = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._lock = threading.Lock()
        self._trouble = Trouble(
            "fetching the keys of tokens", logger, again="the last ones are used meanwhile", monotonic=monotonic
        )

    def __call__(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token (Any: JSON).

        Raises:
            PermissionDenied: it is not signed by a key that is good now, has expired, or is of or for somebody else.
            Unavailable: the keys cannot be fetched, so that it cannot be known.
        """
        if not token or len(token) > TOKEN_LIMIT:
            raise PermissionDenied(f"no token, or a token of over {TOKEN_LIMIT} characters length={len(token)}")
        try:
            key_id = google.auth.jwt.decode_header(token).get("kid")
            if not isinstance(key_id, str) or not key_id:
                raise PermissionDenied("token names no key")
            claims: Mapping[str, Any] = google.auth.jwt.decode(
                token, certs=self._keys_with(key_id), audience=self._audience, clock_skew_in_seconds=SKEW_S
            )
        except _NOT_GOOD as error:
            raise PermissionDenied(f"token is not good: {error!s:.200}") from error
        if claims.get("iss") not in self._issuers:
            raise PermissionDenied(f"token is of another issuer iss={claims.get('iss')!r:.80}")
        if not _ends(claims):
            raise PermissionDenied(
                f"token does not end within a day iat={claims['iat']!r:.40} exp={claims['exp']!r:.40}"
            )
        email = claims.get("email")
        if not isinstance(email, str) or email not in self._accounts or claims.get("email_verified") is not True:
            raise PermissionDenied(f"token is of another account email={email!r:.80}")
        return claims

    def _keys_with(self, key_id: str) -> Keys:
        """Return the keys, fetched again when they are old, or when the one asked for is not among them.

        Raises:
            Unavailable: there are none that could be used, or it cannot be known yet whether the key is a new one.
        """
        with self._lock:
            now = self._monotonic()
            is_old = now - self._fetched_at >= KEYS_S
            if (is_old or key_id not in self._keys) and now - self._tried_at >= REFETCH_S:
                self._fetch(now)
            age_s = now - self._fetched_at
            if age_s >= STALE_S:
                self._keys = {}
                raise Unavailable("keys of tokens cannot be fetched, so that no token can be checked")
            if key_id not in self._keys and self._fetched_at < self._tried_at:
                raise Unavailable("keys of tokens cannot be fetched now, and the token's is not among the last ones")
            if key_id not in self._keys and self._fetched_at < now:
                raise Unavailable("token's key is not known, and keys were fetched this instant; try again")
            return self._keys

    def _fetch(self, now: float) -> None:
        self._tried_at = now
        try:
            self._keys = dict(self._fetch_keys())
        except Exception as error:  # noqa: BLE001  # whatever it is of the user's: the last keys are used
            self._trouble.came(error)
        else:
            self._fetched_at = now
            self._trouble.went()


def _ends(claims: Mapping[str, Any]) -> bool:
    """Tell whether a token is good for a while and not for ever; NaN is nowhere in between."""
    iat, exp = claims["iat"], claims["exp"]
    return type(iat) in (int, float) and type(exp) in (int, float) and 0 < exp - iat <= LONGEST_S


def google_keys() -> Keys:
    """Fetch Google's keys: one request, of at most five seconds.

    Raises:
        Unavailable: they could not be fetched.
    """
    try:
        with urllib.request.urlopen(KEYS_URL, timeout=5.0) as reply:  # https, always
            return msgspec.json.decode(reply.read(1 << 20), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Unavailable(f"keys cannot be fetched url={KEYS_URL} error={error}") from error


def _named(what: str, given: str | Sequence[str]) -> tuple[str, ...]:
    named = (given,) if isinstance(given, str) else tuple(given)
    if not named or not all(isinstance(one, str) and one for one in named):
        raise Misconfigured(f"no {what} value={given!r:.80}; without one, anybody on the internet could call")
    return named
