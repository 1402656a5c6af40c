"""The clinical sandbox: what each tool answers, from the case's documents.

Owns one handler per tool. `done` means that the act took place, `pending` that a
result comes later, `not_available` that this study cannot be had today (never
"normal"), `not_done` that something was missing, such as consent. It holds no
state: the minute and the orders so far are handed in by the encounter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from . import scores
from .case_names import check_core, check_names
from .documents import check_database, check_findings, check_same
from .menu import Menu
from .results import PENDING, Results
from .schema import refuse
from .subject import Subject, read_subject

Answer = dict[str, Any]
_NOT_TODAY: Final = {"status": "not_available", "note": "not available today"}
_LATER: Final = {"status": "pending", "note": PENDING}
_ACTS: Final = frozenset(
    [
        "prescribe",
        "change_medication",
        "give_fluids",
        "transfuse",
        "give_oxygen_or_airway",
        "refer",
        "activate_team",
        "set_disposition",
        "schedule_follow_up",
        "give_advice",
        "notify",
        "vaccinate_or_prophylaxis",
        "update_allergy",
        "cancel_order",
    ]
)
_SUMMARY: Final = ("setting", "reason", "problems", "surgeries", "family", "social")
_CONSENT: Final = (("chaperone", "chaperone"), ("consent", "explained_and_consented"))
_STUDY_KEYS: Final = {
    "peak_flow_or_spirometry": ("test",),
    "slit_lamp_or_fundus": ("test",),
    "hearing_and_balance_test": ("test",),
    "mental_health_screen": ("instrument", "assessment"),
    "order_study": ("study",),
}


@dataclass(frozen=True)
class Moment:
    """When a call happens: the simulated minute and the numbers of orders that can still be cancelled."""

    minute: int
    open_orders: frozenset[int]


class Sandbox:
    """One case's answers."""

    def __init__(self, menu: Menu, database: dict[str, Any], findings: dict[str, Any]) -> None:
        check_same(check_database(database), check_findings(findings))
        self._menu, self._db, self._exam = menu, database, findings["exam"]
        self._subject: Subject = read_subject(database["subject"])
        check_names(menu, database, findings)
        check_core(database, self._subject)
        fio2 = database.get("fio2_percent", 21)
        seed = database.get("normals_of", database["task_id"])  # a twin has the numbers of the case it mirrors
        self._results = Results(menu, seed, self._subject, database, fio2)
        self.tools: tuple[str, ...] = tuple(database["tools"])

    def answer(self, tool: str, arguments: dict[str, Any], moment: Moment) -> Answer:
        """What the clinician gets for an accepted call."""
        if tool in _ACTS:
            return self._acted(tool, arguments, moment)
        if tool in _STUDY_KEYS:
            name = next(arguments[key] for key in _STUDY_KEYS[tool] if key in arguments)
            return self._study(name, arguments)
        handler = getattr(self, f"_{tool}")
        answer: Answer = handler(arguments, moment)
        return {"status": "done", **answer}

    def _get_chart_summary(self, _arguments: Answer, _moment: Moment) -> Answer:
        chart = self._db["chart"]
        shown = {key: chart[key] for key in _SUMMARY if key in chart}
        weeks = self._subject.pregnancy_weeks
        return {
            "age": self._subject.age_text,
            "sex": self._subject.sex,
            **({"pregnancy_weeks": weeks} if weeks is not None else {}),
            **shown,
        }

    def _get_medications(self, arguments: Answer, _moment: Moment) -> Answer:
        chart = self._db["chart"]
        past = {"past": chart.get("past_medications", [])} if arguments.get("include_past") else {}
        return {"current": chart["medications"], **past}

    def _get_allergies(self, _arguments: Answer, _moment: Moment) -> Answer:
        record: Answer = self._db["chart"]["allergies"]
        return record

    def _get_vitals(self, arguments: Answer, moment: Moment) -> Answer:
        taken = [_with_mean_pressure(row) for row in self._db["vitals"] if row["minute"] <= moment.minute]
        body = {"weight_kg": self._subject.weight_kg}
        if self._subject.height_cm is not None:
            body["height_cm"] = self._subject.height_cm
        return {"series": taken, **body} if arguments.get("which") == "series" else {"latest": taken[-1], **body}

    def _get_past_notes(self, arguments: Answer, _moment: Moment) -> Answer:
        notes = self._db["chart"].get("notes", [])
        wanted = [note for note in notes if arguments.get("kind", note["kind"]) == note["kind"]]
        return {"notes": wanted[: arguments.get("limit", 10)]}

    def _get_past_results(self, arguments: Answer, _moment: Moment) -> Answer:
        rows = self._db["chart"].get("past_results", [])
        return {"results": [row for row in rows if row["category"] == arguments["category"]]}

    def _get_immunisations(self, _arguments: Answer, _moment: Moment) -> Answer:
        return {"immunisations": self._db["chart"].get("immunisations", [])}

    def _check_interactions(self, arguments: Answer, _moment: Moment) -> Answer:
        current = [row["drug"] for row in self._db["chart"]["medications"]]
        drugs = list(dict.fromkeys([*arguments["drugs"], *current]))
        is_a = self._menu.drug_is
        pairs = [
            {"drugs": [one, other], "effect": effect}
            for one in drugs
            for other in drugs
            for left, right, effect in self._menu.interactions
            if one != other and is_a(one, left) and is_a(other, right) and not (left == right and one > other)
        ]
        recorded = [item["substance"] for item in self._db["chart"]["allergies"].get("items", [])]
        allergies = [{"drug": drug, "recorded": name} for drug in drugs for name in recorded if is_a(drug, name)]
        return {"checked": drugs, "interactions": pairs, "allergies": allergies}

    def _risk_score(self, arguments: Answer, _moment: Moment) -> Answer:
        return scores.compute(self._menu, arguments["score"], arguments["inputs"])

    def _physical_exam(self, arguments: Answer, _moment: Moment) -> Answer:
        system = arguments["system"]
        written = [row for row in self._exam if row["system"] == system]
        given = {name for name, key in _CONSENT if arguments.get(key)}
        missing = sorted({need for row in written for need in row.get("requires", ())} - given)
        if missing:
            return {"status": "not_done", "note": f"not examined: {' and '.join(missing)} first"}
        if not written:
            normal = self._menu.vocabularies["exam"][system].get("normal")
            return {"finding": normal} if normal else dict(_NOT_TODAY)
        wanted = [row for row in written if _fits(row, arguments)]
        if wanted:
            return {"finding": " ".join(row["text"] for row in wanted)}
        return {"status": "not_available", "note": "this manoeuvre adds nothing to the examination of the system"}

    def _orthostatic_vitals(self, _arguments: Answer, _moment: Moment) -> Answer:
        return self._study("orthostatic_vitals", {})

    def _bladder_scan(self, _arguments: Answer, _moment: Moment) -> Answer:
        return self._study("bladder_scan", {})

    def _ecg(self, arguments: Answer, _moment: Moment) -> Answer:
        leads = arguments.get("leads", "standard")
        return self._study("ecg" if leads == "standard" else f"ecg_{leads}", {})

    def _point_of_care_test(self, arguments: Answer, moment: Moment) -> Answer:
        return self._report(self._menu.reads("bedside_test", arguments["test"]), moment)

    def _order_lab(self, arguments: Answer, moment: Moment) -> Answer:
        return self._report(self._menu.reads("lab", arguments["test"]), moment)

    def _order_microbiology(self, arguments: Answer, moment: Moment) -> Answer:
        analytes = self._menu.reads("microbiology", arguments["test"])
        if analytes:
            return self._report(analytes, moment)
        text = self._db.get("cultures", {}).get(f"{arguments['test']}:{arguments['specimen']}")
        return {"result": text} if text else dict(_LATER)  # growth takes days

    def _order_imaging(self, arguments: Answer, _moment: Moment) -> Answer:
        for report in self._db.get("imaging", ()):
            if _shows(report, arguments):
                return {key: report[key] for key in ("findings", "impression")}
        return dict(_NOT_TODAY)

    def _order_genetic_test(self, arguments: Answer, _moment: Moment) -> Answer:
        if not arguments["consent_documented"]:
            return {"status": "not_done", "note": "needs documented consent"}
        text = self._db.get("genetics", {}).get(arguments["test"])
        return {"result": text} if text else dict(_LATER)

    def _perform_procedure(self, arguments: Answer, _moment: Moment) -> Answer:
        text = self._db.get("procedures", {}).get(arguments["procedure"])
        return {"result": text} if text else {"note": "arranged"}

    def _reassess(self, _arguments: Answer, moment: Moment) -> Answer:
        return {"minute": moment.minute, **self._get_vitals({}, moment)}

    def _acted(self, tool: str, arguments: Answer, moment: Moment) -> Answer:
        if tool == "cancel_order" and arguments["order"] not in moment.open_orders:
            refuse("/order", f"is no open order; open are {sorted(moment.open_orders)}")
        return {"status": "done", "note": "recorded"}

    def _study(self, name: str, arguments: Answer) -> Answer:
        entry = self._db.get("studies", {}).get(name)
        if entry is None:
            return dict(_NOT_TODAY)
        if isinstance(entry, str):
            return {"status": "done", "result": entry}
        side = arguments.get("side", "bilateral")
        shown = {eye: text for eye, text in entry.items() if side in {eye, "bilateral", "not_applicable"}}
        return {"status": "done", "result": shown}

    def _report(self, analytes: list[str], moment: Moment) -> Answer:
        rows = self._results.rows(analytes, moment.minute)
        known = any("value" in row for row in rows)
        return {"status": "done" if known else "pending", "results": rows}


def _fits(row: dict[str, Any], arguments: Answer) -> bool:
    """A finding fits the manoeuvre asked for (none: the plain examination) and is not on the other side."""
    return row.get("manoeuvre") == arguments.get("manoeuvre") and _same_side(row, arguments)


def _shows(report: dict[str, Any], arguments: Answer) -> bool:
    if report["modality"] != arguments["modality"] or arguments["body_site"] not in report["sites"]:
        return False
    contrast = arguments["contrast"]
    return contrast in report.get("contrast", [contrast]) and _same_side(report, arguments)


def _same_side(row: dict[str, Any], arguments: Answer) -> bool:
    side = arguments.get("side", "bilateral")
    return side in {"bilateral", "not_applicable", row.get("side", side)}


def _with_mean_pressure(row: dict[str, Any]) -> dict[str, Any]:
    if "systolic" not in row:
        return row
    return {**row, "mean_pressure": round(row["diastolic"] + (row["systolic"] - row["diastolic"]) / 3)}
