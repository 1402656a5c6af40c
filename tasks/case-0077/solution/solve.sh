#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did it start, and what were you doing?'
clinic ask 'Does your eye hurt, and has your vision changed?'
clinic ask 'Did you notice haloes around lights?'
clinic ask 'Have you had a similar attack before?'
clinic ask 'Do you take anything over the counter, any cold remedy for instance?'
clinic ask 'Do you have asthma, and are you allergic to anything?'
clinic call get_allergies '{}'
clinic call physical_exam '{"side": "bilateral", "system": "eye"}'
clinic call slit_lamp_or_fundus '{"side": "bilateral", "test": "visual_acuity"}'
clinic call slit_lamp_or_fundus '{"side": "bilateral", "test": "tonometry"}'
clinic call refer '{"reason": "Right eye 58 mmHg, hazy cornea, fixed half-wide pupil since last night", "service": "ophthalmology", "urgency": "emergency"}'
clinic call prescribe '{"dose": 500, "dose_unit": "mg", "drug": "acetazolamide", "frequency": "stat", "route": "iv"}'
clinic call prescribe '{"dose": 1, "dose_unit": "drop", "drug": "apraclonidine", "frequency": "stat", "route": "ophthalmic", "side": "right"}'
clinic call change_medication '{"change": "stop", "drug": "pseudoephedrine", "reason": "Set off the attack"}'
clinic call set_disposition '{"level": "ward", "monitoring": ["pain_score"], "nil_by_mouth": true}'
clinic diagnose 'Acute angle-closure glaucoma of the right eye' --icd10 H40.211
