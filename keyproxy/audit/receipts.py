"""Receipts: signed with the checkpoints' key, and read again by a stranger.

Owns the envelope (DSSE) and what a reader may conclude from one. What a receipt says is
core/receipt's. Called at a trial's close, and by `receipt verify`, which needs neither a
server nor a secret.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

from keyproxy.audit.keys import PublicKey, Signer
from keyproxy.core import merkle
from keyproxy.core.canonical import canonical
from keyproxy.core.receipt import MEMBERS, PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE, signed_bytes, subject_of

MAX_RECEIPT_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a file is no receipt of this key; `code` is listed in docs/evidence.md."""

    code: str
    message: str


def seal(payload: str, signer: Signer) -> str:
    """The receipt of a payload, as text. Ed25519 is deterministic, so it is the same each time (RFC 8032)."""
    raw = payload.encode()
    signature = {"keyid": signer.public.key_id, "sig": _base64(signer.sign(signed_bytes(raw)))}
    envelope = {"payload": _base64(raw), "payloadType": PAYLOAD_TYPE, "signatures": [signature]}
    return canonical(envelope).decode()


def opened(raw: bytes, key: PublicKey) -> dict[str, Any] | Finding:
    """The predicate of a receipt that this key has signed, or why there is none."""
    try:
        envelope = json.loads(raw)
        payload = base64.b64decode(envelope["payload"], validate=True)
        kind, signatures = envelope["payloadType"], list(envelope["signatures"])
        signed = {each["keyid"]: base64.b64decode(each["sig"], validate=True) for each in signatures}
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return Finding("envelope_invalid", "this is not a DSSE envelope")
    if kind != PAYLOAD_TYPE:
        return Finding("envelope_invalid", "the payload's type is not that of an in-toto statement")
    if key.key_id not in signed:
        return Finding("key_mismatch", "it is signed by another key")
    if not key.confirms(signed[key.key_id], signed_bytes(payload)):
        return Finding("signature_invalid", "the signature is not this key's over this payload")
    return _predicate(payload)


def transcript_fault(predicate: dict[str, Any], transcript: bytes) -> Finding | None:
    """Why a transcript is not the one that a receipt is over, or None where it is, line for line."""
    sworn = predicate["transcript"]
    if sworn is None:
        return Finding("transcript_mismatch", "the receipt is over no transcript, so this one is not the trial's")
    lines = transcript.split(b"\n")
    if lines.pop() != b"" or len(lines) != sworn["lines"]:
        message = f"it has {len(lines)} whole lines, and the trial's has {sworn['lines']}"
        return Finding("transcript_mismatch", message)
    if merkle.root([merkle.leaf(line) for line in lines]).hex() != sworn["root"]:
        return Finding("transcript_mismatch", "a line is not as the trial's was")
    return None


def _predicate(payload: bytes) -> dict[str, Any] | Finding:
    """The key also signs checkpoints, and other versions may sign other statements: this must be a receipt."""
    try:
        statement = json.loads(payload)
        predicate: dict[str, Any] = statement["predicate"]
        kinds = (statement["_type"], statement["predicateType"])
        (subject,) = statement["subject"]
        about = (subject["name"], subject["digest"]["sha256"])
        expected = subject_of(predicate)
    except (ValueError, KeyError, TypeError, RecursionError):
        return Finding("statement_invalid", "what was signed is not a receipt")
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE) or about != expected or predicate.keys() != MEMBERS:
        return Finding("statement_invalid", "what was signed is not a receipt of this version")
    return predicate


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
