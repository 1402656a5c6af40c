"""Checkpoints: a signature over how many records there are and what they hash to.

Owns what is signed and what a reader may conclude from it. It holds no key and
reads no file. Called by the writer, by the repair at start and by the verification.
"""

import base64
import binascii
from typing import Any, Final

from keyproxy.audit.keys import PublicKey, Signer
from keyproxy.core.canonical import canonical
from keyproxy.core.chain import Line

KIND: Final = "checkpoint"
EVERY_RECORDS: Final = 1_000
EVERY_US: Final = 1_000_000

_PURPOSE: Final = "keyproxy checkpoint v1"  # the key signs nothing else that could be read as a checkpoint


def checkpoint_data(signer: Signer, count: int, head: str, trials: int, clean: bool) -> dict[str, Any]:
    """The data of a checkpoint that follows `count` records; `clean` marks the end of an orderly stop."""
    claim = {"clean": clean, "count": count, "head": head, "trials": trials}
    signature = base64.b64encode(signer.sign(_message(claim))).decode()
    return {**claim, "key_id": signer.public.key_id, "signature": signature}


def fault_of(data: dict[str, Any], key: PublicKey) -> str | None:
    """Why a checkpoint is not this key's word, as a finding's code; None when it is."""
    if not data.get("signature"):
        return "chain_unsigned"
    if data.get("key_id") != key.key_id:
        return "key_mismatch"
    return None if _is_signed(data, key) else "signature_invalid"


def fits(line: Line) -> bool:
    """Whether the signed count and head are those of the place where the checkpoint stands."""
    record = line.record
    return record is not None and record.data["head"] == line.prev and record.data["count"] == record.seq - 1


def _is_signed(data: dict[str, Any], key: PublicKey) -> bool:
    claim = {name: data.get(name) for name in ("clean", "count", "head", "trials")}
    if type(claim["count"]) is not int or type(claim["trials"]) is not int or type(claim["clean"]) is not bool:
        return False
    try:
        signature = base64.b64decode(data["signature"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        return False
    return key.confirms(signature, _message(claim))


def _message(claim: dict[str, Any]) -> bytes:
    return canonical({**claim, "purpose": _PURPOSE})
