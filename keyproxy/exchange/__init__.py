"""The journey of one model call: authenticate, authorize, admit, forward, record, settle.

    the way       journey: authenticate, authorize, admit, forward (reach: there, tap: back), settle;
                  drains, when the client has left
    one exchange  course (what is noted under way), reply, refusals, record (its lines in the chain)
    a trial       trials (its life), trial_tokens (what it hands out and ends), underway (its calls,
                  which can be cut), testimony (what the record says of it, for its receipt)
    the books     desk (hands over) and books (writes), recovery and recovery_trials (at a start)
    shared state  registry (grants), replays (repeats), turnstile and retries (before the provider),
                  canaries, watch (what the operator sees)

`journey.py` shows the whole way on one page. No HTTP here: the gateway brings requests
in and carries answers out.
"""
