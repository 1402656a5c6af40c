"""The gateway put together: what `serve` runs, and what tests run in their own process.

    startup    what is refused before anything opens, what is said when it has, and SIGHUP
    house      every room opened in order, and closed in the reverse
    sockets    the three listeners

Wiring alone: whoever looks for a rule finds it in the room that owns it.
"""
