"""The gates, under the name of the published layout: three are decided in `clinic.verdict`, must-ask in caa_judge."""

from clinic.verdict import Gates, decide, reward

__all__ = ["Gates", "decide", "reward"]
