#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask --to companion 'When did the confusion start?'
clinic ask --to companion 'What is she normally like, is her memory good?'
clinic ask --to companion 'How has her breathing been?'
clinic ask --to companion 'Has she had a cough or any phlegm?'
clinic ask --to companion 'Does it sting when she passes urine, or has it changed?'
clinic ask --to companion 'Has she had a fall or hit her head?'
clinic ask --to companion 'Which tablets does she take, and is anything new?'
clinic ask --to companion 'Does she have any allergies?'
clinic call get_vitals '{}'
clinic call physical_exam '{"system": "respiratory"}'
clinic call order_imaging '{"body_site": "chest", "contrast": "none", "modality": "xray", "urgency": "stat"}'
clinic call order_lab '{"test": "basic_metabolic_panel", "urgency": "stat"}'
clinic call risk_score '{"inputs": {"age_years": 84, "low_blood_pressure": false, "new_confusion": true, "respiratory_rate": 26, "urea_mmol_l": 9.6}, "score": "curb65"}'
clinic call get_allergies '{}'
clinic call give_oxygen_or_airway '{"flow_l_min": 2, "mode": "nasal", "target_spo2_high": 98, "target_spo2_low": 94}'
clinic call order_microbiology '{"sets": 2, "specimen": "blood", "test": "culture", "urgency": "stat"}'
clinic call prescribe '{"dose": 1200, "dose_unit": "mg", "drug": "co-amoxiclav", "frequency": "every_8h", "route": "iv"}'
clinic call set_disposition '{"level": "ward", "monitoring": ["pulse_oximetry"]}'
clinic diagnose 'Community-acquired pneumonia of the right lower lobe with delirium' --icd10 J18.9
