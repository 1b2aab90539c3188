"""Generator of docs/reference/command-options.md from the commands of `trainjob`.

`typer utils docs` (typer 0.26) cannot write the page, because the commands of other distributions are loaded when they
are called.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer.main import get_command

from trainjob.cli import application

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-options.md"
_INTRODUCTION = """# Commands and options

<!-- Written by tools/reference/commands.py: run `make reference`. -->

Look up all commands of the command line `trainjob` with their arguments and options.
[The command trainjob](command.md) explains the files and what the commands do. `trainjob COMMAND --help` prints the
same texts.

The options of `trainjob` itself are written before the name of the command. `trainjob local`, `trainjob demo` and
`trainjob migrate` need the distributions `trainjob-local`, `trainjob-demo` and `trainjob-migrate`
([Installation](../how-to/installation.md)).
"""
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_TYPE_NAMES = {"str": "TEXT", "int": "INTEGER", "float": "NUMBER", "Path": "PATH", "timedelta": "DURATION"}


def render_page() -> str:
    """Return the page."""
    root: Any = get_command(application.application())
    sections = [_INTRODUCTION, *_render_command("trainjob", root, level=2)]
    for name in root.list_commands(None):
        sections += _render_command(f"trainjob {name}", application._load_command(name), level=2)
    return "\n".join(sections)


def _render_command(path: str, command: Any, level: int) -> Iterator[str]:
    """Yield the section of a command and those of its subcommands."""
    arguments = [each for each in command.params if each.param_type_name == "argument" and not each.hidden]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    subcommands = getattr(command, "commands", {})
    words = [path, *(["[OPTIONS]"] if options else []), *(["COMMAND [ARGS]..."] if subcommands else [])]
    words += [_format_argument(each) for each in arguments]
    yield f"{'#' * level} {path}\n"
    yield f"```text\n{' '.join(words)}\n```\n"
    for paragraph in (command.help or "").split("\n\n"):
        example = re.fullmatch(r"Example: (.+)", paragraph.strip())
        text = f"Example: `{example[1]}`" if example else textwrap.fill(_escape(paragraph), 120, break_on_hyphens=False)
        yield f"{text}\n"
    rows = [(_format_argument(each, bare=True), each.help or "", "") for each in arguments]
    rows += [(_format_option(each), each.help or "", _format_default(each)) for each in options]
    if rows:
        yield "| Argument or option | Meaning |\n|---|---|"
        for name, meaning, default in rows:
            text = _escape(meaning).replace("|", "\\|")
            yield f"| {name} | {text}{default} |"
        yield ""
    if path != "trainjob":  # the commands of the root are loaded one by one
        for name, subcommand in subcommands.items():
            yield from _render_command(f"{path} {name}", subcommand, level + 1)


def _format_argument(argument: Any, *, bare: bool = False) -> str:
    name = argument.metavar or argument.name.upper()
    if "] " in name:  # the metavar describes several words
        name = name.removesuffix("...")
        return f"`{name}`" if bare else name
    name = name.removesuffix("...").strip("[]")
    if bare:
        return f"`{name}`"
    repeated = f"{name}..." if argument.nargs == -1 else name
    return repeated if argument.required else f"[{repeated}]"


def _format_option(option: Any) -> str:
    """Return the names of an option, and the kind of its value."""
    kind = "" if option.is_flag else f" {option.metavar or _value_name(option)}"
    names = ", ".join(f"`{name}{kind}`" for name in sorted(option.opts, key=len, reverse=True))
    negative = ", ".join(f"`{name}`" for name in option.secondary_opts)
    return f"{names} or {negative}" if negative else names


def _value_name(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    annotation = (getattr(annotation, "__args__", None) or [annotation])[0]  # list[str], Path | None
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "\\|".join(str(each.value) for each in annotation)
    return _TYPE_NAMES.get(getattr(annotation, "__name__", ""), "TEXT")


def _format_default(option: Any) -> str:
    default = option.default
    if not option.show_default or callable(default) or default in (None, "", False, (), []):
        return ""
    shown = default.value if isinstance(default, Enum) else "on" if default is True else default
    return f" Default: `{shown}`."


def _escape(text: str) -> str:
    """Return a text in which only code spans are markup; names of options become code spans."""
    parts = text.split("`")
    parts[::2] = [_OPTION.sub(r"`\g<0>`", part.replace("*", "\\*").replace("<", "&lt;")) for part in parts[::2]]
    return "`".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render_page(), "utf-8")
    sys.exit(0)
