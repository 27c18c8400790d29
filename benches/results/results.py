"""Simulates the traffic of docs/results with every built-in arm, and writes the reports and the page there.

Usage: results.py PATH-TO-EPP TRACES [--out DIR] [--tables-only]

TRACES holds conversation_trace.jsonl and synthetic_trace.jsonl of Mooncake, and a folder `weka` of Weka's sessions.
"""
import argparse, json, pathlib, subprocess

HERE = pathlib.Path(__file__).resolve().parent
SETS = {
    "mooncake-conversation": ("Mooncake, conversation", ["--trace", "conversation_trace.jsonl", "--endpoints", "8"]),
    "mooncake-synthetic": ("Mooncake, synthetic", ["--trace", "synthetic_trace.jsonl", "--endpoints", "8"]),
    "weka-sessions": ("Weka, 24 agentic coding sessions", ["--trace", "weka", "--endpoints", "4"]),
    "rollouts": ("Rollouts, two steps of 128 prompts, 8 samples, 3 turns", ["--rl", "groups=128,samples=8,prompt=4096,turns=3,steps=2", "--endpoints", "8"]),
}
ORACLES = ["oracle", "foresight"]
COMPARED = ["default", "go-default", "precise", *ORACLES]


def simulate(epp, traces, name, report):
    """Writes the report of a set."""
    argv = [str(traces / word) if word[0] != "-" and (traces / word).exists() else word for word in SETS[name][1]]
    subprocess.run([epp, "simulate", *argv, "--json", report], check=True, stdout=subprocess.DEVNULL)


def seconds(value):
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def table(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, *rows]).replace("\n", "\n|" + "---|" * len(head) + "\n", 1)


def section(name, report):
    """The table of a set, below the command that makes it."""
    title, argv = SETS[name]
    setup, arms = report["setup"], report["arms"]
    most = max(arm["reused_tokens"] for arm in arms)
    head = ["arm", "reuse", "by the best", "TTFT p50", "TTFT p99", "TPOT p50", "end to end p50", "p99", "in flight", "makespan"]
    rows = []
    for arm in arms:
        times = [arm["ttft_seconds"]["p50"], arm["ttft_seconds"]["p99"], arm["tpot_seconds"]["p50"], arm["e2e_seconds"]["p50"], arm["e2e_seconds"]["p99"]]
        rows.append([f"`{arm['name']}`", f"{100 * arm['reused_tokens'] / arm['prompt_tokens']:.1f} %", f"{100 * arm['reused_tokens'] / most:.0f} %",
                     *map(seconds, times), f"{arm['inflight_max_over_mean']:.2f}", seconds(arm["makespan_seconds"])])
        if of := arm.get("rollouts"):
            rows[-1] += [f"{100 * of['colocated_groups']:.0f} %", f"{of['straggler_ratio']:.2f}", f"{100 * of['idle_share']:.0f} %"]
    head += ["together", "straggler", "idle"] if "rollouts" in arms[0] else []
    tokens = f"{setup['prompt_tokens'] / 1e6:.1f} million prompt tokens, {setup['output_tokens'] / 1e6:.1f} million output tokens"
    lines = [f"## {title}", "", "```", f"epp simulate {' '.join(argv)} --json docs/results/{name}.json", "```", "", f"{setup['requests']:,} requests, {tokens}.", "", table(head, rows), ""]
    failures = [arm["failures"] for arm in arms]
    if any(failures):
        assert all(failed == failures[0] for failed in failures), failures
        lines += [f"{sum(failures[0].values())} requests fail with every arm: their prompts are longer than what an engine of this type holds.", ""]
    return lines


def compared(name, report):
    """The rows of a set in the table of what configs reach."""
    arms = {arm["name"]: arm for arm in report["arms"]}
    best = max(arm["reused_tokens"] for other, arm in arms.items() if other not in ORACLES)
    share = lambda arm, of: f"{100 * arms[arm]['reused_tokens'] / of:.0f} %"
    by = [arms[oracle]["reused_tokens"] for oracle in ORACLES] + [best]
    return [[SETS[name][0].split(", two")[0].split(", 24")[0], f"`{arm}`", *(share(arm, of) for of in by), f"{arms[arm]['inflight_max_over_mean']:.2f}"] for arm in COMPARED]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("epp", type=pathlib.Path)
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "docs" / "results")
    parser.add_argument("--tables-only", action="store_true", help="from the reports that are there")
    args = parser.parse_args()
    lines, rows = [(HERE / "head.txt").read_text()], []
    for name in SETS:
        path = args.out / f"{name}.json"
        if not args.tables_only:
            simulate(args.epp.resolve(), args.traces, name, path)
        report = json.loads(path.read_text())
        lines += section(name, report)
        rows += compared(name, report)
    lines += ["## What configs reach", "", (HERE / "aim.txt").read_text()]
    lines += [table(["traffic", "arm", "by the oracle", "by foresight", "by the best other arm", "in flight"], rows), "", (HERE / "why.txt").read_text().rstrip("\n")]
    (args.out / "README.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
