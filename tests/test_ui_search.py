"""The typed search: what it means, that it can be written down again, and what is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.api.listing import STATES
from projections.api.search import InvalidSearch, Length, Search, changed, instant, length, parse, terms, write
from projections.api.sifting import Choice

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


def tuples(of: st.SearchStrategy[str], least: int) -> st.SearchStrategy[tuple[str, ...]]:
    """Some of several values."""
    return st.lists(of, min_size=least, max_size=3).map(tuple)


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20)
places = st.from_regex(r"args\.[a-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)
choices = st.one_of(
    st.builds(
        Choice,
        st.sampled_from(["command", "queue", "worker", "actor", "error", ""]) | places,
        tuples(names, 1),
        st.just(True),
    ),
    st.builds(Choice, places, tuples(names, 2)),
    st.builds(Choice, st.just("state"), tuples(st.sampled_from(STATES[1:]), 1), st.just(True)),
).filter(lambda one: bool(one.key) or len(one.values) == 1)
searches = st.builds(
    Search,
    state=st.sampled_from(STATES),
    command=names | st.just(""),
    queue=names | st.just(""),
    id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True) | st.just(""),
    root=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True) | st.just(""),
    worker=names | st.just(""),
    actor=names | st.just(""),
    error=names | st.just(""),
    after=st.sampled_from(["", "-15m", "2026-11-28", "2026-11-28T09:14Z"]),
    before=st.sampled_from(["", "-1d", "2026-11-28T09:14:07+09:00"]),
    duration=st.sampled_from(["", ">30s", "<=250ms", ">=1h30m", "<2d"]),
    args=st.lists(st.tuples(st.from_regex(r"[a-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True), names)).map(tuple),
    choices=st.lists(choices, max_size=3, unique_by=lambda one: one.key).map(tuple),
    words=st.lists(names | st.from_regex(r"args\.[a-z]{0,3}:[a-z]{0,3}", fullmatch=True)).map(tuple),
)


@given(searches)
def test_a_search_that_is_written_is_read_as_it_was(search: Search) -> None:
    """Quotes, colons, backslashes and spaces in values and words come back exactly."""
    assert search == parse(write(search), NOW)


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(['"', "\\", ":", "state:", " ", "x", "a:b", ",", "-", "OR"])).map("".join)
)
def test_any_text_is_a_search_or_is_refused(text: str) -> None:
    """Nothing that somebody types fails otherwise, or is dropped: each visible character is in a part of it."""
    parts = "".join("-" * term.is_not + term.key + ",".join(term.values) for term in terms(text))
    assert all(one in parts for one in text if not one.isspace() and one not in '":\\')
    try:
        search = parse(text, NOW)
    except InvalidSearch:
        return
    assert search == parse(write(search), NOW)


def test_keys_and_words() -> None:
    """Values may be quoted; an address is a word, with its colon, and what is in quotes."""
    found = parse('state:failed command:"two words" http://x "no space" "foo:x" duration:>30s', NOW)

    words = ("http://x", "no space", "foo:x")
    assert Search(state="failed", command="two words", duration=">30s", words=words) == found


def test_either_and_not() -> None:
    """Commas part values where no quotes do, and a minus takes out; in words and behind quotes they are what they are."""
    found = parse('state:failed,canceled -queue:slow,"a, b" args.n:1,2 error:"x,y" -word "-word" a,b', NOW)

    expected = Search(
        error="x,y",
        words=("-word", "a,b"),
        choices=(
            Choice("state", ("failed", "canceled")),
            Choice("queue", ("slow", "a, b"), is_not=True),
            Choice("args.n", ("1", "2")),
            Choice("", ("word",), is_not=True),
        ),
    )
    assert expected == found
    assert "state:queued" in write(changed(found, state="queued"))
    assert "failed" not in write(changed(found, state="queued"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("state:done", "use one of queued"),
        ("state:", "nothing stands behind state:"),
        ("queue:a queue:b", "queue:a,b for either"),
        ("queue:a,b queue:c", "twice"),
        ("state:failed,done", "use one of queued"),
        ("-id:../x", "A-Z a-z 0-9"),
        ("error:a,", "nothing stands behind a comma of error:"),
        ("after:-1h,-2h", "one value"),
        ("-duration:>1s", "one value"),
        ("disk OR memory", "state:failed,canceled is either"),
        ("NOT disk", 'put it in quotes: "NOT"'),
        ("after:soon", "-15m"),
        ("after:#3", "-15m"),
        ("before:2026-13-01", "-15m"),
        ("duration:30s", ">30s"),
        ("duration:>30", ">30s"),
        ("id:../x", "A-Z a-z 0-9"),
        ("stat:failed", "did you mean state"),
        ('foo:"a b"', 'there are .*put it in quotes: "foo:.*a b'),
        ("x" * 1001, "limit=1000"),
    ],
)
def test_what_is_refused_says_what_would_do(text: str, hint: str) -> None:
    """A search that cannot be understood is an error with a hint, and never means something else."""
    with pytest.raises(InvalidSearch, match=hint.replace(">", "[>]")):
        parse(text, NOW)


def test_times_and_lengths() -> None:
    """A day begins in UTC, -15m counts from now, and lengths add up."""
    assert datetime(2026, 11, 28, tzinfo=UTC) == instant("2026-11-28", NOW)
    assert NOW - timedelta(minutes=15) == instant("-15m", NOW)
    assert Length(">=", 5_400_000) == length(">=1h30m")
    assert [True, False] == [length("<=1.5s").holds(ms) for ms in (1500, 1501)]
    assert [False, True] == [length(">1.5s").holds(ms) for ms in (1500, 1501)]
    assert [True, False] == [length("<2s").holds(ms) for ms in (1999, 2000)]
    assert [True, False] == [length(">=2s").holds(ms) for ms in (2000, 1999)]
