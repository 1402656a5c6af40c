"""The journey of one model call: authenticate, authorize, admit, forward, record, settle.

`journey.py` shows the whole way on one page; each step has a file of its name.
No HTTP here: the gateway brings requests in and carries answers out.
"""
