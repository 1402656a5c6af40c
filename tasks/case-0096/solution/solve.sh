#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'I can see you are in a lot of pain. When did it start and what set it off?'
clinic ask 'Is this like your usual pain?'
clinic ask 'Do you have an allergy I should know of?'
clinic ask 'What have you taken for the pain so far, and when?'
clinic call prescribe '{"dose": 6, "dose_unit": "mg", "drug": "morphine", "frequency": "every_20_min", "max_doses": 3, "route": "iv"}'
clinic call prescribe '{"dose": 1000, "dose_unit": "mg", "drug": "paracetamol", "frequency": "every_6h", "route": "oral"}'
clinic call get_vitals '{}'
clinic ask 'Do you have any chest pain, cough or trouble breathing?'
clinic ask 'Have you had a fever?'
clinic ask 'Is there any weakness or numbness in your legs, or trouble with your bladder or bowels?'
clinic call physical_exam '{"system": "respiratory"}'
clinic call order_lab '{"test": "full_blood_count", "urgency": "urgent"}'
clinic call order_lab '{"test": "reticulocytes", "urgency": "urgent"}'
clinic call reassess '{"after_minutes": 30}'
clinic call refer '{"reason": "Known to the team, pain 10, now 7 after the first dose, chest clear, hemoglobin near his usual", "service": "haematology", "urgency": "urgent"}'
clinic call set_disposition '{"level": "ward", "monitoring": ["pulse_oximetry", "vital_signs", "pain_score"]}'
clinic diagnose 'Acute sickle cell vaso-occlusive pain crisis' --icd10 D57.00
