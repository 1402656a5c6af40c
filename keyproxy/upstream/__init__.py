"""The way to the provider.

client                            the one HTTP client: one constant address, our key
local_model, local_model_server   a small real model on this machine, for the demo and for tests
"""
