"""Control characters of text from a cluster, shown as text instead of sent to a terminal.

A training's log, a condition or an annotation can contain sequences that clear the screen, set the clipboard (OSC 52),
overwrite a line (carriage return) or reorder its characters (bidirectional overrides).
"""

from __future__ import annotations

import re

# C0 except tab and line feed, DEL, C1, which terminals accept as 8-bit sequences, line and paragraph separators,
# embeddings, overrides and isolates of the bidirectional algorithm (UAX 9), and lone surrogates, which have no UTF-8.
_UNSAFE = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
# Select Graphic Rendition (ECMA-48, 8.3.117): colors and styles. Private sequences, such as ESC [ > 4 m, are not SGR.
_COLOR = r"\x1b\[[0-9;:]{0,64}m"
_UNSAFE_PATTERN = re.compile(_UNSAFE)
_UNSAFE_OR_COLOR_PATTERN = re.compile(f"({_COLOR})|{_UNSAFE}")
_RESET = "\x1b[0m"


def escape_control_characters(text: str, *, keep_colors: bool = False) -> str:
    r"""Return a text with its control characters in the notation of less(1).

    ESC becomes `^[`, as kubectl, git and `cat -v` show it, and a character beyond ASCII `<U+202E>`. Tabs and line feeds
    stay.

    Args:
        text: the text.
        keep_colors: whether sequences for colors and styles stay (`ESC [ 31 m`). The text then ends with a reset, so
            that they do not affect what follows.
    """
    if text.isprintable():  # most lines
        return text
    if not keep_colors:
        return _UNSAFE_PATTERN.sub(_to_notation, text)
    last_color = ""

    def keep_or_escape(found: re.Match[str]) -> str:
        nonlocal last_color
        last_color = found[1] or last_color
        return found[1] or _to_notation(found)

    escaped = _UNSAFE_OR_COLOR_PATTERN.sub(keep_or_escape, text)
    return escaped if last_color in ("", _RESET, "\x1b[m") else f"{escaped}{_RESET}"


def _to_notation(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"^{chr(code ^ 0x40)}" if code < 0x80 else f"<U+{code:04X}>"
