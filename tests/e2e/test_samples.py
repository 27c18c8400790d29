"""The sample configs do what their comments promise."""
import contextlib, json

import pytest, yaml

from stand import ROOT, until

SAMPLES = sorted(path.stem for path in (ROOT / "config").glob("*.yaml"))
GENERATE = {"model": "m", "token_ids": list(range(2000)), "sampling_params": {"max_tokens": 4}}
REQUESTS = {
    "vllmhttp-parser": ("/inference/v1/generate", GENERATE),
    "sglanghttp-parser": ("/generate", {"input_ids": list(range(2000)), "sampling_params": {"max_new_tokens": 4}}),
}
LONG = {"model": "m", "prompt": "never seen before " * 1000, "max_tokens": 4}


@pytest.fixture
def sample(start):
    """sample(name, labels) starts the picker with a sample and an engine for each dict of labels."""
    def go(name, labels):
        text = (ROOT / "config" / f"{name}.yaml").read_text().replace("endpoints.yaml", "ENDPOINTS")
        s = start(engines=len(labels), config=text, flags=("--allow-experimental-plugins",))
        entries = [{"name": f"e{port}", "address": "127.0.0.1", "port": port, "labels": of} for port, of in zip(s.engine_ports, labels)]
        s.endpoints_path.write_text(yaml.safe_dump({"endpoints": entries}))
        until(lambda: all(value in s.get("/debug/endpoints")[1] for of in labels for value in of.values()), what="the labels")
        return s, [f"127.0.0.1:{port}" for port in s.engine_ports]
    return go


def picks(s):
    """What each profile chose for the last request."""
    return {profile["name"]: profile["picked"] for profile in s.decisions(1)[0]["profiles"]}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_serves(sample, name):
    s, engines = sample(name, [{}, {}])
    path, body = next((request for parser, request in REQUESTS.items() if parser in (ROOT / "config" / f"{name}.yaml").read_text()), ("/v1/completions", LONG))
    address = s.pick(body, path)
    assert address in (["127.0.0.1:8000"] if name == "data-parallel" else engines)


def test_without_a_config_the_endpoints_file_is_enough(start):
    s = start(engines=2)
    s.epp.stop()
    s.flags = ("--config-file=", f"--endpoints-file={s.endpoints_path}")
    s.start_epp()
    assert s.pick(LONG) in {f"127.0.0.1:{port}" for port in s.engine_ports}
    [profile] = s.decisions(1)[0]["profiles"]
    default = yaml.safe_load((ROOT / "config" / "default.yaml").read_text())["schedulingProfiles"][0]["plugins"]
    assert {scorer["plugin"] for scorer in profile["scorers"]} == {plugin["pluginRef"] for plugin in default}
    s.write_endpoints(s.engine_ports[:1])
    until(lambda: len(json.loads(s.get("/debug/endpoints")[1])["endpoints"]) == 1, what="the file to be followed")


@pytest.mark.parametrize("name", ["prefill-decode", "prefill-decode-topology"])
def test_only_a_long_prompt_is_prefilled_elsewhere(sample, name):
    s, [prefill, decode] = sample(name, [{"llm-d.ai/role": "prefill"}, {"llm-d.ai/role": "decode"}])
    until(lambda: s.pick({**LONG, "prompt": "short"}) == decode, what="the decode engine")
    assert "prefill" not in picks(s)
    assert s.pick(LONG) == decode
    assert picks(s) == {"decode": [decode], "prefill": [prefill]}


def test_prefill_is_near_decode(sample):
    zone = lambda role, name: {"llm-d.ai/role": role, "topology.kubernetes.io/zone": name}
    s, [_, near, decode, _] = sample("prefill-decode-topology", [zone("prefill", "east"), zone("prefill", "west"), zone("decode", "west"), zone("prefill", "north")])
    for i in range(4):
        assert s.pick({**LONG, "prompt": f"{i} " * 4000}) == decode
        assert picks(s)["prefill"] == [near]


def test_a_session_stays_however_busy_its_engine_is(sample):
    s, engines = sample("session-affinity", [{}, {}])
    with contextlib.ExitStack() as hold:
        mine = {s.pick(LONG, headers={"x-session-id": "mine"}, hold=hold) for _ in range(4)}
        assert len(mine) == 1
        assert {s.pick(LONG, headers={"x-session-id": f"new {i}"}, hold=hold) for i in range(3)} == set(engines) - mine


def test_prompts_go_where_their_length_belongs(sample):
    label = "llm-d.ai/context-length-range"
    s, [short, long] = sample("context-length", [{label: "0-1000"}, {label: "1001-100000"}])
    for _ in range(3):
        assert s.pick({**LONG, "prompt": "short"}) == short
        assert s.pick(LONG) == long


def test_tokens_in_flight_count_and_not_requests(sample):
    s, _ = sample("rl-token-load", [{}, {}])
    request = lambda n: {"model": "m", "token_ids": [n] * n, "sampling_params": {"max_tokens": 1000}}
    with contextlib.ExitStack() as hold:
        busy = s.pick(request(50_000), "/inference/v1/generate", hold=hold)
        assert {s.pick(request(500 + i), "/inference/v1/generate", hold=hold) for i in range(5)}.isdisjoint({busy})
