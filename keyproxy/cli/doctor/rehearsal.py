"""--upstream: one real call for each role, through the running gateway and with its key.

Owns the smallest call that costs next to nothing: a token of one request and 16
output tokens, revoked again whatever happened. Must not print the token. Called by
examination.
"""

import time
from typing import Any, Final

from keyproxy.cli.doctor.asking import Heard, ask
from keyproxy.cli.doctor.verdict import Host, Running, Verdict, failed, ok
from keyproxy.store import prices

ROLES: Final = ("patient", "judge")
_TTL_SECONDS: Final = 60
_LIMITS: Final = {
    "requests": 1,
    "tokens": 2_000,
    "concurrency": 1,
    "requests_per_minute": 1,
    "output_tokens_per_request": 16,
}
_MOST_MICROUSD: Final = 1_000_000
_QUESTION: Final = {"messages": [{"role": "user", "content": "Answer with the one word: ready"}]}


def rehearse(host: Host, running: Running, role: str) -> Verdict:
    """Mint, call, revoke. Raises KeyproxyError when the gateway itself does not play along."""
    minted = running.control.mint(
        {
            "trial": "doctor",
            "role": role,
            "limits": _limits(host, running),
            "ttl_seconds": _TTL_SECONDS,
        }
    )
    started = time.monotonic()
    try:
        heard = ask(
            running.data_url,
            "POST",
            "/v1/chat/completions",
            token=minted["token"],
            body=_QUESTION,
            certificate=host.settings.tls_cert,
            timeout_seconds=_TTL_SECONDS,
        )
    finally:
        running.control.revoke(minted["id"])
    return _judged(heard, str(minted["model"]), time.monotonic() - started)


def _judged(heard: Heard, model: str, seconds: float) -> Verdict:
    if heard.status == 200:
        return ok(f"200 from {model} in {seconds:.1f} s")
    said = heard.error.get("message") or "nothing readable"
    request_id = heard.headers.get("x-request-id", "unknown")
    return failed(f"{heard.status} for {model}: {said}", f"run keyproxy audit show {request_id}")


def _limits(host: Host, running: Running) -> dict[str, Any]:
    """The leaderboard profile wants every limit named; one of money needs a price."""
    price = prices.load(host.settings.prices_file).find(str(running.status["model"]))
    return {**_LIMITS, "microusd": _MOST_MICROUSD} if price else dict(_LIMITS)
