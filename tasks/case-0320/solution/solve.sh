#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did this start, and did it come on suddenly?'
clinic ask 'Is he passing a lot of urine, or very thirsty?'
clinic ask 'How are his bowels?'
clinic ask 'What medicines does he take every day, and has any dose changed?'
clinic ask 'Do you give him any supplements or vitamins from the shop?'
clinic ask 'Has he complained of headache, had fits, or weakness on one side?'
clinic ask 'Forgive me for asking now: has he told you what he would want if he became very ill?'
clinic call physical_exam '{"system": "consciousness"}'
clinic call physical_exam '{"system": "cardiovascular"}'
clinic call order_lab '{"test": "bone_profile", "urgency": "stat"}'
clinic call give_fluids '{"fluid": "normal saline", "over_minutes": 240, "volume_ml": 1000}'
clinic call order_lab '{"test": "pth", "urgency": "urgent"}'
clinic call change_medication '{"change": "stop", "drug": "indapamide", "reason": "raises calcium, and he is dry"}'
clinic call change_medication '{"change": "stop", "drug": "calcium and vitamin d", "reason": "bought by his wife"}'
clinic call prescribe '{"dose": 3, "dose_unit": "mg", "drug": "zoledronic acid", "frequency": "stat", "over_minutes": 30, "route": "iv"}'
clinic call refer '{"reason": "Adjusted calcium 3.34, PTH suppressed, growing tumour; wishes on record", "service": "acute_oncology", "urgency": "urgent"}'
clinic diagnose 'Hypercalcaemia of malignancy with acute kidney injury' --icd10 E83.52
