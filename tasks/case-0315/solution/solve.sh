#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'On which days of your cycle do you get the pain, before the bleeding or only with it?'
clinic ask 'How much does this get in the way at work and at home, do you miss days?'
clinic ask 'Do you have trouble with your bowels at that time, pain when you go, or bloating?'
clinic ask 'This is a question that I ask everybody with this pain: is sex ever painful for you?'
clinic ask 'Do you ever have spotting on other days?'
clinic ask 'Are you hoping for a baby, or are you using contraception at the moment?'
clinic ask 'What have you tried for the pain, and does it help?'
clinic ask 'Are you allergic to any medicine?'
clinic call physical_exam '{"chaperone": true, "explained_and_consented": true, "system": "pelvic"}'
clinic call point_of_care_test '{"specimen": "urine", "test": "pregnancy test"}'
clinic call order_imaging '{"approach": "transvaginal", "body_site": "uterus", "contrast": "none", "modality": "ultrasound", "pregnancy_checked": true}'
clinic call prescribe '{"dose": 250, "dose_unit": "mg", "drug": "naproxen", "duration_days": 7, "frequency": "three_times_daily", "indication": "From the first day of pain in each cycle, with food; stop if the period is late", "route": "oral"}'
clinic call refer '{"reason": "Cyclical pain, deep pain with sex, tender knot behind the cervix, wishes to conceive, scan normal", "service": "gynecology", "urgency": "soon"}'
clinic call give_advice '{"text": "A normal scan does not rule this out. As you wish to become pregnant we leave out hormones for now; the specialist will talk through the options.", "topic": "diagnosis_and_plan"}'
clinic call schedule_follow_up '{"purpose": "Effect of the painkiller, appointment with the specialist", "with_whom": "general practice", "within_days": 90}'
clinic diagnose Endometriosis --icd10 N80.9
