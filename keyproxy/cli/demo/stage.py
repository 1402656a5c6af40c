"""The stage: provider, gateway and the two wiretaps, in a folder of their own.

Owns setting up and taking down, and the few moves that every chapter needs. The
chapters themselves are in story.py.

    OpenAI SDK -> wiretap -> keyproxy serve -> wiretap -> local model
                                          or -> OpenAI, without a wiretap: that line is TLS
"""

import json
import os
import re
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import openai

from keyproxy.audit.segments import segments
from keyproxy.cli.demo.gateway_process import GatewayProcess, start_gateway
from keyproxy.cli.demo.narrator import Narrator
from keyproxy.cli.demo.wiretap import Wiretap
from keyproxy.upstream.local_model import MODEL_NAME, LocalModel

OPENAI_MODEL: Final = "gpt-5.4-mini"
OUTPUT_TOKENS: Final = 24
_MODEL_NAMED: Final = re.compile(rb'"model":\s*"([^"]*)"')

# The local model costs nothing. It borrows the real one's price, so that the ledger has something to count.
_LOCAL_PRICES: Final = f"""\
as_of = 2026-11-29
source = "the demo: gpt-5.4-mini's prices, borrowed for a model that runs here for nothing"

[models."{MODEL_NAME}"]
default = {{ input = 750_000, cached_input = 75_000, output = 4_500_000 }}
"""


@dataclass(frozen=True, slots=True)
class Provider:
    """Where the gateway sends what it admits. `tap` is None where the line is encrypted."""

    base_url: str
    model: str
    key: str
    tap: Wiretap | None

    @property
    def origin(self) -> str:
        url = urlsplit(self.base_url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that a chapter may touch."""

    folder: Path
    provider: Provider
    gateway: GatewayProcess
    client_tap: Wiretap

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    def mint(self, trial: str, **limits: int) -> dict[str, Any]:
        """A patient's token for `trial`, with the demo's output cap."""
        limits = {"output_tokens_per_request": OUTPUT_TOKENS, **limits}
        return self.gateway.control.mint({"trial": trial, "role": "patient", "limits": limits})

    def sdk(self, token: str) -> openai.OpenAI:
        """The official SDK, as a benchmark would use it: a base URL and a token."""
        return openai.OpenAI(api_key=token, base_url=self.client_tap.base_url)

    def models_that_the_provider_saw(self) -> list[str]:
        """The model named in each request on the wire to the local model, oldest first."""
        if self.provider.tap is None:
            return []
        return [name.decode() for name in _MODEL_NAMED.findall(bytes(self.provider.tap.to_server))]

    def record(self) -> list[dict[str, Any]]:
        """The chain's records so far, read from the disk."""
        lines = (line for path in segments(self.state_dir) for line in path.read_bytes().splitlines())
        return [json.loads(line)["record"] for line in lines]

    def provider_trouble(self) -> str:
        """How the calls ended that the provider did not answer as it should; empty when there was none."""
        lines = (self.folder / "gateway.log").read_text(errors="replace").splitlines()
        calls = [json.loads(line) for line in lines if '"exchange.finished"' in line]
        unwell = (call for call in calls if call["ending"] != "complete")
        troubled = Counter(", ".join(call["alarms"]) or call["ending"] for call in unwell)
        return "; ".join(f"{what} ({count} calls)" for what, count in troubled.items())

    def requests_sent(self) -> int:
        """How often the SDK really asked, its own repeats included."""
        return bytes(self.client_tap.to_server).count(b"POST /v1/chat/completions ")


@contextmanager
def set_up(narrator: Narrator, keep: bool) -> Iterator[Stage]:
    """Build the stage, and take it down in the opposite order. `keep` leaves the folder."""
    with ExitStack() as last:
        folder = Path(tempfile.mkdtemp(prefix="keyproxy-demo-"))
        if not keep:
            last.callback(shutil.rmtree, folder, ignore_errors=True)
        own_key = os.environ.get("OPENAI_API_KEY")
        provider = _openai(own_key) if own_key else _local(folder, narrator, last)
        gateway = _gateway(folder, provider, narrator)
        last.callback(gateway.stop)
        client_tap = last.enter_context(Wiretap(gateway.base_url))
        yield Stage(folder, provider, gateway, client_tap)


def _openai(key: str) -> Provider:
    return Provider(os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1", OPENAI_MODEL, key, None)


def _local(folder: Path, narrator: Narrator, last: ExitStack) -> Provider:
    # As long and as random as a real one, and the model server refuses any other: else a search
    # for it that finds nothing would mean nothing.
    key = f"sk-proj-{secrets.token_urlsafe(117)}"
    model = LocalModel.start(
        key, folder / "model.log", lambda elapsed_seconds: narrator.waiting("loading the model", elapsed_seconds)
    )
    last.enter_context(model)
    tap = last.enter_context(Wiretap(model.base_url))
    return Provider(tap.base_url, MODEL_NAME, key, tap)


def _gateway(folder: Path, provider: Provider, narrator: Narrator) -> GatewayProcess:
    settings = {
        "OPENAI_API_KEY": provider.key,  # no file: it may be the user's own, and a folder outlives a SIGKILL
        "KEYPROXY_MODEL": provider.model,
        "OPENAI_BASE_URL": provider.base_url,
    }
    if provider.tap is not None:
        prices = folder / "prices.toml"
        prices.write_text(_LOCAL_PRICES)
        settings["KEYPROXY_PRICES_FILE"] = str(prices)
    return start_gateway(
        folder / "state",
        folder / "gateway.log",
        settings,
        lambda elapsed_seconds: narrator.waiting("starting the gateway", elapsed_seconds),
    )
