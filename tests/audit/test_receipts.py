"""A receipt is what this key signed, all of it and nothing else."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from keyproxy.audit import keys, receipts
from keyproxy.audit.receipts import Finding
from keyproxy.core.canonical import canonical
from keyproxy.core.enrolment import Enrolment, Trial, TrialState, VerdictDetail
from keyproxy.core.grant import Limits, PromptMode
from keyproxy.core.receipt import MEMBERS, Tally, statement

ENROLMENT = Enrolment(
    "kp_eaaaaaaaaaaaa", ("t1",), 2, None, "m", Limits(), 60, VerdictDetail.GATES, PromptMode.OPEN, 0, 1
)
TRIAL = Trial(f"kpt_{'1' * 32}", ENROLMENT.enrolment_id, "t1", "n1", 1, TrialState.OPEN, 5, 1)
ORIGIN = {"scheme": "https", "host": "api.example", "port": 443}


def payload(**changes: Any) -> str:
    tally = Tally(head_before="0" * 64, head_after="1" * 64, first_seq=5, last_seq=9)
    said = statement(ENROLMENT, TRIAL, 2, tally, origin=ORIGIN, version="0", now_us=0)
    return canonical({**said, **changes}).decode()


@pytest.fixture
def signer(tmp_path: Path) -> keys.Signer:
    return keys.load_or_create(tmp_path)


def test_a_receipt_opens_with_its_key_and_is_the_same_each_time(signer: keys.Signer) -> None:
    sealed = receipts.seal(payload(), signer)
    assert receipts.seal(payload(), signer) == sealed
    said = receipts.opened(sealed.encode(), signer.public)
    assert isinstance(said, dict)
    assert (said["trial"], said["attempt"]) == (TRIAL.name, {"number": 1, "minted": 2, "allowed": 2})
    pretty = json.dumps(json.loads(sealed), indent=2)  # the payload is what was signed, not its wrapping
    assert receipts.opened(pretty.encode(), signer.public) == said


def test_another_verifier_of_dsse_takes_it(signer: keys.Signer) -> None:
    """Written from the DSSE text alone."""
    envelope = json.loads(receipts.seal(payload(), signer))
    body, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    message = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(body)).encode(), body])
    key = load_pem_public_key(signer.public.pem.encode())
    assert isinstance(key, Ed25519PublicKey)
    (signature,) = envelope["signatures"]
    key.verify(base64.b64decode(signature["sig"]), message)
    assert signature["keyid"] == hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]
    assert json.loads(body)["_type"] == "https://in-toto.io/Statement/v1"


def test_a_receipt_that_was_touched_is_no_receipt(signer: keys.Signer, tmp_path: Path) -> None:
    envelope = json.loads(receipts.seal(payload(), signer))
    other = keys.load_or_create(tmp_path / "other")
    better = base64.b64encode(payload().replace('"number":1', '"number":2').encode()).decode()
    (signature,) = envelope["signatures"]
    forged = {"keyid": signature["keyid"], "sig": base64.b64encode(other.sign(b"x")).decode()}
    for changed, code in (
        ({**envelope, "payload": better}, "signature_invalid"),
        ({**envelope, "signatures": [forged]}, "signature_invalid"),
        ({**envelope, "signatures": []}, "key_mismatch"),
        (json.loads(receipts.seal(payload(), other)), "key_mismatch"),
        ({**envelope, "payloadType": "text/plain"}, "envelope_invalid"),
        ({**envelope, "payload": "%"}, "envelope_invalid"),
        ([envelope], "envelope_invalid"),
        ({}, "envelope_invalid"),
    ):
        found = receipts.opened(json.dumps(changed).encode(), signer.public)
        assert isinstance(found, Finding), changed
        assert found.code == code


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 100_000, b'{"payload":1,"payloadType":1,"signatures":1}'])
def test_what_is_no_envelope_is_a_finding_and_no_crash(signer: keys.Signer, raw: bytes) -> None:
    assert isinstance(receipts.opened(raw, signer.public), Finding)


@pytest.mark.parametrize(
    "changes",
    [
        {"predicateType": "urn:keyproxy:other:v1"},
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"subject": []},
        {"subject": [{"name": "trial:another", "digest": {"sha256": "1" * 64}}]},
        {"predicate": {}},
        {"predicate": {"trial": TRIAL.name, "record": {"head_after": "1" * 64}}},
        {"predicate": None},
    ],
)
def test_what_this_key_signed_for_another_purpose_is_no_receipt(signer: keys.Signer, changes: Any) -> None:
    found = receipts.opened(receipts.seal(payload(**changes), signer).encode(), signer.public)
    assert isinstance(found, Finding)
    assert found.code == "statement_invalid"


def test_the_page_lists_every_member_of_a_receipt_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/evidence.md").read_text(encoding="utf-8")
    rows = page.partition("| member | what it holds |\n|---|---|\n")[2].partition("\n\n")[0]
    listed = {name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert listed == set(json.loads(payload())["predicate"]) == MEMBERS
