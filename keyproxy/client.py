"""How commands and harnesses speak to a gateway: the standard library and nothing else.

Owns the client side of the wire below and the turning of refusals into faults with
exit codes. Must not import the server's rooms, nor put a token into a URL or a
message. Called by cli, and by harbor inside other people's processes.

`ControlClient` is the operator's. The wire is JSON over HTTP/1.1, on `admin.sock` in the
state directory without a credential (the socket's mode is the credential), or on the TCP
control plane with `Authorization: Bearer ADMIN_TOKEN`. Every refusal is
`{"error": {message, type, param, code}}`.

    POST /v1/tokens               201  the token and its effective grant: {token, id, trial, role, …, limits}
    GET  /v1/tokens               200  {tokens: [state, …]}; `?trial=T` narrows, `?all=1` adds the dead
    GET  /v1/tokens/{id}          200  state
    POST /v1/tokens/lookup        200  state, for {token: "the whole token"}
    POST /v1/tokens/{id}/revoke   200  state, once the revocation is durable
    POST /v1/enrolments           201  the enrolment token and its terms: {token, id, tasks, limits, …}
    GET  /v1/enrolments           200  {enrolments: [enrolment, …]}; `?all=1` adds the dead
    GET  /v1/enrolments/{id}      200  enrolment
    POST /v1/enrolments/{id}/revoke  200  enrolment, once its end and its tokens' end are durable
    POST /v1/trials/{trial}/close 200  {receipt}, also where the trial's enrolment is at its end
    POST /v1/prompts              200  {task, role, systems, items, answers, transcripts}, digests in hex
    GET  /v1/status               200  {version, uptime_seconds, listeners, upstream, model, ready, in_flight, audit}
    POST /v1/checkpoint           200  {seq, head}

A mint request holds `trial` and any of task, nonce, role, model, prompt
(open|bound|sealed), endpoints, limits {requests, tokens, microusd, concurrency,
requests_per_minute, output_tokens_per_request}, sampling, ttl_seconds, networks,
labels. An unknown or ill-typed field is 422 with `param`.

A state is the grant as minting echoed it, and `status` (live, expired, revoked, closed),
`revoked_at`, `closed` (why, or null), `in_flight`, and `balance` {requests, tokens,
microusd}, each {limit, used, reserved, left}, where null is unlimited.

`EnrolmentClient` is a harness's, on the data plane with an enrolment token; docs/gateway.md
has its routes (`/v1/trials` and what is below it).
"""

import http.client
import json
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    """Nobody answered, or the gateway cannot just now (429, 5xx): the same call may be made again."""

    exit_code = EXIT_UNAVAILABLE


class NotFoundError(KeyproxyError):
    """There is no such token, no such trial for this enrolment, or no such route."""

    exit_code = EXIT_NOT_FOUND


class DeniedError(KeyproxyError):
    """The credential is missing, wrong or at its end, or does not allow this."""

    exit_code = EXIT_DENIED


class RefusedError(KeyproxyError):
    """The request was understood and refused; `param` names the field, `code` is one of docs/errors.md.

    `trial_state` and `trial_limit` are the codes of a trial that is too far on, and of one too many.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param
        self.code = code


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

    def enrol(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Make an enrolment; the answer holds its token, this once."""
        return self._call("POST", "/v1/enrolments", spec)

    def enrolments(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """The live enrolments, or with `everything` the expired and revoked as well."""
        found: list[dict[str, Any]] = self._call("GET", f"/v1/enrolments{'?all=1' if everything else ''}")["enrolments"]
        return found

    def enrolment(self, enrolment_id: str) -> dict[str, Any]:
        return self._call("GET", f"/v1/enrolments/{quote(enrolment_id, safe='')}")

    def revoke_enrolment(self, enrolment_id: str) -> dict[str, Any]:
        """End an enrolment and every token of its trials; once this returns, that is durable."""
        return self._call("POST", f"/v1/enrolments/{quote(enrolment_id, safe='')}/revoke")

    def close_trial(self, trial: str) -> dict[str, Any]:
        """The receipt of a trial, which is closed with this if it was not."""
        receipt: dict[str, Any] = self._call("POST", f"/v1/trials/{quote(trial, safe='')}/close")["receipt"]
        return receipt

    def register(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Say by digests what a task's patient or judge may be told; once this returns, that is durable."""
        return self._call("POST", "/v1/prompts", spec)

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/v1/status")

    def checkpoint(self) -> dict[str, Any]:
        """Have the record's head signed now."""
        return self._call("POST", "/v1/checkpoint")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return _asked(self._place, method, path, body, self._headers)


@dataclass(frozen=True, slots=True)
class OpenTrial:
    """A trial that was minted or found open. `patient_token` is told this once, and goes into the container.

    `expires_at` is RFC 3339; a limit that is None is unlimited. A repeat gives a fresh
    token whose limits are what the one before it had left.
    """

    trial: str
    attempt: int
    patient_token: str = field(repr=False)
    expires_at: str
    limits: Mapping[str, int | None]
    prompt: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The judge's token, told this once; it lives until the trial is closed, or until `expires_at`."""

    judge_token: str = field(repr=False)
    expires_at: str


class EnrolmentClient:
    """The life of an enrolment's trials: open, verify, close. Each call is one connection; safe in any thread.

    `base_url` is the data plane's, with or without `/v1`. Every call may be repeated, whatever
    became of it before. All raise UnavailableError (nobody answered, or not now: repeat it),
    DeniedError (the enrolment is at its end, or does not hold this task), NotFoundError (not
    a trial of this enrolment) and RefusedError with its `code`; a URL that is none is a ConfigError.
    """

    def __init__(self, base_url: str, token: str, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._place = _on_tcp(base_url.rstrip("/").removesuffix("/v1"), timeout_seconds)
        self._headers = {"Authorization": f"Bearer {token}"}

    def open_trial(self, task: str, nonce: str, prompt: str = "open") -> OpenTrial:
        """The trial of this task and nonce: minted, or while it is open found, with the token before it revoked.

        `nonce` names one attempt, and a repeat of the call sends the same one. RefusedError
        `trial_limit`: the attempts are used up; `trial_state`: this trial is not open any more.
        """
        told = self._call("POST", "/v1/trials", {"task": task, "nonce": nonce, "prompt": prompt})
        names = ("trial", "attempt", "patient_token", "expires_at", "limits", "prompt")
        return OpenTrial(**_members(told, names))

    def verify(self, trial: str) -> Verification:
        """End the patient's part for good, and get a judge's token; a repeat revokes the one before it.

        RefusedError `trial_state`: the trial is closed.
        """
        told = self._call("POST", f"/v1/trials/{quote(trial, safe='')}/verification", {})
        return Verification(**_members(told, ("judge_token", "expires_at")))

    def close(self, trial: str) -> dict[str, Any]:
        """End the trial: no token of it works any more, calls under way are cut. Gives its receipt, a DSSE envelope."""
        return self._receipt(self._call("POST", f"/v1/trials/{quote(trial, safe='')}/close", {}))

    def receipt(self, trial: str) -> dict[str, Any]:
        """The receipt of a trial that was closed, the same as `close` gave. RefusedError `trial_state`: it is not."""
        return self._receipt(self._call("GET", f"/v1/trials/{quote(trial, safe='')}/receipt"))

    def _receipt(self, told: Mapping[str, Any]) -> dict[str, Any]:
        envelope: dict[str, Any] = _members(told, ("receipt",))["receipt"]
        return envelope

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return _asked(self._place, method, path, body, self._headers)


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


def _asked(
    place: _Place, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
) -> dict[str, Any]:
    payload = None if body is None else json.dumps(body).encode()
    typed = headers if payload is None else {**headers, "Content-Type": "application/json"}
    return _judged(_exchange(place, method, path, payload, typed))


def _members(told: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    try:
        return {name: told[name] for name in names}
    except KeyError:
        raise UnavailableError("what answered is not keyproxy's data plane") from None


def _judged(answer: Answer) -> dict[str, Any]:
    """The body of a success; everything else is a fault with its exit code."""
    try:
        body = json.loads(answer.body)
        if answer.status in {200, 201}:
            return dict(body)
        error = body["error"]
        message, param, code = str(error["message"]), error.get("param"), error.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnavailableError(f"what answered (status {answer.status}) is not keyproxy") from None
    if answer.status == 404:
        raise NotFoundError(message)
    if answer.status in {401, 403}:
        raise DeniedError(message)
    if answer.status < 500 and answer.status != 429:
        raise RefusedError(message, param, code)
    raise UnavailableError(message)
