#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'How long has she been unwell?'
clinic ask 'Is she thirsty, and does she go to the loo more than before?'
clinic ask 'Has she lost weight?'
clinic ask 'Any headache, or is she confused at all?'
clinic ask 'Has she had a fever or a cough?'
clinic ask 'Has she had diarrhea as well?'
clinic ask 'Does she have any illnesses, or take any medicines?'
clinic call physical_exam '{"system": "consciousness"}'
clinic call point_of_care_test '{"specimen": "venous", "test": "venous_gas"}'
clinic call point_of_care_test '{"specimen": "capillary", "test": "ketones"}'
clinic call give_fluids '{"fluid": "normal saline", "over_minutes": 30, "part": "loading", "volume_ml_per_kg": 10}'
clinic call refer '{"reason": "8 years, glucose 28, ketones 6.2, pH 7.14, potassium 4.6, score 15", "service": "pediatrics", "urgency": "emergency"}'
clinic call give_fluids '{"added_potassium_mmol_l": 40, "fluid": "normal saline", "over_minutes": 1440, "volume_ml": 2060}'
clinic call reassess '{"after_minutes": 60}'
clinic call prescribe '{"dose": 0.05, "dose_unit": "unit/kg/h", "drug": "insulin_soluble", "frequency": "continuous", "indication": "one hour after the first fluid", "route": "iv"}'
clinic call set_disposition '{"level": "hdu", "monitoring": ["neuro_observations", "glucose_hourly", "ketones_hourly", "cardiac_monitor", "urine_output", "potassium_2_hourly"], "nil_by_mouth": true}'
clinic diagnose 'Diabetic ketoacidosis in new-onset type 1 diabetes' --icd10 E10.10
