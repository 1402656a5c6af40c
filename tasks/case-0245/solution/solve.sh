#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'Have you noticed anything wrong with your eyes, like flashes or blurring?'
clinic ask 'Do you have pain anywhere in your upper belly?'
clinic ask 'Are you feeling the baby move as much as usual?'
clinic ask 'Have you had any bleeding, even a little?'
clinic ask 'You had migraines years ago: does this one feel similar?'
clinic ask 'Did anyone ever tell you that your blood pressure was high?'
clinic ask 'Which medicines have you been taking, including painkillers for this?'
clinic ask 'Is there any drug that you are allergic to?'
clinic call get_vitals '{}'
clinic call point_of_care_test '{"specimen": "urine", "test": "urine dipstick"}'
clinic call activate_team '{"reason": "34 weeks, 172/114, protein 3+, headache, flashing lights, epigastric pain", "team": "obstetric_emergency"}'
clinic call prescribe '{"dose": 4, "dose_unit": "g", "drug": "magnesium sulphate", "frequency": "stat", "over_minutes": 15, "part": "loading", "route": "iv"}'
clinic call prescribe '{"dose": 1000, "dose_unit": "mg/h", "drug": "magnesium sulphate", "frequency": "continuous", "route": "iv"}'
clinic call prescribe '{"dose": 20, "dose_unit": "mg", "drug": "labetalol", "frequency": "stat", "route": "iv"}'
clinic call order_lab '{"test": "cbc", "urgency": "stat"}'
clinic call order_lab '{"test": "comprehensive_metabolic_panel", "urgency": "stat"}'
clinic call order_study '{"study": "ctg", "urgency": "stat"}'
clinic call set_disposition '{"level": "labour ward", "monitoring": ["vital_signs", "urine_output", "fetal"], "observation": "one_to_one"}'
clinic diagnose 'Preeclampsia with severe features at 34 weeks' --icd10 O14.13
