"""The data plane: the listener that hostile containers reach.

    server     connections: how many, how long a head may take, how a parser's refusal looks
    door       the order of checks before a request is believed: route, method, credential
    body       reading what is left, within its bounds
    calls      what each route of a token does
    trial_calls  what each route of a harness does
    relay      a stream's way out
    answers    our replies as HTTP

Parses, asks exchange/, relays. Decides nothing about money or prompts.
"""
