"""The mixin on Harbor's own Docker environment, and the way from its containers to the gateway.

Owns the compose overlay that Harbor merges last, for the agent's container and for a separate verifier's alike
(`--extra-docker-compose` does not reach the latter). Must not start anything itself. Called by Harbor, by import path.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from harbor.environments.docker.docker import DockerEnvironment

from keyproxy.harbor import place
from keyproxy.harbor.mixin import KeyproxyEnvironmentMixin

# Compose interpolates a task's own compose file from Harbor's whole environment.
_NOT_FOR_COMPOSE: Final = (place.TOKEN, "OPENAI_API_KEY")


class KeyproxyDockerEnvironment(KeyproxyEnvironmentMixin, DockerEnvironment):
    """`-e keyproxy.harbor:KeyproxyDockerEnvironment`."""

    _overlay: tempfile.TemporaryDirectory[str] | None = None

    async def start(self, *arguments: Any, **named: Any) -> None:
        self._overlay = tempfile.TemporaryDirectory(prefix="keyproxy-")
        self._overlay_path.write_text(json.dumps(self._overlay_content(place.find()), indent=1))
        await super().start(*arguments, **named)

    async def stop(self, *arguments: Any, **named: Any) -> Any:
        try:
            await super().stop(*arguments, **named)
        finally:
            if self._overlay is not None:
                self._overlay.cleanup()
                self._overlay = None

    @property
    def _container_url(self) -> str:
        return self._place.from_docker

    @property
    def _docker_compose_paths(self) -> list[Path]:
        paths: list[Path] = super()._docker_compose_paths
        return paths if self._overlay is None else [*paths, self._overlay_path]

    @property
    def _overlay_path(self) -> Path:
        if self._overlay is None:
            raise RuntimeError("the overlay is there from start to stop")
        return Path(self._overlay.name) / "keyproxy.json"

    def _overlay_content(self, where: place.Place) -> dict[str, Any]:
        """The host's name inside; one network if it is named; an init, since `sleep` as pid 1 outstays a stop."""
        main: dict[str, Any] = {"init": True}
        services: dict[str, Any] = {"main": main}
        name = urlsplit(where.from_docker).hostname or ""
        if name and not place.is_address(name) and not place.is_loopback(name):
            # under egress control `main` lives in the sidecar's network, and so in its hosts file
            resolver = self._EGRESS_CONTROL_SERVICE_NAME if getattr(self, "_enable_egress_control", False) else "main"
            services.setdefault(resolver, {})["extra_hosts"] = [f"{name}:{where.host_address}"]
        overlay: dict[str, Any] = {"services": services}
        if where.network is not None:
            overlay["networks"] = {"default": {"name": where.network, "external": True}}
            main["dns"] = ["127.0.0.1"]
        return overlay

    def _compose_env_vars(self, *arguments: Any, **named: Any) -> dict[str, str]:
        """Harbor 0.13 and later: what the docker command itself runs with."""
        env = super()._compose_env_vars(*arguments, **named)
        return {name: value for name, value in env.items() if name not in self._hidden_from_compose()}

    def _hidden_from_compose(self) -> frozenset[str]:
        return frozenset((*_NOT_FOR_COMPOSE, *getattr(self, "_dropped", ())))
