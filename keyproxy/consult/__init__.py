"""The host's side of a consultation: persona, results and scoring key never leave it.

Owns the task documents that the gateway was given, one session a trial, the model
calls that patient and judge make through the exchange, and the verdict. It must not
speak HTTP; the gateway's consult calls do. The rules are the clinic's, the same files
that other tasks carry in their containers.
"""
