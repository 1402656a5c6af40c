"""The page from which a stranger writes a verifier says what the code does."""

import base64
import hashlib
import json
import re
from pathlib import Path

from chains import state_chain

from keyproxy.audit.findings import CODES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "audit-format.md").read_text(encoding="utf-8")


def test_every_code_is_documented_and_no_other() -> None:
    table = PAGE.split("## What a verifier does")[1]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(documented) == sorted(CODES)


def test_every_member_of_a_checkpoint_is_documented(tmp_path: Path) -> None:
    table = PAGE.split("## Checkpoints")[1].split("## Exports")[0]
    last = json.loads(state_chain(tmp_path, 10_000_000).lines[-1])
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(last["record"]["data"])


def test_a_verifier_written_from_the_page_agrees(tmp_path: Path) -> None:
    """Standard library and one signature check: nothing of ours."""
    chain = state_chain(tmp_path, 10_000_000)
    head, trials = bytes(32), set()
    for number, raw in enumerate(chain.lines, start=1):
        line = json.loads(raw)
        record = line["record"]
        body = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert raw == b'{"prev":"%b","record":%b}\n' % (head.hex().encode(), body)
        assert record["seq"] == number
        if record["kind"] == "checkpoint":
            data = record["data"]
            assert (data["count"], data["head"], data["trials"]) == (number - 1, head.hex(), len(trials))
            signed = {name: data[name] for name in ("clean", "count", "head", "trials")}
            signed["purpose"] = "keyproxy checkpoint v1"
            message = json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()
            chain.signer.public.key.verify(base64.b64decode(data["signature"]), message)
            raw_key = chain.signer.public.key.public_bytes_raw()
            assert data["key_id"] == hashlib.sha256(raw_key).hexdigest()[:16]
        elif record["kind"] == "mint":
            trials.add(record["data"]["trial"])
        head = hashlib.sha256(head + hashlib.sha256(body).digest()).digest()
    assert head.hex() == chain.head
