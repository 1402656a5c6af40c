"""The record: an append-only chain that a stranger can check.

    writer      seals records, signs checkpoints, survives a crash
    repair      what a start finds at the end of the chain
    segments    the files and how they are read, also while they grow
    keys        the Ed25519 key of the checkpoints
    checkpoint  what is signed, and what a signature proves
    walk        follows the links and says where they do not fit
    verify      names every fault with a code of its own
    findings    the codes, and the report
    export      the whole record, or one trial's, for someone else
    receipts    a trial's receipt, sealed with the same key and opened again
    bodies      request and answer bodies in full, where they are kept

Synchronous and single-threaded: one thread owns the writer. Nothing here forwards,
meters or decides; formats are in docs/audit-format.md.
"""
