#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'Can you breathe all right, and is your throat tight?'
clinic call prescribe '{"dose": 0.5, "dose_unit": "mg", "drug": "epinephrine", "frequency": "stat", "indication": "rash, hoarse voice, low pressure minutes after a meal", "route": "im"}'
clinic call perform_procedure '{"procedure": "lie flat", "urgency": "now"}'
clinic call activate_team '{"reason": "15-year-old, pressure 84/44, hoarse, wheals", "team": "resuscitation"}'
clinic call give_oxygen_or_airway '{"flow_l_min": 15, "mode": "non_rebreather"}'
clinic call give_fluids '{"fluid": "normal saline", "over_minutes": 10, "part": "loading", "volume_ml_per_kg": 10}'
clinic ask --to companion 'What exactly did he eat, and when did it begin?'
clinic ask 'Did you feel dizzy or faint?'
clinic ask 'Are you allergic to anything, and have you had asthma?'
clinic ask 'Do you take any medicines, or did you take any today?'
clinic call prescribe '{"dose": 0.3, "dose_unit": "mg", "drug": "EpiPen", "frequency": "as_needed", "indication": "to carry, two devices", "route": "im"}'
clinic call refer '{"reason": "Severe reaction minutes after noodles with peanut butter sauce", "service": "allergy clinic", "urgency": "soon"}'
clinic call set_disposition '{"level": "children'"'"'s ward", "monitoring": ["vital_signs", "pulse_oximetry", "cardiac_monitor"], "observe_hours": 12}'
clinic diagnose 'Anaphylaxis due to peanut' --icd10 T78.01XA
