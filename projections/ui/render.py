"""Templates made into pages: the one module that knows Jinja. Everything is escaped that is not marked as safe here."""

from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from projections.api.access import Identity
from projections.api.route import Desk, Given, Reply
from projections.api.search import quoted
from projections.ui import words
from projections.ui.assets import assets

HTML: Final = "text/html; charset=utf-8"
TEMPLATES: Final = Path(__file__).parent / "templates"

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}


TABS: Final = (
    ("Jobs", ""),
    ("Overview", "overview"),
    ("Queues", "queues"),
    ("Workers", "workers"),
    ("Schedules", "schedules"),
    ("Projector", "projector"),
    ("Audit", "audit"),
    ("SQL", "sql"),
)


def page(
    template: str, desk: Desk, given: Given, title: str, status: int = 200, *, section: str = "", **shown: Any
) -> Reply:
    """Return a page.

    Args:
        template: name of a file among the templates.
        title: of the page, for the browser's tab.
        section: which of TABS it belongs to.
        shown: what the template names.
    """
    root = "../" * given.depth or "./"
    body = (
        _environment()
        .get_template(template)
        .render(
            root=root,
            template=template,
            static=f"{root}static/{assets().version}/",
            title=title,
            tabs=TABS,
            section=section,
            caller=given.caller,
            may=_may(given.caller),
            stream=f"{root}api/stream?brief=yes" if desk.questions.can_follow().available else "",
            **shown,
        )
    )
    return Reply(body.encode(), status=status, headers=HEADERS)


def fragment(template: str, given: Given, **shown: Any) -> Reply:
    """Return a part of a page."""
    body = _environment().get_template(template).render(root="../" * given.depth or "./", job_id=given.job_id, **shown)
    return Reply(body.encode(), headers=HEADERS)


def _may(caller: Identity) -> dict[str, bool]:
    return {role: role in caller.roles for role in ("submit", "cancel", "retry", "delete", "pause", "admin")}


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.plain,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        when=words.when,
        took=words.took,
        count=words.count,
        plural=words.plural,
        quoted=quoted,
        size=words.size,
        one_line=words.one_line,
        json=words.json_text,
        exact=words.exact,
        terminal=words.terminal,
        numbered=enumerate,
        glyph=words.glyph,
        iso=words.iso,
        stamp=words.stamp,
    )
    made.globals["query"] = words.query
    return made
