#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'What colour is the vomit?'
clinic ask 'When did this begin?'
clinic ask 'Has he had any stool since he was born?'
clinic ask 'How is he feeding, and how many wet nappies has he had?'
clinic ask 'How were the pregnancy and the birth?'
clinic ask 'Was there fever, in him or in you?'
clinic ask 'Has anybody in the family had trouble with the bowel?'
clinic call physical_exam '{"system": "abdomen"}'
clinic call physical_exam '{"chaperone": true, "explained_and_consented": true, "system": "rectal"}'
clinic call perform_procedure '{"procedure": "gastric decompression", "urgency": "now"}'
clinic call order_imaging '{"body_site": "abdomen", "contrast": "none", "modality": "xray", "urgency": "stat"}'
clinic call refer '{"reason": "50 hours old, green vomit, never any stool, distal blockage on the film, jet of gas on examination", "service": "pediatric surgery", "urgency": "emergency"}'
clinic call point_of_care_test '{"test": "venous_gas"}'
clinic call give_fluids '{"fluid": "saline", "over_minutes": 20, "part": "loading", "volume_ml_per_kg": 10}'
clinic call prescribe '{"dose": 90, "dose_unit": "mg/kg", "drug": "piperacillin_tazobactam", "frequency": "every_8h", "route": "iv"}'
clinic call order_imaging '{"body_site": "colon", "contrast": "none", "modality": "contrast_enema"}'
clinic call set_disposition '{"level": "transfer", "monitoring": ["vital_signs", "pulse_oximetry", "urine_output", "glucose_hourly"], "nil_by_mouth": true}'
clinic diagnose 'Suspected Hirschsprung disease' --icd10 Q43.1
