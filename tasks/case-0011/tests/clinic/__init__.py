"""The clinic: the engine of one simulated consultation.

Owns the menu of what can be ordered, the tools and their schemas, the encounter
with its ledger, the simulated patient and its guards, the gates, the judge's
protocol and the verdict. It imports the standard library and itself, by relative
imports alone, since these same files are copied into a task's container and its
verifier. No model is called by the rules, a caller hands that in as a function;
`edge/` is where the world is met. It runs on Python 3.9, which containers may
still have.
"""
