"""The data set: cases as people write them, and the task folders that are rendered from them.

Owns the form of case.toml, its strict reading, the documents that the engine is
given, the rendered tree with registry and splits, and the checks on all of it. It
runs no trial and serves nobody; `cli/tasks.py` and the tests call it. Of the other
rooms it knows the clinic's engine alone.
"""
