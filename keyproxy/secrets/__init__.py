"""Secrets: where the provider's key is read, who may see it, and who keeps it out of every output.

Must not log; no message of it holds a secret. Custody is `keyproxy serve`'s;
every sink (logs, errors, answers, records) is guarded by the one `Scrubber`.
"""

from keyproxy.secrets.custody import Custody, KeySource, admin_token, key_source
from keyproxy.secrets.process import make_undumpable
from keyproxy.secrets.scrubber import Scrubber
from keyproxy.secrets.values import ApiKey, Secret

__all__ = ["ApiKey", "Custody", "KeySource", "Scrubber", "Secret", "admin_token", "key_source", "make_undumpable"]
