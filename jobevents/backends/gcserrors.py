"""What the errors of the Cloud Storage library mean: which pass by themselves, and which of ours each is.

A refusal is never taken for an absence: 401 and 403 are PermissionDenied, and of the two 404s one says that the bucket is not
there.
"""

import google.auth.exceptions
import requests
import urllib3
from google.api_core import exceptions as api_errors
from google.cloud.storage import exceptions as media_errors

from jobevents import errors

_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
FAILURES = (
    api_errors.GoogleAPICallError,
    media_errors.InvalidResponse,
    media_errors.DataCorruption,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    google.auth.exceptions.GoogleAuthError,
    ConnectionError,
)


def translated(error: Exception, doing: str, bucket: str, *, absent_is_bucket: bool = False) -> errors.JobEventsError:
    """Return our error for one of the library's, to be raised from it.

    Args:
        absent_is_bucket: a 404 can only mean that there is no such bucket.
    """
    what = f"cannot {doing} bucket={bucket}"
    match status_of(error):
        case 404 if absent_is_bucket or is_bucket_missing(error):
            return errors.Misconfigured(f"{what}: there is no such bucket; create it or name another")
        case 404:
            return errors.NotFound(f"{what}: no such blob")
        case 412:
            return errors.Conflict(f"{what}: written by another, the generation is not the one expected")
        case (401 | 403) as status:
            return errors.PermissionDenied(f"{what} status={status}; grant these credentials roles/storage.objectUser")
    if isinstance(error, google.auth.exceptions.GoogleAuthError) and not is_transient(error):
        return errors.PermissionDenied(f"{what}: credentials do not work cause={error}")
    return errors.Unavailable(f"{what} cause={type(error).__name__}: {error}")


def status_of(error: Exception) -> int | None:
    """Return the HTTP status that an error is about; None when there was no answer."""
    if isinstance(error, media_errors.InvalidResponse):
        return int(error.response.status_code)
    code = getattr(error, "code", None)
    return int(code) if code is not None else None


def is_transient(error: Exception) -> bool:
    """Tell whether the same request may succeed in a moment."""
    status = status_of(error)
    if status is not None:
        return status in _TRANSIENT or (status == 403 and "ateLimitExceeded" in str(error))
    if isinstance(error, google.auth.exceptions.GoogleAuthError):
        return isinstance(error, google.auth.exceptions.TransportError) or error.retryable
    return True


def is_bucket_missing(error: Exception) -> bool:
    """Tell whether a 404 is about the bucket."""
    return "bucket does not exist" in str(error)  # GCS: both 404s have the reason "notFound"
