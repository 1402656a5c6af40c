"""Which `KEYPROXY_*` names and file keys mean something, and what a wrong one was meant to be.

Owns the list of known names, the names that are somebody else's, and the
did-you-mean. Must not read values into messages. Called by `loading`.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from keyproxy.settings.model import Settings

PREFIX: Final = "KEYPROXY_"

# read by the Harbor integration and the tasks' own clients, never by the gateway
_OF_CLIENTS: Final = frozenset(
    {
        "KEYPROXY_URL",
        "KEYPROXY_CONTAINER_URL",
        "KEYPROXY_ENROLMENT_TOKEN",
        "KEYPROXY_TRIAL_NETWORK",
        "KEYPROXY_PROMPT",
    }
)

# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables: a Service
# called keyproxy, or keyproxy-anything, puts these into every pod of its namespace
_SERVICE_LINK: Final = re.compile(
    r"KEYPROXY(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_LINK_URL: Final = re.compile(r"KEYPROXY(_[A-Z0-9_]+)?_PORT")
_LINK_SCHEMES: Final = ("tcp://", "udp://", "sctp://")

# set by every command's environment alone, so that none of them can disagree
NOT_IN_FILE: Final = frozenset({"config", "state_dir"})


def leaves(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Every setting's dotted name, in the order of the model."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def env_name(leaf: str) -> str:
    """`patient.retry_attempts` is `KEYPROXY_PATIENT__RETRY_ATTEMPTS`."""
    return PREFIX + leaf.replace(".", "__").upper()


def flag_name(leaf: str) -> str:
    """`ops_listen` is `--ops-listen`."""
    return "--" + leaf.replace("_", "-")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def unknown_in_environment(environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The faults to refuse the start with, and the names that Kubernetes set."""
    known = {env_name(leaf) for leaf in leaves()}
    faults, ignored = [], []
    for name, value in sorted(environ.items()):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper in known or upper in _OF_CLIENTS:
            continue
        if _is_service_link(name, value):
            ignored.append(name)
        else:
            faults.append(f"{name} is no setting{_meant(upper, known)}; unset it or correct its name")
    return faults, ignored


def unknown_in_file(values: Mapping[str, Any], path: str) -> list[str]:
    """The faults of a file's keys."""
    known = set(leaves()) - NOT_IN_FILE
    faults = []
    for leaf in flat(values):
        if leaf in NOT_IN_FILE:
            faults.append(f"{leaf} cannot be set in {path}; set {env_name(leaf)}, which every command reads")
        elif leaf not in known:
            faults.append(f"{leaf} in {path} is no setting{_meant(leaf, known)}; remove it or correct its name")
    return faults


def _is_service_link(name: str, value: str) -> bool:
    if _SERVICE_LINK.fullmatch(name):
        return True
    return _SERVICE_LINK_URL.fullmatch(name) is not None and value.startswith(_LINK_SCHEMES)


def _meant(name: str, known: set[str]) -> str:
    if name == "KEYPROXY_OPENAI_API_KEY":
        return " (did you mean OPENAI_API_KEY, or better KEYPROXY_OPENAI_API_KEY_FILE?)"
    # without the prefix: it would make all names look alike
    suffixes = {each.removeprefix(PREFIX): each for each in sorted(known)}
    close = difflib.get_close_matches(name.removeprefix(PREFIX), suffixes, n=1)
    return f" (did you mean {suffixes[close[0]]}?)" if close else " (docs/settings.md lists them all)"
