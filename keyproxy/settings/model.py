"""The settings themselves: one field, one environment variable, one row in docs/settings.md.

Owns names, units, defaults, bounds and the refusals that need nothing but the
settings. Must not read the environment or a file: `Settings()` is the defaults,
`loading.load()` is what an operator set. Read by `keyproxy serve` and by tests.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from keyproxy.settings import addresses
from keyproxy.settings.paths import expanded, state_directory

HostPort = Annotated[str, AfterValidator(addresses.normal_host_port)]
BaseUrl = Annotated[str, AfterValidator(addresses.normal_base_url)]
UserPath = Annotated[Path, AfterValidator(expanded)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1024, le=1024**3)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class DoorLimits(_Group):
    """What a stranger may cost before a token is recognised, and how large a request may be."""

    body_max_bytes: Bytes = Field(default=1024**2, description="Largest request body, in bytes; larger is 413.")
    header_deadline_seconds: Seconds = Field(default=10, description="Time for a complete request head to arrive.")
    body_deadline_seconds: Seconds = Field(default=30, description="Time for a complete request body to arrive.")
    body_min_bytes_per_second: Count = Field(
        default=1024, description="Slowest request body, in bytes per second; slower is 408."
    )
    connections_per_source: Count = Field(default=512, description="Connections that one source address may hold open.")
    unrecognised_per_second: Count = Field(
        default=20, description="Requests per second and source address that end before a token is recognised."
    )
    unrecognised_burst: Count = Field(
        default=200, description="Burst of such requests; over it only they are answered with 429."
    )


class PoolLimits(_Group):
    """The connections to the provider, and the queue before them."""

    connections: Count = Field(default=1000, description="Connections to the upstream at once.")
    connect_timeout_seconds: Seconds = Field(
        default=10, description="Time for a connection to the upstream, TLS included."
    )
    queue_length: int = Field(
        default=1000,
        ge=0,
        le=1_000_000,
        description="Requests that may wait for a connection; more are refused with 503.",
    )
    queue_wait_seconds: Seconds = Field(default=10, description="Longest wait in that queue, then 503.")


class RoleLimits(_Group):
    """How long a role waits for the provider, and whether its calls are tried again."""

    first_byte_timeout_seconds: Seconds = Field(
        default=120, description="Time for the first byte of the upstream's answer."
    )
    idle_timeout_seconds: Seconds = Field(default=60, description="Longest silence within an answer.")
    total_timeout_seconds: Seconds = Field(default=900, description="Longest call in all: a far backstop.")
    retry_attempts: int = Field(
        default=0,
        ge=0,
        le=10,
        description="Repeats of a failed call, before the first byte of an answer only; 0 is off.",
    )


class Retry(_Group):
    """The pause between attempts, where a role's retries are on."""

    base_seconds: Seconds = Field(
        default=0.5, description="Mean scale of the first pause; it doubles, with full jitter."
    )
    cap_seconds: Seconds = Field(default=10, description="Longest pause; a longer `Retry-After` is passed on instead.")


class Replay(_Group):
    """Answers that are kept in memory for an SDK that repeats its request."""

    ttl_seconds: Seconds = Field(default=300, description="Time that a complete answer is kept for a repeat.")
    max_bytes: int = Field(
        default=64 * 1024**2, ge=0, le=16 * 1024**3, description="Memory for kept answers, in bytes."
    )


class RelayLimits(_Group):
    """Bounds on what comes back, and what happens when the client has left."""

    event_max_bytes: Bytes = Field(default=4 * 1024**2, description="Largest SSE event, in bytes; larger is broken.")
    answer_max_bytes: Bytes = Field(
        default=16 * 1024**2, description="Largest unary answer, in bytes; larger is broken."
    )
    client_gone_drain_seconds: Seconds = Field(
        default=0.5, description="Time for which an abandoned answer is still read for its usage."
    )
    client_gone_drains: int = Field(
        default=64, ge=0, le=1_000_000, description="Abandoned answers that are read at once."
    )


class Sealed(_Group):
    """Who plays in sealed consultations: a model through this gateway, or rules without one."""

    patient: Literal["model", "rules"] = Field(default="model", description="Who gives the patient words.")
    judge: Literal["model", "rules"] = Field(default="model", description="Who judges what was asked.")


class Settings(BaseSettings):
    """Everything that an operator can set. Built by `loading.load()`; in tests directly."""

    model_config = SettingsConfigDict(
        env_prefix="KEYPROXY_",
        env_nested_delimiter="__",
        env_ignore_empty=True,  # compose files pass ${NAME:-} for what is not set
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # a key pasted into the wrong setting must not be printed
    )

    config: UserPath | None = Field(default=None, description="The TOML file that holds settings.")
    state_dir: Annotated[UserPath, AfterValidator(Path.absolute)] = Field(
        default_factory=state_directory,
        description="Directory of the ledger, the record and the control socket. Not in the file: "
        "every command finds it by this one name.",
    )

    listen: HostPort = Field(default="127.0.0.1:8788", description="Address of the data plane, which containers reach.")
    ops_listen: HostPort | None = Field(
        default=None, description="Address of metrics and health, without credential; off unless set."
    )
    admin_listen: HostPort | None = Field(
        default=None, description="TCP address of the control plane beside its unix socket; needs an admin token."
    )
    admin_token: SecretStr | None = Field(default=None, description="Credential of the TCP control plane.")
    admin_token_file: UserPath | None = Field(default=None, description="File that holds the admin token.")
    tls_cert: UserPath | None = Field(default=None, description="PEM file of the data plane's certificate chain.")
    tls_key: UserPath | None = Field(default=None, description="PEM file of the certificate's private key.")

    openai_api_key_file: UserPath | None = Field(default=None, description="File that holds the provider's key.")
    upstream_base_url: BaseUrl = Field(
        default="https://api.openai.com/v1",
        description="The provider's base URL; `OPENAI_BASE_URL` is honoured as well.",
    )
    allow_plain_upstream: bool = Field(default=False, description="Allow an http upstream that is not on this machine.")
    model: str = Field(
        default="gpt-5.4-mini", min_length=1, max_length=200, description="Model of a grant that names none."
    )
    model_mismatch: Literal["rewrite", "refuse"] = Field(
        default="rewrite", description="What happens when a request names another model than its grant."
    )
    prices_file: UserPath | None = Field(default=None, description="TOML file that replaces rows of the price table.")
    profile: Literal["none", "leaderboard"] = Field(
        default="none", description="`leaderboard` refuses grants with an unlimited budget."
    )
    canary_tokens_file: UserPath | None = Field(
        default=None, description="File of decoy tokens, one a line; any use of one raises an alarm."
    )

    audit_durability: Literal["group", "strict"] = Field(
        default="group", description="`strict` syncs the record to disk before each call is forwarded."
    )
    audit_capture: Literal["digest", "full"] = Field(
        default="digest", description="Whether the record keeps digests of bodies alone, or the bodies as well."
    )
    audit_sync_window_ms: int = Field(
        default=50, ge=1, le=1000, description="Longest time until written records are synced, in milliseconds."
    )
    audit_segment_bytes: int = Field(
        default=64 * 1024**2, ge=64 * 1024, le=1024**3, description="Size at which a new segment begins, in bytes."
    )

    tasks: str | None = Field(
        default=None, description="Folders of tasks for sealed consultations, separated by `:`; read again at SIGHUP."
    )

    drain_grace_seconds: Seconds = Field(default=30, description="Time for calls in flight to end at shutdown.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto` is console on a terminal and JSON lines elsewhere."
    )

    door: DoorLimits = DoorLimits()
    pool: PoolLimits = PoolLimits()
    patient: RoleLimits = RoleLimits()
    judge: RoleLimits = RoleLimits()
    retry: Retry = Retry()
    replay: Replay = Replay()
    relay: RelayLimits = RelayLimits()
    sealed: Sealed = Sealed()

    @property
    def task_folders(self) -> tuple[Path, ...]:
        return tuple(expanded(Path(part)) for part in (self.tasks or "").split(os.pathsep) if part)

    @classmethod
    def settings_customise_sources(cls, *_args: Any, **sources: Any) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed in: `loading.load()` merges the sources, because it must know each value's origin."""
        return (sources["init_settings"],)

    @model_validator(mode="after")
    def _pairs_are_whole(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set KEYPROXY_TLS_CERT and KEYPROXY_TLS_KEY, or neither")
        if self.admin_token is not None and self.admin_token_file is not None:
            raise ValueError("admin_token and admin_token_file are both set: keep KEYPROXY_ADMIN_TOKEN_FILE alone")
        if self.admin_listen is not None and self.admin_token is None and self.admin_token_file is None:
            raise ValueError("admin_listen needs a credential: set KEYPROXY_ADMIN_TOKEN_FILE, or leave it unset")
        return self

    @model_validator(mode="after")
    def _upstream_is_safe(self) -> Self:
        host, _ = addresses.url_host_port(self.upstream_base_url)
        plain = self.upstream_base_url.startswith("http:")
        if plain and not self.allow_plain_upstream and not addresses.is_loopback(host):
            raise ValueError(
                "upstream_base_url would carry the key in the clear: set KEYPROXY_UPSTREAM_BASE_URL to an https URL, "
                "or allow it with --allow-plain-upstream (KEYPROXY_ALLOW_PLAIN_UPSTREAM)"
            )
        for listener in filter(None, (self.listen, self.ops_listen, self.admin_listen)):
            if addresses.points_at_listener(self.upstream_base_url, listener):
                raise ValueError(
                    "upstream_base_url points at a listener of this gateway: set KEYPROXY_UPSTREAM_BASE_URL to the "
                    "provider's URL, or unset OPENAI_BASE_URL where it is meant for a client"
                )
        return self
