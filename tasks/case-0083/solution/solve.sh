#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask --alone 'I'"'"'d like to see you by yourself for a moment. Sometimes people feel this bad after they have taken something: have you taken anything, tablets for example?'
clinic ask --alone 'Thank you for telling me. What time was it when you took them?'
clinic ask --alone 'How many tablets were there, and of what strength?'
clinic ask --alone 'Were they all in one go?'
clinic ask --alone 'Was there anything else, alcohol or other pills?'
clinic ask --alone 'What was going through your mind, did you want to die?'
clinic ask --alone 'And how is it right now, are there still thoughts of harming yourself?'
clinic ask --alone 'Have you ever hurt yourself in the past, or had help with your mental health?'
clinic call order_lab '{"hours_after": 18, "test": "paracetamol level", "timing": "hours_after_ingestion", "urgency": "stat"}'
clinic call prescribe '{"dose": 150, "dose_unit": "mg/kg", "drug": "n-acetylcysteine", "frequency": "stat", "over_minutes": 60, "part": "loading", "route": "iv"}'
clinic call order_lab '{"test": "liver_panel", "urgency": "stat"}'
clinic call order_lab '{"test": "clotting", "urgency": "stat"}'
clinic call mental_health_screen '{"about": "tablets taken last night", "assessment": "suicide_risk"}'
clinic call refer '{"reason": "Self-poisoning last night, full psychosocial assessment while she is treated", "service": "liaison psychiatry", "urgency": "urgent"}'
clinic call give_advice '{"text": "We write a safety plan together: warning signs, your sister as the first to call, the crisis line, and no tablets kept at home.", "topic": "self_harm_safety"}'
clinic call set_disposition '{"legal_basis": "voluntary", "level": "admit", "monitoring": ["vital_signs", "urine_output"], "observation": "continuous"}'
clinic diagnose 'Paracetamol poisoning, intentional, with early liver injury' --icd10 T39.1X2A
