"""Errors have a code for programs and one line for people."""

from __future__ import annotations

import pytest

from nbagent import errors
from nbagent.errors import (
    InputError,
    InvariantError,
    LlmError,
    NbagentError,
    SessionError,
    StorageError,
    ToolError,
    error_chain,
)

FAMILY = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


def raised(error, cause=None):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("kind", FAMILY)
def test_every_error_is_of_the_family_and_has_a_code(kind):
    error = kind("what to do")
    assert isinstance(error, NbagentError)
    assert (str(error), error.message, error.code) == ("what to do", "what to do", kind.default_code)
    assert kind("x", code="OTHER").code == "OTHER"


def test_a_broken_invariant_is_a_refusal_of_the_log():
    assert issubclass(InvariantError, SessionError)
    assert not issubclass(StorageError, SessionError)


def test_a_notebook_shows_one_line_and_no_stack():
    assert InputError("set A_KEY", code="MISSING_KEY")._render_traceback_() == ["InputError [MISSING_KEY]: set A_KEY"]


def test_the_facts_of_a_model_failure_survive_the_log():
    error = LlmError("busy", code="RATE_LIMIT", status=429, provider_retry_after_ms=1500, request_id="r1")
    facts = error.facts()
    assert facts == {
        "message": "busy",
        "code": "RATE_LIMIT",
        "status": 429,
        "providerRetryAfterMs": 1500,
        "requestId": "r1",
    }
    assert LlmError.from_facts(facts).facts() == facts
    assert LlmError("busy").facts() == {"message": "busy", "code": "UNKNOWN"}


def test_a_chain_joins_the_causes_from_the_outside_in():
    assert error_chain(raised(ToolError("outer"), raised(KeyError("k"), ValueError("v")))) == "outer: 'k': v"


def test_a_chain_says_a_repeated_text_once_and_names_what_says_nothing():
    assert error_chain(raised(ValueError("same"), raised(RuntimeError("same"), OSError("last")))) == "same: last"
    assert error_chain(ValueError()) == "ValueError"


def test_the_members_of_a_group_stand_in_brackets_with_their_causes():
    group = ExceptionGroup("both failed", [raised(ValueError("a"), OSError("b")), KeyError("c")])
    assert error_chain(raised(group, ValueError("why"))) == "both failed [a: b; 'c']: why"


def test_a_circular_cause_ends_the_chain():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert error_chain(first) == "a: b: <circular cause>"


def test_a_group_that_is_its_members_cause_ends_the_chain():
    member = ValueError("a")
    group = ExceptionGroup("g", [member])
    member.__cause__ = group
    assert error_chain(group) == "g [a: <circular cause>]"


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def test_an_error_that_cannot_be_printed_is_still_told():
    assert error_chain(raised(ValueError("outer"), Unprintable())) == "outer: <unprintable error>"
