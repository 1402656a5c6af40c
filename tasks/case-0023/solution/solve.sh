#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did the pain start, and did it come on suddenly?'
clinic ask 'Did you get hit or kicked, or have any other injury?'
clinic ask --alone 'Just between us now: is there any pain in your testicles or groin?'
clinic ask --alone 'Have you ever had this kind of pain before?'
clinic ask --alone 'Are you sexually active? I ask because it changes what we look for.'
clinic ask 'Does it burn or sting when you pee?'
clinic ask --to companion 'When did he last eat or drink?'
clinic ask 'Are you allergic to any medicines?'
clinic call get_allergies '{}'
clinic call physical_exam '{"chaperone": true, "explained_and_consented": true, "system": "genital_male"}'
clinic call refer '{"reason": "High, transverse, very tender left testis for under four hours", "service": "urology", "urgency": "emergency"}'
clinic call prescribe '{"dose": 5, "dose_unit": "mg", "drug": "morphine sulfate", "frequency": "stat", "route": "iv"}'
clinic call perform_procedure '{"consent_documented": true, "procedure": "scrotal exploration", "side": "left", "urgency": "now"}'
clinic call set_disposition '{"level": "operating room", "nil_by_mouth": true}'
clinic diagnose 'Acute left testicular torsion' --icd10 N44.00
