"""The operator's side: who may ask, what is told, and that a revocation is what it says."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from support.answers import unary
from support.inprocess import Gateway, running_gateway
from support.raw import RawConnection, RawResponse, request_bytes
from support.upstream import Upstream

from keyproxy.audit.verify import verify
from keyproxy.audit.writer import Writer
from keyproxy.client import ControlClient, DeniedError, NotFoundError, UnavailableError
from keyproxy.core.chain import Record
from keyproxy.secrets import Secret

ADMIN = "operator-" + "credential-1"


async def on_socket(gateway: Gateway, request: bytes) -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_unix_connection(gateway.state_dir / "admin.sock")
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    body = json.loads(await reader.readexactly(length))
    writer.close()
    return int(head.split(b" ")[1]), body


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("GET", "/v1/files", 404, "not_found"),
        ("GET", "/metrics", 404, "not_found"),
        ("DELETE", "/v1/tokens", 405, "method_not_allowed"),
        ("GET", "/v1/tokens/kp_paaaaaaaaaaaa", 404, "not_found"),
        ("POST", "/v1/tokens/kp_paaaaaaaaaaaa/revoke", 404, "not_found"),
    ],
)
async def test_every_refusal_has_the_one_shape(
    method: str, target: str, status: int, code: str, gateway: Gateway
) -> None:
    found, body = await on_socket(
        gateway, request_bytes(method=method, target=target, headers=[("Content-Length", "0")])
    )
    assert found == status
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == code


async def test_a_body_that_is_no_json_is_422(gateway: Gateway) -> None:
    status, body = await on_socket(gateway, request_bytes(target="/v1/tokens", body=b"{"))
    assert (status, body["error"]["code"]) == (422, "invalid_value")


async def test_the_socket_is_for_its_owner_alone(gateway: Gateway) -> None:
    assert stat.S_IMODE((gateway.state_dir / "admin.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(gateway.state_dir.stat().st_mode) == 0o700


async def test_a_state_tells_the_true_remainder(gateway: Gateway, upstream: Upstream) -> None:
    token = await gateway.mint(limits={"requests": 3, "tokens": 100_000})
    upstream.default = unary()
    async with await RawConnection.open(gateway.port) as wire:
        body = b'{"messages":[{"role":"user","content":"hello"}]}'
        json_body = [("Content-Type", "application/json")]
        await wire.send(request_bytes(target="/v1/chat/completions", token=token, headers=json_body, body=body))
        assert (await wire.read_response()).status == 200
    balance = (await gateway.state(token))["balance"]
    assert balance["requests"] == {"limit": 3, "used": 1, "reserved": 0, "left": 2}
    assert balance["tokens"]["used"] == upstream.usage_total.prompt + upstream.usage_total.completion
    assert balance["tokens"]["left"] == 100_000 - balance["tokens"]["used"]
    assert balance["microusd"]["left"] is None


async def test_a_list_holds_the_living_unless_all_are_asked_for(gateway: Gateway) -> None:
    grants = [await gateway.grant(trial) for trial in ("a", "a", "b")]
    await asyncio.to_thread(gateway.control.revoke, grants[0]["id"])

    def ids(**query: Any) -> list[str]:
        return [state["id"] for state in gateway.control.tokens(**query)]

    first, second, third = (grant["id"] for grant in grants)
    assert await asyncio.to_thread(ids) == [second, third]
    assert await asyncio.to_thread(ids, trial="a") == [second]
    assert await asyncio.to_thread(ids, everything=True) == [first, second, third]


async def test_revoking_twice_is_one_revocation_and_unknown_is_not_found(gateway: Gateway) -> None:
    token = await gateway.mint()
    states = [await asyncio.to_thread(gateway.control.revoke, token) for _ in range(2)]
    assert [state["status"] for state in states] == ["revoked", "revoked"]
    assert len(gateway.records("revoke")) == 1
    with pytest.raises(NotFoundError):
        await asyncio.to_thread(gateway.control.revoke, "kp_paaaaaaaaaaaa")
    with pytest.raises(NotFoundError):
        await asyncio.to_thread(gateway.control.token, token[:-1] + ("a" if token[-1] != "a" else "b"))


async def test_a_revocation_that_cannot_be_made_durable_fails_loudly(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writer: Writer, _content: bytes) -> None:
        raise OSError(28, "No space left on device")

    token = await gateway.mint()
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_write", full)
        with pytest.raises(UnavailableError):
            await asyncio.to_thread(gateway.control.revoke, token)
    assert (await asyncio.to_thread(gateway.control.revoke, token))["status"] == "revoked"


async def test_a_checkpoint_on_demand_signs_the_head(gateway: Gateway) -> None:
    await gateway.mint()
    signed = await asyncio.to_thread(gateway.control.checkpoint)
    last: Record = gateway.records()[-1]
    assert (last.kind, last.seq) == ("checkpoint", signed["seq"])
    assert verify(gateway.state_dir, head=signed["head"], key_is_own=True).ok


async def test_the_tcp_form_wants_the_admin_token_and_no_trials(upstream: Upstream, tmp_path: Path) -> None:
    settings = {"admin_listen": "127.0.0.1:0", "admin_token": ADMIN}
    async with running_gateway(tmp_path / "s", upstream.base_url, admin=Secret(ADMIN), **settings) as gateway:
        url = gateway.house.listeners.addresses()["admin"]
        trial_token = await gateway.mint()
        for wrong in ("nope", trial_token, ADMIN + "x", "\xff"):
            with pytest.raises(DeniedError):
                await asyncio.to_thread(ControlClient.at(url, wrong).status)
        minted = await asyncio.to_thread(ControlClient.at(url, ADMIN).mint, {"trial": "over-tcp"})
        assert (await gateway.state(minted["id"]))["trial"] == "over-tcp"


def operations(gateway: Gateway) -> int:
    return int(gateway.house.listeners.addresses()["operations"].rpartition(":")[2])


async def get(port: int, target: str, method: str = "GET") -> RawResponse:
    async with await RawConnection.open(port) as wire:
        await wire.send(request_bytes(method=method, target=target))
        return await wire.read_response(method)


async def test_the_operations_listener_has_four_routes_and_nothing_else(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "s", upstream.base_url, ops_listen="127.0.0.1:0") as gateway:
        port = operations(gateway)
        trial = await gateway.mint("a-trial-that-must-not-show")
        metrics = await get(port, "/metrics")
        assert metrics.status == 200
        assert b"keyproxy_in_flight 0.0" in metrics.body
        assert b"a-trial-that-must-not-show" not in metrics.body
        assert trial[:16].encode() not in metrics.body
        health = await get(port, "/healthz")
        assert (health.json, health.get("Server")) == ({"status": "ok"}, None)
        assert (await get(port, "/readyz")).json["ready"] is True
        assert set((await get(port, "/version")).json) == {"version"}
        for target, method in (
            ("/", "GET"),
            ("/v1/tokens", "GET"),
            ("/v1/chat/completions", "POST"),
            ("/metrics", "POST"),
        ):
            answer = await get(port, target, method)
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")


async def test_not_ready_while_it_drains_though_still_healthy(upstream: Upstream, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "s", upstream.base_url, ops_listen="127.0.0.1:0") as gateway:
        await gateway.house.listeners.drain(0.1, asyncio.Event())
        ready = await get(operations(gateway), "/readyz")
        assert (ready.status, ready.json["checks"]["open"]) == (503, False)
        assert (await get(operations(gateway), "/healthz")).status == 200
