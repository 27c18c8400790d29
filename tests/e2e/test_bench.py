"""Recorded traffic through the picker, and its decisions made again: `epp bench`, `--record` and `epp replay`."""
import json, random, subprocess

import pytest

from stand import CONFIG, free_port, until

ROWS = [{"timestamp": i * 5, "input_length": 1024 + 512 * (i % 3), "output_length": i % 7, "hash_ids": [i % 5, 100 + i % 9, *range(1000 + 10 * i, 1000 + 10 * i + i % 3)]} for i in range(60)]
OTHER = CONFIG.replace("{pluginRef: active-request-scorer}", "{pluginRef: active-request-scorer, weight: 5}").replace("prefix-cache-scorer, weight: 2", "prefix-cache-scorer, weight: 0.5")


@pytest.fixture
def epp(request):
    def run(*argv, timeout=50):
        return subprocess.run([request.config.getoption("--epp"), *map(str, argv)], capture_output=True, text=True, timeout=timeout)
    return run


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def replayed(epp, *argv):
    ran = epp("replay", "--json", *argv)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("mode", ["direct", "lean", "duplex"])
def test_every_request_of_a_trace_gets_an_endpoint_from_each_picker_in_turn(start, epp, trace, tmp_path, mode):
    a, b, out = start(engines=2), start(engines=3), tmp_path / "out.json"
    ran = epp("bench", "--target", f"127.0.0.1:{a.grpc_port}", "--pid", a.epp.child.pid, "--versus", f"127.0.0.1:{b.grpc_port}", "--baseline", "--trace", trace,
              "--concurrency", 8, "--warm-up", 10, "--rounds", 2, "--mode", mode, "--token-time", "1ms", "--json", out)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(out.read_text())
    assert report["valid"] and report["problems"] == [] and report["requests"] == 50 and report["warm_up"] == 10
    assert [p["name"] for p in report["pickers"]] == ["target", "versus", "baseline"]
    for picker, engines in zip(report["pickers"], (2, 3, 1)):
        assert len(picker["rounds"]) == 2
        for figures in picker["rounds"]:
            assert figures["sent"] == figures["answered"] == sum(figures["picks_per_endpoint"].values()) == 50
            assert len(figures["picks_per_endpoint"]) == engines
            assert ("process" in figures) == (picker["name"] != "versus")
    assert {r["to"] for r in report["ratios"]} == {"versus", "baseline"}
    assert "latency p50 ms" in ran.stdout and "target/versus" in ran.stdout and "\r" not in ran.stderr
    # Each response was told of, so nothing is in flight, and the picker has counted its tokens.
    until(lambda: a.in_flight() == 0, what="an idle picker")
    if mode != "lean":
        assert a.metric("llm_d_epp_request_output_tokens_sum") == 2 * sum(row["output_length"] for row in ROWS)


def test_responses_that_take_time_are_in_flight_meanwhile(start, epp, trace, tmp_path):
    s = start(engines=1)
    argv = [s.binary, "bench", "--target", f"127.0.0.1:{s.grpc_port}", "--trace", trace, "--token-time", "300ms", "--requests", "7", "--rate-scale", "1"]
    bench = subprocess.Popen([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: s.in_flight() >= 4, what="requests in flight")
    until(lambda: bench.poll() is not None, what="the end of the run")
    until(lambda: s.in_flight() == 0, what="an idle picker")


def test_a_run_that_proves_nothing_fails_and_says_why(start, epp, trace, tmp_path):
    s, out = start(engines=0), tmp_path / "out.json"
    ran = epp("bench", "--target", f"127.0.0.1:{s.grpc_port}", "--trace", trace, "--concurrency", 4, "--json", out)
    assert ran.returncode != 0 and "99 %" in ran.stderr and "54 refused" in ran.stderr and "INVALID" in ran.stdout
    assert not json.loads(out.read_text())["valid"]
    port = free_port()
    ran = epp("bench", "--target", f"127.0.0.1:{port}", "--trace", tmp_path / "none")
    assert ran.returncode != 0 and "none" in ran.stderr


def test_recorded_decisions_are_made_again_and_other_weights_change_some(start, epp, trace, tmp_path):
    recording = tmp_path / "decisions"
    s = start(engines=4, flags=("--record", recording))
    ran = epp("bench", "--target", f"127.0.0.1:{s.grpc_port}", "--trace", trace, "--concurrency", 16, "--rounds", 6, "--token-time", "5ms")
    assert ran.returncode == 0, ran.stderr
    until(lambda: s.metric("epp_recording_written_cycles_total") == 360, what="a whole recording")
    assert s.metric("epp_recording_dropped_cycles_total") == 0
    s.epp.stop()

    report = replayed(epp, recording, "--expect-same")
    assert (report["cycles"], report["judged"], report["differ"], report["notes"]) == (360, 360, 0, [])
    assert len(report["picks"]) == 4 and sum(p["now"] for p in report["picks"].values()) == 360
    report = replayed(epp, recording, "--config", s.config_path, "--last", 100)
    assert (report["cycles"], report["differ"]) == (100, 0)

    other = tmp_path / "other.yaml"
    other.write_text(OTHER.replace("ENDPOINTS", str(s.endpoints_path)))
    report = replayed(epp, recording, "--config", other, "--show", 3)
    assert 0 < report["differ"] < 360 and len(report["differences"]) == min(3, report["differ"])
    assert [share["weights"] for share in report["differences"][0]["scorers"]] == [[1.0, 5.0], [2.0, 0.5]]
    ran = epp("replay", recording, "--config", other, "--expect-same")
    assert ran.returncode != 0 and "->" in ran.stdout and "prefix-cache-scorer" in ran.stdout


def test_a_recording_goes_on_after_a_restart_and_survives_a_kill(start, epp, tmp_path):
    recording = tmp_path / "decisions"
    s = start(engines=2, flags=("--record", recording))
    s.pick({"model": "m", "prompt": "one"})
    until(lambda: s.metric("epp_recording_written_cycles_total") == 1, what="a line")
    s.epp.stop(9)
    with recording.open("ab") as f:
        f.write(b'{"cycle":17')
    s.start_epp()
    s.pick({"model": "m", "prompt": "two"})
    s.pick({"model": "m", "prompt": "three"})
    s.epp.stop()
    report = replayed(epp, recording)
    assert report["cycles"] == 3 and report["differ"] == 0 and "cut short" in report["notes"][0]


def test_what_cannot_be_recorded_or_replayed_is_said_in_a_line(epp, tmp_path):
    ran = epp("--secure-serving=false", "--record", tmp_path / "none" / "x", "--config-text", CONFIG.replace("ENDPOINTS", str(tmp_path)), "--grpc-port", free_port(), "--metrics-port", free_port())
    assert ran.returncode != 0 and "--record" in ran.stderr
    ran = epp("replay", tmp_path / "none")
    assert ran.returncode != 0 and "none" in ran.stderr and len(ran.stderr.splitlines()) == 1


def measured(epp, out, *argv):
    ran = epp("bench", "--json", out, *argv)
    assert ran.returncode == 0, ran.stderr
    return json.loads(out.read_text())


@pytest.mark.parametrize("mode", ["lean", "duplex"])
def test_whole_responses_through_envoy_are_measured(start, epp, trace, tmp_path, mode):
    s = start(engines=2, mode=mode, engine_flags=("--speed", "10"))
    report = measured(epp, tmp_path / "out.json", "--target", f"http://127.0.0.1:{s.proxy_port}", "--pid", s.epp.child.pid, "--trace", trace, "--concurrency", 4, "--warm-up", 10)
    assert report["valid"] and report["mode"] == "http"
    figures = report["pickers"][0]["rounds"][0]
    r = figures["responses"]
    assert figures["answered"] == 50 and figures["process"]["cpu_seconds"] > 0
    assert r["output_tokens"] == sum(max(row["output_length"], 1) for row in ROWS[10:]) and r["prompt_tokens"] == sum(row["input_length"] for row in ROWS[10:])
    assert 0 < r["cached_tokens"] < r["prompt_tokens"] and r["without_usage"] == 0
    assert 0 < r["headers"]["p50_ms"] <= r["ttft"]["p50_ms"] <= r["e2e"]["p50_ms"] and r["tpot"]["p50_ms"] > 0
    assert set(figures["picks_per_endpoint"]) <= {str(p) for p in s.engine_ports} and sum(figures["picks_per_endpoint"].values()) == 50
    until(lambda: s.in_flight() == 0, what="an idle picker")


def test_a_client_sends_requests_to_the_engines_that_were_picked(start, epp, trace, tmp_path):
    s = start(engines=3, engine_flags=("--speed", "10"))
    report = measured(epp, tmp_path / "out.json", "--target", f"127.0.0.1:{s.grpc_port}", "--dispatch", "--trace", trace, "--warm-up", 0)
    figures = report["pickers"][0]["rounds"][0]
    assert report["mode"] == "dispatch" and figures["answered"] == 60
    assert set(figures["picks_per_endpoint"]) == {f"127.0.0.1:{p}" for p in s.engine_ports}
    assert figures["latency"]["p50_ms"] < figures["responses"]["headers"]["p50_ms"] < figures["responses"]["e2e"]["p50_ms"]
    until(lambda: s.in_flight() == 0, what="an idle picker")
    # The picker was told of every response.
    assert s.metric("llm_d_epp_request_output_tokens_sum") == figures["responses"]["output_tokens"]


def test_turns_of_a_session_wait_for_answers(start, epp, tmp_path):
    s, path = start(engines=1, engine_flags=("--decode-ms", "20")), tmp_path / "rollout.jsonl"
    path.write_text(json.dumps({"conv_id": "a", "turns": [{"input_tokens": 40 * (i + 1), "output_tokens": 20, "pre_gap_s": 0.2 * (i > 0)} for i in range(3)]}) + "\n")
    for turns, least, most in (("waiting", 1.5, 30), ("timed", 0, 1.5)):
        report = measured(epp, tmp_path / "out.json", "--target", f"127.0.0.1:{s.grpc_port}", "--dispatch", "--trace", path, "--warm-up", 0, "--turns", turns)
        # Three answers of 0.4 s one after the other, with 0.2 s between them; or three that overlap.
        assert least < report["pickers"][0]["rounds"][0]["seconds"] < most, turns


def test_pickers_are_reached_over_tls(start, epp, trace, tmp_path):
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=picker", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", certificates / "tls.key", "-out", certificates / "tls.crt"], check=True, capture_output=True)
    own, named = start(engines=1, flags=("--secure-serving=true",)), start(engines=1, flags=("--secure-serving=true", "--cert-path", certificates))
    common, out = ("--trace", trace, "--concurrency", 4), tmp_path / "out.json"
    for s, flags in ((own, ("--tls",)), (named, ("--tls",)), (named, ("--ca", certificates / "tls.crt"))):
        assert measured(epp, out, "--target", f"127.0.0.1:{s.grpc_port}", *flags, *common)["valid"]
    ran = epp("bench", "--target", f"127.0.0.1:{own.grpc_port}", "--ca", certificates / "tls.crt", *common)
    assert ran.returncode != 0 and "certificate" in ran.stderr.lower() and len(ran.stderr.splitlines()) == 1


def test_gateways_that_fail_are_told_of_in_a_line(start, epp, trace, tmp_path):
    s = start(engines=0, mode="lean")
    ran = epp("bench", "--target", f"http://127.0.0.1:{s.proxy_port}", "--trace", trace, "--concurrency", 4, "--warm-up", 0)
    assert ran.returncode != 0 and "answered with 503" in ran.stderr and "60 refused" in ran.stderr and len(ran.stderr.splitlines()) == 2
    port = free_port()
    ran = epp("bench", "--target", f"http://127.0.0.1:{port}", "--trace", trace)
    assert ran.returncode != 0 and f"cannot reach 127.0.0.1:{port}" in ran.stderr and len(ran.stderr.splitlines()) == 1
