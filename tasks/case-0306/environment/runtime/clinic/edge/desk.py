"""What the service answers to one request, whoever asked and however it came.

Owns the requests' form, the order (settings, then the act), and which settings may
speak: root's file, then the service's own start, and a client's environment only in
tasks that were built for it. It knows no socket; the server hands it parsed JSON,
one request at a time.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from typing import Any, Final

from ..consultation import open_consultation, patient_of
from ..encounter import ASK, Question
from ..ledger import Ledger, Row
from ..limits import OVERRIDE, read_cap
from ..refusal import CaseError, Refusal
from .environment import PATIENT, Endpoint, MissingError, SettingError, names_of, read_endpoint, read_file
from .host import Host, HostFaultError
from .models import PatientFaultError, patient_words
from .places import Places
from .record import AppendFile, reopen
from .wire import failure, success

_NOTES: Final = 100  # the verifier looks at the first; an agent that asks for ever must not fill the disk
_CLIENT: Final = "client"
_PROBE_SECONDS: Final = 10.0
_SEALED: Final = (
    "CAA_PATIENT_API_KEY is a sealed trial's, and this container holds the case: whoever started it must seal it "
    "(seal.py), or take a data set made by `keyproxy tasks export`"
)
_KEYS: Final = {
    "act": {"do", "tool", "arguments", "env"},
    "tools": {"do", "name", "env"},
    "status": {"do", "env"},
}


class PatientSettings:
    """Who the patient's model is, looked up at each question; a client's word is latched, where it counts at all."""

    def __init__(self, legacy_client_env: bool) -> None:
        self.hears_client = legacy_client_env
        self._latched: list[Endpoint | None] = []

    def find(self, root: Mapping[str, str], in_file: Mapping[str, str], client: Any) -> tuple[Endpoint | None, str]:
        """The endpoint (None: the rule patient) and `config_source`."""
        try:
            endpoint = read_endpoint(PATIENT, root)
        except MissingError:
            if not self.hears_client:
                raise
            return self._from_client(client), _CLIENT
        return endpoint, "file" if set(names_of(PATIENT)) & set(in_file) else "environment"

    def _from_client(self, client: Any) -> Endpoint | None:
        if not self._latched:
            given = client if isinstance(client, dict) else {}
            known = {name: given[name] for name in names_of(PATIENT) if isinstance(given.get(name), str)}
            self._latched.append(read_endpoint(PATIENT, known))
        return self._latched[0]


class Desk:
    """One consultation, continued from whatever its ledger holds."""

    def __init__(self, places: Places, environ: Mapping[str, str]) -> None:
        self._places, self._environ = places, dict(environ)
        self._task = _document(places, "task")
        self._settings = PatientSettings(self._task.get("legacy_client_env", False))
        self._faults, self._noted = AppendFile(places.faults), 0
        file, rows = reopen(places.ledger)
        self._rows = rows
        self._default_cap: int = self._task["limits"]["max_steps"]
        self._rules = patient_of(self._task, None)
        self._patient: tuple[Endpoint | None, str] = (None, "")
        self._not_sealed: Endpoint | None = None
        self._encounter = open_consultation(
            self._task,
            _document(places, "clinical_db"),
            _document(places, "findings"),
            ledger=Ledger(lambda: secrets.token_hex(16), file.write, rows),
            converse=self._converse,
        )

    def answer(self, request: Any) -> dict[str, Any]:
        """The reply to one request; whatever it was, this returns."""
        try:
            do = _checked(request)
            in_file = read_file(self._places.settings) or {}
            root = {**self._environ, **in_file}
            self._encounter.max_steps = _cap(root, self._default_cap)
            if do == "status":
                return success(self._encounter.status())
            if do == "tools":
                return _reply(self._encounter.tools(request.get("name")))
            if request["tool"] == ASK:
                self._patient = self._found(root, in_file, request.get("env"))
            return _reply(self._encounter.act(request["tool"], request["arguments"]))
        except SettingError as fault:
            return failure("configuration", str(fault), 3)
        except _MalformedError as fault:
            return failure("invalid_arguments", str(fault), 2)
        except OSError as fault:
            return failure("service_unavailable", f"the ledger cannot be written: {fault.strerror or fault}", 6)

    def _found(self, root: Mapping[str, str], in_file: Mapping[str, str], client: Any) -> tuple[Endpoint | None, str]:
        try:
            endpoint, source = self._settings.find(root, in_file, client)
            if endpoint is not None and source != _CLIENT:
                self._refuse_sealed(endpoint)
            return endpoint, source
        except SettingError:
            if not self._settings.hears_client:
                self._note("configuration")
            raise

    def _refuse_sealed(self, endpoint: Endpoint) -> None:
        """A sealed trial is the gateway's to play, charts and orders too: half of it here would be lost to the verdict.

        Where the gateway does not answer, the question itself will not be answered either.
        """
        if endpoint == self._not_sealed:
            return
        try:
            if Host(endpoint, min(endpoint.timeout_seconds, _PROBE_SECONDS), attempts=1).is_sealed():
                raise SettingError(_SEALED)
        except HostFaultError:
            return
        self._not_sealed = endpoint

    def _converse(self, question: Question, rows: list[Row]) -> dict[str, Any]:
        """The patient of this very question."""
        endpoint, source = self._patient
        converse = self._rules if endpoint is None else patient_of(self._task, patient_words(endpoint))
        try:
            answer = converse(question, rows)
        except PatientFaultError as fault:
            if source != _CLIENT:
                self._note(fault.kind)
            raise
        model = {} if endpoint is None else {"model": endpoint.model}
        answer["made_by"].update(config_source=source, **model)
        return answer

    def _note(self, kind: str) -> None:
        """For the verifier: a patient that never answered is our failure, unless the client chose whom to ask."""
        self._noted += 1
        if self._noted > _NOTES:
            return
        try:
            fault = {"kind": kind, "rows": len(self._rows), "steps": self._encounter.steps}
            self._faults.write(json.dumps(fault, sort_keys=True))
        except OSError as full:
            print(f"clinic: a fault could not be noted: {full}", file=sys.stderr)


class _MalformedError(Exception):
    """Not a request of this protocol."""


def _checked(request: Any) -> str:
    do = request.get("do") if isinstance(request, dict) else None
    if not isinstance(do, str) or do not in _KEYS or not set(request) <= _KEYS[do]:
        raise _MalformedError("this is no request that the clinic's service knows")
    named = request.get("name")
    if do == "act" and not (isinstance(request.get("tool"), str) and "arguments" in request):
        raise _MalformedError("an act has a tool and arguments")
    if named is not None and not isinstance(named, str):
        raise _MalformedError("a tool's name is text")
    return do


def _cap(root: Mapping[str, str], default: int) -> int | None:
    try:
        return read_cap(root.get(OVERRIDE) or None, default)
    except ValueError as fault:
        raise SettingError(str(fault)) from fault


def _reply(result: Any) -> dict[str, Any]:
    if isinstance(result, Refusal):
        return {"error": result.as_json(), "exit": result.exit_status}
    return success(result)


def _document(places: Places, name: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(places.document(name).read_text("utf-8"))
    except (OSError, ValueError) as fault:
        raise CaseError(f"{name}.json cannot be read: {fault}") from fault
    return document
