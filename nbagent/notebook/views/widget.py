"""The widget that carries a view, and how the front end's messages find their way past a busy cell."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, cast

import anywidget
import traitlets

from nbagent.logs import logger

__all__ = ("ViewWidget", "honour_subshells", "view_source")

_log = logger(__name__)


@cache
def view_source(name: str) -> str:
    """The text of a file of the views' static folder; a script comes with the shared code before it.

    The page imports a view's module from memory, where an import of a second file would not resolve.
    """
    folder = files("nbagent.notebook").joinpath("static")
    text = folder.joinpath(name).read_text(encoding="utf-8")
    if name.endswith(".js") and name != "shared.js":
        text = folder.joinpath("shared.js").read_text(encoding="utf-8") + text
    return text


def honour_subshells(comm: Any) -> bool:
    """Let messages from the page go to the subshell that the page chose; answers whether anything had to be done.

    From version 7.4 ipykernel sends them to the shell that last published on the comm, which for a view is the main one,
    where a message waits for the running cell. Other versions already do as the page says.
    """
    if not hasattr(comm, "_reply_subshell_for"):
        return False
    comm._reply_subshell_for = _as_the_page_says
    return True


def _as_the_page_says(_data: Any, default: Any) -> Any:
    return default


class ViewWidget(anywidget.AnyWidget):
    """One view: its script, its style, and custom messages both ways.

    Args:
        script: Name of the view's script in the static folder.
        style: Name of its style sheet.
        initial: What the view shows before its first message.
        fallback: What stands in the output where no widget can be shown, by mime type.
        on_message: Called with each message of the page, on whatever thread the kernel reads it; must only enqueue.
    """

    initial = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        *,
        script: str,
        style: str,
        initial: dict[str, Any],
        fallback: dict[str, str],
        on_message: Callable[[dict[str, Any]], None],
    ) -> None:
        self._esm = view_source(script)
        self._css = view_source(style)
        self._fallback = fallback
        self._on_message = on_message
        super().__init__(initial=initial)  # pyright: ignore[reportUnknownMemberType]
        self.on_msg(self._receive)  # pyright: ignore[reportUnknownMemberType]
        honour_subshells(self.comm)

    def post(self, message: dict[str, Any]) -> None:
        """Send a message to the page."""
        self.send(message)  # pyright: ignore[reportUnknownMemberType]

    def close(self) -> None:
        """End the widget in the kernel and in the page, its layout model included."""
        layout = cast("Any", self.layout)  # pyright: ignore[reportUnknownMemberType]
        super().close()
        layout.close()

    def _receive(self, _widget: Any, message: Any, _buffers: Any) -> None:
        try:
            if isinstance(message, dict):
                self._on_message(cast("dict[str, Any]", message))
        except Exception:  # an error here would be printed into whatever cell runs
            _log.exception("a message from the page could not be handled")

    def _repr_mimebundle_(self, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        made = cast("Any", super()._repr_mimebundle_(**arguments))  # pyright: ignore[reportUnknownMemberType]
        data, metadata = cast("tuple[dict[str, Any], dict[str, Any]]", made or ({}, {}))
        return {**data, **self._fallback}, metadata
