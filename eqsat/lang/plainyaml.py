"""Ordinary YAML through libyaml, in a tenth of the time; what is out of the ordinary is refused.

libyaml reads YAML 1.1. What is read here means the same in YAML 1.2: no tags, no directives, one
document, no characters that only one version takes as space or as an end of line, and scalars that
are strings, decimal numbers, `true`, `false` or `null`.
"""

from __future__ import annotations

import re
from typing import Any

_DOUBTFUL = re.compile(
    r"[^\n\x20-\x7e\xa0-\u2027\u2030-\ud7ff]"  # tabs, controls, other ends of lines
    r"|^(?:%|---|\.\.\.)"  # directives, several documents
    r"|(?:^|[\s\[\]{},:?-])(?!(?<=\w )!= )[&!]"  # anchors, tags, but no `x != y`
    r"|[\"'\]}]:\S",  # a key without a space behind it
    re.MULTILINE,
)
_WORDS = {"true": True, "false": False, "null": None}
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}")
# without quotes what could be something else than a string: other numbers, dates, words in any
# case; and nothing at all, whose place the two libraries see in two places
_OTHER = re.compile(
    r"[-+.]*[0-9](?:[0-9_.:e+-]*|[xob][0-9a-f_]*|[0-9]{3}-.*)|[-+]?\.(?:inf|nan)"
    r"|true|false|null|~|=|<<|",
    re.IGNORECASE,
)


class NotPlain(Exception):
    """The text is no YAML, or the two versions could read it differently."""


def compose_yaml(text: str) -> Any:
    """The root node of a document: PyYAML's nodes, with the indices of characters as marks.

    Raises NotPlain.
    """
    import yaml

    if not yaml.__with_libyaml__ or _DOUBTFUL.search(text):
        raise NotPlain

    compiled: Any = yaml.cyaml  # of which its types do not tell

    class Composer(compiled.CParser, yaml.resolver.BaseResolver):
        def __init__(self) -> None:
            compiled.CParser.__init__(self, text)
            yaml.resolver.BaseResolver.__init__(self)

    try:
        root = Composer().get_single_node()
    except yaml.YAMLError:
        raise NotPlain from None
    if root is None:
        raise NotPlain
    return root


def scalar_value(node: Any) -> Any:
    """The value of a scalar node; NotPlain if that takes more than a look."""
    value = node.value
    if node.style or not _OTHER.fullmatch(value):
        return value
    if value in _WORDS:
        return _WORDS[value]
    if _INT.fullmatch(value):
        return int(value)
    if _FLOAT.fullmatch(value):
        return float(value)
    raise NotPlain
