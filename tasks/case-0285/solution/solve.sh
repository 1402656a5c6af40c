#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask --to companion 'When did this start, and how has it developed since?'
clinic ask --to companion 'Has she had a fever, or any spells of staring or shaking?'
clinic ask --to companion 'Has she ever had trouble with her mental health?'
clinic ask --to companion 'What medicines does she take, and does she use alcohol or any drugs?'
clinic ask --to companion 'Is she allergic to anything?'
clinic ask --to companion 'Has she been abroad, or been bitten by ticks or insects?'
clinic ask --to companion 'Is there anything that weakens her immune system?'
clinic call get_vitals '{}'
clinic call physical_exam '{"system": "mental_state"}'
clinic call get_allergies '{}'
clinic call order_lab '{"test": "basic metabolic panel", "urgency": "stat"}'
clinic call prescribe '{"dose": 620, "dose_unit": "mg", "drug": "acyclovir", "frequency": "every_12h", "over_minutes": 60, "route": "iv"}'
clinic call perform_procedure '{"consent_documented": true, "procedure": "lumbar_puncture", "urgency": "now"}'
clinic call order_microbiology '{"specimen": "csf", "test": "hsv pcr", "urgency": "stat"}'
clinic call order_imaging '{"body_site": "brain", "contrast": "gadolinium", "modality": "mri", "urgency": "urgent"}'
clinic call prescribe '{"dose": 2000, "dose_unit": "mg", "drug": "levetiracetam", "frequency": "stat", "route": "iv"}'
clinic call set_disposition '{"level": "high_dependency", "monitoring": ["neuro_observations", "airway", "urine_output"], "observation": "continuous"}'
clinic diagnose 'Herpes simplex virus encephalitis' --icd10 B00.4
