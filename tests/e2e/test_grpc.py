"""A direct gRPC client: picks without Envoy, health, TLS."""
import contextlib, ssl, urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stand import REASON, until

BODY = {"model": "m", "prompt": "hello", "max_tokens": 4}


def test_token_ids_are_picked_for(start):
    s = start(config=CONFIG_IDS)
    body = {"model": "m", "token_ids": list(range(4000))}
    first = s.pick(body, "/inference/v1/generate")
    assert all(s.pick(body, "/inference/v1/generate") == first for _ in range(5))


CONFIG_IDS = """
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- {type: prefix-cache-scorer}
dataLayer: {discovery: {pluginRef: file-discovery}}
requestHandler: {parsers: [{pluginRef: vllmhttp-parser}]}
"""


def test_open_picks_spread_over_the_engines(start):
    s = start(engines=4)
    with contextlib.ExitStack() as hold:
        got = [s.pick({**BODY, "prompt": f"{i} " * 100}, hold=hold) for i in range(12)]
        assert sorted(got.count(x) for x in set(got)) == [3, 3, 3, 3]
        assert s.in_flight() == 12
    until(lambda: s.in_flight() == 0, what="nothing in flight")


def test_a_thousand_abandoned_picks_leave_nothing_in_flight(start):
    s = start()
    for _ in range(1000):
        s.pick(BODY)
    until(lambda: s.in_flight() == 0, 3, "nothing in flight")
    assert '"level":"error"' not in s.epp.log()


def test_a_refusal_has_its_status_and_reason(start):
    s = start(engines=0)
    refusal = s.pick(BODY)
    assert refusal.status.code == 503
    assert [(h.header.key, h.header.raw_value) for h in refusal.headers.set_headers] == [(REASON, b"rejected-no-endpoints")]


def test_health_follows_the_drain(start):
    s = start(flags=("--drain-timeout=3s",))
    with grpc.insecure_channel(f"127.0.0.1:{s.health_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = iter(stub.Watch(health_pb2.HealthCheckRequest(service="readiness"), timeout=10))
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        s.epp.child.terminate()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert stub.Check(health_pb2.HealthCheckRequest(service="liveness")).status == health_pb2.HealthCheckResponse.SERVING
        assert s.pick(BODY)
    assert s.epp.child.wait(10) == 0


def test_tls_with_a_certificate_of_its_own(start):
    s = start(flags=("--secure-serving=true",))
    pem = ssl.get_server_certificate(("127.0.0.1", s.grpc_port))
    assert "BEGIN CERTIFICATE" in pem


def test_the_pages_of_the_metrics_port(start):
    s = start()
    assert s.get("/healthz")[0] == s.get("/readyz")[0] == 200
    until(lambda: '"waiting"' in s.get("/debug/endpoints")[1], what="a first scrape")
    assert "prefix-cache-scorer" in s.get("/debug/config")[1]
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{s.metrics_port}/metrics", headers={"Accept": "application/openmetrics-text"})) as r:
        assert r.headers["content-type"].startswith("application/openmetrics-text") and r.read().endswith(b"# EOF\n")
