"""What a trial's prompt mode changes in its container: which file its settings go to, and whether a case must go first.

Owns the choice of the mode, and the two commands that root runs inside. Must not run anything itself. In `sealed`
the token is the agent's own to use and the gateway holds the case; in `open` and `bound` the task's service, root's,
holds both. Called by mixin.
"""

from dataclasses import dataclass
from typing import Any, Final

from keyproxy.harbor.place import SEALED, Place

_FOLDER: Final = "/run/caa"
_SEAL: Final = "/opt/caa/seal.py"
# A container counts as started before its service has the case; sealed in between, it would be served after all.
_AWAIT_SERVICE: Final = (
    "for _ in $(seq 100); do [ -S /run/clinic.sock ] || [ ! -e /var/lib/caa ] && break; sleep 0.1; done"
)


@dataclass(frozen=True, slots=True)
class Mode:
    """`prompt` is open, bound or sealed. `holds_no_case` is what the task says of itself (`tasks export --sealed`)."""

    prompt: str
    holds_no_case: bool

    @property
    def is_sealed(self) -> bool:
        return self.prompt == SEALED

    @property
    def settings_file(self) -> str:
        return f"{_FOLDER}/client.env" if self.is_sealed else f"{_FOLDER}/env"

    @property
    def seal(self) -> str:
        """Exit 0: nothing of a case is left, or there was none: a task without the program must say so."""
        without = "exit 0" if self.holds_no_case else f"echo '{_SEAL} is missing'; exit 1"
        return f"[ -e {_SEAL} ] || {{ {without}; }}; {_AWAIT_SERVICE}; exec python3 -S -I -B {_SEAL}"

    def settle(self, uploaded: str) -> str:
        """Put the file that was uploaded where it belongs, readable by those who may have it, and whole at once."""
        mode, open_folder = ("644", f" && chmod 755 {_FOLDER}") if self.is_sealed else ("600", "")
        own = f"chown 0:0 {uploaded} && chmod {mode} {uploaded}"
        return f"mkdir -p -m 755 {_FOLDER}{open_folder} && {own} && mv -f {uploaded} {self.settings_file}"


def chosen(place: Place, task: dict[str, Any]) -> Mode:
    """What the harness was told, else what the task says, else open; `task` is what its task.toml holds."""
    said = task.get("metadata", {}).get("prompt_mode")
    return Mode(place.prompt or (SEALED if said == SEALED else "open"), said == SEALED)
