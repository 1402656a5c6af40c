"""`clinic` of a sealed trial: the gateway holds the consultation, the container nothing but its questions.

Owns where URL and token come from (the client's own environment, else the file that
root left for it; the token buys nothing but another question to the same patient) and
the one shape of replies: what the command prints is, byte for byte, what it prints of
a service in the container. Called by the command where there is no such service.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..refusal import EXIT_STATUS, Refusal, no_such_tool
from .environment import PATIENT, PLACEHOLDER, Endpoint, SettingError, names_of, read_endpoint, read_lines_of
from .host import UNAUTHORIZED, Host, HostFaultError, Told
from .wire import failure, success

_OWN: Final = frozenset(name for name in names_of(PATIENT) if name.startswith("CAA_"))


def carry(request: dict[str, Any], environ: Mapping[str, str], client_settings: Path) -> dict[str, Any] | None:
    """Carry a request to the gateway; None where it says that this trial is not sealed."""
    try:
        host = Host(_endpoint(environ, client_settings))
        status = host.status()
        return None if status is None else _FORMS[request["do"]](host, request, status)
    except SettingError as fault:
        return failure("configuration", f"{fault}, and this container has no service of its own", 3)
    except HostFaultError as fault:
        code = "not_allowed" if fault.kind == UNAUTHORIZED else "service_unavailable"
        return failure(code, f"the gateway of this trial gives no answer ({fault})", 6)


def _endpoint(environ: Mapping[str, str], client_settings: Path) -> Endpoint:
    """The model's name means nothing here; `rule` and the like are for those who play the patient themselves."""
    left = _left_by_root(client_settings)
    own = {name: environ[name] for name in _OWN if environ.get(name) not in {None, "", PLACEHOLDER}}
    endpoint = read_endpoint(PATIENT, {**environ, **left, **own, "CAA_PATIENT_MODEL": ""})
    if endpoint is None:
        raise AssertionError("an endpoint without a named model is one")
    return endpoint


def _left_by_root(path: Path) -> dict[str, str]:
    try:
        return read_lines_of(path, path.read_bytes())
    except OSError:
        return {}


def _status(_host: Host, _request: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    try:
        used, limit = status["steps"]["used"], status["steps"]["limit"]
        left = None if limit is None else limit - used
        own = {"steps": used, "steps_left": left, "closed": status["state"] == "closed"}
        return success({**own, "turns": status["turns"], "calls": status["calls"]})
    except (KeyError, TypeError):
        raise HostFaultError("broken", "the status is not one") from None


def _tools(host: Host, request: dict[str, Any], _status: dict[str, Any]) -> dict[str, Any]:
    told = host.sound(host.send("GET", "/tools")).json
    try:
        tools = {tool["name"]: tool for tool in told["tools"]}
        named = request.get("name")
        if named is None:
            return success([_summary(tools[name]) for name in sorted(tools)])
        return success(tools[named]) if named in tools else _refused(no_such_tool(named))
    except (KeyError, TypeError, AttributeError):
        raise HostFaultError("broken", "the list of tools is not one") from None


def _summary(tool: dict[str, Any]) -> dict[str, Any]:
    """A line of the list, of what a tool's own page says."""
    parameters = tool["parameters"]
    return {
        "name": tool["name"],
        "description": tool["description"],
        "required": parameters["required"],
        "parameters": sorted(parameters["properties"]),
    }


def _act(host: Host, request: dict[str, Any], _status: dict[str, Any]) -> dict[str, Any]:
    """Every act by the one route that takes any tool's name: it tells the whole answer, questions included."""
    told = host.send("POST", "/call", {"tool": request["tool"], "arguments": request["arguments"]})
    refusal = _refusal(told)
    if refusal is not None:
        return _refused(refusal)
    result = host.sound(told).json.get("result")
    if not isinstance(result, dict):
        raise HostFaultError("broken", "the answer holds no result")
    return success(result)


def _refusal(told: Told) -> Refusal | None:
    """The engine's own no; the gateway puts the place before the message, for clients that show only that."""
    error = told.error
    code, message, path = error.get("code", ""), error.get("message", ""), error.get("param", "")
    if told.status == 200 or code not in EXIT_STATUS:
        return None
    return Refusal(code, message[len(f"{path}: ") :] if path and message.startswith(f"{path}: ") else message, path)


def _refused(refusal: Refusal) -> dict[str, Any]:
    return {"error": refusal.as_json(), "exit": refusal.exit_status}


_FORMS: Final = {"status": _status, "tools": _tools, "act": _act}
