"""What a specialist would do in two dozen very different consultations can be said to the clinic.

Not what should be done: whether the words exist. Each row is one act that a menu
without it would make impossible, or would force into free text that no gate reads.
"""

from typing import Any

import pytest
from clinic_case import CATALOGUE


def drug(name: str, dose: float, unit: str, route: str, frequency: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "prescribe", {"drug": name, "dose": dose, "dose_unit": unit, "route": route, "frequency": frequency, **more}


def lab(*tests: str) -> list[tuple[str, dict[str, Any]]]:
    return [("order_lab", {"test": test}) for test in tests]


PELVIS = {"body_site": "pelvis", "contrast": "none"}
ACTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "newborn with a blocked bowel": [
        ("physical_exam", {"system": "newborn"}),
        ("order_imaging", {"modality": "contrast enema", "body_site": "colon", "contrast": "none"}),
        ("order_study", {"study": "suction rectal biopsy"}),
        ("perform_procedure", {"procedure": "gastric decompression", "urgency": "now"}),
        drug("gentamicin", 5, "mg/kg", "iv", "stat"),
        ("give_fluids", {"fluid": "normal saline", "volume_ml_per_kg": 10, "over_minutes": 20, "part": "bolus"}),
        ("refer", {"service": "pediatric surgery", "urgency": "emergency"}),
        ("set_disposition", {"level": "neonatal_unit", "nil_by_mouth": True}),
    ],
    "ketoacidosis of a child": [
        *lab("ketones", "venous_blood_gas", "bmp", "hba1c"),
        drug("regular insulin", 0.05, "unit/kg/h", "iv", "continuous"),
        ("give_fluids", {"fluid": "saline", "volume_ml_per_kg": 10, "over_minutes": 60, "added_potassium_mmol_l": 40}),
        ("set_disposition", {"level": "high_dependency", "monitoring": ["ketones_hourly", "neuro observations"]}),
    ],
    "preeclampsia": [
        *lab("urine_protein_creatinine_ratio", "lfts", "clotting"),
        drug("magnesium", 4, "g", "iv", "stat", part="loading", over_minutes=10),
        drug("magnesium", 1000, "mg/h", "iv", "continuous"),
        drug("labetalol", 20, "mg", "iv", "stat"),
        ("activate_team", {"team": "obstetric_emergency"}),
        ("perform_procedure", {"procedure": "ctg", "urgency": "now"}),
        ("set_disposition", {"level": "labour ward", "monitoring": ["fetal", "urine output"]}),
        ("physical_exam", {"system": "neuro_motor", "manoeuvre": "clonus"}),
    ],
    "pneumonia in old age": [
        ("ask_patient", {"message": "How is she usually?", "to": "companion"}),
        ("mental_health_screen", {"instrument": "4AT"}),
        ("order_microbiology", {"test": "legionella_urinary_antigen", "specimen": "urine"}),
        ("give_oxygen_or_airway", {"mode": "venturi", "target_spo2_low": 92, "target_spo2_high": 96}),
    ],
    "quinsy": [
        ("update_allergy", {"substance": "amoxicillin", "action": "add", "reaction": "swollen throat, collapse"}),
        ("physical_exam", {"system": "mouth", "manoeuvre": "trismus"}),
        ("perform_procedure", {"procedure": "aspiration of quinsy", "side": "left", "urgency": "today"}),
        drug("clindamycin", 600, "mg", "iv", "every_6h"),
    ],
    "self-poisoning": [
        ("order_lab", {"test": "paracetamol level", "timing": "hours_after_ingestion", "hours_after": 4}),
        drug("NAC", 150, "mg/kg", "iv", "stat", part="loading", over_minutes=60),
        ("mental_health_screen", {"assessment": "suicide_risk"}),
        ("refer", {"service": "liaison_psychiatry", "urgency": "urgent"}),
        ("set_disposition", {"level": "ward", "observation": "one_to_one"}),
        ("notify", {"kind": "poison control", "urgency": "urgent"}),
    ],
    "hip fracture and neglect": [
        ("order_imaging", {"modality": "xray", "body_site": "hip", "contrast": "none", "side": "right"}),
        ("perform_procedure", {"procedure": "fascia iliaca block", "side": "right", "urgency": "now"}),
        ("notify", {"kind": "safeguarding_adult", "urgency": "urgent"}),
        ("mental_health_screen", {"assessment": "capacity", "about": "the operation"}),
        *lab("ck", "inr"),
    ],
    "low sodium from a tablet": [
        *lab("serum_osmolality", "urine_sodium", "urine_osmolality", "cortisol", "tsh"),
        ("change_medication", {"drug": "indapamide", "change": "stop"}),
        ("give_fluids", {"fluid": "3% saline", "volume_ml": 150, "over_minutes": 20}),
        ("set_disposition", {"level": "ward", "fluid_restriction_ml": 1000, "monitoring": ["sodium_4_hourly"]}),
        ("orthostatic_vitals", {}),
        ("notify", {"kind": "yellow card", "urgency": "routine"}),
    ],
    "arteritis": [
        *lab("esr", "crp"),
        drug("prednisolone", 60, "mg", "oral", "once_daily"),
        ("physical_exam", {"system": "vascular", "manoeuvre": "temporal_artery_palpation", "side": "both"}),
        ("order_study", {"study": "temporal_artery_biopsy", "side": "left", "urgency": "urgent"}),
        ("slit_lamp_or_fundus", {"test": "fundoscopy", "side": "left"}),
        drug("alendronate", 70, "mg", "oral", "weekly"),
    ],
    "encephalitis": [
        drug("acyclovir", 10, "mg/kg", "iv", "every_8h"),
        ("order_study", {"study": "lumbar puncture"}),
        ("order_microbiology", {"test": "csf hsv pcr", "specimen": "csf"}),
        *lab("csf_analysis"),
        ("order_study", {"study": "eeg"}),
    ],
    "brainstem stroke from a torn neck artery": [
        ("order_imaging", {"modality": "cta", "body_site": "neck vessels", "contrast": "iv", "urgency": "stat"}),
        ("activate_team", {"team": "stroke"}),
        ("perform_procedure", {"procedure": "bedside swallow test", "urgency": "now"}),
        ("physical_exam", {"system": "neuro_cranial", "manoeuvre": "uvula"}),
        ("set_disposition", {"level": "stroke_unit", "nil_by_mouth": True}),
    ],
    "heart block from an eye drop": [
        ("ecg", {}),
        ("change_medication", {"drug": "timolol eye drops", "change": "stop"}),
        drug("atropine", 500, "microgram", "iv", "stat"),
        ("perform_procedure", {"procedure": "external pacing", "urgency": "now"}),
        ("set_disposition", {"level": "ccu", "monitoring": ["telemetry"]}),
    ],
    "heart attack without pain": [
        ("reassess", {"after_minutes": 60}),
        *lab("troponin_t"),
        drug("aspirin", 300, "mg", "oral", "stat"),
        drug("fondaparinux", 2.5, "mg", "sc", "once_daily"),
        ("refer", {"service": "cardiology", "urgency": "urgent", "within_days": 1}),
    ],
    "appendicitis in old age": [
        ("order_imaging", {"modality": "ct", "body_site": "abdomen pelvis", "contrast": "iv"}),
        drug("Zosyn", 4.5, "g", "iv", "every_8h"),
        ("physical_exam", {"system": "abdomen", "manoeuvre": "rebound_tenderness"}),
    ],
    "endometriosis": [
        ("physical_exam", {"system": "pelvic", "chaperone": True, "explained_and_consented": True}),
        (
            "order_imaging",
            {"modality": "ultrasound", "body_site": "pelvis", "contrast": "none", "approach": "transvaginal"},
        ),
        ("order_study", {"study": "diagnostic laparoscopy"}),
        drug("desogestrel", 75, "microgram", "oral", "once_daily"),
        ("give_advice", {"topic": "fertility", "text": "Tell us when you plan a pregnancy."}),
    ],
    "high calcium of cancer": [
        *lab("corrected calcium", "pth"),
        ("give_fluids", {"fluid": "saline", "volume_ml": 1000, "over_minutes": 240}),
        drug("Zometa", 3.3, "mg", "iv", "stat", over_minutes=15),
        ("refer", {"service": "palliative_care", "urgency": "soon"}),
    ],
    "sickle crisis": [
        drug("morphine", 0.1, "mg/kg", "iv", "every_20_min"),
        *lab("reticulocyte count", "type and screen"),
        ("transfuse", {"product": "packed red cells", "units": 1}),
    ],
    "angle closure": [
        ("slit_lamp_or_fundus", {"test": "intraocular pressure", "side": "right"}),
        drug("Diamox", 500, "mg", "iv", "stat"),
        drug("pilocarpine", 1, "drop", "eye drops", "stat", side="right"),
        ("change_medication", {"drug": "Sudafed", "change": "stop"}),
        ("perform_procedure", {"procedure": "peripheral iridotomy", "side": "bilateral", "urgency": "today"}),
    ],
    "depression with means at home": [
        ("mental_health_screen", {"instrument": "phq9"}),
        ("give_advice", {"topic": "means_restriction", "text": "Hand the gun to your brother."}),
        drug("sertraline", 50, "mg", "oral", "once_daily", duration_days=14),
        ("refer", {"service": "crisis_team", "urgency": "emergency"}),
        ("set_disposition", {"level": "psychiatric_ward", "legal_basis": "voluntary"}),
    ],
    "skin that comes off": [
        ("change_medication", {"drug": "Lamictal", "change": "stop"}),
        ("physical_exam", {"system": "skin", "manoeuvre": "body_surface_area"}),
        ("set_disposition", {"level": "burns_unit", "isolation": "protective"}),
        ("refer", {"service": "eye casualty", "urgency": "emergency"}),
    ],
    "variceal bleed": [
        drug("terlipressin", 2, "mg", "iv", "every_4h"),
        drug("ceftriaxone", 1, "g", "iv", "once_daily"),
        ("transfuse", {"product": "prbc", "units": 1, "target_hemoglobin_g_l": 75}),
        ("activate_team", {"team": "major haemorrhage"}),
        ("perform_procedure", {"procedure": "variceal band ligation", "urgency": "now"}),
        ("give_oxygen_or_airway", {"mode": "intubation"}),
    ],
    "anaphylaxis": [
        drug("epinephrine", 0.5, "mg", "im", "stat"),
        drug("EpiPen", 0.3, "mg", "im", "as_needed"),
        ("perform_procedure", {"procedure": "lie flat", "urgency": "now"}),
        ("set_disposition", {"level": "observation", "observe_hours": 6}),
        ("give_advice", {"topic": "auto-injector training", "text": "Outer thigh, hold for three seconds."}),
        *lab("tryptase"),
    ],
    "simple back pain": [
        ("physical_exam", {"system": "spine", "manoeuvre": "straight_leg_raise", "side": "both"}),
        ("give_advice", {"topic": "stay active", "text": "Keep moving."}),
        ("schedule_follow_up", {"with_whom": "gp", "within_days": 42, "not_before_days": 28}),
    ],
}


@pytest.mark.parametrize("consultation", sorted(ACTS))
def test_every_act_can_be_said(consultation: str) -> None:
    for tool, arguments in ACTS[consultation]:
        assert set(CATALOGUE.accept(tool, arguments)) == set(arguments)
