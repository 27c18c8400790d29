"""KV events over a real libzmq: engines publish what they hold, and picks go by it."""
import itertools, json, time

import msgpack, pytest, zmq

from stand import free_ports, until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- type: precise-prefix-cache-producer
  parameters: {kvEventsConfig: {podDiscoveryConfig: {socketPort: 5557}}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
- type: endpoint-notification-source
dataLayer:
  discovery: {pluginRef: file-discovery}
  sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}]}]
"""
CLEARED = {"type": "AllBlocksCleared"}
fresh = itertools.count(10**6)


def tokens(n):
    """Token ids that no other prompt of these tests has."""
    return [next(fresh) for _ in range(n)]


def stored(hashes, ids, parent=None):
    return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": ids, "block_size": 16, "medium": "GPU"}


class Publisher:
    """What an engine publishes with."""

    def __init__(self, port):
        self.port, self.number = port, 0
        self.open()

    def open(self):
        self.socket = zmq.Context.instance().socket(zmq.XPUB)
        self.socket.linger = 0
        self.socket.bind(f"tcp://127.0.0.1:{self.port}")

    def heard(self):
        """Waits for somebody who listens."""
        assert self.socket.poll(15000), "nobody subscribed"
        assert self.socket.recv() == b"\x01kv@"

    def say(self, *events):
        self.socket.send_multipart([b"kv@engine@m", self.number.to_bytes(8, "big"), msgpack.packb([time.time(), list(events), 0])])
        self.number += 1


@pytest.fixture
def heard(start):
    """A picker before two endpoints with a publisher each: the second one's rank is 1, so it publishes one port further."""
    with_ports = CONFIG.replace("5557", str(port := free_ports(2)))
    first, second = Publisher(port), Publisher(port + 1)
    s = start(engines=0, config=with_ports)
    entries = [f"{{name: e{rank}, address: 127.0.0.1, port: {8000 + rank}, rankIndex: {rank}}}" for rank in (0, 1)]
    s.endpoints_path.write_text(f"endpoints: [{', '.join(entries)}]\n")
    first.heard(), second.heard()
    yield s, first, second
    first.socket.close(), second.socket.close()


def goes_to(s, prompt, rank):
    until(lambda: {s.pick({"model": "m", "prompt": prompt}) for _ in range(8)} == {f"127.0.0.1:{8000 + rank}"}, what=f"all picks at rank {rank}")


def spreads(s, prompt):
    until(lambda: len({s.pick({"model": "m", "prompt": prompt}) for _ in range(32)}) == 2, what="picks at both")


def test_requests_go_where_the_engines_say_that_the_prompt_is(heard):
    s, first, second = heard
    a, b = tokens(64), tokens(64)
    first.say(stored([1, 2, 3, 4], a))
    second.say(stored([1, 2], b[:32]), stored([3, 4], b[32:], 2))
    goes_to(s, a + tokens(20), 0)
    goes_to(s, b + tokens(20), 1)
    first.say(CLEARED)
    spreads(s, a)
    goes_to(s, b, 1)


def test_an_engine_that_starts_again_has_lost_its_blocks_and_is_heard_anew(heard):
    s, first, _ = heard
    a = tokens(64)
    first.say(stored([1, 2, 3, 4], a))
    first.say()
    goes_to(s, a, 0)
    first.socket.close()
    until(lambda: s.metric("epp_board_kv_connected_endpoints") == 1, what="one publisher")
    first.number = 0
    until(lambda: not first.open(), what="the port")
    first.heard()
    first.say(stored([9], b := tokens(16)))
    goes_to(s, b, 0)
    spreads(s, a)


def test_the_debug_page_tells_who_is_heard_and_what_does_not_fit(heard):
    s, first, second = heard
    first.say({"type": "NoSuchEvent"})
    first.say({"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": tokens(24), "block_size": 24, "medium": "GPU"})
    second.say(stored([2], tokens(16)))
    until(lambda: s.metric("epp_kv_mismatch_total", cause="block_size") == 1, what="a mismatch")
    page = json.loads(s.get("/debug/kv")[1])
    subscribers, = page["subscribers"]
    assert [e["state"] for e in subscribers["endpoints"]] == ["connected"] * 2
    told = {e["endpoint"]: e for e in page["producers"]["precise-prefix-cache-producer"]["endpoints"]}
    assert told["default/e0"]["discarded"] == 1 and told["default/e0"]["mismatches"]
    assert told["default/e1"]["mismatches"] == [] and told["default/e1"]["places"] == [{"tier": "gpu", "group": None, "blocks": 1}]
    assert s.epp.log().count("neither divides the other") == 1, "said more than once"


def test_a_message_that_is_too_large_is_left_out(heard):
    s, first, _ = heard
    first.socket.send_multipart([b"kv@engine@m", bytes(8), bytes(65 << 20)])
    first.number = 1
    first.say(stored([1], a := tokens(16)))
    goes_to(s, a, 0)
    page = json.loads(s.get("/debug/kv")[1])
    assert page["subscribers"][0]["endpoints"][0]["errors"] == 1
