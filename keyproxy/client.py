"""How commands and harnesses speak to a gateway's control plane: the standard library and nothing else.

Owns the client side of the wire below and the turning of refusals into faults with
exit codes. Must not import the server's rooms, nor put a token into a URL or a
message. Called by cli, and by harbor inside other people's processes.

The wire is JSON over HTTP/1.1, on `admin.sock` in the state directory without a
credential (the socket's mode is the credential), or on the TCP control plane with
`Authorization: Bearer ADMIN_TOKEN`. Every refusal is `{"error": {message, type, param, code}}`.

    POST /v1/tokens               201  the token and its effective grant: {token, id, trial, role, …, limits}
    GET  /v1/tokens               200  {tokens: [state, …]}; `?trial=T` narrows, `?all=1` adds the dead
    GET  /v1/tokens/{id}          200  state
    POST /v1/tokens/lookup        200  state, for {token: "the whole token"}
    POST /v1/tokens/{id}/revoke   200  state, once the revocation is durable
    GET  /v1/status               200  {version, uptime_seconds, listeners, upstream, model, ready, in_flight, audit}
    POST /v1/checkpoint           200  {seq, head}

A mint request holds `trial` and any of task, nonce, role, model, prompt
(open|bound|sealed), endpoints, limits {requests, tokens, microusd, concurrency,
requests_per_minute, output_tokens_per_request}, sampling, ttl_seconds, networks,
labels. An unknown or ill-typed field is 422 with `param`.

A state is the grant as minting echoed it, and `status` (live, expired, revoked, closed),
`revoked_at`, `closed` (why, or null), `in_flight`, and `balance` {requests, tokens,
microusd}, each {limit, used, reserved, left}, where null is unlimited.
"""

import http.client
import json
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

from keyproxy.errors import (
    EXIT_DENIED,
    EXIT_NOT_FOUND,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    ConfigError,
    KeyproxyError,
)
from keyproxy.settings import control_socket

_TOKEN_ID: Final = re.compile(r"kp_[pje][a-z2-7]{12}", re.ASCII)
_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_MAX_BYTES: Final = 64 * 1024**2


class UnavailableError(KeyproxyError):
    """Nobody answered, or not with the control plane's words."""

    exit_code = EXIT_UNAVAILABLE


class NotFoundError(KeyproxyError):
    """There is no such token, or no such route."""

    exit_code = EXIT_NOT_FOUND


class DeniedError(KeyproxyError):
    """The credential is missing or wrong."""

    exit_code = EXIT_DENIED


class RefusedError(KeyproxyError):
    """The request was understood and refused; `param` names the field."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body, unjudged."""

    status: int
    body: bytes


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class _Place:
    """One listener: how messages call it, what to try when it is silent, how to reach it."""

    name: str
    remedy: str
    connect: Callable[[], http.client.HTTPConnection]


class ControlClient:
    """One control plane. Each call is one connection: commands are short and so are their processes."""

    def __init__(self, place: _Place, admin_token: str | None = None) -> None:
        self._place = place
        self._headers = {"Authorization": f"Bearer {admin_token}"} if admin_token else {}

    @classmethod
    def in_state_directory(cls, state_dir: Path) -> Self:
        """The gateway that runs with this state directory."""
        return cls(_on_socket(control_socket(state_dir)))

    @classmethod
    def at(cls, url: str, admin_token: str) -> Self:
        """The gateway whose TCP control plane is at `url`."""
        return cls(_on_tcp(url), admin_token)

    def mint(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", "/v1/tokens", spec)

    def tokens(self, trial: str | None = None, *, everything: bool = False) -> list[dict[str, Any]]:
        """The live tokens, or with `everything` the expired and revoked as well."""
        query = urlencode({**({"trial": trial} if trial is not None else {}), **({"all": 1} if everything else {})})
        found: list[dict[str, Any]] = self._call("GET", f"/v1/tokens{'?' if query else ''}{query}")["tokens"]
        return found

    def token(self, id_or_token: str) -> dict[str, Any]:
        """The true state of a token, by its id or by the whole of it."""
        if _TOKEN_ID.fullmatch(id_or_token):
            return self._call("GET", f"/v1/tokens/{id_or_token}")
        return self._call("POST", "/v1/tokens/lookup", {"token": id_or_token})

    def revoke(self, id_or_token: str) -> dict[str, Any]:
        """End a token; once this returns, the revocation is durable."""
        token_id = id_or_token if _TOKEN_ID.fullmatch(id_or_token) else self.token(id_or_token)["id"]
        return self._call("POST", f"/v1/tokens/{quote(token_id, safe='')}/revoke")

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/v1/status")

    def checkpoint(self) -> dict[str, Any]:
        """Have the record's head signed now."""
        return self._call("POST", "/v1/checkpoint")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        payload = None if body is None else json.dumps(body).encode()
        headers = self._headers if payload is None else {**self._headers, "Content-Type": "application/json"}
        return _judged(_exchange(self._place, method, path, payload, headers))


def probe(url: str, path: str, timeout_seconds: float = 3.0) -> Answer:
    """What `path` of the listener at `url` answers, for health and for doctor. Raises UnavailableError."""
    return _exchange(_on_tcp(url, timeout_seconds), "GET", path, None, {})


def _on_socket(path: Path) -> _Place:
    return _Place(
        str(path), "is `keyproxy serve` running with the same KEYPROXY_STATE_DIR?", lambda: _UnixConnection(path)
    )


def _on_tcp(url: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> _Place:
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc or parts.path not in {"", "/"}:
        raise ConfigError("the gateway's URL must be http://HOST:PORT or https://HOST:PORT and nothing more")
    try:
        port = parts.port
    except ValueError:
        raise ConfigError("the gateway's URL has a port that is not a number up to 65535") from None

    def connect() -> http.client.HTTPConnection:
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout_seconds)

    return _Place(f"{parts.scheme}://{parts.netloc}", "is the gateway running, and is this its address?", connect)


def _exchange(place: _Place, method: str, path: str, payload: bytes | None, headers: Mapping[str, str]) -> Answer:
    connection = place.connect()
    try:
        connection.request(method, path, payload, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, response.read(_ANSWER_MAX_BYTES))
    except PermissionError:
        raise DeniedError(f"{place.name} belongs to another user") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UnavailableError(f"no answer at {place.name} ({reason}); {place.remedy}") from None
    finally:
        connection.close()


def _judged(answer: Answer) -> dict[str, Any]:
    """The body of a success; everything else is a fault with its exit code."""
    try:
        body = json.loads(answer.body)
        if answer.status in {200, 201}:
            return dict(body)
        error = body["error"]
        message, param = str(error["message"]), error.get("param")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnavailableError(f"what answered (status {answer.status}) is not keyproxy's control plane") from None
    if answer.status == 404:
        raise NotFoundError(message)
    if answer.status in {401, 403}:
        raise DeniedError(message)
    if answer.status < 500:
        raise RefusedError(message, param)
    raise UnavailableError(message)
