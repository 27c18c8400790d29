"""The config file is rewritten while the picker runs."""
import concurrent.futures, json, threading

import pytest

from stand import CONFIG, until

BODY = {"model": "m", "prompt": "hello", "max_tokens": 4}
WITH_QUEUE = CONFIG.replace("- {type: active-request-scorer}", "- {type: active-request-scorer}\n- {type: queue-scorer}").replace(
    "[{pluginRef: active-request-scorer}", "[{pluginRef: queue-scorer, weight: 3}, {pluginRef: active-request-scorer}")
BAD = CONFIG.replace("prefix-cache-scorer}", "wibble-scorer}", 1)


def generation(s):
    return s.metric("epp_config_generation")


def scorers(s):
    """The scorers of the last decision."""
    return {scorer["plugin"] for profile in s.decisions(1)[0]["profiles"] for scorer in profile["scorers"]}


def events(s, level):
    lines = [json.loads(line) for line in s.epp.log().splitlines() if line.startswith("{")]
    return [line["msg"] for line in lines if line["level"] == level]


@pytest.mark.parametrize("mode", ["lean", "duplex"])
def test_a_changed_config_is_taken_up_while_requests_run_and_none_fails(start, mode):
    s = start(mode=mode, engines=2)
    assert generation(s) == 1
    stop, seen = threading.Event(), []

    def traffic():
        while not stop.is_set():
            seen.append(s.post(BODY)[0])
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(traffic)
        try:
            until(lambda: len(seen) > 10)
            assert scorers(s) == {"active-request-scorer", "prefix-cache-scorer"}
            for number, text in enumerate([WITH_QUEUE, CONFIG, WITH_QUEUE], 2):
                s.write_config(text)
                until(lambda: generation(s) == number, what=f"generation {number}")
                mark = len(seen)
                until(lambda: len(seen) > mark + 10)
            last = s.decisions(1)[0]
            assert last["generation"] == 4 and "queue-scorer" in scorers(s)
        finally:
            stop.set()
    assert set(seen) == {200}
    assert s.metric("epp_config_reload_failures_total") == 0
    assert "# generation: 4\n" in s.get("/debug/config")[1] and "queue-scorer" in s.get("/debug/config")[1]


def test_a_reload_keeps_what_unchanged_plugins_know(start):
    s = start(mode="lean", engines=4)
    prompt = "the same long beginning " * 200
    first = s.post({**BODY, "prompt": prompt})[2]["x-engine"]
    s.write_config(WITH_QUEUE)
    until(lambda: generation(s) == 2, what="generation 2")
    assert s.post({**BODY, "prompt": prompt})[0] == 200
    profile, = s.decisions(1)[0]["profiles"]
    at = [scorer["plugin"] for scorer in profile["scorers"]].index("prefix-cache-scorer")
    known = {endpoint["endpoint"].rpartition(":")[2]: endpoint["scores"][at] for endpoint in profile["endpoints"]}
    assert known.pop(first) > 0.9 and set(known.values()) == {0}


def test_a_bad_config_changes_nothing_and_is_named(start):
    s = start(mode="lean", engines=1)
    s.write_config(BAD + "wobble: 1\n")
    until(lambda: s.metric("epp_config_reload_failures_total") == 1, what="a failed reload")
    assert generation(s) == 1
    page = s.get("/debug/config")[1]
    comments = [line for line in page.splitlines() if line.startswith("#")]
    assert comments[:2] == ["# generation: 1", "# last reload failed:"]
    for mistake in ["wibble-scorer", "wobble"]:
        assert any(mistake in line for line in comments)
        assert any(mistake in msg and "stays in force" in msg for msg in events(s, "error"))
    assert "wibble" not in page.replace("\n".join(comments), "")
    assert s.post(BODY)[0] == 200 and scorers(s) == {"active-request-scorer", "prefix-cache-scorer"}

    s.write_config(WITH_QUEUE)
    until(lambda: generation(s) == 2, what="generation 2")
    until(lambda: "last reload failed" not in s.get("/debug/config")[1], what="no error any more")
    assert s.post(BODY)[0] == 200 and "queue-scorer" in scorers(s)
    assert s.metric("epp_config_reload_failures_total") == 1


def test_a_file_that_is_away_for_a_moment_changes_nothing(start):
    s = start(mode="lean", engines=1)
    s.config_path.unlink()
    assert s.post(BODY)[0] == 200 and generation(s) == 1
    s.write_config(WITH_QUEUE)
    until(lambda: generation(s) == 2, what="generation 2")
    assert s.metric("epp_config_reload_failures_total") == 0


@pytest.mark.parametrize("part, old, new", [
    ("dataLayer.discovery", "ENDPOINTS", "elsewhere.yaml"),
    ("dataLayer.sources", "plugins:\n-", "plugins:\n- {type: metrics-data-source, parameters: {path: /other}}\n-"),
])
def test_what_cannot_change_while_running_is_named(start, part, old, new):
    s = start(mode="lean", engines=1)
    s.write_config(CONFIG.replace(old, new, 1))
    until(lambda: generation(s) == 2, what="generation 2")
    until(lambda: any(part in msg and "next start" in msg for msg in events(s, "warn")), what="a warning")
    status, _, headers = s.post(BODY)
    assert status == 200 and headers["x-engine"] == str(s.engine_ports[0])
