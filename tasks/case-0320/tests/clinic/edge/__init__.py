"""The edge of the clinic: where the engine meets environment, files, sockets and other people's servers.

Owns everything that reads a clock or talks to somebody: root's settings, one chat
call, the ledger on disk, the service and its command, and the verifier. The rules
stay in the rooms above, which know none of it. Standard library alone, as they are:
these files are copied into every task as well.
"""
