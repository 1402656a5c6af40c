#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did the trouble with your memory start, and do you ever get lost?'
clinic ask 'And how are your spirits, is there anything that you still enjoy?'
clinic ask 'Are you sleeping through?'
clinic ask 'Has your weight changed, do you feel like eating?'
clinic ask 'Who do you talk to, and what keeps you going?'
clinic ask 'How much alcohol do you drink of an evening?'
clinic ask 'Does life still feel worth living, or do you sometimes think about suicide?'
clinic ask 'I ask once more, because many in your place feel so and find it hard to say: have you thought how you would do it, with something in the house?'
clinic call mental_health_screen '{"about": "thoughts of ending his life, medicines at home", "assessment": "suicide_risk"}'
clinic call mental_health_screen '{"instrument": "phq9"}'
clinic call mental_health_screen '{"instrument": "moca"}'
clinic call order_lab '{"test": "tsh", "urgency": "routine"}'
clinic call prescribe '{"dose": 15, "dose_unit": "mg", "drug": "mirtazapine", "duration_days": 7, "frequency": "at_night", "route": "oral"}'
clinic call change_medication '{"change": "stop", "drug": "zopiclone", "reason": "No effect, and half of the supply is still in the house"}'
clinic call give_advice '{"text": "Your daughter takes your wife'"'"'s tablets and the sleeping tablets to the pharmacy today. You have the number of the crisis line, day and night.", "topic": "means_restriction"}'
clinic call refer '{"reason": "Severe episode, thoughts of suicide with a method in mind, lives alone; to be seen today", "service": "home treatment team", "urgency": "urgent"}'
clinic call schedule_follow_up '{"purpose": "Safety, effect of the tablet, weight", "with_whom": "general practice", "within_days": 3}'
clinic diagnose 'Severe major depressive episode' --icd10 F32.2
