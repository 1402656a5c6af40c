#!/bin/bash
# One good way through this consultation. Rendered from case.toml.
set -euo pipefail

clinic ask 'When did the breathlessness start, and was it sudden?'
clinic ask 'Have you had any pain, tightness or heaviness in your chest, arms or jaw?'
clinic ask 'Does walking or any other effort bring it on?'
clinic ask 'Do you have a cough, phlegm or a wheeze?'
clinic ask 'Have you or your family had heart disease?'
clinic ask 'Which medicines do you take every day?'
clinic ask 'Have you ever had a stomach ulcer or any bleeding?'
clinic ask 'Are you allergic to anything?'
clinic call get_vitals '{}'
clinic call ecg '{"leads": "standard"}'
clinic call order_lab '{"test": "troponin", "urgency": "stat"}'
clinic call order_lab '{"test": "basic_metabolic_panel", "urgency": "stat"}'
clinic call get_allergies '{}'
clinic call prescribe '{"dose": 300, "dose_unit": "mg", "drug": "aspirin", "frequency": "stat", "route": "oral"}'
clinic call reassess '{"after_minutes": 60}'
clinic call order_lab '{"test": "hs troponin", "urgency": "stat"}'
clinic call prescribe '{"dose": 2.5, "dose_unit": "mg", "drug": "fondaparinux", "frequency": "once_daily", "route": "sc"}'
clinic call refer '{"reason": "Lateral ST depression, troponin 148 then 196 ng/L, breathless", "service": "cardiology", "urgency": "urgent"}'
clinic call set_disposition '{"level": "coronary_unit", "monitoring": ["cardiac_monitor"]}'
clinic diagnose NSTEMI --icd10 I21.4
