"""What the errors of boto3 mean."""

from typing import Any

import botocore.exceptions as library

from jobevents import errors

FAILURES = (library.ClientError, library.BotoCoreError, OSError)
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_TRANSIENT_CODES = frozenset(
    {"RequestTimeout", "SlowDown", "Throttling", "InternalError", "ConditionalRequestConflict", "OperationAborted"}
)
_UNSIGNED = (
    library.NoCredentialsError,
    library.PartialCredentialsError,
    library.CredentialRetrievalError,
    library.TokenRetrievalError,
    library.SSOError,
)
_WRONG = (library.NoRegionError, library.InvalidRegionError, library.ProfileNotFound, library.ParamValidationError)


def status_of(error: Exception) -> int | None:
    """Return the HTTP status of a reply; None when there was none."""
    if not isinstance(error, library.ClientError):
        return None
    found: dict[str, Any] = error.response  # Any: what the service says
    return int(found.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) or None


def code_of(error: Exception) -> str:
    """Return the service's own code, such as `NoSuchKey`; of a reply without a body the status as text."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, library.ClientError) else ""


def is_transient(error: Exception) -> bool:
    """Tell whether another try may succeed."""
    if isinstance(error, library.ClientError):
        return status_of(error) in _TRANSIENT or code_of(error) in _TRANSIENT_CODES
    return not isinstance(error, (*_UNSIGNED, *_WRONG))


def is_absent(error: Exception) -> bool:
    """Tell whether there is no such object, as far as the reply can tell from no such bucket."""
    return status_of(error) == 404 and code_of(error) != "NoSuchBucket"


def translated(error: Exception, doing: str, bucket: str) -> errors.JobEventsError:
    """Return our error for one of the library's."""
    what = f"cannot {doing} bucket={bucket}"
    code = code_of(error)
    match status_of(error):
        case 404 if code == "NoSuchBucket":
            return errors.Misconfigured(f"{what}: there is no such bucket; create it or name another")
        case 404:
            return errors.NotFound(f"{what}: no such blob")
        case 412:
            return errors.Conflict(f"{what}: written by another, the generation is not the one expected")
        case 301 | 307:
            return errors.Misconfigured(f"{what}: it is in another region; set AWS_REGION to its own")
        case 403 if code == "RequestTimeTooSkewed":
            return errors.PermissionDenied(f"{what}: this machine's clock is wrong; set it right")
        case (401 | 403) as status:
            return errors.PermissionDenied(
                f"{what} status={status} code={code}; grant these credentials s3:GetObject, s3:PutObject and s3:DeleteObject, "
                "and s3:ListBucket, without which S3 says the same of what is not there"
            )
        case 400 | 405 | 501:
            return errors.Misconfigured(
                f"{what}: the store does not do what is needed code={code} error={error!s:.200}"
            )
    if isinstance(error, _UNSIGNED):
        return errors.PermissionDenied(f"{what}: credentials do not work cause={error}")
    if isinstance(error, _WRONG):
        return errors.Misconfigured(f"{what}: {error}")
    return errors.Unavailable(f"{what} cause={type(error).__name__}: {error}")
