"""What a request in prompt mode `bound` says that it is: a system part, a history, and one turn or a transcript.

Owns the form that such a request must have, beyond what the allowlist asks of it, and
its reading into digests. Whether the claim is true is core/turns' to say. Every refusal
names the message that differs, and shows nothing of it. Called by authorize with a
body that the allowlist has passed.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from keyproxy.core import strict_json
from keyproxy.core.grant import Grant
from keyproxy.core.prompts import text_digest, value_digest
from keyproxy.core.token import Role
from keyproxy.core.turns import Claim, JudgeClaim, PatientClaim, Place, Said, denied
from keyproxy.errors import Deny

MAX_TURN_CHARACTERS: Final = 1_200
BLOT: Final = "█"  # a turn of these alone was blotted out by the engine, so that its words cannot speak to the judge
_CLINICIAN: Final = "clinician"
_OTHERS: Final = frozenset({"patient", "companion"})
_SYSTEM: Final = frozenset({"system", "developer"})
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_ONLY_ITEMS: Final = "This may name the items and nothing else."

Digest: TypeAlias = Callable[[str], str]


def read(body: Mapping[str, Any], grant: Grant, digest: Digest) -> Claim | Deny:
    """The claim of a request. `digest` is keyed: what the trial says and hears is in no record as a plain hash."""
    messages = body["messages"]
    for number, message in enumerate(messages):
        refused = _plain(message, f"messages[{number}]")
        if refused is not None:
            return refused
    if not messages or messages[0]["role"] not in _SYSTEM:
        return denied("The first message must be the system part.", "messages[0]")
    make = _judge if grant.role is Role.JUDGE else _patient
    return make(body, grant, digest)


def _plain(message: Mapping[str, Any], where: str) -> Deny | None:
    """A role and one text; what a client sends back empty, as it came, does no harm."""
    for name, sent in message.items():
        if name not in {"role", "content"} and sent not in (None, []):
            return denied("In this prompt mode a message has a role and a content, and no more.", f"{where}.{name}")
    if type(message.get("content")) is not str:
        return denied("In this prompt mode a content is one string.", f"{where}.content")
    return None


def _patient(body: Mapping[str, Any], grant: Grant, digest: Digest) -> Claim | Deny:
    system, *rest = body["messages"]
    for number, message in enumerate(rest):
        if message["role"] != ("assistant" if number % 2 else "user"):
            return denied("User and assistant must take turns here.", f"messages[{number + 1}]")
    if len(rest) % 2 == 0:
        return denied("The last message must be the user's.", f"messages[{len(rest)}]")
    where = f"messages[{len(rest)}].content"
    if len(rest[-1]["content"]) > MAX_TURN_CHARACTERS:
        return denied(f"A turn has at most {MAX_TURN_CHARACTERS} characters.", where)
    history = [
        Said(
            digest(rest[number]["content"]),
            digest(rest[number + 1]["content"].strip()),
            Place(f"messages[{number + 1}].content"),
            Place(f"messages[{number + 2}].content"),
        )
        for number in range(0, len(rest) - 1, 2)
    ]
    task = grant.task or ""
    return PatientClaim(
        grant.trial, task, text_digest(system["content"]), tuple(history), digest(rest[-1]["content"]), where
    )


def _judge(body: Mapping[str, Any], grant: Grant, digest: Digest) -> Claim | Deny:
    for name in ("tools", "tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None:
            return denied("In this prompt mode a judge has no functions.", name)
    messages, where = body["messages"], "messages[1].content"
    if [message["role"] for message in messages[1:]] != ["user"]:
        return denied("After the system part a judge gets one message of the user, and no more.", "messages[1]")
    told = strict_json.parse(messages[1]["content"].encode())
    if isinstance(told, Deny) or told.keys() != {"items", "transcript"}:
        return denied("This must be one JSON object of items and transcript.", where)
    items, transcript = told["items"], told["transcript"]
    history = _heard(transcript, digest, where)
    if isinstance(history, Deny):
        return history
    names = [item.get("id") for item in items if type(item) is dict] if type(items) is list else []
    if type(items) is not list or len(names) != len(items) or len({*map(str, names)}) != len(names):
        return denied("items must be a list of objects, each with an id of its own.", where)
    answers = _answers(body.get("response_format"), {*map(str, names)})
    if isinstance(answers, Deny):
        return answers
    try:
        digests, whole = tuple(value_digest(item) for item in items), value_digest(transcript)
    except ValueError:
        return denied("items and transcript hold a value that no registered one has.", where)
    return JudgeClaim(
        grant.trial,
        grant.task or "",
        text_digest(messages[0]["content"]),
        digests,
        answers,
        whole,
        history,
        where,
    )


def _heard(transcript: Any, digest: Digest, where: str) -> tuple[Said, ...] | Deny:
    """A transcript's turns: each of the clinician's with the reply to it, if there was one."""
    if type(transcript) is not list:
        return denied("transcript must be a list.", where)
    history: list[Said] = []
    for number, turn in enumerate(transcript):
        if type(turn) is not dict or turn.keys() != {"t", "who", "text"} or type(turn["text"]) is not str:
            return denied(f"transcript[{number}] must hold t, who and text.", where)
        if turn["t"] != number + 1 or type(turn["t"]) is not int:
            return denied(f"transcript[{number}] must be numbered {number + 1}.", where)
        text, here = turn["text"], Place(where, f"transcript[{number}]")
        if turn["who"] == _CLINICIAN:
            is_blotted = bool(text) and not text.strip(BLOT)
            history.append(Said(None if is_blotted else digest(text), None, here, here))
        elif turn["who"] in _OTHERS and history and history[-1].answer is None:
            asked = history.pop()
            history.append(Said(asked.digest, digest(text.strip()), asked.at, here))
        else:
            return denied(f"transcript[{number}] must be the clinician's, or one reply to it.", where)
    return tuple(history)


def _answers(form: Any, names: set[str]) -> tuple[str, ...] | Deny:
    """The schemas that an answer's form asks for, one an item: nothing else may be said in it."""
    if form is None or form["type"] != "json_schema":
        return ()
    named = form["json_schema"]
    schema = named.get("schema")
    is_plain = not named.keys() - {"name", "schema", "strict"} and _NAME.fullmatch(str(named.get("name")))
    if not is_plain or type(schema) is not dict:
        return denied(_ONLY_ITEMS, "response_format.json_schema")
    properties, required = schema.get("properties"), schema.get("required")
    fixed = {name: sent for name, sent in schema.items() if name not in {"properties", "required"}}
    if fixed != {"type": "object", "additionalProperties": False} or type(properties) is not dict:
        return denied(_ONLY_ITEMS, "response_format.json_schema.schema")
    if not names.issuperset(properties) or not _is_some_of(required, properties):
        return denied(_ONLY_ITEMS, "response_format.json_schema.schema")
    try:
        return tuple({value_digest(each) for each in properties.values()})
    except ValueError:
        return denied(_ONLY_ITEMS, "response_format.json_schema.schema")


def _is_some_of(required: Any, properties: Mapping[str, Any]) -> bool:
    return type(required) is list and all(type(name) is str and name in properties for name in required)
