"""Refusals of this room as responses, and the banner that none of its responses bears.

Used by app and operations.
"""

from aiohttp import web

from keyproxy.errors import Deny
from keyproxy.exchange.refusals import reply


def refusal(deny: Deny) -> web.Response:
    """The data plane's error shape, with its headers."""
    answer = reply(deny)
    return web.Response(
        status=answer.status, body=answer.body, headers=dict(answer.headers), content_type=answer.content_type
    )


async def without_banner(_request: web.Request, response: web.StreamResponse) -> None:
    """For `app.on_response_prepare`: nobody needs to know which version of what answers here."""
    response.headers.pop("Server", None)
