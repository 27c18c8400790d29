"""Through a real Envoy, in both of its set-ups: what a client of the gateway lives through."""
import concurrent.futures, json, socket, threading

import pytest

from stand import DESTINATION, REASON, until

BODY = {"model": "m", "prompt": "hello", "max_tokens": 4}
modes = pytest.mark.parametrize("mode", ["lean", "duplex"])


def events(data):
    return [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]


@modes
def test_a_request_goes_to_an_engine_and_its_answer_comes_back(start, mode):
    s = start(mode=mode)
    status, data, headers = s.post(BODY)
    assert status == 200 and json.loads(data)["usage"]["completion_tokens"] == 4
    assert int(headers["x-engine"]) in s.engine_ports


@modes
def test_a_shared_prefix_goes_where_it_is_cached(start, mode):
    s = start(mode=mode, engines=4)
    prompt = "the same long beginning " * 200
    first = s.post({**BODY, "prompt": prompt})
    for i in range(6):
        status, data, headers = s.post({**BODY, "prompt": prompt + str(i)})
        assert status == 200 and headers["x-engine"] == first[2]["x-engine"]
        assert json.loads(data)["usage"]["prompt_tokens_details"]["cached_tokens"] > 1000


@modes
def test_a_chat_of_100k_tokens_arrives(start, mode):
    s = start(mode=mode, engines=1, engine_flags=("--blocks", "20000", "--speed", "100"))
    body = json.dumps({"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "wörd \\\" " * 55_000}]}, ensure_ascii=False).encode()
    status, data, _ = s.post(body, "/v1/chat/completions")
    assert status == 200 and json.loads(data)["usage"]["prompt_tokens"] > 100_000


@modes
def test_a_stream_of_a_thousand_chunks_comes_in_order(start, mode):
    s = start(mode=mode, engines=1, engine_flags=("--speed", "1000"))
    status, data, _ = s.post({**BODY, "max_tokens": 1000, "stream": True})
    got = events(data)
    assert status == 200 and got[-1].strip() == b"[DONE]"
    chunks = [json.loads(e) for e in got[:-1]]
    assert sum(1 for c in chunks if c["choices"]) >= 1000


@modes
def test_a_client_that_leaves_half_way_is_no_longer_in_flight(start, mode):
    s = start(mode=mode, engines=1)
    c, r = s.open({**BODY, "max_tokens": 5000, "stream": True})
    r.read(50)
    until(lambda: s.in_flight() == 1, what="one request in flight")
    r.fp.raw._sock.shutdown(socket.SHUT_RDWR)
    r.close(), c.close()
    until(lambda: s.in_flight() == 0, what="nothing in flight")


@modes
def test_traffic_follows_a_rewritten_file_and_no_request_fails(start, mode):
    s = start(mode=mode, engines=1)
    old, new = s.engine_ports[0], s.start_engines(1)[0]
    stop, moved, seen = threading.Event(), threading.Event(), []

    def traffic():
        while not stop.is_set():
            after = moved.is_set()
            status, _, headers = s.post(BODY)
            seen.append((status, headers.get("x-engine"), after))
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(traffic)
        try:
            until(lambda: len(seen) > 10)
            s.write_endpoints([new])
            until(lambda: s.pick(BODY) == f"127.0.0.1:{new}")
            moved.set()
            until(lambda: sum(after for *_, after in seen) > 10)
        finally:
            stop.set()
    assert {status for status, *_ in seen} == {200}
    assert {engine for _, engine, after in seen if after} == {str(new)}
    assert str(old) in {engine for _, engine, _ in seen}


@modes
def test_an_engine_that_dies_and_is_replaced_gets_no_wrong_pick(start, mode):
    s = start(mode=mode, engines=2)
    s.engines.stop()
    fresh = s.start_engines(2)
    s.write_endpoints(fresh)
    until(lambda: s.pick(BODY) in {f"127.0.0.1:{p}" for p in fresh})
    for _ in range(10):
        status, _, headers = s.post(BODY)
        assert status == 200 and int(headers["x-engine"]) in fresh


@modes
def test_without_the_picker_envoy_refuses_and_recovers(start, mode):
    s = start(mode=mode)
    s.epp.stop(9)
    assert until(lambda: s.post(BODY)[0] in (500, 503, 504))
    s.start_epp()
    until(lambda: s.post(BODY)[0] == 200, 20, "Envoy's next good health check")


@modes
def test_a_body_over_the_limit_gets_413(start, mode):
    s = start(mode=mode, flags=("--max-request-body=100k",))
    assert s.post({**BODY, "prompt": "x" * 200_000})[0] == 413
    assert s.post(BODY)[0] == 200


@modes
def test_an_empty_pool_gets_503_with_its_reason(start, mode):
    s = start(mode=mode, engines=0)
    status, data, headers = until(lambda: (a := s.post(BODY))[1].startswith(b"inference error") and a)
    assert (status, headers[REASON]) == (503, "rejected-no-endpoints")
    assert data == b"inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request"


@modes
def test_a_client_cannot_choose_the_endpoint(start, mode):
    s = start(mode=mode, engines=1)
    status, _, headers = s.post(BODY, headers={DESTINATION: "127.0.0.1:1"})
    assert status == 200 and int(headers["x-engine"]) == s.engine_ports[0]


@modes
def test_a_model_is_renamed_on_the_way_to_the_engine(start, mode):
    s = start(mode=mode, engines=1)
    status, data, _ = s.post(BODY, headers={"x-llm-d-model-name-rewrite": "other"})
    # Response bodies are not seen in the lean set-up, so the engine's name for the model stays in them.
    assert status == 200 and json.loads(data)["model"] == ("m" if mode == "duplex" else "other")


@modes
def test_a_request_without_a_body_is_routed(start, mode):
    s = start(mode=mode, engines=1)
    status, data, _ = s.post(None, "/v1/models", method="GET")
    assert status == 200 and json.loads(data)["data"]


@modes
def test_sglang_and_trtllm_engines_are_read(start, mode):
    for kind in ("sglang", "trtllm"):
        s = start(mode=mode, kind=kind, engines=1)
        assert s.post(BODY)[0] == 200
