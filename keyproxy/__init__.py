"""keyproxy: a gateway on the host that holds the provider's key, so that no benchmark trial has to.

Owns nothing but the version. Importing it must stay free: every command does.
"""

__version__ = "0.1.0"
