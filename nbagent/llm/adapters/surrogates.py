"""Text that a server sends in halves of characters."""

from __future__ import annotations

from typing import Any

__all__ = ("PieceJoiner",)


class PieceJoiner:
    """Makes the pieces of one text storable.

    A server that cuts its text between UTF-16 units escapes the halves of a character in two chunks: the first half
    waits here for the second. A half without its other half becomes U+FFFD.
    """

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: Any) -> str:
        """The text of a piece; empty when it is no text."""
        if not isinstance(piece, str):
            return ""
        if not self._half and piece.isascii():
            return piece
        text, self._half = self._half + piece, ""
        try:
            text.encode()
        except UnicodeEncodeError:
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._half = text[:-1], text[-1]
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text

    def flush(self) -> str:
        """What the end of the text makes of a half that still waits."""
        half, self._half = self._half, ""
        return "\ufffd" if half else ""
