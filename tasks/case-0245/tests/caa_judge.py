"""The judge, under the name of the published layout: its protocol is `clinic.judge`, its model `clinic.edge.models`."""

from clinic.edge.models import judge_call
from clinic.judge import Judge

__all__ = ["Judge", "judge_call"]
