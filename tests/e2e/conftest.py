"""Fixtures: engines, the picker, Envoy; each test gets its own and all of them end with it."""
import contextlib
import os

import pytest

import stand


def pytest_addoption(parser):
    parser.addoption("--epp", required=True, type=os.path.abspath, help="the picker's binary")


@pytest.fixture
def start(request, tmp_path):
    """start(engines=2, ...) brings up simulated engines and a picker, and Envoy where asked for; see stand.Stand."""
    with contextlib.ExitStack() as stack:
        def go(**kw):
            directory = tmp_path / f"stand{len(list(tmp_path.iterdir()))}"
            directory.mkdir()
            return stack.enter_context(stand.Stand(request.config.getoption("--epp"), directory, **kw))
        yield go
