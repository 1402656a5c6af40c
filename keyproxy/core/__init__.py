"""Pure rules and values: no sockets, no clock, no disk. Everything here is a function of its arguments.

who           token, grant
what passes   strict_json, policy/, dialect, headers, upstream_error, sse
what it costs usage, pricing, budget
what is kept  exchange (the states of a call), moment, canonical, chain, value
"""
