"""A value as text: printed, and in a notebook."""

from __future__ import annotations

from html import escape


class Printed:
    """A value with a text, which `print` and notebooks show in place of its fields."""

    def to_text(self) -> str:
        """The whole value as lines."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_text())}</pre>"
