"""The child process of the embedded provider: llama.cpp's server around one small model.

Owns nothing but its own life: it reads one JSON line (`gguf`, `api_key`, `name`)
from standard input, prints its origin once the model is loaded, and ends when
standard input closes, so that no crash of its parent orphans it. Must not be
imported by the gateway: it holds 100 MB of native code. Started by local_model.
"""

import json
import os
import sys
from typing import Final

import xllamacpp

CONTEXT_TOKENS_PER_SLOT: Final = 2048
SLOTS: Final = 2


def params_of(order: dict[str, str]) -> xllamacpp.CommonParams:
    """Only what differs from llama.cpp's defaults: loopback, one key, no user interface, no downloads."""
    params = xllamacpp.CommonParams()
    params.model.path = order["gguf"]
    params.model_alias = {order["name"]}
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CONTEXT_TOKENS_PER_SLOT
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [order["api_key"]]
    params.cors_origins = ""
    params.ui = False
    params.endpoint_slots = False
    params.offline = True
    # The first answer warms the model just as well, and comes right after.
    params.warmup = False
    return params


def main() -> None:
    server = xllamacpp.Server(params_of(json.loads(sys.stdin.buffer.readline())))
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    # llama.cpp joins its threads in a destructor; nothing of theirs is worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    main()
