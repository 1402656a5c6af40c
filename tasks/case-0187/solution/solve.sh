#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'Before this, how far could you walk, and with what help?'
clinic ask --to companion 'When did she last have her blood thinner?'
clinic ask --alone 'Your son has gone for a coffee, so it is only the two of us. Would you tell me in your own words how you came down, what happened?'
clinic ask --alone 'And how long were you lying there?'
clinic ask 'Were you giddy, or did you faint?'
clinic ask 'Did you bang your head?'
clinic ask --alone 'I see older bruises on your arms. How did they come about, these bruises?'
clinic ask --alone 'Do you feel safe with him?'
clinic call get_medications '{}'
clinic call order_imaging '{"body_site": "hip", "contrast": "none", "indication": "Fall, right leg short and turned out", "modality": "x-ray", "side": "right", "urgency": "stat"}'
clinic call order_lab '{"test": "ck", "urgency": "stat"}'
clinic call mental_health_screen '{"about": "operation on the hip, and whom we may tell", "assessment": "capacity"}'
clinic call perform_procedure '{"consent_documented": true, "procedure": "fascia iliaca block", "side": "right", "urgency": "now"}'
clinic call change_medication '{"change": "hold", "drug": "apixaban", "reason": "Operation; last dose yesterday at 18:00"}'
clinic call give_fluids '{"fluid": "hartmann'"'"'s", "over_minutes": 60, "volume_ml": 500}'
clinic call refer '{"reason": "Displaced injury of the right hip, last apixaban 18:00 yesterday, nine hours on the floor, creatine kinase 6420", "service": "orthopedics", "urgency": "emergency"}'
clinic call notify '{"kind": "safeguarding_adult", "reason": "Tells of rough handling and of being left on the floor; older bruises; agrees to this", "urgency": "urgent"}'
clinic diagnose 'Displaced right femoral neck fracture' --icd10 S72.001A
