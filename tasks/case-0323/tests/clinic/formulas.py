"""Values that follow from other values, so that no two results contradict.

Owns the arithmetic: gas, gaps, indices, filtration rate, ratios. `derived`
analytes are always computed; `estimated` ones only where the case writes none,
and then from what it does write (a low hemoglobin brings its hematocrit along).
Pure functions over numbers; units are the menu's. `results` calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_CO2_PER_KPA: Final = 0.0307 * 7.501  # mmol/L of dissolved CO2 per kPa
_MCHC: Final = 335.0  # g/L, the usual concentration of hemoglobin in red cells
_USUAL_GAP: Final = 11.0  # mmol/L, for a chloride that nobody measured


def _bicarbonate(ph: float, pco2: float) -> float:
    return float(_CO2_PER_KPA * pco2 * 10 ** (ph - 6.1))  # Henderson-Hasselbalch


def _filtration(creatinine: float, years: float, sex: str, height_cm: float | None, pregnant: bool) -> float | None:
    if pregnant:
        return None  # no formula is valid in pregnancy
    if years < 18:
        return None if height_cm is None else 36.5 * height_cm / creatinine  # bedside Schwartz 2009, in umol/L
    kappa, alpha, factor = (0.7, -0.241, 1.012) if sex == "female" else (0.9, -0.302, 1.0)
    ratio = creatinine / 88.4 / kappa
    return float(142 * min(ratio, 1) ** alpha * max(ratio, 1) ** -1.2 * 0.9938**years * factor)  # CKD-EPI 2021


def _ldl(cholesterol: float, hdl: float, triglycerides: float) -> float | None:
    return None if triglycerides > 4.5 else cholesterol - hdl - triglycerides / 2.2  # Friedewald's limit


def _difference(fio2_percent: float, po2: float, pco2: float) -> float:
    return max(0.0, fio2_percent / 100 * (101.3 - 6.3) - pco2 / 0.8 - po2)


def _strip(value: float, steps: tuple[float, float, float]) -> str:
    return ("negative", "1+", "2+", "3+")[sum(value >= step for step in steps)]


Formula = tuple[tuple[str, ...], Callable[..., Any]]

# Inputs are analytes; `usual:x` is a normal x for this person; `subject:x` is a fact of the body.
FORMULAS: Final[dict[str, Formula]] = {
    "bicarbonate": (("ph", "pco2"), _bicarbonate),
    "base_excess": (("bicarbonate", "ph"), lambda hco3, ph: 0.93 * (hco3 - 24.4 + 14.8 * (ph - 7.4))),
    "venous_ph": (("ph",), lambda ph: ph - 0.03),
    "venous_pco2": (("bicarbonate", "venous_ph"), lambda hco3, ph: hco3 / (_CO2_PER_KPA * 10 ** (ph - 6.1))),
    "aa_gradient": (("subject:fio2_percent", "po2", "pco2"), _difference),
    "chloride": (("sodium", "bicarbonate"), lambda sodium, hco3: sodium - hco3 - _USUAL_GAP),
    "anion_gap": (("sodium", "chloride", "bicarbonate"), lambda sodium, chloride, hco3: sodium - chloride - hco3),
    "serum_osmolality": (
        ("sodium", "glucose", "urea", "osmolal_gap"),
        lambda sodium, glucose, urea, gap: 2 * sodium + glucose + urea + gap,
    ),
    "egfr": (
        ("creatinine", "subject:age_years", "subject:sex", "subject:height_cm", "subject:pregnant"),
        _filtration,
    ),
    "calcium": (("usual:adjusted_calcium", "albumin"), lambda adjusted, albumin: adjusted - 0.02 * (40 - albumin)),
    "adjusted_calcium": (("calcium", "albumin"), lambda calcium, albumin: calcium + 0.02 * (40 - albumin)),
    "ionised_calcium": (("adjusted_calcium",), lambda adjusted: 0.52 * adjusted),
    "hematocrit": (("hemoglobin",), lambda hemoglobin: hemoglobin / _MCHC),
    "red_cell_count": (("hemoglobin", "usual:mcv"), lambda hemoglobin, mcv: hemoglobin / _MCHC * 1000 / mcv),
    "mcv": (("hematocrit", "red_cell_count"), lambda hematocrit, count: hematocrit * 1000 / count),
    "mch": (("hemoglobin", "red_cell_count"), lambda hemoglobin, count: hemoglobin / count),
    "white_cell_count": (
        ("neutrophils", "lymphocytes", "monocytes", "eosinophils", "basophils", "blasts"),
        lambda *cells: sum(cells),
    ),
    "bilirubin_direct": (("bilirubin_total", "usual:bilirubin_direct"), lambda total, usual: min(0.25 * total, usual)),
    "bilirubin_indirect": (("bilirubin_total", "bilirubin_direct"), lambda total, direct: total - direct),
    "total_protein": (("albumin", "globulin"), lambda albumin, globulin: albumin + globulin),
    "prothrombin_time": (("inr",), lambda inr: 12.0 * inr),
    "hba1c_percent": (("hba1c",), lambda hba1c: 0.0915 * hba1c + 2.15),
    "aldosterone_renin_ratio": (("aldosterone", "renin"), lambda aldosterone, renin: aldosterone / renin),
    "transferrin_saturation": (("iron", "transferrin"), lambda iron, transferrin: iron / (25.1 * transferrin) * 100),
    "ldl": (("cholesterol", "hdl", "triglycerides"), _ldl),
    "light_chain_ratio": (("kappa_light_chain", "lambda_light_chain"), lambda kappa, lam: kappa / lam),
    "pregnancy_test": (("hcg",), lambda hcg: "positive" if hcg >= 25 else "negative"),
    "urine_glucose": (("glucose",), lambda glucose: _strip(glucose, (10, 12, 15))),
    "urine_ketones": (("beta_hydroxybutyrate",), lambda ketones: _strip(ketones, (0.7, 1.5, 3.0))),
}
