"""The typed search: what it means, that it can be written down again, and what is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.api.listing import STATES
from projections.ui.search import InvalidSearch, Length, Search, instant, length, parse, terms, write

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=20)
searches = st.builds(
    Search,
    state=st.sampled_from(STATES),
    command=names | st.just(""),
    queue=names | st.just(""),
    id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True) | st.just(""),
    worker=names | st.just(""),
    actor=names | st.just(""),
    error=names | st.just(""),
    after=st.sampled_from(["", "-15m", "2026-11-28", "2026-11-28T09:14Z"]),
    before=st.sampled_from(["", "-1d", "2026-11-28T09:14:07+09:00"]),
    duration=st.sampled_from(["", ">30s", "<=250ms", ">=1h30m", "<2d"]),
    args=st.lists(st.tuples(st.from_regex(r"[a-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True), names)).map(tuple),
    words=st.lists(names | st.from_regex(r"args\.[a-z]{0,3}:[a-z]{0,3}", fullmatch=True)).map(tuple),
)


@given(searches)
def test_a_search_that_is_written_is_read_as_it_was(search: Search) -> None:
    """Quotes, colons, backslashes and spaces in values and words come back exactly."""
    assert search == parse(write(search), NOW)


@given(st.text(max_size=200) | st.lists(st.sampled_from(['"', "\\", ":", "state:", " ", "x", "a:b"])).map("".join))
def test_any_text_is_a_search_or_is_refused(text: str) -> None:
    """Nothing that somebody types fails otherwise, or is dropped: each visible character is in a part of it."""
    parts = "".join(term.key + term.value for term in terms(text))
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


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("state:done", "use one of queued"),
        ("state:", "nothing stands behind state:"),
        ("queue:a queue:b", "twice"),
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
