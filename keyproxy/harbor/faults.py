"""What goes wrong between Harbor and a gateway, under names that Harbor judges rightly.

Harbor (models/trial/error_policy.py) classes a failed trial by the *name* of its exception, and takes an unknown
name for a valid reward. So these bear names of its table: neither is graded, neither has a valid reward, and
only the first is worth a retry. Must not hold a token in a message. Raised by mixin, lives and place.
"""

from keyproxy.errors import KeyproxyError


class HealthcheckError(KeyproxyError):
    """The gateway does not answer, or not now. Harbor may try the trial again."""


class PermissionDeniedError(KeyproxyError):
    """The gateway or this integration refuses; the same trial again would be refused again."""
