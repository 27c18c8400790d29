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


ELSEWHERE = CONFIG.replace("ENDPOINTS", "ENDPOINTS.other")
OTHER_PAGE = CONFIG.replace("plugins:\n-", "plugins:\n- {type: metrics-data-source, parameters: {path: /other}}\n-", 1)


def known(s):
    """What is known of each endpoint, by its port."""
    endpoints = json.loads(s.get("/debug/endpoints")[1])["endpoints"]
    return {int(e["address"].rpartition(":")[2]): e for e in endpoints}


def test_another_endpoints_file_is_followed_from_then_on(start):
    s = start(mode="lean", engines=2)
    first, second = s.engine_ports
    elsewhere = s.endpoints_path.with_name(s.endpoints_path.name + ".other")

    def write_elsewhere(ports):
        elsewhere.write_text(json.dumps({"endpoints": [{"name": f"e{p}", "address": "127.0.0.1", "port": p} for p in ports]}))

    s.write_config(ELSEWHERE)
    until(lambda: s.metric("epp_config_reload_failures_total") == 1, what="a refused reload")
    assert any("dataLayer.discovery" in msg and elsewhere.name in msg for msg in events(s, "error"))
    assert generation(s) == 1 and set(known(s)) == {first, second}

    write_elsewhere([second])
    s.write_config(ELSEWHERE + "# again\n")
    until(lambda: generation(s) == 2 and set(known(s)) == {second}, what="the other file's endpoint")
    assert s.post(BODY)[2]["x-engine"] == str(second)

    write_elsewhere([second, first])
    until(lambda: set(known(s)) == {first, second}, what="a change of the other file")
    s.write_endpoints([first])
    s.write_config(CONFIG)
    until(lambda: generation(s) == 3 and set(known(s)) == {first}, what="the first file's endpoint")


def test_what_engines_are_asked_changes_and_what_was_known_stays(start):
    s = start(mode="lean", engines=1)
    port, = s.engine_ports
    until(lambda: known(s)[port]["fresh"], what="a first scrape")
    before = known(s)[port]["last"]

    s.write_config(OTHER_PAGE)
    until(lambda: generation(s) == 2, what="generation 2")
    until(lambda: "404" in known(s)[port]["scrapes"].get("last_error", ""), what="a scrape of the other page")
    assert known(s)[port]["last"]["waiting"] == before["waiting"]
    until(lambda: not known(s)[port]["fresh"], what="staleness")

    s.write_config(CONFIG)
    until(lambda: generation(s) == 3 and known(s)[port]["fresh"], what="a fresh endpoint")
    assert s.post(BODY)[0] == 200


def test_a_source_that_cannot_be_asked_is_refused(start):
    s = start(mode="lean", engines=1)
    s.write_config(OTHER_PAGE.replace("path: /other", "scheme: https, clientCertPath: /none, clientKeyPath: /none"))
    until(lambda: s.metric("epp_config_reload_failures_total") == 1, what="a refused reload")
    assert any("dataLayer.sources" in msg and "/none" in msg for msg in events(s, "error"))
    assert generation(s) == 1
    until(lambda: known(s)[s.engine_ports[0]]["fresh"], what="a fresh endpoint")
