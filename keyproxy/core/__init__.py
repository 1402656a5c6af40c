"""Pure rules and values: no sockets, no clock, no disk. Everything here is a function of its arguments."""
