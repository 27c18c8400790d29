"""Measures what a request costs a picker, beside a server of constants and, if one is given, another picker; prints Markdown.

Usage: table.py PATH-TO-EPP [--other PATH-TO-ANOTHER] [--rounds N] [--at-once N]

The other one is started with the same flags, config and endpoints file. Both speak as `envoy/duplex.yaml` has Envoy speak,
without Envoy: `epp bench` plays it, and asks each in turn. Latency is measured one by one, CPU time with several at once.
"""
import argparse, json, pathlib, random, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from stand import Process, Stand, free_port, listens, until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS, watchFile: true}}
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: max-score-picker}
- {type: openai-parser}
- {type: vllmhttp-parser}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer, weight: 3}, {pluginRef: max-score-picker}]
requestHandler: {parsers: [{pluginRef: openai-parser}, {pluginRef: vllmhttp-parser}]}
dataLayer: {discovery: {pluginRef: file-discovery}}
"""
WORDS = "the of and to in is was he for it with as his on be at by had not are but from or have an they which one you were her all she there would their we him been has when who will more no if out so said what up its about into than them can only other new some could time these two may then do first any my now such like our over man me even most made after also did many before must through back years where much your way well down should because each just those people how too little state good very make world still own see men work long get here between both life being under never day same another know while last might us great old year off come since against go came right used take three".split()


def chat(rng, n_bytes):
    """A chat of about so many bytes; each has its own beginning."""
    words, size = [], 0
    while size < n_bytes:
        words.append(rng.choice(WORDS))
        size += len(words[-1]) + 1
    return {"model": "m", "max_tokens": 64, "messages": [{"role": "system", "content": f"You are number {rng.random()}."}, {"role": "user", "content": " ".join(words)}]}


def traces(folder, short, long):
    """(what it is, its trace, how many requests warm up) for each row."""
    rng = random.Random(1)
    for name, n, n_bytes in (("short", short, 800), ("long", long, 440_000)):
        with open(folder / f"{name}.jsonl", "w") as out:
            for i in range(n):
                out.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": chat(rng, n_bytes)}) + "\n")
    (folder / "ids.json").write_text(json.dumps({"seed": 1, "requests": long, "clients": [{"rate": 100, "input": {"fixed": 100_000}, "output": {"fixed": 64}}]}))
    yield "chat of 200 tokens", folder / "short.jsonl", short // 10
    yield "chat of 100k tokens (440 KB)", folder / "long.jsonl", 10
    yield "100k token ids", folder / "ids.json", 10


def start_other(stand, path, folder):
    """Another picker with the stand's config and endpoints; (its ext_proc port, its process)."""
    port = free_port()
    argv = [path, "--config-file", stand.config_path, "--pool-name", "pool", "--pool-namespace", "default", "--grpc-port", port, "--grpc-health-port", free_port(), "--metrics-port", free_port(),
            "--secure-serving=false", "--tracing=false", "--allow-experimental-plugins", "--drain-timeout=0s", "-v=1"]
    process = Process(argv, folder / "other.log")
    stand.stack.callback(process.stop)
    try:
        until(listens(port), 20, "the other picker's port")
    except AssertionError as e:
        sys.exit(f"{e}\n{process.log()[-2000:]}")
    return port, process


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("epp", type=pathlib.Path)
    parser.add_argument("--other", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--short", type=int, default=1000, help="how many short requests a round has")
    parser.add_argument("--long", type=int, default=70, help="how many long requests a round has")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        with Stand(args.epp.resolve(), tmp, engines=4, config=CONFIG) as s:
            target = ["--target", f"127.0.0.1:{s.grpc_port}", "--pid", s.epp.child.pid, "--baseline"]
            names = {"target": "this picker", "baseline": "constant"}
            if args.other:
                port, process = start_other(s, args.other.resolve(), tmp)
                target += ["--versus", f"127.0.0.1:{port}", "--versus-pid", process.child.pid]
                names = {"target": "this picker", "versus": args.other.name if args.other.name != "epp" else "the other", "baseline": "constant"}
            rows = []
            for what, trace, warm_up in traces(tmp, args.short, args.long):
                figures = {}
                for at_once in (1, args.at_once):
                    argv = [s.binary, "bench", *target, "--trace", trace, "--mode", "duplex", "--concurrency", at_once, "--warm-up", warm_up, "--rounds", args.rounds, "--json", tmp / "out.json"]
                    ran = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
                    print(ran.stdout, ran.stderr, file=sys.stderr)
                    if ran.returncode:
                        sys.exit(ran.returncode)
                    for picker in json.loads((tmp / "out.json").read_text())["pickers"]:
                        figures[picker["name"], at_once] = picker["over_rounds"]
                rows.append((what, figures))
            print("| request | | " + " | ".join(names.values()) + " |")
            print("|---|---|" + "---|" * len(names))
            for what, figures in rows:
                for label, at_once, figure, scale in (("CPU, ms", args.at_once, "cpu_us_per_request", 1e-3), ("p50, ms", 1, "latency_p50_ms", 1), ("p99, ms", 1, "latency_p99_ms", 1)):
                    cells = []
                    for name in names:
                        spread = figures[name, at_once][figure]
                        low, middle, high = (f"{spread[k] * scale:.3g}" for k in ("low", "median", "high"))
                        cells.append(middle if low == high else f"{middle} ({low} to {high})")
                    print(f"| {what} | {label} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
