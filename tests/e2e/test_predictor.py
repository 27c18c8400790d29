"""A latency predictor beside the picker: a small service that answers by rule and remembers what it was told."""
import http.server, json, threading

import pytest

from stand import CONFIG, until

BODY = {"model": "m", "prompt": "hello", "max_tokens": 8, "stream": True}
BY_LATENCY = CONFIG.replace(
    "- {type: active-request-scorer}\n- {type: prefix-cache-scorer}",
    "- {type: predicted-latency-producer, parameters: {streamingMode: true}}\n- {type: latency-scorer}\n- {type: max-score-picker}",
).replace("[{pluginRef: active-request-scorer}, {pluginRef: prefix-cache-scorer, weight: 2}]", "[{pluginRef: latency-scorer}]")


class Predictor(http.server.ThreadingHTTPServer):
    """Predicts for the n-th row of a call a time to the first token of 10 + n ms."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.taught, self.statuses, self.works = [], [], 0, True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.statuses += self.path == "/status"
        self.answer(200, {"is_ready": True, "model_type": "xgboost", "quantile": 0.9})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/predict/bulk/strict":
            self.server.asked.append(body["requests"])
            if not self.server.works or len(body["requests"]) > 100:
                return self.answer(503, {})
            return self.answer(200, {"predictions": [{"ttft_ms": 10 + n, "tpot_ms": 5} for n in range(len(body["requests"]))]})
        self.server.taught.append(body["entries"])
        self.answer(202, {})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def predictor(monkeypatch):
    with Predictor() as predictor:
        monkeypatch.setenv("PREDICTION_SERVER_URL", predictor.url)
        monkeypatch.setenv("TRAINING_SERVER_URL", predictor.url)
        yield predictor
        predictor.shutdown()


def test_predictions_decide_and_answers_teach(start, predictor):
    s = start(mode="duplex", engines=2, config=BY_LATENCY)
    slo = {"x-llm-d-slo-ttft-ms": "1", "x-llm-d-slo-tpot-ms": "100000"}
    asked = len(predictor.asked)
    # Nobody keeps an objective of 1 ms, so the first endpoint, which misses it by least, is taken.
    assert {s.post(BODY, headers=slo)[2]["x-engine"] for _ in range(5)} == {str(s.engine_ports[0])}
    assert [len(rows) for rows in predictor.asked[asked:]] == [2] * 5 and predictor.statuses == 1
    until(lambda: any(entry["actual_ttft_ms"] > 0 for entries in predictor.taught for entry in entries), what="a lesson")
    state = json.loads(s.get("/debug/plugins/state")[1])
    assert '"model_type": "xgboost"' in json.dumps(state) and '"is_ready": true' in json.dumps(state)
    for name in ["request_predicted_ttft_seconds_count", "request_ttft_prediction_duration_seconds_count"]:
        for prefix in ["llm_d_epp", "inference_objective"]:
            assert s.metric(f"{prefix}_{name}", model_name="m", target_model_name="m") >= 5, name
    assert s.metric("llm_d_epp_request_slo_violation_total", type="ttft") == 5
    assert s.metric("llm_d_epp_request_slo_violation_total", type="tpot") == 0


def test_more_endpoints_than_a_call_takes_are_predicted_in_several(start, predictor):
    s = start(engines=0, config=BY_LATENCY)
    s.write_endpoints(range(40000, 40250))
    until(lambda: s.metric("llm_d_epp_ready_endpoints") is not None and len(json.loads(s.get("/debug/endpoints")[1])["endpoints"]) == 250)
    s.pick(BODY)
    # All endpoints are idle, so the two calls of 100 rows are equal, and equal calls at one time are asked once.
    assert sorted(len(rows) for rows in predictor.asked) == [50, 100] and predictor.statuses == 1
    assert s.metric("llm_d_epp_request_ttft_prediction_duration_seconds_count") == 1


def test_without_the_service_requests_go_on(start, predictor):
    s = start(mode="duplex", engines=2, config=BY_LATENCY)
    predictor.works = False
    assert s.post(BODY)[0] == 200
    assert s.metric("epp_produce_failures_total", plugin_type="predicted-latency-producer") >= 1
