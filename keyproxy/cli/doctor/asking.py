"""Asking the running gateway over HTTP as a container would, with the standard library.

Owns one request and its answer. The certificate must be one that the host trusts, or
the one that the settings name; its name is not compared, for containers use others.
"""

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from keyproxy.client import UnavailableError


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer. `headers` are by lower-case name."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error in OpenAI's shape; empty when it has another."""
        try:
            error = json.loads(self.body)["error"]
        except (ValueError, KeyError, TypeError):
            return {}
        whole = isinstance(error, dict) and error.keys() == {"message", "type", "param", "code"}
        return error if whole else {}


def ask(
    url: str,
    method: str,
    path: str,
    *,
    token: str | None = None,
    body: Any = None,
    certificate: Path | None = None,
    timeout_seconds: float = 3.0,
) -> Heard:
    """One request on a connection of its own. Raises UnavailableError."""
    connection = _connection(url, certificate, timeout_seconds)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    payload = None if body is None else json.dumps(body).encode()
    if payload is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Heard(response.status, told, response.read())
    except (OSError, http.client.HTTPException) as fault:
        raise UnavailableError(f"{url} does not answer {method} {path}: {fault or type(fault).__name__}") from None
    finally:
        connection.close()


def _connection(url: str, certificate: Path | None, timeout_seconds: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_seconds)
    context = ssl.create_default_context()
    context.check_hostname = False
    if certificate is not None:
        context.load_verify_locations(certificate)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the leaf itself is enough
    return http.client.HTTPSConnection(host, parts.port, timeout=timeout_seconds, context=context)
