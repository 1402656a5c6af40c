#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'I'"'"'ll keep it short. How long have you had this?'
clinic ask 'Any trouble breathing?'
clinic ask 'Can you swallow your own saliva?'
clinic ask 'Do you find it hard to open your mouth?'
clinic ask 'What medicines have you taken for it?'
clinic ask 'Have you had bad throats before, with your tonsils?'
clinic call get_allergies '{}'
clinic ask 'Nothing is written down: are you allergic to any medicine?'
clinic call update_allergy '{"action": "add", "reaction": "swelling of the face and trouble breathing at 9 years, ambulance, injection in the thigh", "substance": "amoxicillin"}'
clinic call physical_exam '{"system": "respiratory"}'
clinic call physical_exam '{"system": "nose_throat"}'
clinic call prescribe '{"dose": 1000, "dose_unit": "mg", "drug": "acetaminophen", "frequency": "every_6h", "route": "iv"}'
clinic call prescribe '{"dose": 600, "dose_unit": "mg", "drug": "clindamycin", "frequency": "every_8h", "route": "iv"}'
clinic call refer '{"reason": "Left palate bulges, jaw opens 15 mm, cannot swallow saliva, severe reaction to amoxicillin as a child", "service": "ear nose and throat", "urgency": "emergency"}'
clinic call perform_procedure '{"consent_documented": true, "procedure": "needle aspiration", "side": "left", "site": "throat", "urgency": "now"}'
clinic call set_disposition '{"level": "surgical_ward", "monitoring": ["airway", "vital_signs", "pulse_oximetry"], "nil_by_mouth": true}'
clinic diagnose 'Left peritonsillar abscess (quinsy)' --icd10 J36
