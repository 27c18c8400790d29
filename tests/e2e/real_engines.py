"""Holds the picker's precise index against real engines, by hand: 200 requests of conversations that share a system prompt
go through the picker to running vLLM servers, one in five to another engine than the picked one. For each, what the picker
believed to be cached there is compared with what the engine reports. After 120 requests the caches are reset.

    python real_engines.py PATH-TO-EPP 8101:5601 8102:5602

Each engine is HTTP-PORT:EVENT-PORT on this machine, the event ports one after the other, started with

    vllm serve MODEL --served-model-name m --port 8101 --enable-prompt-tokens-details --max-model-len 4096
      --kv-events-config '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5601", "topic": "kv@e1@m"}'

VLLM_SERVER_DEV_MODE=1 allows the reset; --num-gpu-blocks-override with few blocks makes evictions."""
import collections, contextlib, json, pathlib, random, sys, tempfile, time, urllib.request

from stand import DESTINATION, Stand, until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- type: precise-prefix-cache-producer
  parameters:
    tokenProcessorConfig: {blockSizeTokens: BLOCK}
    kvEventsConfig: {podDiscoveryConfig: {socketPort: EVENTS}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- {type: max-score-picker}
- {type: endpoint-notification-source}
dataLayer:
  discovery: {pluginRef: file-discovery}
  sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: max-score-picker}]}]
"""
REQUESTS, RESET_AT, LONGEST = 200, 120, 3800


def ask(port, path, body=None):
    data = json.dumps(body).encode() if body is not None else b""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def block_tokens(port):
    """The engine's block size, as its metrics say it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        return int(page.read().decode().split('block_size="')[1].split('"')[0])


def pick(s, body):
    """The picked endpoint, and the score of each."""
    call, answers = s.talk(body)
    first = next(answers)
    call.cancel()
    headers = {h.header.key: h.header.raw_value.decode() for h in first.request_headers.response.header_mutation.set_headers}
    return headers[DESTINATION], dict(first.dynamic_metadata["envoy.lb"][DESTINATION + "-scores"])


def main(epp, engines):
    ports = [tuple(map(int, e.split(":"))) for e in engines]
    block = block_tokens(ports[0][0])
    rng = random.Random(7)
    words = lambda n: [rng.randrange(3, 500) for _ in range(n)]
    system = words(400)
    talks = [system + words(rng.randrange(50, 700)) for _ in range(20)]
    differences, tokens = collections.Counter(), collections.Counter()
    config = CONFIG.replace("BLOCK", str(block)).replace("EVENTS", str(ports[0][1]))
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        s = stack.enter_context(Stand(epp, pathlib.Path(directory), engines=0, config=config))
        entries = [{"name": f"e{i}", "address": "127.0.0.1", "port": str(port), "rankIndex": i} for i, (port, _) in enumerate(ports)]
        s.endpoints_path.write_text(json.dumps({"endpoints": entries}))
        until(lambda: s.metric("epp_board_kv_connected_endpoints") == len(ports), what="a connection to every engine")
        for n in range(REQUESTS):
            i = rng.randrange(len(talks))
            if len(talks[i]) > LONGEST:
                talks[i] = system + words(300)
            if n == RESET_AT:
                for port, _ in ports:
                    ask(port, "/reset_prefix_cache")
            # Time for the events of the request before.
            time.sleep(0.15)
            prompt = talks[i]
            picked, scores = pick(s, {"model": "m", "prompt": prompt, "max_tokens": 16})
            target = picked if rng.random() < 0.8 else rng.choice(list(scores))
            got = ask(int(target.rsplit(":")[1]), "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
            # An engine computes at least the last token.
            most = (len(prompt) - 1) // block * block
            expected = min(round(scores[target] * (len(prompt) // block)) * block, most)
            cached = (got["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            differences[expected - cached] += 1
            tokens.update(prompt=len(prompt), believed=expected, reported=cached)
            if expected != cached:
                print(f"request {n} at {target}: {len(prompt)} tokens, believed {expected}, reported {cached}")
            talks[i] = prompt + (got["choices"][0].get("token_ids") or words(16)) + words(rng.randrange(20, 300))
        page = json.loads(s.get("/debug/kv")[1])
        events = [e["events"] for e in page["producers"]["precise-prefix-cache-producer"]["endpoints"]]
    print(f"{REQUESTS} requests, of which {differences[0]} were as believed; tokens: {dict(tokens)}; events: {events}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
