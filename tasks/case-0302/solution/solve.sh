#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did the ache begin, and has it moved since?'
clinic ask 'Have you vomited or felt queasy?'
clinic ask 'Are your bowels open, and does it sting when you pass water?'
clinic ask 'Have you ever been operated on?'
clinic ask 'Do you take a blood thinner or other medicines, and are you allergic to anything?'
clinic call get_allergies '{}'
clinic call physical_exam '{"system": "abdomen"}'
clinic call order_lab '{"test": "basic metabolic panel", "urgency": "urgent"}'
clinic call order_lab '{"test": "crp", "urgency": "urgent"}'
clinic call order_imaging '{"body_site": "abdomen_and_pelvis", "contrast": "iv", "modality": "ct", "urgency": "urgent"}'
clinic call refer '{"reason": "12 mm thick-walled appendix with a stone, CRP 94, no leak on CT", "service": "general_surgery", "urgency": "emergency"}'
clinic call prescribe '{"dose": 4.5, "dose_unit": "g", "drug": "piperacillin_tazobactam", "frequency": "every_12h", "route": "iv"}'
clinic call prescribe '{"dose": 1000, "dose_unit": "mg", "drug": "paracetamol", "frequency": "every_6h", "route": "iv"}'
clinic call set_disposition '{"level": "surgical_ward", "monitoring": ["vital_signs", "urine_output"], "nil_by_mouth": true}'
clinic diagnose 'Acute uncomplicated appendicitis' --icd10 K35.80
