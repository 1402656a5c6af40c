#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did the rash begin, and did you have a fever before it?'
clinic ask 'Have you started any new medicine in the last weeks?'
clinic ask 'Are your eyes sore as well?'
clinic ask 'Does it sting when you pass water, or is it sore down below?'
clinic ask 'Are there any allergies that you know of?'
clinic ask 'Could you be pregnant?'
clinic call get_medications '{}'
clinic call physical_exam '{"explained_and_consented": true, "manoeuvre": "body_surface_area", "system": "skin"}'
clinic call physical_exam '{"system": "mouth_and_teeth"}'
clinic call physical_exam '{"system": "eye"}'
clinic call change_medication '{"change": "stop", "drug": "lamotrigine", "reason": "Skin and mucous membranes coming off since day 15"}'
clinic call update_allergy '{"action": "add", "reaction": "Blistering skin and raw mucous membranes, life-threatening", "substance": "lamotrigine"}'
clinic call refer '{"reason": "Film on the inner lids of both eyes", "service": "ophthalmology", "urgency": "emergency"}'
clinic call refer '{"reason": "8 % raw skin, mouth, eyes and genitals, 19 days after lamotrigine", "service": "dermatology", "urgency": "emergency"}'
clinic call prescribe '{"dose": 1, "dose_unit": "application", "drug": "white soft paraffin", "frequency": "every_4h", "route": "topical"}'
clinic call set_disposition '{"isolation": "protective", "level": "burns_unit", "monitoring": ["vital_signs", "urine_output", "pain_score"]}'
clinic diagnose 'Stevens-Johnson syndrome due to lamotrigine' --icd10 L51.1
