"""Serves real requests with simulated engines, the picker and Envoy, and shows where each went, why, and what it saved.

Usage: demo.py PATH-TO-EPP [--duplex] [--engines N] [--requests N]
"""
import argparse, concurrent.futures, contextlib, http.client, json, pathlib, socket, subprocess, sys, tempfile, time

import envoy, yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENVOY = pathlib.Path(envoy.__file__).parent / "_bin" / "envoy"
GRPC, HEALTH, METRICS, GATEWAY, ADMIN, ENGINE = 19002, 19003, 19090, 18080, 19901, 18101
SYSTEM = ["You are a patient tutor of mathematics. " * 60, "You review Rust code and say what is wrong with it. " * 50, "You translate letters from Dutch to English. " * 55]


def listens(port, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def bootstrap(name):
    """The set-up of the repository on the ports of the demo; its responses also tell the scores that led to the pick."""
    c = yaml.safe_load((ROOT / "envoy" / f"{name}.yaml").read_text())
    c["admin"]["address"]["socket_address"]["port_value"] = ADMIN
    listener, = c["static_resources"]["listeners"]
    listener["address"]["socket_address"]["port_value"] = GATEWAY
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    manager["route_config"]["response_headers_to_add"] = [
        {"header": {"key": f"x-{k}", "value": f"%DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint{s})%"}} for k, s in (("picked", ""), ("scores", "-scores"))]
    picker = next(x for x in c["static_resources"]["clusters"] if x["name"] == "picker")
    endpoint = picker["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    endpoint["address"]["socket_address"]["port_value"] = GRPC
    endpoint["health_check_config"]["port_value"] = HEALTH
    return c


def ask(turn):
    """One streamed chat; (endpoint, scores, prompt tokens, cached tokens, time to the first chunk, time in all)."""
    topic, question = turn
    body = {"model": "demo", "stream": True, "max_tokens": 24, "stream_options": {"include_usage": True},
            "messages": [{"role": "system", "content": SYSTEM[topic]}, {"role": "user", "content": question}]}
    began = time.monotonic()
    c = http.client.HTTPConnection("127.0.0.1", GATEWAY, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        return turn, None, f"{r.status} {r.read().decode()[:70]}"
    first, usage = None, {}
    for line in r:
        if line.startswith(b"data: {"):
            first = first or time.monotonic() - began
            usage = json.loads(line[6:]).get("usage") or usage
    c.close()
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return turn, r.getheader("x-picked"), (json.loads(r.getheader("x-scores") or "{}"), usage.get("prompt_tokens", 0), cached, first or 0, time.monotonic() - began)


def why(endpoint, scores):
    if not scores:
        return "the only choice"
    mine, others = scores[endpoint], sorted((v for k, v in scores.items() if k != endpoint), reverse=True)
    if not others:
        return f"score {mine:.2f}, the only candidate"
    return f"score {mine:.2f}, next {others[0]:.2f}" + (" (tie)" if mine == others[0] else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("epp", type=pathlib.Path)
    parser.add_argument("--duplex", action="store_true", help="use envoy/duplex.yaml instead of envoy/lean.yaml")
    parser.add_argument("--engines", type=int, default=3)
    parser.add_argument("--requests", type=int, default=18)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp, contextlib.ExitStack() as stack:
        tmp = pathlib.Path(tmp)

        def run(name, *argv):
            p = subprocess.Popen([str(a) for a in argv], stdout=(tmp / f"{name}.log").open("wb"), stderr=subprocess.STDOUT)
            stack.callback(lambda: (p.terminate(), p.wait(10)))
            return p
        config = (ROOT / "config" / "demo.yaml").read_text().replace("endpoints.yaml", str(tmp / "endpoints.yaml"))
        (tmp / "config.yaml").write_text(config)
        (tmp / "envoy.yaml").write_text(yaml.safe_dump(bootstrap("duplex" if args.duplex else "lean")))
        run("engines", args.epp, "engine", "--count", args.engines, "--base-port", ENGINE, "--model", "demo", "--endpoints", tmp / "endpoints.yaml")
        for port in range(ENGINE, ENGINE + args.engines):
            listens(port)
        picker = run("epp", args.epp, "--config-file", tmp / "config.yaml", "--grpc-port", GRPC, "--grpc-health-port", HEALTH, "--metrics-port", METRICS,
                     "--secure-serving=false", "--emit-endpoint-scores", "--drain-timeout=0s")
        listens(GRPC)
        run("envoy", ENVOY, "-c", tmp / "envoy.yaml", "--concurrency", "1", "-l", "warn", "--use-dynamic-base-id")
        listens(GATEWAY)
        time.sleep(1)  # Envoy's first health check of the picker
        print(f"{args.engines} simulated engines on ports {ENGINE} to {ENGINE + args.engines - 1}, the picker on {GRPC}, Envoy on {GATEWAY} ({'duplex' if args.duplex else 'lean'})\n")
        print(f"{'request':9} {'went to':16} {'why':34} {'prompt':>7} {'cached':>7} {'first':>8} {'whole':>8}")
        turns = [(i % 3, f"Question {i}: what comes next?") for i in range(args.requests)]
        failed = 0
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for (topic, question), endpoint, got in pool.map(ask, turns):
                label = f"{'ABC'[topic]} {question.split(':')[0][9:]:>3}"
                if endpoint is None:
                    failed += 1
                    print(f"{label:9} {got}")
                    continue
                scores, prompt, cached, first, whole = got
                print(f"{label:9} {endpoint:16} {why(endpoint, scores):34} {prompt:7} {cached:7} {first * 1e3:6.0f}ms {whole * 1e3:6.0f}ms")
        print("\nThree topics (A, B, C) with long beginnings of their own: each settles where its beginning is cached, while load stays spread.")
        if failed or picker.poll() is not None:
            print((tmp / "epp.log").read_text()[-2000:])
            sys.exit(f"{failed} requests failed")


main()
