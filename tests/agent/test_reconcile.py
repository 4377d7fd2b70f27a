"""The decision table of the system prompt, without a log."""

from __future__ import annotations

import pytest

from nbagent.agent.reconcile import PromptNode, PromptWrite, reconcile


@pytest.mark.parametrize(
    ("nodes", "rendering", "in_history", "new_series", "writes"),
    [
        ([], "", False, False, [PromptWrite("")]),
        ([], "p", True, True, [PromptWrite("p")]),
        ([(0, "p")], "p", False, True, []),
        ([(0, "p")], "q", False, False, [PromptWrite("q", 0)]),
        ([(0, "")], "q", True, True, [PromptWrite("q", 0)]),
        ([(0, "")], "q", True, False, [PromptWrite("q")]),
        ([(0, "p"), (5, "q")], "q", False, False, [PromptWrite("", 5), PromptWrite("q", 0)]),
        ([(0, "p"), (5, "q")], "p", True, True, [PromptWrite("", 5)]),
        ([(0, "p"), (5, "q")], "q", True, False, []),
        ([(0, "p"), (5, "q")], "r", True, False, [PromptWrite("r")]),
        ([(0, "p"), (5, "q"), (7, "r")], "", True, False, [PromptWrite("", 5), PromptWrite("", 7), PromptWrite("", 0)]),
        ([(0, ""), (5, "")], "", False, False, []),
        ([(0, "p"), (5, "")], "q", True, False, [PromptWrite("q")]),
        ([(0, "p"), (5, "")], "p", False, True, []),
        ([(0, None)], "q", False, False, [PromptWrite("q", 0)]),
        ([(0, "p"), (5, None)], "p", True, False, [PromptWrite("p")]),
    ],
)
def test_prompt_reconciliation_follows_the_table(nodes, rendering, in_history, new_series, writes):
    present = [PromptNode(seq, node_text) for seq, node_text in nodes]
    assert reconcile(present, rendering, in_history=in_history, new_series=new_series) == writes
