#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did this begin, and was it sudden?'
clinic ask 'Does your neck or your head hurt?'
clinic ask 'Have you had any injury, or been to a chiropractor?'
clinic ask 'Do you choke when you swallow, and is any part of you numb?'
clinic ask 'Has your hearing changed, or is there ringing?'
clinic ask 'Do you take any medicines or blood thinners, and are you allergic to anything?'
clinic call physical_exam '{"system": "cranial nerves"}'
clinic call physical_exam '{"system": "gait"}'
clinic call physical_exam '{"system": "neuro_sensory"}'
clinic call activate_team '{"reason": "Crossed sensory loss, palate palsy and ataxia for 14 hours", "team": "stroke"}'
clinic call perform_procedure '{"procedure": "bedside swallow test", "urgency": "now"}'
clinic call order_imaging '{"body_site": "head_and_neck", "contrast": "iv", "modality": "ct_angiography", "urgency": "stat"}'
clinic call order_imaging '{"body_site": "brain", "contrast": "none", "modality": "mri", "urgency": "stat"}'
clinic call prescribe '{"dose": 300, "dose_unit": "mg", "drug": "aspirin", "frequency": "once_daily", "route": "rectal"}'
clinic call set_disposition '{"level": "stroke_unit", "monitoring": ["neuro_observations", "cardiac_monitor"], "nil_by_mouth": true}'
clinic diagnose 'Right lateral medullary infarction (Wallenberg syndrome) due to right vertebral artery dissection' --icd10 I63.211
