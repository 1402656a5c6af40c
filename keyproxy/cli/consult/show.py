"""How a consultation looks at the terminal.

Owns turning answers, tools and the verdict into lines and tables of `rich`. What a
patient or a report says is printed as it is, never read as markup.
"""

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from keyproxy.clinic.encounter import ASK
from keyproxy.clinic.refusal import Refusal
from keyproxy.clinic.verdict import Verdict
from keyproxy.dataset.case import Case

HELP: Final = """\
anything                     is said to the patient
/companion …                 is said to whoever came along
/alone …                     is said to the patient with nobody else in the room
/TOOL name=value …           uses a tool, e.g. /order_lab test=troponin; lists are a,b
/tools [TOOL]                what there is, and what a tool takes
/status                      turns, calls, steps left
/diagnose LABEL              your one diagnosis; ends the consultation
/quit                        leave without a verdict"""
_MANY: Final = 12
_GATES: Final = {
    "diagnosis": "the diagnosis",
    "required_tools": "what had to be used",
    "parameterised_actions": "what had to be done",
    "must_ask": "what had to be asked",
}


def show_answer(console: Console, tool: str, answer: dict[str, Any]) -> None:
    """The reply, the report or the note."""
    if tool == ASK:
        console.print(Text(answer["speaker"], "bold cyan"), Text(answer["reply"]))
        return
    rest = {key: value for key, value in answer.items() if key not in {"results", "status"}}
    console.print(
        Text(answer.get("status", ""), "bold green"), *(Text(f"{key}: {_words(value)}") for key, value in rest.items())
    )
    if answer.get("results"):
        console.print(_results(answer["results"]))


def show_refusal(console: Console, refused: Refusal) -> None:
    """Why not."""
    console.print(Text(f"{refused.code}: {refused.message}", "yellow"))


def show_tools(console: Console, found: list[dict[str, Any]] | dict[str, Any]) -> None:
    """All tools in a table, or one with what each argument takes."""
    table = Table(box=None, pad_edge=False)
    if isinstance(found, list):
        for row in found:
            table.add_row(Text(f"/{row['name']}", "bold"), Text(row["description"]), Text(" ".join(row["parameters"])))
    else:
        console.print(Text(found["description"]))
        for name, schema in found["parameters"]["properties"].items():
            needed = "needed" if name in found["parameters"]["required"] else ""
            table.add_row(Text(name, "bold"), Text(needed), Text(_takes(schema)))
        for name, score in found.get("scores", {}).items():
            table.add_row(Text(f"score {name}", "bold"), Text(""), Text(" ".join(score["inputs"])))
    console.print(table)


def show_verdict(console: Console, case: Case, verdict: Verdict) -> None:
    """The gates, what was missed with the reason, and what it was."""
    table = Table("gate", "passed", "missed", title=f"reward {verdict.rewards['reward']:g}", title_justify="left")
    for gate, title in _GATES.items():
        passed = verdict.rewards[gate] == 1
        table.add_row(
            title, Text("yes", "green") if passed else Text("no", "red"), Text("\n".join(_missed(case, gate, verdict)))
        )
    console.print(table)
    harm = {name: value for name, value in verdict.rewards.items() if name.startswith("safety_") and value}
    if harm:
        console.print(Text("safety: " + ", ".join(f"{name[7:]} {value:g}" for name, value in harm.items()), "red"))
    console.print(Text(f"It was: {case.diagnosis.label}", "bold"))


def _missed(case: Case, gate: str, verdict: Verdict) -> Iterable[str]:
    details = verdict.details
    if gate == "diagnosis":
        return [] if verdict.rewards[gate] == 1 else [f"decided by the rule {details['diagnosis_rule']!r}"]
    if gate == "must_ask":
        return [f"{item.criterion} ({item.why})" for item in case.must_ask if details[gate][item.id] is None]
    rows = case.required_tools if gate == "required_tools" else case.actions
    return [f"{row.id}: {row.why}" for row in rows if row.id in details[gate]["missed"]]


def _results(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for row in rows:
        value = row.get("status") or row.get("result") or f"{row.get('value', '')} {row.get('unit', '')}".strip()
        flag = Text(row.get("flag", ""), "bold red")
        about = row.get("reference") or row.get("when", "")
        table.add_row(Text(row["name"]), Text(value), flag, Text(about, "dim"))
    return table


def _takes(schema: dict[str, Any]) -> str:
    listed = schema.get("items", schema).get("enum")
    if listed is None:
        return str(schema.get("description", schema.get("type", "")))
    more = f" … {len(listed) - _MANY} more, Tab shows them" if len(listed) > _MANY else ""
    return " ".join(listed[:_MANY]) + more


def _words(value: Any) -> str:
    """A value of the record as people read it."""
    if isinstance(value, dict):
        return "; ".join(f"{key} {_words(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list):
        return " | ".join(map(_words, value)) or "none"
    return str(value)
