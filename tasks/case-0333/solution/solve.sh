#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did these turns start?'
clinic ask 'In these turns, have you actually passed out?'
clinic ask 'Do they come on standing up, or does something else bring them on?'
clinic ask 'Have you had any chest pain?'
clinic ask 'Have you ever had heart problems before?'
clinic ask 'What tablets do you take?'
clinic ask 'Do you use any eye drops, creams or inhalers as well?'
clinic ask 'Did you fall or hit your head?'
clinic call get_vitals '{}'
clinic call ecg '{"leads": "standard"}'
clinic call get_medications '{}'
clinic call order_lab '{"test": "basic metabolic panel", "urgency": "stat"}'
clinic call change_medication '{"change": "stop", "drug": "timolol eye drops", "reason": "slows conduction"}'
clinic call prescribe '{"dose": 500, "dose_unit": "microgram", "drug": "atropine", "frequency": "stat", "route": "iv"}'
clinic call refer '{"reason": "Syncope, rate 34, P waves without relation to QRS", "service": "cardiology", "urgency": "emergency"}'
clinic call set_disposition '{"level": "coronary_unit", "monitoring": ["cardiac_monitor"], "observation": "continuous"}'
clinic diagnose 'Complete heart block due to timolol eye drops' --icd10 I44.2
