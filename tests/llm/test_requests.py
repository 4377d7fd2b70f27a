"""What goes over the wire: exactly what the strictest server accepts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nbagent.errors import LlmError
from nbagent.llm.adapters.openai_chat import OpenAiChatAdapter
from nbagent.llm.dialects import CUSTOM, DEEPSEEK, OPENAI
from nbagent.types.config import CallConfig, Request, ToolDeclaration, ToolHistory
from nbagent.types.messages import (
    assistant_message,
    image_block,
    reasoning_block,
    system_message,
    text_block,
    tool_call_block,
    tool_message,
    user_message,
)


def request_of(*messages, tools=(), **config):
    return Request(
        config=CallConfig.of({"provider": "p", "model": "m", **config}),
        messages=messages,
        tools=tools,
        tool_history=ToolHistory.of({"tools": [], "updates": []}),
        session_id="s",
    )


def body_of(*messages, dialect=CUSTOM, tools=(), adapter=None, **config):
    adapter = adapter or OpenAiChatAdapter(base_url="http://127.0.0.1:1/v1", dialect=dialect)
    return json.loads(adapter.body(request_of(*messages, tools=tools, **config)))


def said(*blocks):
    return assistant_message(blocks, provider="p", model="m")


def test_a_plain_request():
    body = body_of(system_message("Be brief."), user_message("hi"))
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    }


def test_tools_and_limits_are_named_as_the_server_names_them():
    tool = ToolDeclaration.of({"name": "f", "description": "F.", "parameters": {"type": "object", "properties": {}}})
    body = body_of(user_message("x"), dialect=OPENAI, tools=[tool], maxTokens=9, reasoningEffort="low")
    assert body["max_completion_tokens"] == 9
    assert body["reasoning_effort"] == "low"
    assert body["tools"] == [{"type": "function", "function": dict(tool)}]
    assert body_of(user_message("x"), maxTokens=9)["max_tokens"] == 9


def test_deepseek_effort_off_is_its_thinking_switch():
    body = body_of(user_message("x"), dialect=DEEPSEEK, reasoningEffort="off")
    assert body["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in body
    assert body_of(user_message("x"), dialect=DEEPSEEK, reasoningEffort="max")["thinking"] == {"type": "enabled"}


def test_reasoning_goes_back_where_it_must_and_nowhere_else():
    turn = [
        user_message("x"),
        said(reasoning_block("Need the time."), tool_call_block("c", "now", "{}")),
        tool_message("c", [text_block("12")], is_error=False),
        said(text_block("It is 12.")),
    ]
    sent = body_of(*turn, dialect=DEEPSEEK)["messages"]
    assert sent[1]["reasoning_content"] == "Need the time."
    assert sent[1]["content"] == ""
    assert "reasoning_content" not in sent[3]
    assert "reasoning_content" not in body_of(*turn, dialect=OPENAI)["messages"][1]
    without_thought = body_of(said(tool_call_block("c", "now", "{}")), dialect=DEEPSEEK)["messages"]
    assert without_thought[0]["reasoning_content"] == ""


def test_nothing_is_null_or_empty():
    sent = body_of(
        user_message("x"),
        said(reasoning_block("hm")),
        said(tool_call_block("c", "", "")),
        tool_message("c", [], is_error=False),
    )["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[1]["content"] == ""
    assert sent[1]["tool_calls"][0]["function"] == {"name": "unknown", "arguments": "{}"}
    assert sent[2]["content"] == "(no output)"


def test_arguments_that_are_no_json_are_wrapped():
    sent = body_of(said(tool_call_block("c", "f", '{"x": "ha')))["messages"]
    arguments = json.loads(sent[0]["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"invalid_arguments": '{"x": "ha'}


def test_ids_that_repeat_over_turns_are_told_apart_with_their_results():
    turns = [
        said(tool_call_block("get:0", "f", "{}")),
        tool_message("get:0", [text_block("one")], is_error=False),
        said(tool_call_block("get:0", "f", "{}")),
        tool_message("get:0", [text_block("two")], is_error=False),
    ]
    sent = body_of(*turns)["messages"]
    assert [sent[0]["tool_calls"][0]["id"], sent[1]["tool_call_id"]] == ["get:0", "get:0"]
    assert [sent[2]["tool_calls"][0]["id"], sent[3]["tool_call_id"]] == ["get:0-2", "get:0-2"]


def test_images_go_only_where_they_are_read():
    message = user_message([text_block("look"), image_block("image/png", "aGk=")])
    assert body_of(message, dialect=OPENAI)["messages"][0]["content"][1]["type"] == "image_url"
    assert body_of(message)["messages"][0]["content"] == "look[image]"


def test_a_prefill_is_the_last_message_and_extra_fields_are_merged():
    body = body_of(user_message("x"), prefill="<call>", extraBody={"tool_choice": "required"}, stop=["</call>"])
    assert body["messages"][-1] == {"role": "assistant", "content": "<call>"}
    assert body["tool_choice"] == "required"
    assert body["stop"] == ["</call>"]


def test_fields_that_the_adapter_needs_cannot_be_overridden():
    with pytest.raises(LlmError, match="extraBody may not set messages"):
        body_of(user_message("x"), extraBody={"messages": []})


def test_every_call_is_answered_right_after_its_message_whatever_the_log_holds():
    sent = body_of(
        said(tool_call_block("a", "f", "{}"), tool_call_block("b", "g", "{}")),
        user_message("hurry"),
        tool_message("b", [text_block("two")], is_error=False),
        said(text_block("done")),
        tool_message("a", [text_block("late")], is_error=False),
        tool_message("nobody", [text_block("orphan")], is_error=False),
        user_message("next"),
    )["messages"]
    assert [(message["role"], message.get("tool_call_id", message["content"])) for message in sent] == [
        ("assistant", ""),
        ("tool", "b"),
        ("tool", "a"),
        ("user", "hurry"),
        ("assistant", "done"),
        ("user", "next"),
    ]
    assert sent[2]["content"].startswith("(no result is recorded")


def test_images_of_results_follow_the_results():
    sent = body_of(
        said(tool_call_block("a", "f", "{}"), tool_call_block("b", "f", "{}")),
        tool_message("a", [image_block("image/png", "aGk=")], is_error=False),
        tool_message("b", [text_block("two")], is_error=False),
        dialect=OPENAI,
    )["messages"]
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user"]
    assert sent[1]["content"] == "[image]"
    assert sent[3]["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="


@pytest.mark.parametrize(("provider", "returned"), [("p", True), ("other", False)])
def test_what_a_route_attached_goes_back_to_that_route_alone(provider, returned):
    state = {"blocks": [None, {"extra_content": {"signature": "S"}}], "message": {"reasoning_details": [{"data": "D"}]}}
    message = assistant_message(
        [text_block("hm"), tool_call_block("a", "f", "{}")], provider=provider, model="m", replay_state=state
    )
    sent = body_of(message, tool_message("a", [text_block("1")], is_error=False))["messages"][0]
    assert sent["tool_calls"][0].get("extra_content") == ({"signature": "S"} if returned else None)
    assert sent.get("reasoning_details") == ([{"data": "D"}] if returned else None)


def test_a_history_that_grew_is_sent_as_the_same_bytes_and_encoded_only_where_it_grew():
    adapter = OpenAiChatAdapter(base_url="http://127.0.0.1:1/v1")
    history = [user_message(f"m{n}") for n in range(50)]
    first = adapter._histories.encode(request_of(*history))
    again = adapter._histories.encode(request_of(*history, user_message("new")))
    assert all(before is after for before, after in zip(first, again, strict=False))
    changed = adapter._histories.encode(request_of(system_message("new prompt"), *history))
    assert all(before is after for before, after in zip(first, changed[1:], strict=True))


def test_sessions_do_not_mix_their_histories():
    adapter = OpenAiChatAdapter(base_url="http://127.0.0.1:1/v1")
    for number in range(200):
        request = replace(request_of(user_message(f"m{number}")), session_id=f"s{number % 100}")
        assert json.loads(adapter.body(request))["messages"] == [{"role": "user", "content": f"m{number}"}]
    assert len(adapter._histories._histories) == 64
