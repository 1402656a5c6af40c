#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did this begin, and was there any fall or injury?'
clinic ask 'Does the pain go down your legs, or is there any weakness or numbness in them?'
clinic ask 'Any change in your bladder or bowels, or numbness between your legs?'
clinic ask 'Have you ever had cancer, or lost weight without trying?'
clinic ask 'Have you had a fever or shivering?'
clinic ask 'Is the pain there at night as well?'
clinic ask 'Many people with a bad back are afraid of something. What worries you about it?'
clinic ask 'Have you ever had an ulcer, kidney trouble or asthma?'
clinic call get_allergies '{}'
clinic call physical_exam '{"system": "spine"}'
clinic call physical_exam '{"system": "neuro_motor"}'
clinic call prescribe '{"dose": 400, "dose_unit": "mg", "drug": "ibuprofen", "duration_days": 7, "frequency": "three_times_daily", "route": "oral"}'
clinic call give_advice '{"text": "I found nothing that looks like your father'"'"'s illness. Keep moving, walk a little more every day, go back to your desk when you can; lying on the sofa slows it down.", "topic": "activity_and_exercise"}'
clinic call give_advice '{"text": "Come at once if you cannot hold or pass urine, if you go numb between the legs, if a leg turns weak, or if you get a fever. Come back if it is no better in six weeks.", "topic": "return_precautions"}'
clinic call set_disposition '{"level": "home"}'
clinic diagnose 'Acute mechanical low back pain' --icd10 M54.59
