#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'How much blood was it, and how many times?'
clinic ask 'Have your stools been black?'
clinic ask 'Do you drink alcohol, and when was your last drink?'
clinic ask 'Have you ever been told of a liver problem?'
clinic ask 'Have you taken ibuprofen, aspirin or other painkillers?'
clinic ask 'Are you on any blood thinners?'
clinic ask 'Are you allergic to anything?'
clinic call get_vitals '{}'
clinic call physical_exam '{"system": "abdomen"}'
clinic call order_lab '{"test": "full_blood_count", "urgency": "stat"}'
clinic call order_lab '{"test": "crossmatch", "urgency": "stat"}'
clinic call order_lab '{"test": "coagulation", "urgency": "stat"}'
clinic call get_allergies '{}'
clinic call prescribe '{"dose": 2, "dose_unit": "mg", "drug": "terlipressin", "frequency": "every_4h", "route": "iv"}'
clinic call prescribe '{"dose": 1, "dose_unit": "g", "drug": "ceftriaxone", "frequency": "once_daily", "route": "iv"}'
clinic call transfuse '{"product": "red_cells", "target_hemoglobin_g_l": 75, "units": 1}'
clinic call refer '{"reason": "Vomiting blood, airway to be secured before endoscopy", "service": "anaesthetics", "urgency": "emergency"}'
clinic call perform_procedure '{"consent_documented": true, "procedure": "endoscopic band ligation", "urgency": "now"}'
clinic diagnose 'Acute esophageal variceal hemorrhage' --icd10 I85.11
