"""What clients take for an answer."""

import pytest

from compose.chaos.clients import POPULAR_SECONDS, SETS, Answer, answer_of, popular

HEAD = "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + '\r\n{"sequence":42}', Answer(200, "", 42)),
        ("HTTP/1.1 503 x\r\nPlimsoll-Reason: moving\r\n\r\n", Answer(503, "moving", None)),
        (HEAD + '\r\n{"sequence":4', None),
        (HEAD, None),
        ("", None),
    ],
)
def test_only_a_whole_answer_is_one(text: str, expected: Answer | None):
    assert answer_of(text) == expected


def test_every_set_is_the_most_popular_in_its_turn():
    first = [popular(turn * POPULAR_SECONDS)[0] for turn in range(len(SETS))]
    assert sorted(first) == sorted(SETS)
    assert sorted(popular(POPULAR_SECONDS)) == sorted(SETS)
