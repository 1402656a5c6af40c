"""The operations listener: metrics, health, readiness and version, and nothing else.

Needs no credential and shows none: no trial, no token, no upstream path. Built by
`serve` where an address is set for it.
"""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from keyproxy.control.replies import refusal, without_banner
from keyproxy.errors import Deny


def app(
    registry: CollectorRegistry, *, refresh: Callable[[], None], checks: Callable[[], Mapping[str, bool]], version: str
) -> web.Application:
    """`refresh()` sets the gauges; `checks()` names what must be true for work to be taken."""

    async def metrics(_request: web.Request) -> web.Response:
        refresh()
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_request: web.Request) -> web.Response:
        found = dict(checks())
        return web.json_response(
            {"ready": all(found.values()), "checks": found}, status=200 if all(found.values()) else 503
        )

    async def tell_version(_request: web.Request) -> web.Response:
        return web.json_response({"version": version})

    app = web.Application(middlewares=[_only_these])
    app.on_response_prepare.append(without_banner)
    app.add_routes(
        [
            web.get("/metrics", metrics),
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/version", tell_version),
        ]
    )
    return app


@web.middleware
async def _only_these(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException:
        return refusal(Deny("not_found"))
