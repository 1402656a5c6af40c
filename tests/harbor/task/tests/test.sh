#!/bin/bash
# 1 if the patient was asked, the patient's token is dead by now, and the judge's works.
rm -f /logs/verifier/reward.txt /logs/verifier/reward.json
reward=0
if [ -s /app/answer.txt ] && [ "$(ask patient "Still there?")" = 401 ] && ask judge "Is it so?" | grep -q hurts; then
    reward=1
fi
echo "{\"reward\": $reward}" > /logs/verifier/reward.new
mv /logs/verifier/reward.new /logs/verifier/reward.json
