"""Chunks become blocks, whatever order a route sends them in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbagent.types.assembler import Assembler
from nbagent.types.messages import reasoning_block, text_block, tool_call_block
from nbagent.types.stream import (
    block_end,
    block_start,
    finish,
    reasoning_delta,
    text_delta,
    tool_call_delta,
    usage_chunk,
)


def blocks(*chunks):
    return Assembler(chunks).blocks()


def test_deltas_alone_make_a_block():
    assert blocks(text_delta(0, "a"), text_delta(0, "b")) == [text_block("ab")]


def test_blocks_keep_the_order_in_which_they_were_first_seen():
    assert blocks(text_delta(5, "first"), reasoning_delta(1, "then"), text_delta(5, "!")) == [
        text_block("first!"),
        reasoning_block("then"),
    ]


def test_a_closed_block_ignores_what_comes_later():
    chunks = [
        block_start(0, "text"),
        text_delta(0, "draft"),
        block_end(0, text_block("final")),
        text_delta(0, "x"),
        block_end(0, text_block("again")),
    ]
    assert blocks(*chunks) == [text_block("final")]


def test_a_call_is_named_by_whatever_chunk_names_it():
    chunks = [tool_call_delta(0, '{"a"', id="c"), tool_call_delta(0, ":1}", name="f"), tool_call_delta(0, id="d")]
    assert blocks(*chunks) == [tool_call_block("c", "f", '{"a":1}')]


def test_a_call_without_id_gets_one_from_its_index_and_an_empty_name():
    assert blocks(tool_call_delta(3, "{}")) == [tool_call_block("call-3", "", "{}")]


def test_blocks_without_content_are_left_out():
    assert blocks(block_start(0, "text"), reasoning_delta(1, ""), text_delta(2, "x")) == [text_block("x")]


def test_the_last_usage_counts_and_unknown_numbers_stay_unknown():
    assembler = Assembler([usage_chunk({"inputTokens": 1, "outputTokens": 2}), usage_chunk({"outputTokens": 3})])
    assert assembler.usage.output_tokens == 3
    assert assembler.usage.input_tokens is None


def test_what_was_interrupted_keeps_text_and_reasoning_that_is_not_blank():
    assembler = Assembler(
        [reasoning_delta(0, "hm"), text_delta(1, " \n"), tool_call_delta(2, "{"), text_delta(3, "so")]
    )
    assert assembler.interrupted_blocks() == [reasoning_block("hm"), text_block("so")]


def test_the_state_of_the_route_is_pruned_with_the_blocks():
    chunks = [
        text_delta(0, "a"),
        tool_call_delta(1, "{}", id="c", name="f"),
        finish("max-tokens", replay_state={"blocks": ["A", "B"], "v": 1}),
    ]
    assembler = Assembler(chunks)
    assert assembler.replay_state(tool_calls=False) == {"blocks": ["A"], "v": 1}
    assert assembler.replay_state() == {"blocks": ["A", "B"], "v": 1}


def test_a_state_that_does_not_match_the_blocks_is_dropped_as_a_whole():
    assert Assembler([text_delta(0, "a"), finish("stop", replay_state={"blocks": []})]).replay_state() is None
    assert Assembler([text_delta(0, "a"), finish("stop", replay_state={"id": "r"})]).replay_state() == {"id": "r"}
    assert Assembler([finish("stop")]).replay_state() is None


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=3))))
def test_text_is_what_the_deltas_of_its_index_say(pieces):
    said = {}
    for index, piece in pieces:
        said[index] = said.get(index, "") + piece
    assert blocks(*(text_delta(*piece) for piece in pieces)) == [text_block(text) for text in said.values() if text]
