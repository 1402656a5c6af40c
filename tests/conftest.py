"""What every test has: loopback and nothing else, and the misbehaving upstream when it asks for it."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import network_guard
from support.tools import Toolbox, parse_required
from support.upstream import Upstream

if TYPE_CHECKING:
    from support.gateway import GatewayProcess
    from support.inprocess import Gateway

_TOOLBOX = pytest.StashKey[Toolbox]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require", default=os.environ.get("REQUIRE", ""), help="tools whose absence is a failure")
    parser.addoption("--slow", action="store_true", help="run the slow ends too")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TOOLBOX] = Toolbox(parse_required(config.getoption("--require")))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and not item.config.getoption("--slow"):
        pytest.skip("slow: run with --slow")
    for marker in item.iter_markers("needs"):
        item.config.stash[_TOOLBOX].require(*marker.args)


@pytest.fixture(autouse=True)
def _loopback_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        attempts = network_guard.install(patch)
        yield
    assert attempts == [], "the test tried to leave loopback"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder like tmp_path for what makes folders of its own: a unix socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kp-") as folder:
        yield Path(folder)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest.fixture
async def gateway(upstream: Upstream, tmp_path: Path) -> "AsyncIterator[Gateway]":
    """The gateway in this process, with its defaults, in front of `upstream`."""
    from support.inprocess import running_gateway

    async with running_gateway(tmp_path / "state", upstream.base_url) as running:
        yield running


@pytest.fixture
async def gateway_process(upstream: Upstream, tmp_path: Path) -> "AsyncIterator[GatewayProcess]":
    """The real program in front of `upstream`; slow to start, so for what only a process can show."""
    from support.gateway import GatewayProcess

    async with GatewayProcess(tmp_path, upstream.base_url) as process:
        yield process
