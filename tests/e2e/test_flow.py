"""Flow control through a real Envoy: requests wait in the picker, leave it, and are ended to make room."""
import concurrent.futures, json, socket, threading

import pytest

from stand import REASON, until

BODY = {"model": "m", "prompt": "hello", "max_tokens": 4}
LONG = {**BODY, "max_tokens": 20000}
OBJECTIVE = "x-llm-d-inference-objective"
FC = "llm_d_epp_flow_control_"
modes = pytest.mark.parametrize("mode", ["lean", "duplex"])

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- {type: random-picker}
dataLayer: {discovery: {pluginRef: file-discovery}}
schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
objectives: {high: 10, batch: -1}
flowControl: {saturationDetector: {pluginRef: concurrency-detector}, defaultRequestTTL: HOW_LONG, enableEviction: true}
"""


@pytest.fixture
def full(start):
    """full(mode, ttl) brings up a pool that has room for one request."""
    return lambda mode, ttl="20s": start(mode=mode, engines=1, config=CONFIG.replace("HOW_LONG", ttl))


def waits(s, n):
    until(lambda: (s.metric(FC + "queue_size") or 0) == n, what=f"{n} that wait")


def hold(s, body=LONG, **headers):
    """Takes the only place with a response that is under way; give it up with `leave`."""
    until(lambda: s.in_flight() == 0, what="an idle pool")
    held = s.open({**body, "stream": True}, headers=headers)
    assert held[1].read(20)
    return held


def leave(held):
    c, r = held
    r.fp.raw._sock.shutdown(socket.SHUT_RDWR)
    r.close(), c.close()


@modes
def test_a_request_waits_until_another_has_ended(full, mode):
    s = full(mode)
    held = hold(s)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        second = pool.submit(s.post, BODY)
        waits(s, 1)
        assert not second.done()
        leave(held)
        status, data, _ = second.result(20)
    assert status == 200 and json.loads(data)["usage"]["completion_tokens"] == 4


@modes
def test_whoever_waits_too_long_is_told_so(full, mode):
    s = full(mode, "300ms")
    held = hold(s)
    status, data, headers = s.post(BODY)
    assert (status, headers[REASON]) == (429, "rejected-ttl-expired")
    assert data == b"inference error: ResourceExhausted - request timed out in queue: request evicted from queue: request TTL expired"
    leave(held)


@modes
def test_a_client_that_leaves_waits_no_longer(full, mode):
    s = full(mode)
    held = hold(s)
    c = socket.create_connection(("127.0.0.1", s.proxy_port))
    data = json.dumps(BODY).encode()
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data))
    waits(s, 1)
    c.close()
    waits(s, 0)
    until(lambda: s.metric(FC + "requests_total", outcome="EvictedContextCancelled") == 1)
    leave(held)


@modes
def test_a_request_under_way_makes_room_for_a_higher_priority(full, mode):
    s = full(mode)
    until(lambda: s.in_flight() == 0, what="an idle pool")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        victim = pool.submit(s.post, LONG, headers={OBJECTIVE: "batch"})
        until(lambda: s.in_flight() == 1, what="the victim under way")
        assert s.post(BODY, headers={OBJECTIVE: "high"})[0] == 200
        status, data, headers = victim.result(20)
    assert (status, data, headers[REASON]) == (429, b"request evicted by flow control", "evicted")


@modes
def test_a_response_that_has_begun_is_cut_for_a_higher_priority(full, mode):
    s = full(mode)
    c, r = hold(s, **{OBJECTIVE: "batch"})
    cut = threading.Event()

    def read():
        try:
            while r.read(100):
                pass
        except Exception:  # however Envoy cuts it
            pass
        cut.set()
    threading.Thread(target=read, daemon=True).start()
    assert s.post(BODY, headers={OBJECTIVE: "high"})[0] == 200
    assert cut.wait(20)


def test_a_direct_client_that_is_ended_is_told_why(start):
    s = start(engines=1, config=CONFIG.replace("HOW_LONG", "20s"))
    victim, answers = s.talk(BODY, headers={OBJECTIVE: "batch"})
    assert next(answers).HasField("request_headers")
    assert s.pick(BODY, headers={OBJECTIVE: "high"})
    ended = next(a for a in answers if a.HasField("immediate_response")).immediate_response
    reasons = {h.header.key: h.header.raw_value.decode() for h in ended.headers.set_headers}
    assert (ended.status.code, reasons[REASON]) == (429, "evicted")
    victim.cancel()
