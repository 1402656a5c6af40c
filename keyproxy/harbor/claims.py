"""Which variables a trial may bring along, which are withheld, and which are refused with the reason.

Owns those rules, as pure functions. Must not change what it is given: Harbor shares configuration between trials.
Called by mixin.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from keyproxy.harbor.faults import PermissionDeniedError

# In a task's [verifier.env]: it asks for a token. A literal, since Harbor 0.1.44 knows no default in a template.
PLACEHOLDER: Final = "keyproxy-placeholder"
JUDGE_KEY: Final = "CAA_JUDGE_API_KEY"

_OURS: Final = re.compile(r"CAA_(PATIENT|JUDGE)_(API_KEY|BASE_URL)")
_PROVIDERS: Final = re.compile(r"OPENAI_[A-Z_]+")
_KEY: Final = re.compile(r"sk-[A-Za-z0-9_-]{8,}")
_TEMPLATE: Final = re.compile(r"\$\{[^}]*\}")


def refuse_asked_for(given: Mapping[str, str], where: str) -> None:
    """What somebody wrote by hand for all trials alike would outrank or outlive a trial's own token."""
    for name, value in given.items():
        if _OURS.fullmatch(name):
            raise PermissionDeniedError(f"{where} sets {name}: every trial has its own from keyproxy; take it out")
        if _KEY.match(str(value)):
            raise PermissionDeniedError(
                f"{where} sets {name} to what looks like a provider's key: it would be in every container; take it out"
            )


def refuse_agents(given: Mapping[str, str], where: str) -> None:
    """An agent may have the key of its own model, but no patient's or judge's."""
    refuse_asked_for({name: "" for name in given if _OURS.fullmatch(name)}, where)


def refuse_literals(declared: Mapping[str, Any]) -> None:
    """A task that holds a key in its task.toml."""
    for name, value in declared.items():
        if not _TEMPLATE.fullmatch(str(value)) and _KEY.match(str(value)):
            raise PermissionDeniedError(f"task.toml holds what looks like a provider's key as {name}")


def withheld(names: Iterable[str]) -> list[str]:
    """Of a task's variables: those that stay on the host. A key for the provider, and the placeholders of ours."""
    return [name for name in names if _PROVIDERS.fullmatch(name) or _OURS.fullmatch(name)]


def worth_a_warning(names: Iterable[str]) -> list[str]:
    """Of those withheld: what a task's author may miss."""
    return [name for name in names if _PROVIDERS.fullmatch(name)]


def judges(env: Mapping[str, str], base_url: str, token: str) -> dict[str, str]:
    """The verifier's variables, with the judge's token for this one call."""
    if env[JUDGE_KEY] != PLACEHOLDER:
        raise PermissionDeniedError(
            f"{JUDGE_KEY} is set for the verifier (by --ve, the host's environment or task.toml) to something "
            f"else than {PLACEHOLDER!r}: keyproxy gives each verification a token of its own; take it out"
        )
    kept = {name: value for name, value in env.items() if not _PROVIDERS.fullmatch(name)}
    return {**kept, JUDGE_KEY: token, "CAA_JUDGE_BASE_URL": base_url}
