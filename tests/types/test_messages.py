"""Messages: named access to what the session file holds."""

from __future__ import annotations

import pytest

from nbagent.types.frozen import NotJsonError
from nbagent.types.messages import (
    Message,
    assistant_message,
    image_block,
    reasoning_block,
    system_message,
    text_block,
    tool_call_block,
    tool_message,
    user_message,
)


def test_a_user_message_is_its_json():
    assert user_message("hi", id="m") == {
        "id": "m",
        "role": "user",
        "content": [{"type": "text", "text": "hi"}],
        "source": {"kind": "user"},
    }


def test_every_message_has_an_id_of_its_own():
    assert user_message("a").id != user_message("a").id


def test_a_message_made_of_a_message_is_the_same_object():
    message = user_message("hi")
    assert Message.of(message) is message


def test_an_empty_system_prompt_has_no_content():
    assert system_message("").content == []
    assert system_message("Be brief.").text == "Be brief."


def test_an_answer_names_its_model_and_keeps_the_state_of_the_route():
    message = assistant_message(
        [reasoning_block("hm"), text_block("a"), tool_call_block("c", "f", "{"), text_block("b")],
        provider="p",
        model="m",
        replay_state={"blocks": [1]},
    )
    assert message.source == {"kind": "model", "provider": "p", "model": "m", "replayState": {"blocks": [1]}}
    assert message.text == "ab"
    assert message.tool_calls == [{"type": "tool-call", "id": "c", "name": "f", "arguments": "{"}]


def test_a_result_says_which_call_it_answers():
    message = tool_message("c1", [text_block("42")], is_error=False)
    assert (message.role, message.tool_call_id, message.is_error) == ("tool", "c1", False)
    assert message.source == {"kind": "tool", "callId": "c1"}


def test_content_blocks_are_snapshots():
    block = image_block("image/png", "AAAA")
    message = user_message([block])
    block["data"] = "BBBB"
    assert message.content[0]["data"] == "AAAA"


def test_a_source_that_is_no_json_is_refused():
    with pytest.raises(NotJsonError):
        user_message("hi", source={"kind": "plugin", "owner": object()})
