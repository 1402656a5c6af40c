"""Function tools and response formats: what a judge may ask for beside its messages.

Only tools that the client itself runs pass. Provider-side tools (web search, code
interpreter, file search, hosted MCP) would give a container without network the
provider's network. A JSON Schema passes as it is: it is data for the model.
"""

from typing import Final

from keyproxy.core.policy.shapes import Either, Fields, ListOf, Nullable, OneOf, Tagged, anything, flag, opaque, refuse
from keyproxy.core.policy.shapes import text as text_value

MAX_TOOLS: Final = 128

_FUNCTION: Final = Fields(
    {"name": text_value, "description": text_value, "parameters": opaque, "strict": Nullable(flag)},
    required=frozenset({"name"}),
)
TOOLS: Final = ListOf(
    Tagged(
        "type",
        {
            "function": Fields({"type": anything, "function": _FUNCTION}, required=frozenset({"function"})),
            "custom": refuse,
        },
    ),
    at_most=MAX_TOOLS,
)

_NAMED: Final = Fields(
    {"type": anything, "function": Fields({"name": text_value}, required=frozenset({"name"}))},
    required=frozenset({"function"}),
)
_ALLOWED: Final = Fields(
    {
        "mode": OneOf(("auto", "required")),
        "tools": ListOf(Tagged("type", {"function": _NAMED}), at_most=MAX_TOOLS),
    },
    required=frozenset({"mode", "tools"}),
)
TOOL_CHOICE: Final = Either(
    {
        str: OneOf(("none", "auto", "required")),
        dict: Tagged(
            "type",
            {
                "function": _NAMED,
                "allowed_tools": Fields(
                    {"type": anything, "allowed_tools": _ALLOWED}, required=frozenset({"allowed_tools"})
                ),
                "custom": refuse,
            },
        ),
    }
)

_TYPE_ALONE: Final = Fields({"type": anything})
_SCHEMA: Final = Fields(
    {"name": text_value, "description": text_value, "schema": opaque, "strict": Nullable(flag)},
    required=frozenset({"name"}),
)
TEXT_FORMAT: Final = Tagged("type", {"text": _TYPE_ALONE, "json_object": refuse, "json_schema": refuse})
ANY_FORMAT: Final = Tagged(
    "type",
    {
        "text": _TYPE_ALONE,
        "json_object": _TYPE_ALONE,
        "json_schema": Fields(
            {"type": anything, "json_schema": _SCHEMA},
            required=frozenset({"json_schema"}),
        ),
    },
)
