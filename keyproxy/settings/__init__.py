"""Settings: every knob of the gateway, where it came from, and why it was refused.

`model` holds the fields (one field, one environment variable, one row in
docs/settings.md), `loading` reads flags, environment and file into them. This
module itself only tells where the state lives: it must stay cheap to import,
because `keyproxy token` needs nothing else and must not pay for pydantic.
"""

from keyproxy.settings.paths import control_socket, state_directory

__all__ = ["control_socket", "state_directory"]
