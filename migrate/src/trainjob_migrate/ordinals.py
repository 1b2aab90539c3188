"""Expressions that read the ordinal or the address of a pod from its name.

The name and the host name of a v1 pod are NAME-worker-ORDINAL. The host name of a TrainJob's pod is NAME-node-0-INDEX,
where NAME may have another number of dashes. Kubernetes sets the variable `JOB_COMPLETION_INDEX` in each container of
an indexed Job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob_migrate.draft import Draft

_HOSTNAME = r"(?:hostname(?: -s)?|echo \"?\$\{?HOSTNAME\}?\"?)"
_LAST_PART = (
    r"awk -F ?['\"]?-['\"]? ['\"]\{ ?print \$NF ?\}['\"]",
    r"sed (?:-E )?['\"]s/\.\*-//g?['\"]",
    r"grep -[oE]+ ['\"]\[0-9\][*+]\\?\$['\"]",
    r"rev ?\| ?cut -d ?['\"]?-['\"]? -f ?1 ?\| ?rev",
    r"cut -d ?['\"]?-['\"]? -f ?(?P<field>\d+)-?",
)
_PIPE = rf"{_HOSTNAME} ?\| ?(?:{'|'.join(_LAST_PART)})"
_ORDINAL = re.compile(rf"\$\{{HOSTNAME##\*-\}}|\$\({_PIPE}\)|`{_PIPE.replace('<field>', '<quoted>')}`")
_INDEX = "${JOB_COMPLETION_INDEX}"
# The ordinal of v1: the Master is 0, and so is the first Worker.
_INDEX_AFTER_MASTER = "$((JOB_COMPLETION_INDEX > 0 ? JOB_COMPLETION_INDEX - 1 : 0))"


# The option of torchrun for the address at which the other nodes reach this one.
_OWN_ADDRESS = re.compile(
    r"(?P<option>--local[-_]addr(?:=|\s+)['\"]?)"
    r"\$(?:\{(?P<braces>\w+)\}|\((?P<parentheses>\w+)\)|(?P<bare>\w+))"
)
OWN_HOST = "$(JOBSET_NAME)-node-0-$(JOB_COMPLETION_INDEX).$(JOBSET_NAME)"
"""Host of a TrainJob's pod, for a command or arguments of a container with the variable `JOBSET_NAME`."""


def replace_own_addresses(draft: Draft, text: Any) -> Any:
    """Return a text in which the pod's own address is its host instead of its name.

    In v1 each pod has a Service with its name. The draft gets a finding for each expression that is replaced.
    """
    if not isinstance(text, str):
        return text

    def replace_address(found: re.Match[str]) -> str:
        name = found["braces"] or found["parentheses"] or found["bare"]
        if name not in draft.name_variables:
            return found[0]
        draft.add_finding(
            "hosts",
            f"The program uses the name of its pod as its address: {found[0]}",
            "The Training Operator creates a Service with the name of each pod. A TrainJob's pods have other hosts.",
            f"{name} is replaced by {OWN_HOST}.",
        )
        return f"{found['option']}{OWN_HOST}"

    return _OWN_ADDRESS.sub(replace_address, text)


def replace_ordinals(draft: Draft, text: str, first_ranks: Mapping[str, int]) -> str:
    """Return a text with the ordinals of v1 pods read from `JOB_COMPLETION_INDEX`.

    The draft gets a finding for each expression that is replaced. An expression that reads another part of the name
    is left unchanged. So are all of them with `hostNetwork`, where the host name is that of the machine.

    Args:
        draft: the draft.
        text: a word of a command, such as the script of a shell.
        first_ranks: by kind of replicas, the rank of its first pod among the TrainJob's nodes.
    """
    last_field = len(draft.source_name.split("-")) + 2
    new = _INDEX if set(first_ranks.values()) == {0} else _INDEX_AFTER_MASTER

    def replace_ordinal(found: re.Match[str]) -> str:
        field = found["field"] or found["quoted"]
        if draft.has_host_network or (field and int(field) != last_field):
            return found[0]
        draft.add_finding(
            "ordinal",
            f"The program reads the ordinal of its pod from the host name: {found[0]}",
            "The host name of a v1 pod ends with -worker-0 or -master-0; that of a TrainJob's pod ends with -node-0-0, "
            "and counts all nodes together.",
            f"It is replaced by {new}, which has the same value as with the Training Operator.",
        )
        return new

    return _ORDINAL.sub(replace_ordinal, text)
