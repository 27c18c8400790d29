"""Runs the same arms on the same traffic in virtual time and over real sockets, and writes what differs as Markdown.

Usage: compare.py PATH-TO-EPP [--sets NAME ...] [--arms NAME ...] [--seeds N] [--out FILE]

Over real sockets: simulated engines (`epp engine`), the picker with the arm's config, and `epp bench`, which asks the picker
and sends each request to the engine that was picked, or sends it through Envoy. Both sides read one file of engine and one trace.
"""
import argparse, itertools, json, pathlib, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from stand import Stand, until

ENDPOINTS = 4
MAY_DIFFER = 0.1
LEAST_RANK = 0.9
ALL = ["default", "go-default", "in-flight", "go-burst", "prefix", "load", "random", "session"]
# Where a request has no session, or a trajectory's turns find their prefix anyway, the arm `session` is the arm `load`.
SETS = {
    "generator": {"trace": "generator.json", "arms": ["default", "in-flight", "load"], "by": "ttft", "ranked": False, "envoy": ["default"]},
    "mooncake": {"trace": "mooncake.jsonl", "arms": ALL[:-1], "by": "ttft", "ranked": True, "envoy": []},
    "weka": {"trace": "weka", "arms": ALL, "by": "ttft", "ranked": True, "envoy": []},
    "rollouts": {"trace": "rollouts.jsonl", "arms": ALL[:-1], "by": "e2e", "ranked": True, "envoy": []},
}
SAID = {"ttft": "mean time to the first token", "e2e": "mean time to the end of an answer"}


def config(arm):
    """The file of an arm's config."""
    return HERE.parents[1] / "config" / "default.yaml" if arm == "default" else HERE / "arms" / f"{arm}.yaml"


def simulated(epp, name, arms, seeds):
    """By arm: a dict of figures for each seed."""
    out = {arm: [] for arm in arms}
    for seed in range(1, seeds + 1):
        argv = [epp, "simulate", "--trace", HERE / "sets" / SETS[name]["trace"], "--engine", HERE / "sets" / f"{name}.yaml", "--endpoints", ENDPOINTS, "--seed", seed, "--json", "-"]
        for arm in arms:
            argv += ["--arm", f"{arm}={config(arm)}"]
        for arm in json.loads(subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True).stdout)["arms"]:
            assert not arm["failures"], arm["failures"]
            out[arm["name"]].append({"ttft": arm["ttft_seconds"]["mean"], "e2e": arm["e2e_seconds"]["mean"], "seconds": arm["makespan_seconds"],
                                     "reuse": arm["reused_tokens"] / arm["prompt_tokens"]})
    return out


def real(epp, name, arm, envoy):
    """The figures of one run over real sockets."""
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        text = config(arm).read_text().replace("endpoints.yaml", "ENDPOINTS")
        flags = ("--allow-experimental-plugins",)
        with Stand(epp, tmp, engines=ENDPOINTS, config=text, flags=flags, engine_flags=("--engine", HERE / "sets" / f"{name}.yaml"), mode="lean" if envoy else None) as s:
            until(lambda: all((e["last"] or {}).get("waiting") is not None for e in json.loads(s.get("/debug/endpoints")[1])["endpoints"]), what="a scrape of every engine")
            target = ["--target", f"http://127.0.0.1:{s.proxy_port}"] if envoy else ["--target", f"127.0.0.1:{s.grpc_port}", "--dispatch"]
            argv = [epp, "bench", *target, "--trace", HERE / "sets" / SETS[name]["trace"], "--warm-up", 0, "--json", tmp / "out.json"]
            ran = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
            if ran.returncode:
                print(ran.stderr, file=sys.stderr)
            report = json.loads((tmp / "out.json").read_text())
            figures = report["pickers"][0]["rounds"][0]
            r = figures["responses"]
            return {"ttft": r["ttft"]["mean_ms"] / 1e3, "e2e": r["e2e"]["mean_ms"] / 1e3, "seconds": figures["seconds"], "reuse": r["cached_tokens"] / r["prompt_tokens"], "valid": report["valid"]}


def ranks(values):
    """From 1 on; equals share the mean of theirs."""
    order = sorted(values)
    return [statistics.mean(i + 1 for i, v in enumerate(order) if v == value) for value in values]


def spearman(a, b):
    return statistics.correlation(ranks(a), ranks(b))


def apart(a, b):
    """Whether no seed of one arm comes between those of the other."""
    return max(a) < min(b) or max(b) < min(a)


def ms(seconds):
    return f"{seconds * 1e3:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def section(name, sim, measured):
    """The table of a set, and what it comes to."""
    by, lines = SETS[name]["by"], []
    other = "e2e" if by == "ttft" else "ttft"
    lines += [f"| arm | {by}, simulated | least to most | {by}, real | off by | {other}, simulated | real | reuse, simulated | real | makespan, simulated | real |", "|" + "---|" * 11]
    for (arm, envoy), got in measured.items():
        seeds = sim[arm]
        mean = lambda key: statistics.mean(s[key] for s in seeds)
        values = [s[by] for s in seeds]
        label = f"`{arm}`" + (", through Envoy" if envoy else "") + ("" if got["valid"] else " (invalid)")
        lines.append(f"| {label} | {ms(mean(by))} | {ms(min(values))} to {ms(max(values))} | {ms(got[by])} | {(got[by] / mean(by) - 1) * 100:+.1f} % | {ms(mean(other))} | {ms(got[other])} "
                     f"| {mean('reuse') * 100:.0f} % | {got['reuse'] * 100:.0f} % | {mean('seconds'):.1f} s | {got['seconds']:.1f} s |")
    found = {"off": max(abs(got["ttft"] / statistics.mean(s["ttft"] for s in sim[arm]) - 1) for (arm, _), got in measured.items())}
    direct = [arm for arm, envoy in measured if not envoy]
    if SETS[name]["ranked"] and len(direct) > 2:
        a = [statistics.mean(s[by] for s in sim[arm]) for arm in direct]
        b = [measured[arm, False][by] for arm in direct]
        pairs = [(x, y) for x, y in itertools.combinations(range(len(direct)), 2)]
        clear = [(x, y) for x, y in pairs if apart([s[by] for s in sim[direct[x]]], [s[by] for s in sim[direct[y]]])]
        same = [(x, y) for x, y in clear if (a[x] < a[y]) == (b[x] < b[y])]
        found["spearman"] = spearman(a, b)
        lines += ["", f"Spearman's rank correlation by {SAID[by]}: **{found['spearman']:.2f}**. Of {len(pairs)} pairs of arms {len(clear)} differ by more than the seeds do; real sockets order {len(same)} of these alike."]
    return lines, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("epp", type=pathlib.Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--arms", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    epp, text, results, began = args.epp.resolve(), [], {}, time.monotonic()
    for name in args.sets:
        arms = [arm for arm in SETS[name]["arms"] if arm in args.arms]
        sim = simulated(epp, name, arms, args.seeds)
        measured = {}
        for arm, envoy in [(arm, False) for arm in arms] + [(arm, True) for arm in SETS[name]["envoy"] if arm in arms]:
            # What else the machine does may spoil a run; then it says so, and is made again.
            for _ in range(3):
                measured[arm, envoy] = real(epp, name, arm, envoy)
                if measured[arm, envoy]["valid"]:
                    break
            print(f"{name} {arm}{' through Envoy' if envoy else ''}: {json.dumps(measured[arm, envoy])}", file=sys.stderr, flush=True)
        lines, results[name] = section(name, sim, measured)
        text += [f"## {name}", "", *lines, ""]
        print("\n".join(text[-len(lines) - 1:]), flush=True)
    rhos = [r["spearman"] for r in results.values() if "spearman" in r]
    if rhos:
        text += [f"Over the {len(rhos)} ranked sets the mean of Spearman's rank correlation is **{statistics.mean(rhos):.2f}**. This run took {(time.monotonic() - began) / 60:.0f} minutes.", ""]
    if args.out:
        args.out.write_text((HERE / "head.txt").read_text() + "\n" + "\n".join(text))
    # Ranked sets go to the edge of what engines take, where chance alone moves a mean by more than this.
    off = {name: r["off"] for name, r in results.items() if not SETS[name]["ranked"]}
    if any(value > MAY_DIFFER for value in off.values()) or (rhos and statistics.mean(rhos) < LEAST_RANK):
        sys.exit(f"expected means within {MAY_DIFFER:.0%} and a rank correlation of at least {LEAST_RANK}, found {off} and {rhos}")


if __name__ == "__main__":
    main()
