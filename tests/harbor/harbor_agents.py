"""Agents that do one thing, for Harbor to import: `-a harbor_agents:Shell` with the script in AGENT_SCRIPT."""

import os
from typing import Any

from harbor.agents.base import BaseAgent


class Shell(BaseAgent):
    """Runs a script as the task's agent, and keeps what it said in the agent's log."""

    @staticmethod
    def name() -> str:
        return "shell"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: Any) -> None:
        pass

    async def run(self, instruction: str, environment: Any, context: Any) -> None:
        result = await environment.exec(os.environ["AGENT_SCRIPT"])
        (self.logs_dir / "shell.txt").write_text(result.stdout or "")
