"""`keyproxy receipt`: check receipts. Needs no running gateway, and no secret.

Owns the flags and the printing; what is a fault is decided by the audit room. What is asked
for goes to stdout.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from keyproxy.cli.output import print_json, usd
from keyproxy.errors import EXIT_FINDING, EXIT_OK, AuditError
from keyproxy.settings import state_directory

if TYPE_CHECKING:
    from keyproxy.audit.keys import PublicKey
    from keyproxy.audit.receipts import Finding

Subparsers = argparse._SubParsersAction  # noqa: SLF001  argparse has no public name for it
Predicate = dict[str, Any]

MOST_ATTEMPTS: Final = 10_000  # as many as an enrolment can have; a receipt's signer may say anything
_PROVEN: Final = "proven: what crossed this proxy in the trial, in whose record, at what cost"
_NOT_PROVEN: Final = (
    "not proven: who or what played the clinician, and that the proxy's operator ran an honest one",
    "where prompts were open, they were the harness's own, and no task, transcript or verdict is in the receipt",
)
_OWN_KEY: Final = "the public key lay beside the record; take one from elsewhere with --public-key"


def add_parser(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("receipt", help="verify receipts", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    text = "check receipts; exit 1 and say why if one does not hold"
    check = verbs.add_parser("verify", help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    check.set_defaults(run=_verify)
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a receipt, as closing a trial gave it")
    check.add_argument("--public-key", type=Path, metavar="FILE", help="PEM file; default: the state directory's own")
    check.add_argument(
        "--transcript", type=Path, metavar="FILE", help="the transcript that was submitted with one receipt"
    )
    check.add_argument("--json", action="store_true", help="print one JSON object a line")


def _verify(arguments: argparse.Namespace) -> int:
    from keyproxy.audit.receipts import Finding

    key = _key(arguments.public_key)
    found = [(path, _opened(path, key, arguments.transcript)) for path in arguments.files]
    if arguments.json:
        for path, result in found:
            print_json(_as_json(path, result))
    else:
        for path, result in found:
            _print(path, result)
        print(_PROVEN)
        for text in (*_NOT_PROVEN, *([] if arguments.public_key else [_OWN_KEY])):
            print(f"note: {text}")
    whole = [result for _, result in found if not isinstance(result, Finding)]
    if not arguments.json:
        for text in _missing(whole):
            print(f"note: {text}")
    return EXIT_OK if len(whole) == len(found) else EXIT_FINDING


def _opened(path: Path, key: "PublicKey", transcript: Path | None) -> "Predicate | Finding":
    from keyproxy.audit.receipts import MAX_RECEIPT_BYTES, Finding, opened, transcript_fault

    with path.open("rb") as file:
        result = opened(file.read(MAX_RECEIPT_BYTES), key)
    if transcript is None or isinstance(result, Finding):
        return result
    return transcript_fault(result, transcript.read_bytes()) or result


def _as_json(path: Path, result: "Predicate | Finding") -> dict[str, Any]:
    if isinstance(result, dict):
        return {"file": str(path), "ok": True, "receipt": result}
    return {"file": str(path), "ok": False, "code": result.code, "message": result.message}


def _print(path: Path, result: "Predicate | Finding") -> None:
    if not isinstance(result, dict):
        print(f"NOT OK: {path}: {result.code}: {result.message}")
        return
    attempt = result["attempt"]
    print(
        f"ok: {path}: trial {result['trial']}, task {result['task']['name']}, "
        f"attempt {attempt['number']} of {attempt['minted']}"
    )
    modes = ", ".join(f"{role} {terms['prompt_mode']}" for role, terms in result["roles"].items())
    models = ", ".join(map(_plain, result["models"]["served"])) or "none"
    spent = sum(role["microusd"] for role in result["spent"].values())
    print(f"  prompts {modes}; models served {models}; requests {result['counts']['requests']}; {usd(spent)}")
    if result["verdict"] is not None:
        verdict, counts = result["verdict"], result["counts"]
        print(
            f"  reward {verdict['reward']} ({verdict['reward_mode']}); turns {counts['turns']}, "
            f"tool calls {counts['tool_calls']}, fallback replies {counts['fallback_replies']}"
        )
    if result["counts"].get("foreign_turns") is not None:
        counts = result["counts"]
        print(f"  turns {counts['turns']}, of which {counts['foreign_turns']} with an answer from elsewhere")
    record = result["record"]
    print(f"  records {record['first_seq']} to {record['last_seq']}, head {record['head_after']}")
    if result["alarms"]:
        print(f"  alarms: {', '.join(sorted(result['alarms']))}")


def _plain(text: str) -> str:
    """The provider's own words must not steer the reader's terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _missing(receipts: list[Predicate]) -> list[str]:
    """Attempts that were minted and have no receipt here: they score 0."""
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    minted: dict[tuple[str, str], int] = defaultdict(int)
    for receipt in receipts:
        of = (receipt["enrolment"], receipt["task"]["name"])
        numbers[of].add(receipt["attempt"]["number"])
        minted[of] = max(minted[of], receipt["attempt"]["minted"])
    return [
        f"task {task}: attempt {number} of {minted[enrolment, task]} was minted, and has no receipt here"
        for enrolment, task in minted
        for number in range(1, min(minted[enrolment, task], MOST_ATTEMPTS) + 1)
        if number not in numbers[enrolment, task]
    ]


def _key(path: Path | None) -> "PublicKey":
    from keyproxy.audit.keys import PUBLIC_FILE, load_public

    own = state_directory() / PUBLIC_FILE
    if path is None and not own.exists():
        raise AuditError(f"there is no key in {own.parent}; give one with --public-key")
    return load_public(path or own)
