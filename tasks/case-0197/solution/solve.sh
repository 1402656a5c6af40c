#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask --to companion 'When did this start, and has it been getting worse?'
clinic ask --to companion 'How was your mother before this; how was her memory?'
clinic ask --to companion 'What tablets is she on, and was any medicine added in the last weeks?'
clinic ask --to companion 'How much does she drink in a day?'
clinic ask --to companion 'Has she had any vomiting or diarrhoea?'
clinic ask --to companion 'Has she had a fall or hit her head?'
clinic ask --to companion 'Have there been any fits, or has she lost consciousness?'
clinic call physical_exam '{"manoeuvre": "postural_change", "system": "cardiovascular"}'
clinic call order_lab '{"test": "urea and electrolytes", "urgency": "stat"}'
clinic call order_lab '{"test": "serum osmolality", "urgency": "stat"}'
clinic call order_lab '{"test": "urine_sodium", "urgency": "stat"}'
clinic call change_medication '{"change": "stop", "drug": "indapamide", "reason": "sodium 117 sixteen days after the first dose"}'
clinic call set_disposition '{"fluid_restriction_ml": 1000, "level": "high_dependency", "monitoring": ["sodium_4_hourly", "neuro_observations", "urine_output"]}'
clinic call give_advice '{"text": "The new tablet, indapamide, made the salt in your mother'"'"'s blood fall. It is stopped and she should never have it or its relatives again; please bring the box and tell her own doctor.", "topic": "medication_use"}'
clinic diagnose 'Hyponatraemia due to thiazide-like diuretic (indapamide)' --icd10 E87.1
