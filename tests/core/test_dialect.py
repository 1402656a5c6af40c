"""Each model family gets the fields that it takes, and what could not be sent is named."""

import pytest

from keyproxy.core.dialect import pins
from keyproxy.core.grant import Sampling

NONE = Sampling(temperature="0.7")


@pytest.mark.parametrize(
    ("model", "sampling", "cap", "sent", "unsent"),
    [
        pytest.param(
            "gpt-5.4-mini",
            NONE,
            "max_completion_tokens",
            {"temperature": 0.7, "reasoning_effort": "none"},
            (),
            id="gpt-5-without-reasoning",
        ),
        pytest.param(
            "gpt-5.4",
            Sampling(temperature="0", reasoning_effort="low", verbosity="low"),
            "max_completion_tokens",
            {"reasoning_effort": "low", "verbosity": "low"},
            ("temperature",),
            id="gpt-5-with-reasoning-takes-no-temperature",
        ),
        pytest.param(
            "gpt-5.4-mini-2026-03-17",
            Sampling(temperature="0", reasoning_effort="extreme"),
            "max_completion_tokens",
            {},
            ("reasoning_effort", "temperature"),
            id="an-effort-that-does-not-exist",
        ),
        pytest.param(
            "o4-mini",
            Sampling(reasoning_effort="high"),
            "max_completion_tokens",
            {"reasoning_effort": "high"},
            ("temperature",),
            id="o-series",
        ),
        pytest.param(
            "o3", NONE, "max_completion_tokens", {}, ("reasoning_effort", "temperature"), id="o-series-always-reasons"
        ),
        pytest.param("gpt-4.1-mini", NONE, "max_tokens", {"temperature": 0.7}, (), id="gpt-4"),
        pytest.param("smollm2", NONE, "max_tokens", {"temperature": 0.7}, (), id="local"),
        pytest.param("olmo-2", NONE, "max_tokens", {"temperature": 0.7}, (), id="an-o-that-is-no-o-series"),
        pytest.param(
            "local",
            Sampling(temperature="0", reasoning_effort="low", verbosity="high"),
            "max_tokens",
            {"temperature": 0.0},
            ("reasoning_effort", "verbosity"),
            id="local-has-no-reasoning-fields",
        ),
    ],
)
def test_a_family_gets_what_it_takes(
    model: str, sampling: Sampling, cap: str, sent: dict[str, object], unsent: tuple[str, ...]
) -> None:
    result = pins(model, sampling)
    assert (result.output_cap, result.sampling, result.unsent) == (cap, sent, unsent)


@pytest.mark.parametrize("model", ["gpt-5.4-mini", "gpt-6-astra", "o3", "gpt-4o", "smollm2", ""])
@pytest.mark.parametrize("effort", ["none", "low", "nonsense"])
@pytest.mark.parametrize("verbosity", [None, "low"])
def test_all_of_a_grant_s_sampling_is_sent_or_named(model: str, effort: str, verbosity: str | None) -> None:
    result = pins(model, Sampling("0.3", effort, verbosity))
    accounted = set(result.sampling) | set(result.unsent)
    wanted = {"temperature", "reasoning_effort", "verbosity"}
    wanted -= set() if verbosity else {"verbosity"}
    if effort == "none" and result.output_cap == "max_tokens":  # such a model does not reason
        wanted -= {"reasoning_effort"}
    assert accounted == wanted
    assert not set(result.sampling) & set(result.unsent)
