"""The OpenAI SDK's own request types beside our tables: a field or type that nobody has classified fails here.

Walks both at once, from the top-level fields down to the last nested object. A walk
ends where ours refuses or drops a value whole, and at JSON Schemas, which are data.
"""

import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import typing_extensions
from openai.types.chat import completion_create_params as sdk

from keyproxy.core.policy.fields import FIELDS, Kind, Rule
from keyproxy.core.policy.shapes import (
    Check,
    Either,
    Fields,
    ListOf,
    Nullable,
    OneOf,
    OnlyDefault,
    Tagged,
    WholeNumber,
    anything,
    flag,
    opaque,
    refuse,
    text,
)

NOT_IN_THE_SDK = {
    "background": "the Responses API's; named so that its refusal is clear",
    "previous_response_id": "the Responses API's; named so that its refusal is clear",
    "conversation": "the Responses API's; named so that its refusal is clear",
    "messages[assistant].annotations": "clients send back the message object that they received",
}
SDK_TYPES = (sdk.CompletionCreateParamsNonStreaming, sdk.CompletionCreateParamsStreaming)
LEAVES: dict[Any, set[type]] = {text: {str}, flag: {bool}, opaque: {dict}}


def is_typed_dict(annotation: Any) -> bool:
    return typing_extensions.is_typeddict(annotation)


def hints(typed_dict: Any) -> dict[str, Any]:
    """Field → type, without Required and NotRequired."""
    return typing_extensions.get_type_hints(typed_dict)


def alternatives(annotation: Any) -> Iterator[Any]:
    """The members of a union, flattened, without None; an alias is what it stands for."""
    assert not isinstance(annotation, typing.ForwardRef | str), f"unresolved SDK type {annotation}"
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from alternatives(member)
    elif annotation is not type(None):
        yield annotation


def json_type(annotation: Any) -> type:
    """The JSON type that an SDK annotation is sent as."""
    origin = typing.get_origin(annotation) or annotation
    if origin is typing.Literal:
        return type(typing.get_args(annotation)[0])
    if is_typed_dict(origin) or origin is dict:
        return dict
    if inspect.isclass(origin) and issubclass(origin, str | bool | int | float):
        return origin
    is_list = inspect.isclass(origin) and issubclass(origin, Iterable)
    assert is_list or origin.__name__ == "SequenceNotStr", f"an SDK type that this test cannot read: {annotation}"
    return list


def tag_values(annotation: Any, tag: str) -> tuple[str, ...]:
    return typing.get_args(hints(annotation)[tag])


def compare(annotation: Any, check: Check, path: str) -> Iterator[str]:
    """What one of the two knows and the other does not."""
    if check in (anything, refuse) or isinstance(check, OnlyDefault):
        return
    members = list(alternatives(annotation))
    if isinstance(check, Nullable):
        yield from compare(annotation, check.check, path)
    elif isinstance(check, Either):
        yield from compare_either(members, check, path)
    elif isinstance(check, ListOf):
        yield from compare_list(members, check, path)
    elif isinstance(check, Tagged):
        yield from compare_tagged(members, check, path)
    elif isinstance(check, Fields):
        yield from compare_record(members, check, path)
    elif isinstance(check, OneOf):
        yield from compare_constants(members, check, path)
    else:
        expected = {int} if isinstance(check, WholeNumber) else LEAVES[check]
        if {json_type(member) for member in members} != expected:
            yield f"{path}: the SDK sends {members}"


def compare_either(members: list[Any], check: Either, path: str) -> Iterator[str]:
    by_type: dict[type, list[Any]] = {}
    for member in members:
        by_type.setdefault(json_type(member), []).append(member)
    yield from (f"{path}: unclassified JSON type {kind.__name__}" for kind in by_type.keys() - check.checks.keys())
    yield from (f"{path}: the SDK sends no {kind.__name__}" for kind in check.checks.keys() - by_type.keys())
    for kind in by_type.keys() & check.checks.keys():
        yield from compare(typing.Union[tuple(by_type[kind])], check.checks[kind], path)  # noqa: UP007


def compare_list(members: list[Any], check: ListOf, path: str) -> Iterator[str]:
    if [json_type(member) for member in members] != [list]:
        yield f"{path}: the SDK sends {members}"
        return
    (item,) = typing.get_args(members[0])
    yield from compare(item, check.item, f"{path}[]")


def compare_tagged(members: list[Any], check: Tagged, path: str) -> Iterator[str]:
    if typing.get_origin(members[0]) is dict:  # the SDK leaves these open; ours is narrower
        return
    variants = {value: member for member in members for value in tag_values(member, check.tag)}
    yield from (f"{path}: unclassified {check.tag} {value}" for value in variants.keys() - check.variants.keys())
    yield from (f"{path}: the SDK has no {check.tag} {value}" for value in check.variants.keys() - variants.keys())
    for value in variants.keys() & check.variants.keys():
        yield from compare(variants[value], check.variants[value], f"{path.removesuffix('[]')}[{value}]")


def compare_record(members: list[Any], check: Fields, path: str) -> Iterator[str]:
    if len(members) != 1 or not is_typed_dict(members[0]):
        yield f"{path}: the SDK sends {members}"
        return
    fields = hints(members[0])
    yield from (f"{path}.{name}: unclassified" for name in fields.keys() - check.fields.keys())
    gone = (f"{path}.{name}" for name in check.fields.keys() - fields.keys())
    yield from (f"{name}: not in the SDK" for name in gone if name not in NOT_IN_THE_SDK)
    for name in fields.keys() & check.fields.keys():
        yield from compare(fields[name], check.fields[name], f"{path}.{name}")


def compare_constants(members: list[Any], check: OneOf, path: str) -> Iterator[str]:
    values = {value for member in members for value in typing.get_args(member)}
    if values and values != set(check.values):  # no Literal: the SDK leaves the values open
        yield f"{path}: the SDK has {sorted(values)}"


def drift(tables: typing.Mapping[str, Rule]) -> list[str]:
    """Every difference between the SDK and `tables`, for either role."""
    fields: dict[str, list[Any]] = {}
    for typed_dict in SDK_TYPES:
        for name, annotation in hints(typed_dict).items():
            fields.setdefault(name, []).append(annotation)
    found = [f"{name}: unclassified" for name in fields if name not in tables]
    found += [f"{name}: not in the SDK" for name in tables if name not in fields and name not in NOT_IN_THE_SDK]
    for name in fields.keys() & tables.keys():
        annotation = typing.Union[tuple(fields[name])]  # noqa: UP007
        for is_judge in (True, False):
            found += compare(annotation, tables[name].check_for(is_judge), name)
    return sorted(set(found))


def test_every_field_and_type_of_the_sdk_is_classified_and_none_of_ours_is_stale() -> None:
    assert drift(FIELDS) == []


def test_every_rule_of_a_dropped_or_refused_field_says_nothing_about_its_inside() -> None:
    for name, rule in FIELDS.items():
        if rule.kind is Kind.DROPPED:
            assert rule.check is anything, name
        if rule.kind is Kind.REFUSED:
            assert rule.check is refuse or isinstance(rule.check, OnlyDefault), name


def without(record: Fields, name: str) -> Fields:
    return replace(record, fields={key: value for key, value in record.fields.items() if key != name})


def altered(name: str, change: typing.Callable[[Any], Check]) -> dict[str, Rule]:
    rule = FIELDS[name]
    return {**FIELDS, name: replace(rule, check=change(rule.check), patient=None)}


def messages_with(change: typing.Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Rule]:
    def alter(check: ListOf) -> Check:
        roles = check.item
        assert isinstance(roles, Tagged)
        return replace(check, item=replace(roles, variants=change(dict(roles.variants))))

    return altered("messages", alter)


@pytest.mark.parametrize(
    ("tables", "finding"),
    [
        pytest.param(
            {name: rule for name, rule in FIELDS.items() if name != "seed"}, "seed: unclassified", id="new-field"
        ),
        pytest.param({**FIELDS, "best_of": Rule(Kind.REFUSED, refuse)}, "best_of: not in the SDK", id="gone-field"),
        pytest.param(
            messages_with(lambda roles: {role: check for role, check in roles.items() if role != "developer"}),
            "messages[]: unclassified role developer",
            id="new-role",
        ),
        pytest.param(
            messages_with(lambda roles: {**roles, "user": without(roles["user"], "name")}),
            "messages[user].name: unclassified",
            id="new-message-field",
        ),
        pytest.param(
            messages_with(lambda roles: {**roles, "tool": Fields({**roles["tool"].fields, "x": text})}),
            "messages[tool].x: not in the SDK",
            id="gone-message-field",
        ),
        pytest.param(
            messages_with(
                lambda roles: {
                    **roles,
                    "user": Fields(
                        {**roles["user"].fields, "content": Either({str: text, list: ListOf(Tagged("type", {}), 1)})}
                    ),
                }
            ),
            "messages[user].content[]: unclassified type image_url",
            id="new-part",
        ),
        pytest.param(
            altered("stream_options", lambda check: without(check, "include_obfuscation")),
            "stream_options.include_obfuscation: unclassified",
            id="new-stream-option",
        ),
        pytest.param(altered("stop", lambda _: text), None, id="changed-type"),
        pytest.param(
            altered("tool_choice", lambda check: Either({str: OneOf(("none",)), dict: check.checks[dict]})),
            "tool_choice: the SDK has ['auto', 'none', 'required']",
            id="new-constant",
        ),
    ],
)
def test_a_drift_is_seen(tables: dict[str, Rule], finding: str | None) -> None:
    found = drift(tables)
    assert found != []
    assert finding is None or finding in found
