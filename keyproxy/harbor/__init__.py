"""How Harbor trials get their tokens and give them back: environments to name with `-e`, and a job plugin.

    harbor run … -e keyproxy.harbor:KeyproxyDockerEnvironment --plugin keyproxy

Owns the names that users write. Importing it neither imports Harbor nor starts or patches
anything; a class is loaded when it is asked for. Speaks the data plane's enrolment
routes alone, through `keyproxy.client`: no credential of the control plane ever enters
Harbor's process. Must not import the server's rooms. Called by Harbor, by import path.
"""

from importlib import import_module
from typing import Any, Final

_HOMES: Final = {
    "KeyproxyDockerEnvironment": "docker",
    "KeyproxyEnvironmentMixin": "mixin",
    "KeyproxyLocalEnvironment": "local",
    "KeyproxyPlugin": "plugin",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
