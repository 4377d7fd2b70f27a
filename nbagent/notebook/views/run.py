"""The run view: one turn while it happens, then the same turn as plain output."""

from __future__ import annotations

import contextvars
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nbagent.logs import logger
from nbagent.notebook.transcript import TurnTranscript
from nbagent.notebook.turn_items import TurnState
from nbagent.notebook.views.budget import flush_tick
from nbagent.notebook.views.resync import DeltaChannel
from nbagent.notebook.views.run_parts import RunParts, head_of

if TYPE_CHECKING:
    from nbagent.notebook.views.widget import ViewWidget

__all__ = ("RunView",)

_log = logger(__name__)

_NO_STOP = "This kernel hears the Stop button only after the cell. Use the kernel's interrupt button."


class RunView:
    """Shows one turn in the output of a cell.

    `show` in the cell, `update` whenever the transcript changed, `finish` once.

    Args:
        agent_name: The name that the notebook knows the agent by.
        on_stop: Called when Stop is pressed, on whatever thread the kernel reads messages; must only enqueue.
        can_stop: Whether the kernel hears the page while the cell runs. Without it there is no Stop button and the view
            says to use the kernel's interrupt button.
        note: A line for the reader, shown under the header.
    """

    def __init__(
        self, agent_name: str, *, on_stop: Callable[[], None], can_stop: bool, note: str | None = None
    ) -> None:
        self._agent_name = agent_name
        self._on_stop = on_stop
        self._can_stop = can_stop
        self._note = note
        self._display_id = f"nbagent-{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._publishing = threading.Lock()
        self._state: TurnState | None = None
        self._widget: ViewWidget | None = None
        self._channel: DeltaChannel | None = None
        self._parts = RunParts()
        self._context = contextvars.copy_context()
        self._finished = False

    def show(self) -> None:
        """Display the view in the cell that runs now."""
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

        from nbagent.notebook.views.widget import ViewWidget

        self._context = contextvars.copy_context()
        waiting = f"{self._agent_name} is answering. `%agent show` draws the turn again."
        widget = ViewWidget(
            script="run.js",
            style="run.css",
            initial={"agent": self._agent_name, "canStop": self._can_stop, "notes": self._notes()},
            fallback={"text/plain": waiting},
            on_message=self._on_message,
        )
        self._channel = DeltaChannel(self._send)
        self._widget = widget
        display(widget, display_id=self._display_id)
        flush_tick().request(self)

    def update(self, transcript: TurnTranscript) -> None:
        """Show the transcript as it is now. Call it on the thread that feeds the transcript; it returns at once."""
        state = transcript.state()
        with self._lock:
            if self._finished:
                return
            self._state = state
        flush_tick().request(self)

    def finish(self, bundle: Mapping[str, str]) -> None:
        """Replace the output by the static bundle and close the widget. Any thread; later calls do nothing."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
        flush_tick().forget(self)
        try:
            self._context.copy().run(self._finish, dict(bundle))
        except Exception:  # a front end that cannot be reached does not change how the turn ended
            _log.exception("the output of a turn could not be published")

    def _finish(self, bundle: dict[str, str]) -> None:
        from IPython.display import display, update_display  # pyright: ignore[reportUnknownVariableType]

        if self._widget is None:
            display(bundle, raw=True)
            return
        self.flush()
        update_display(bundle, display_id=self._display_id, raw=True)  # pyright: ignore[reportUnknownMemberType]
        # A page that was reloaded no longer knows the output by its id and keeps showing the widget.
        if self._channel is None or self._channel.pages <= 1:
            with self._publishing:
                self._channel = None
                self._widget.close()

    def flush(self) -> int:
        """Send what changed; the flush tick calls it."""
        with self._publishing:
            channel, state = self._channel, self._state
            if channel is None or state is None:
                return 0
            elapsed = None if state.started is None else (state.ended or int(time.time() * 1000)) - state.started
            return channel.publish(head_of(state), self._parts.of(state), moment={"elapsed": elapsed})

    def _send(self, message: dict[str, Any]) -> None:
        if self._widget is not None:
            # The context is that of the cell which shows the view: what the kernel sends is attributed to it.
            self._context.copy().run(self._widget.post, message)

    def _on_message(self, message: dict[str, Any]) -> None:
        match message.get("op"):
            case "hello":
                channel = self._channel
                if channel is not None:
                    channel.hello(str(message.get("page")))
                    flush_tick().request(self)
            case "stop":
                if not self._finished:
                    self._on_stop()
            case _:
                _log.debug("the run view does not know the message %r", message.get("op"))

    def _notes(self) -> list[str]:
        notes = [self._note] if self._note else []
        return notes if self._can_stop else [*notes, _NO_STOP]
