"""`keyproxy audit`: check the record, read it, hand it on. Needs no running gateway.

Owns the flags and the printing; what is a fault is decided by the audit room. It
only reads. What is asked for goes to stdout, remarks go to stderr.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from keyproxy.cli.output import print_json
from keyproxy.errors import EXIT_FINDING, EXIT_NOT_FOUND, EXIT_OK, AuditError
from keyproxy.settings import state_directory

if TYPE_CHECKING:
    from keyproxy.audit.findings import Report
    from keyproxy.core.chain import Line

Subparsers = argparse._SubParsersAction  # noqa: SLF001  argparse has no public name for it

_FOLLOW_SECONDS = 0.3


def add_parser(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("audit", help="verify, read and export the record", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_verify(verbs)
    tail = _verb(verbs, "tail", _tail, "print the last records")
    tail.add_argument("-n", type=_count, default=10, metavar="N", help="how many; default: 10")
    tail.add_argument("--follow", action="store_true", help="go on with new ones until interrupted")
    tail.add_argument("--json", action="store_true", help="one JSON object a line")
    show = _verb(verbs, "show", _show, "print one record, or all of one request")
    show.add_argument("record", metavar="SEQ|REQUEST_ID", help="a record's number, or the x-request-id of a call")
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    export = _verb(verbs, "export", _export, "write the record as JSON lines that anyone can verify")
    export.add_argument("--trial", metavar="NAME", help="this trial's records; the others are digests")
    export.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write to FILE instead of stdout")
    key = _verb(verbs, "key", _key, "print the public key that checkpoints are signed with")
    key.add_argument("--json", action="store_true", help="print one JSON object, with the key's id")


def _verb(
    verbs: "Subparsers[argparse.ArgumentParser]", name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.set_defaults(run=run)
    return parser


def _add_verify(verbs: "Subparsers[argparse.ArgumentParser]") -> None:
    parser = _verb(
        verbs, "verify", _verify, "check the record; exit 1 and name the first bad record if it is not whole"
    )
    parser.add_argument(
        "path", nargs="?", type=Path, metavar="PATH", help="state directory or export; default: the state directory"
    )
    parser.add_argument("--public-key", type=Path, metavar="FILE", help="PEM file; default: the state directory's own")
    parser.add_argument(
        "--head", type=_head, metavar="HEX", help="a head that was kept elsewhere; it must be in the chain"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _verify(arguments: argparse.Namespace) -> int:
    from keyproxy.audit.keys import PUBLIC_FILE, load_public
    from keyproxy.audit.segments import segments
    from keyproxy.audit.verify import verify

    path = arguments.path or state_directory()
    if not path.is_file() and not segments(path) and not (path / PUBLIC_FILE).exists():
        return _not_found(f"there is no record in {path}")
    own_key = (state_directory() if path.is_file() else path) / PUBLIC_FILE
    key_file = arguments.public_key or (own_key if own_key.exists() else None)
    key = load_public(key_file) if key_file else None
    report = verify(path, key, arguments.head, key_is_own=arguments.public_key is None)
    if arguments.json:
        print_json(report.as_json())
    else:
        _print_report(report)
    return EXIT_OK if report.ok else EXIT_FINDING


def _print_report(report: "Report") -> None:
    if report.export and not report.records:
        print(f"NOT OK: no line of {report.path} is a record; give a state directory or an export")
        return
    for finding in report.findings:
        where = f"{finding.segment} line {finding.line}" if finding.segment else report.path
        print(f"{finding.code}: record {finding.seq or 'unknown'}, {where}: {finding.message}")
    if report.unlisted:
        print(f"and {_counted(report.unlisted, 'more finding')}")
    counts = (
        _counted(report.records, "record"),
        _counted(report.trials, "trial"),
        _counted(report.checkpoints, "checkpoint"),
    )
    signed = f"signed up to record {report.signed_seq or 'none'}"
    print(f"{'ok' if report.ok else 'NOT OK'}: {', '.join(counts)}, {signed}")
    print(f"head {report.head or 'none'}, key {report.key_id or 'none'}")
    for note in report.notes:
        print(f"note: {note}")


def _tail(arguments: argparse.Namespace) -> int:
    from keyproxy.audit.segments import follow, last_seq, lines, segments

    state = state_directory()
    if not segments(state):
        return _not_found(f"there is no record in {state}")
    first = max(1, last_seq(state) - arguments.n + 1)
    found = follow(state, first, lambda: time.sleep(_FOLLOW_SECONDS)) if arguments.follow else lines(state, first)
    _print_lines(found, as_json=arguments.json)
    return EXIT_OK


def _show(arguments: argparse.Namespace) -> int:
    from keyproxy.audit.segments import lines, parsed, raw_lines, segments

    state, name = state_directory(), arguments.record
    if name.isascii() and name.isdigit():
        found = [line for line in islice(lines(state, int(name)), 1) if line.seq == int(name)]
    else:
        needle = name.encode()
        candidates = (parsed(raw) for raw in raw_lines(segments(state)) if raw.whole and needle in raw.data)
        found = [line for line in candidates if line.record and line.record.data.get("request_id") == name]
    if not found:
        return _not_found(f"the record in {state} has no {name}")
    _print_lines(found, as_json=arguments.json)
    return EXIT_OK


def _export(arguments: argparse.Namespace) -> int:
    from keyproxy.audit.export import export

    state = state_directory()
    found = export(state, arguments.trial)
    if found is None:
        what = f"record of trial {arguments.trial}" if arguments.trial else "record"
        return _not_found(f"{state} has no {what} that a checkpoint covers")
    try:
        if arguments.output:
            with arguments.output.open("wb") as file:
                file.writelines(found.lines())
        else:
            sys.stdout.buffer.writelines(found.lines())
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AuditError(f"the export cannot be written: {error.strerror}") from error
    _remark(f"records {found.first_seq} to {found.last_seq}")
    if found.left_out:
        _remark(f"{found.left_out} later records are left out: no checkpoint covers them yet")
    return EXIT_OK


def _key(arguments: argparse.Namespace) -> int:
    from keyproxy.audit.keys import PUBLIC_FILE, load_public

    path = state_directory() / PUBLIC_FILE
    if not path.exists():
        return _not_found(f"there is no key in {path.parent}; the first start of the gateway makes it")
    public = load_public(path)
    if arguments.json:
        print_json({"key_id": public.key_id, "public_key": public.pem})
    else:
        print(public.pem, end="")
        _remark(f"key id {public.key_id}")
    return EXIT_OK


def _print_lines(lines: "Iterable[Line]", *, as_json: bool) -> None:
    for line in lines:
        record = line.record
        if record and as_json:
            print_json({**record.as_json(), "head": line.head})
        elif record:
            # ASCII alone: what a record quotes must not steer the reader's terminal.
            print(f"{record.seq}  {record.at}  {record.kind}  {json.dumps(record.data)}")
        sys.stdout.flush()  # whoever follows through a pipe waits for each


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError("a number of at least 1 is needed")
    return int(text)


def _head(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text.lower()):
        raise argparse.ArgumentTypeError("a head is 64 hexadecimal digits")
    if not text.strip("0"):
        raise argparse.ArgumentTypeError("zeros stand before the first record of every chain and prove nothing")
    return text.lower()


def _not_found(message: str) -> int:
    print(f"keyproxy: {message}", file=sys.stderr)
    return EXIT_NOT_FOUND


def _remark(message: str) -> None:
    print(message, file=sys.stderr)
