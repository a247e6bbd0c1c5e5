"""The OpenAPI 3.1 document, from the table of routes and the types of their answers."""

import types
import typing
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec

from projections.api.problems import Problem

if TYPE_CHECKING:
    from projections.api.route import Route

REFERENCE: Final = "#/components/schemas/{name}"

_STATUSES: Final = {
    400: "The request is not understood.",
    401: "Nobody is known by what the request carries.",
    403: "The caller may not do this.",
    404: "There is no such thing.",
    405: "Not in this way.",
    408: "The body has not come in time.",
    409: "The job's state does not allow it, or somebody else was first.",
    413: "The body is too long.",
    415: "The body is not said to be JSON.",
    412: "What was waited for has not come in time; ask again.",
    421: "The server is not called so.",
    429: "Too many wrong tokens from this address; wait a minute.",
    500: "What is stored cannot be read.",
    503: "Not now; ask again.",
}
_ALWAYS: Final = (400, 405, 500, 503)
_HEADERS: Final = {
    "X-Complete-Through": {
        "description": "Every event committed before this instant is in the answer; `unknown` when nobody knows.",
        "schema": {"type": "string"},
    }
}


_MESSAGE: Final = {  # OpenAPI 3.1 has no word for it: the schema of a stream is that of each of its messages
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Give it as `Last-Event-ID` to go on after it."},
        "event": {"type": "string", "enum": ["message", "unreadable", "problem"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["data"],
}


def document(routes: "tuple[Route, ...]") -> dict[str, Any]:
    """Return the document of these routes."""
    types_of = [one for route in routes for one in (*_members(route.answer), *_members(route.takes))]
    known = [one for one in types_of if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    schemas, components = msgspec.json.schema_components([*known, Problem], ref_template=REFERENCE)
    refs = dict(zip([*known, Problem], schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jobevents",
            "version": version("jobevents"),
            "description": "Background jobs, every transition of which is kept as an event.",
        },
        "paths": _paths(routes, refs),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _paths(routes: "tuple[Route, ...]", refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs)
    return paths


def _operation(route: "Route", refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    summary, _, rest = route.about.partition("\n\n")
    statuses = {
        *_ALWAYS,
        *route.refusals,
        *((401, 403, 421, 429) if route.role else ()),
        *((412,) if route.waits else ()),
    }
    statuses |= {408, 413, 415} if route.takes else set()
    problem = {"application/json": {"schema": refs[Problem]}}
    told = {name: {"description": about, "schema": {"type": "string"}} for name, about in route.tells.items()}
    headers = {**_HEADERS, **told}
    responses: dict[str, Any] = {
        "200": {
            "description": summary,
            "headers": headers,
            "content": {route.media_type: {"schema": _schema(route, refs)}},
        }
    }
    for status, about in route.extra.items():
        responses[str(status)] = {"description": about, "headers": headers}
    for status in sorted(statuses):
        responses[str(status)] = {"description": _STATUSES[status], "headers": _HEADERS, "content": problem}
    return {
        "operationId": route.name,
        "summary": summary,
        **({"description": rest} if rest else {}),
        "parameters": [*_path_parameters(route), *(_query_parameter(one) for one in route.parameters)],
        **({"requestBody": _body(route, refs)} if route.takes else {}),
        "responses": responses,
        **({"security": [{}, {"bearer": []}, {"basic": []}], "x-role": route.role} if route.role else {}),
    }


def _body(route: "Route", refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": refs[route.takes]}}, "required": True}


def _schema(route: "Route", refs: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    if route.is_stream:
        return _MESSAGE
    members = [refs.get(one, {"type": "object"}) for one in _members(route.answer)]
    if not members:
        return {"type": "string"}
    return members[0] if len(members) == 1 else {"anyOf": members}


def _path_parameters(route: "Route") -> Sequence[dict[str, Any]]:
    if "{job_id}" not in route.path:
        return []
    schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"}
    return [{"name": "job_id", "in": "path", "required": True, "schema": schema, "description": "The job's id."}]


def _query_parameter(one: Any) -> dict[str, Any]:
    return {"name": one.name, "in": "query", "required": False, "description": one.about, "schema": dict(one.schema)}


def _members(answer: Any) -> Sequence[Any]:
    if answer is None:
        return ()
    return typing.get_args(answer) if isinstance(answer, types.UnionType) else (answer,)
