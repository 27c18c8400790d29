"""Why a request went where it went: to the client that asks, on the debug page, and as a table."""
import json, subprocess

import pytest

from stand import until

EXPLAIN = "x-llm-d-explain"
BODY = {"model": "m", "prompt": "hello", "max_tokens": 1}
SCORERS = ["active-request-scorer", "prefix-cache-scorer"]
modes = pytest.mark.parametrize("mode", ["lean", "duplex"])


def told(headers):
    """The record in a response's headers, None if there is none."""
    found = {k.lower(): v for k, v in headers.items()}.get(EXPLAIN)
    return found and json.loads(found)


@modes
def test_a_client_that_asks_is_told_of_the_endpoint_that_served_it(start, mode):
    s = start(mode=mode, engines=3, flags=("--explain-header",))
    for _ in range(5):
        status, _, headers = s.post(BODY, headers={EXPLAIN: "1"})
        record = told(headers)
        assert status == 200 and record["picked"] == [f"127.0.0.1:{headers['x-engine']}"]
        profile, = record["profiles"]
        assert profile["endpoints"][0]["endpoint"] == record["picked"][0]
        assert len(profile["endpoints"]) == record["candidates"] == 3
        assert [scorer["plugin"] for scorer in profile["scorers"]] == SCORERS


@modes
@pytest.mark.parametrize("flags, headers", [
    ((), {EXPLAIN: "1"}),
    (("--explain-header",), {}),
    (("--explain-header",), {EXPLAIN: "0"}),
], ids=["no flag", "not asked", "asked for nothing"])
def test_nobody_else_is_told(start, mode, flags, headers):
    s = start(mode=mode, engines=1, flags=flags)
    status, _, got = s.post(BODY, headers=headers)
    assert status == 200 and told(got) is None


def test_the_debug_page_shows_the_last_decisions_newest_first(start):
    s = start(engines=2)
    for i in range(5):
        s.pick(BODY, headers={"x-request-id": f"r{i}"})
    assert [d["request"] for d in s.decisions(2)] == ["r4", "r3"]
    assert [d["request"] for d in s.decisions(100)] == ["r4", "r3", "r2", "r1", "r0"]
    assert s.decisions(1)[0]["picked"][0] in {f"127.0.0.1:{p}" for p in s.engine_ports}
    assert s.decisions(0) == []
    assert s.get("/debug/decisions?last=many")[0] == 400


def test_the_debug_page_is_bounded(start):
    s = start(mode="lean", engines=1, engine_flags=("--speed", "1000"))
    for i in range(300):
        s.post(BODY, headers={"x-request-id": f"r{i}"})
    shown = until(lambda: s.decisions(1_000_000), what="decisions")
    assert len(shown) == 256 and shown[0]["request"] == "r299"
    assert len(s.decisions()) == 10


def test_a_refusal_is_a_decision_with_its_reason(start):
    s = start(engines=0)
    assert s.pick(BODY).status.code == 503
    record, = s.decisions()
    assert record["picked"] == [] and record["refused"]["status"] == 503 and record["refused"]["message"]


@pytest.mark.parametrize("flags, explained", [(("--explain-header",), True), ((), False)], ids=["flag", "no flag"])
def test_pick_explains_with_a_table(request, start, flags, explained):
    s = start(engines=2, flags=flags)
    argv = [request.config.getoption("--epp"), "pick", f"127.0.0.1:{s.grpc_port}", "--prompt", "hello", "--explain"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert ran.returncode == 0, ran.stderr
    if not explained:
        assert not any(scorer in ran.stdout for scorer in SCORERS)
        assert "--explain-header" in ran.stdout + ran.stderr
        return
    heads = next(line for line in ran.stdout.splitlines() if "total" in line)
    assert all(scorer in heads for scorer in SCORERS)
    picked = ran.stdout.split()[0]
    assert [line.split()[1] for line in ran.stdout.splitlines() if line.strip().startswith("* ")] == [picked]
