#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did the headache start, and have you had headaches before?'
clinic ask 'Does your jaw ache when you chew?'
clinic ask 'Is your scalp tender, for instance when you comb your hair?'
clinic ask 'Have you noticed any change in your vision?'
clinic ask 'Do you have pain or stiffness in your shoulders or hips?'
clinic ask 'Have you lost weight, or had a fever?'
clinic ask 'Have you ever had a stomach ulcer, or diabetes?'
clinic ask 'What medicines do you take, including anything over the counter?'
clinic call physical_exam '{"manoeuvre": "temporal_artery_palpation", "system": "vascular"}'
clinic call slit_lamp_or_fundus '{"side": "bilateral", "test": "visual_acuity"}'
clinic call prescribe '{"dose": 500, "dose_unit": "mg", "drug": "methylprednisolone", "duration_days": 3, "frequency": "once_daily", "over_minutes": 60, "route": "iv"}'
clinic call order_lab '{"test": "crp", "urgency": "stat"}'
clinic call refer '{"reason": "Two brief losses of sight in the right eye, tender temporal artery", "service": "ophthalmology", "urgency": "emergency"}'
clinic call refer '{"service": "rheumatology", "urgency": "urgent", "within_days": 1}'
clinic call order_imaging '{"body_site": "temporal_artery", "contrast": "none", "modality": "doppler", "urgency": "urgent"}'
clinic call prescribe '{"dose": 2, "dose_unit": "tablet", "drug": "calcium and vitamin d", "frequency": "once_daily", "route": "oral"}'
clinic call prescribe '{"dose": 20, "dose_unit": "mg", "drug": "omeprazole", "frequency": "once_daily", "route": "oral"}'
clinic diagnose 'Giant cell arteritis with transient visual loss' --icd10 M31.6
