"""Measures what `--record` costs a picker: CPU time a request of two that differ in nothing else, in turns; prints it.

Usage: recording.py PATH-TO-EPP [--starts N] [--rounds N] [--requests N] [--trace FILE] [--control]

Unless a trace is given, prompts have 300 token ids, so that a request costs little beside its recording. Rounds are short,
so that what else the machine does falls on both. Of two processes alike one is up to 1 us slower for as long as it lives, so
both are started anew many times, and each goes first half of the time; what counts is the mean over the starts. With
--control neither records: what is told then is chance.
"""
import argparse, json, pathlib, statistics, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from stand import Process, Stand, free_port, listens, until

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: ENDPOINTS}}
- {type: active-request-scorer}
- {type: queue-scorer}
- {type: prefix-cache-scorer}
dataLayer: {discovery: {pluginRef: file-discovery}}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer}, {pluginRef: queue-scorer}, {pluginRef: prefix-cache-scorer, weight: 2}]
"""


def start(stand, name, flags):
    """A picker with the stand's config; (its ext_proc port, its process)."""
    port = free_port()
    argv = [stand.binary, "--config-file", stand.config_path, "--grpc-port", port, "--grpc-health-port", free_port(), "--metrics-port", free_port(), "--secure-serving=false", "--drain-timeout=0s", *flags]
    process = Process(argv, stand.dir / f"{name}.log")
    until(listens(port), 20, f"the picker {name}")
    return port, process


def rounds(stand, trace, args, is_first):
    """CPU time a request of each round, in microseconds: (of the one that records, of the other one)."""
    file = stand.dir / "decisions.jsonl"
    recording, plain = start(stand, "recording", [] if args.control else ["--record", file]), start(stand, "plain", [])
    try:
        first, second = (recording, plain) if is_first else (plain, recording)
        argv = [stand.binary, "bench", "--target", f"127.0.0.1:{first[0]}", "--pid", first[1].child.pid, "--versus", f"127.0.0.1:{second[0]}", "--versus-pid", second[1].child.pid,
                "--trace", trace, "--requests", args.requests, "--concurrency", 8, "--warm-up", args.requests // 10, "--rounds", args.rounds, "--json", stand.dir / "out.json"]
        ran = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
        print(ran.stdout, ran.stderr, file=sys.stderr)
        if ran.returncode:
            sys.exit(ran.returncode)
        figures = [[r["process"]["cpu_us_per_request"] for r in picker["rounds"]] for picker in json.loads((stand.dir / "out.json").read_text())["pickers"]]
        return list(zip(*(figures if is_first else reversed(figures))))
    finally:
        recording[1].stop()
        plain[1].stop()
        for path in (file, file.with_name(file.name + ".1")):
            path.unlink(missing_ok=True)


def spread(values):
    low, _, high = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):.2f} ({low:.2f} to {high:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("epp", type=pathlib.Path)
    parser.add_argument("--starts", type=int, default=16, help="how often both pickers are started anew")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds each start has")
    parser.add_argument("--requests", type=int, default=8000, help="how many requests a round has")
    parser.add_argument("--trace", type=pathlib.Path, help="traffic in the place of such prompts; each round has its first requests")
    parser.add_argument("--control", action="store_true", help="neither records")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        trace = args.trace or tmp / "trace.json"
        if not args.trace:
            trace.write_text(json.dumps({"seed": 1, "requests": args.requests, "clients": [{"rate": 1000, "sharedTokens": 100, "input": {"fixed": 200}, "output": {"fixed": 10}}]}))
        with Stand(args.epp.resolve(), tmp, engines=8, config=CONFIG) as stand:
            stand.epp.stop()
            starts = [rounds(stand, trace, args, i % 2 == 0) for i in range(args.starts)]
    pairs = [pair for start in starts for pair in start]
    print(f"us of CPU a request: {spread([a for a, _ in pairs])} {'without' if args.control else 'with'} --record, {spread([b for _, b in pairs])} without")
    by_start = [statistics.median(a - b for a, b in start) for start in starts]
    error = statistics.stdev(by_start) / len(by_start) ** 0.5
    print(f"difference: {statistics.mean(by_start):.2f} us +- {error:.2f}, {100 * statistics.mean(by_start) / statistics.median(b for _, b in pairs):.1f} %")
    print("difference by start: " + ", ".join(f"{d:.2f}" for d in by_start) + " us")


if __name__ == "__main__":
    main()
