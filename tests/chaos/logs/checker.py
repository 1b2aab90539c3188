"""Comparison of the lines that a wait emitted with the lines that the containers wrote.

Each line of a container has the form `RUN.NUMBER TEXT.`: the run of the container and the number of the line in this
run, both counted from 0, and a text that ends with a full stop. So each line is unique, and a cut line is recognizable.
Every other emitted line is a notice, or a known text of the kubelet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise

from trainjob.client import LogLine

_LINE = re.compile(r"(\d+)\.(\d+) ")
_CUT_LINE = re.compile(r"\d*(\.\d*)?")  # a line that was cut within its numbers
_TIME = re.compile(r"\d\d:\d\d:\d\d|beginning")
_COUNT = re.compile(r"([\d,]+) lines?\b")

Runs = Sequence[Sequence[str]]
"""The lines of each run of a container."""


def numbered_line(run: int, number: int, text: str = "") -> str:
    """Return the text of one line of a container."""
    return f"{run}.{number} {text}."


@dataclass
class Findings:
    """Result of the comparison.

    Attributes:
        lines: number of written lines.
        repeated: lines, or parts of lines, that were emitted again, and lines that no container wrote.
        disordered: lines that were emitted after a later line of their run.
        reported: lines that were not emitted completely, and a notice reports them.
        lost: lines that were not emitted completely, without a valid notice.
        unneeded: notices at places where no line is missing.
        problems: what is wrong, for people.
    """

    lines: int = 0
    repeated: int = 0
    disordered: int = 0
    reported: int = 0
    lost: int = 0
    unneeded: int = 0
    problems: list[str] = field(default_factory=list)

    def __add__(self, other: Findings) -> Findings:
        return Findings(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def counts(self) -> dict[str, int]:
        """The counts by name, for the evidence."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "problems"}


@dataclass(frozen=True)
class _Gap:
    """Lines of a run that were not emitted, and the places of the emitted lines around them."""

    source: str
    run: int
    first: int
    count: int
    after: float
    before: float

    def __str__(self) -> str:
        return f"{self.count} lines of {self.source} from {self.run}.{self.first}"


def check_lines(written: Mapping[str, Runs], emitted: Iterable[LogLine], foreign: Collection[str] = ()) -> Findings:
    """Compare the emitted lines of one wait with the written ones.

    A gap is a sequence of consecutive lines of one run that were not emitted completely. A notice reports a gap if it

    * has the gap's source, or a source that no container has, such as a notice about the whole TrainJob,
    * comes between the emitted lines around the gap; after the last line of a run it may come at any place,
    * names a time, or says that the output is missing from its beginning,
    * states no number of lines, or the right one.

    Args:
        written: the lines of each container, by the source of its emitted lines.
        emitted: the lines in the order in which the wait emitted them.
        foreign: texts that are neither lines of a container nor notices, such as errors of the kubelet. They may also
            follow the last line of a container that has no line end.
    """
    texts = [(source, _without_suffix(text, foreign)) for source, text in _join_pieces(emitted)]
    notices = {
        place: (source, text)
        for place, (source, text) in enumerate(texts)
        if not _LINE.match(text) and not _CUT_LINE.fullmatch(text)
    }
    findings, needed = Findings(lines=sum(len(run) for runs in written.values() for run in runs)), set[int]()
    for gap in _compare(written, texts, findings):
        candidates = {
            place: text
            for place, (source, text) in notices.items()
            if (source == gap.source or source not in written) and gap.after < place < gap.before
        }
        needed |= candidates.keys()
        if any(_reports(text, gap) for text in candidates.values()):
            findings.reported += gap.count
        else:
            findings.lost += gap.count
            findings.problems.append(f"lost: {gap}; notices: {list(candidates.values())}")
    for place in notices.keys() - needed:
        findings.unneeded += 1
        findings.problems.append(f"unneeded notice: {texts[place]}")
    return findings


def _join_pieces(emitted: Iterable[LogLine]) -> Iterator[tuple[str, str]]:
    """Yield source and text of each whole line, without the frames of progress bars."""
    pieces: dict[str, str] = {}
    for line in emitted:
        if line.frame:
            continue
        text = pieces.pop(line.source, "") + line.text
        if line.continued:
            pieces[line.source] = text
        else:
            yield line.source, text
    yield from pieces.items()


def _without_suffix(text: str, suffixes: Iterable[str]) -> str:
    for suffix in suffixes:
        text = text.removesuffix(suffix)
    return text


def _compare(written: Mapping[str, Runs], texts: Sequence[tuple[str, str]], findings: Findings) -> Iterator[_Gap]:
    """Count repeated and disordered lines, and yield the gaps."""
    places: dict[tuple[str, int], dict[int, int]] = {
        (name, run): {} for name in written for run in range(len(written[name]))
    }
    cut: list[tuple[str, int, int]] = []
    for place, (source, text) in enumerate(texts):
        if not (match := _LINE.match(text)):
            continue
        run, number = int(match[1]), int(match[2])
        line = _get_line(written, source, run, number)
        known = places.get((source, run), {})
        if line is not None and text != line and line.startswith(text):
            cut.append((source, run, number))
        elif text != line or number in known:
            findings.repeated += 1
            findings.problems.append(f"repeated or unknown: {source} {text[:80]}")
        else:
            findings.disordered += bool(known) and number < max(known)
            known[number] = place
    for (source, run), known in places.items():
        yield from _find_gaps(source, run, known, len(written[source][run]))
    findings.repeated += sum(number in places[source, run] for source, run, number in cut)


def _get_line(written: Mapping[str, Runs], source: str, run: int, number: int) -> str | None:
    runs = written.get(source, ())
    return runs[run][number] if run < len(runs) and number < len(runs[run]) else None


def _find_gaps(source: str, run: int, places: Mapping[int, int], count: int) -> Iterator[_Gap]:
    bounds = {-1: -1.0, **{number: float(place) for number, place in sorted(places.items())}, count: math.inf}
    for last, following in pairwise(bounds):
        if following - last > 1:
            yield _Gap(source, run, last + 1, following - last - 1, bounds[last], bounds[following])


def _reports(notice: str, gap: _Gap) -> bool:
    stated = [int(count.replace(",", "")) for count in _COUNT.findall(notice)]
    return bool(_TIME.search(notice)) and (not stated or gap.count in stated)
