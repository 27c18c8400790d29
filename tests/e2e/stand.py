"""A stand to test on: simulated engines, the picker before them, and Envoy with one of the set-ups of `envoy/`."""
import contextlib, http.client, json, pathlib, random, signal, socket, subprocess, threading, time, urllib.error, urllib.request

import envoy, grpc, yaml
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb, external_processor_pb2_grpc as rpc
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVOY = pathlib.Path(envoy.__file__).parent / "_bin" / "envoy"
DESTINATION = "x-gateway-destination-endpoint"
REASON = "x-llm-d-request-dropped-reason"
given = set()


def is_free(port):
    with contextlib.suppress(OSError), socket.socket() as s:
        s.bind(("127.0.0.1", port))
        return port not in given
    return False


def free_ports(n):
    """The first of `n` ports in a row that nobody has, never one twice. Below those that the system gives to clients."""
    for first in random.sample(range(12000, 31000), 500):
        if all(is_free(port) for port in range(first, first + n)):
            given.update(range(first, first + n))
            return first
    raise OSError("no free port")


def free_port():
    return free_ports(1)


def until(condition, seconds=10, what="the condition"):
    """Asks until the answer is true, and returns it."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        with contextlib.suppress(OSError, grpc.RpcError):
            last = condition()
            if last:
                return last
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come about in {seconds} s; last: {last!r}")


def listens(port):
    return lambda: socket.create_connection(("127.0.0.1", port), 0.2).close() is None


CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- {type: active-request-scorer}
- {type: prefix-cache-scorer}
dataLayer: {discovery: {pluginRef: file-discovery}}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer}, {pluginRef: prefix-cache-scorer, weight: 2}]
"""


class Process:
    """A child with its log."""

    def __init__(self, argv, log):
        self.log_path = log
        self.child = subprocess.Popen([str(a) for a in argv], stdout=log.open("wb"), stderr=subprocess.STDOUT)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self, sig=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(10)
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        return self.child.returncode


class Stand:
    def __init__(self, epp, directory, engines=2, kind="vllm", mode=None, config=CONFIG, flags=(), engine_flags=(), ready=True):
        self.binary, self.dir, self.mode = epp, directory, mode
        self.stack = contextlib.ExitStack()
        self.endpoints_path, self.config_path = directory / "endpoints.yaml", directory / "config.yaml"
        self.grpc_port, self.health_port, self.metrics_port, self.proxy_port = (free_port() for _ in range(4))
        try:
            self.engine_ports = self.start_engines(engines, kind, engine_flags) if engines else []
            self.write_endpoints(self.engine_ports)
            self.write_config(config)
            self.flags = flags
            self.start_epp(ready)
            if mode:
                self.start_envoy()
        except BaseException:
            self.stack.close()
            raise

    def __enter__(self): return self
    def __exit__(self, *a): self.stack.close()

    # parts

    def start_engines(self, count, kind="vllm", flags=()):
        """Starts simulated engines in one process; returns their ports."""
        base = free_ports(count)
        engines = Process([self.binary, "engine", "--count", count, "--base-port", base, "--kind", kind, *flags], self.dir / f"engines{base}.log")
        self.stack.callback(engines.stop)
        self.engines = engines
        ports = list(range(base, base + count))
        for port in ports:
            until(listens(port), what=f"engine on {port}")
        return ports

    def start_epp(self, ready=True):
        argv = [self.binary, "--config-file", self.config_path, "--grpc-port", self.grpc_port, "--grpc-health-port", self.health_port, "--metrics-port", self.metrics_port,
                "--secure-serving=false", "--emit-endpoint-scores", "--drain-timeout=0s", *self.flags]
        self.epp = Process(argv, self.dir / "epp.log")
        self.stack.callback(self.epp.stop)
        if ready:
            try:
                until(listens(self.grpc_port), 15, "the picker's port")
            except AssertionError as e:
                raise AssertionError(f"{e}\n{self.epp.log()}") from None

    def start_envoy(self):
        text = (ROOT / "envoy" / f"{self.mode}.yaml").read_text()
        config = yaml.safe_load(text)
        config["admin"]["address"]["socket_address"]["port_value"] = free_port()
        listener, = config["static_resources"]["listeners"]
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": self.proxy_port}
        picker = next(c for c in config["static_resources"]["clusters"] if c["name"] == "picker")
        endpoint = picker["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"]["port_value"] = self.grpc_port
        endpoint["health_check_config"]["port_value"] = self.health_port
        path = self.dir / "envoy.yaml"
        path.write_text(yaml.safe_dump(config))
        self.envoy = Process([ENVOY, "-c", path, "--concurrency", "1", "-l", "warn", "--use-dynamic-base-id"], self.dir / "envoy.log")
        self.stack.callback(self.envoy.stop)
        until(listens(self.proxy_port), 15, "Envoy's port")
        # Envoy refuses until its first health check of the picker has passed.
        until(lambda: self.post({"model": "m", "prompt": "ready?", "max_tokens": 1})[0] != 503 or not self.engine_ports, 15, "a healthy picker")

    # files

    def write_endpoints(self, ports, **more):
        entries = [{"name": f"e{p}", "address": "127.0.0.1", "port": str(p), **more} for p in ports]
        new = self.endpoints_path.with_suffix(".new")
        new.write_text(yaml.safe_dump({"endpoints": entries}))
        new.rename(self.endpoints_path)

    def write_config(self, text):
        """Puts a config in the place of the one before; ENDPOINTS stands for the path of the endpoints file."""
        new = self.config_path.with_suffix(".new")
        new.write_text(text.replace("ENDPOINTS", str(self.endpoints_path)))
        new.rename(self.config_path)

    # HTTP

    def get(self, path, accept=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.metrics_port}{path}", headers={"Accept": accept} if accept else {})
        try:
            with urllib.request.urlopen(request, timeout=10) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name, **labels):
        """The sum of the samples of this name that carry these labels; None if there is none."""
        hits = [s.value for f in text_string_to_metric_families(self.get("/metrics")[1]) for s in f.samples if s.name == name and labels.items() <= s.labels.items()]
        return sum(hits) if hits else None

    def decisions(self, last=10):
        """The records of the last decisions, newest first."""
        return json.loads(self.get(f"/debug/decisions?last={last}")[1])

    def in_flight(self):
        return sum(e["in_flight"]["requests"] for e in json.loads(self.get("/debug/endpoints")[1])["endpoints"])

    def open(self, body, path="/v1/completions", method="POST", headers=None):
        """Sends a request through Envoy; returns the connection and the response, whose body is not read yet."""
        c = http.client.HTTPConnection("127.0.0.1", self.proxy_port, timeout=30)
        data = json.dumps(body) if isinstance(body, dict) else body
        c.request(method, path, body=data, headers={"content-type": "application/json", **(headers or {})})
        return c, c.getresponse()

    def post(self, body, path="/v1/completions", **kw):
        """(status, body, headers) of a request through Envoy."""
        c, r = self.open(body, path, **kw)
        data = r.read()
        c.close()
        return r.status, data, dict(r.getheaders())

    # gRPC

    def talk(self, body, path="/v1/completions", headers=None):
        """A direct client's stream that stays open, and its answers as they come."""
        channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}")
        self.stack.callback(channel.close)
        pairs = [(":method", "POST"), (":path", path), *(headers or {}).items()]
        head = pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=[base_pb2.HeaderValue(key=k, raw_value=v.encode()) for k, v in pairs]))
        body = pb.HttpBody(body=json.dumps(body).encode(), end_of_stream=True)

        def messages():
            yield pb.ProcessingRequest(request_headers=head)
            yield pb.ProcessingRequest(request_body=body)
            open_ended.wait()
        open_ended = threading.Event()
        self.stack.callback(open_ended.set)
        call = rpc.ExternalProcessorStub(channel).Process(messages(), timeout=20)
        return call, iter(call)

    def pick(self, body, path="/v1/completions", headers=None, hold=None):
        """The endpoint that a direct client is given; `hold` is an ExitStack that keeps the stream open."""
        channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)])
        pairs = [(":method", "POST"), (":path", path), *(headers or {}).items()]
        head = pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=[base_pb2.HeaderValue(key=k, raw_value=v.encode()) for k, v in pairs]))
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        out = iter([pb.ProcessingRequest(request_headers=head), pb.ProcessingRequest(request_body=pb.HttpBody(body=data, end_of_stream=True))])
        release = []

        def messages():
            yield from out
            while hold is not None and not release:
                time.sleep(0.01)
        call = rpc.ExternalProcessorStub(channel).Process(messages(), timeout=20)
        first = next(iter(call))
        if hold is None:
            call.cancel()
            channel.close()
        else:
            hold.callback(lambda: (release.append(1), call.cancel(), channel.close()))
        if first.HasField("immediate_response"):
            return first.immediate_response
        return next(h.header.raw_value.decode() for h in first.request_headers.response.header_mutation.set_headers if h.header.key == DESTINATION)
