"""The representation of a value in a notebook: its text."""

from __future__ import annotations

from html import escape


class Printed:
    """A value with a text, which a notebook shows in place of its fields."""

    def to_text(self) -> str:
        """The whole value as lines."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_text())}</pre>"
