"""Makes the sets of this folder of published traces: slices, scaled down so that small engines and two cores are busy for half a minute.

Usage: slices.py CONVERSATION_TRACE.jsonl WEKA_TRACES_FOLDER

Prompts, answers and times are divided; which prompts begin alike, and how they follow each other, stays as it was recorded.
"""
import json, pathlib, random, sys

HERE = pathlib.Path(__file__).resolve().parent / "sets"
SESSIONS = ["0038", "0202", "0227", "0282", "0310", "0330", "0353", "0387", "0561", "0582", "0601", "0627", "0649"]


def mooncake(path, window=1500, keep=240, seconds=34):
    """Conversations of at least three turns among the first requests; a block of 512 tokens becomes one of 16."""
    rows = [json.loads(line) for line in open(path)][:window]
    of, conversations = {}, {}
    for at, row in enumerate(rows):
        # The first block is the same in nearly all prompts, so a conversation is told by the longest known beginning after it.
        known = next((of[tuple(row["hash_ids"][:n])] for n in range(len(row["hash_ids"]), 1, -1) if tuple(row["hash_ids"][:n]) in of), at)
        for n in range(2, len(row["hash_ids"]) + 1):
            of.setdefault(tuple(row["hash_ids"][:n]), known)
        conversations.setdefault(known, []).append(at)
    kept = sorted(at for turns in conversations.values() if len(turns) >= 3 for at in turns)[:keep]
    first, last = (rows[kept[i]]["timestamp"] for i in (0, -1))
    with open(HERE / "mooncake.jsonl", "w") as out:
        for number, at in enumerate(kept):
            row = rows[at]
            tokens = -(-row["input_length"] // 32)
            out.write(json.dumps({"chat_id": number, "parent_chat_id": -1, "timestamp": round((row["timestamp"] - first) / (last - first) * seconds, 3),
                                  "input_length": tokens, "output_length": -(-row["output_length"] // 16), "type": "text", "turn": 1, "hash_ids": row["hash_ids"][:tokens // 16]}) + "\n")


def weka(folder, turns=12):
    """The first requests of sessions that begin small; four blocks of 64 tokens become one of 16, gaps a twentieth, at most 2 s.

    Sessions begin one after the other: if all did at once, chance and the time that a pick takes would place them.
    """
    for place, name in enumerate(SESSIONS):
        session = json.loads((pathlib.Path(folder) / f"trace_{name}.json").read_text())
        requests, time, names = [], place * 0.35, {}
        for r in [r for r in session["requests"] if r["type"] != "subagent" and r["out"] > 0][:turns]:
            gap = min((r.get("think_time") or 0.0) / 20, 2.0)
            time += gap
            # Four blocks are one: equal if all four are, and all before them.
            groups = [tuple(r["hash_ids"][:i + 4]) for i in range(0, len(r["hash_ids"]) - 3, 4)]
            ids = [names.setdefault(group, len(names) + 1) for group in groups]
            tokens = max(r["in"] // 16, len(ids) * 16)
            requests.append({"t": round(time, 3), "type": "n", "model": "m", "in": tokens, "out": -(-r["out"] // 32), "hash_ids": ids, "input_types": r.get("input_types", []),
                             "api_time": 0.4, "think_time": round(gap, 3)})
            time += 0.4
        small = {"id": f"trace_{name}", "models": ["m"], "block_size": 16, "hash_id_scope": "local", "tool_tokens": session["tool_tokens"] // 16,
                 "system_tokens": session["system_tokens"] // 16, "requests": requests}
        (HERE / "weka" / f"trace_{name}.json").write_text(json.dumps(small, separators=(",", ":")) + "\n")


def rollouts(groups=30, samples=4, turns=2, seed=7):
    """One step: all samples of all prompts at once, answers of log-normal length, tools between two turns.

    In no order: over sockets requests of one moment overtake one another, and how long they wait depends on their order.
    """
    rng, lines = random.Random(seed), []
    for group in range(groups):
        prompt = int(min(max(rng.lognormvariate(6.2, 0.5), 64), 2000))
        for _ in range(samples):
            tokens, played = prompt, []
            for turn in range(turns):
                answer = int(min(max(rng.lognormvariate(3.4, 0.7), 4), 160))
                played.append({"input_tokens": tokens, "output_tokens": answer, "pre_gap_s": round(rng.lognormvariate(-0.5, 0.5), 2) if turn else 0.0})
                tokens += answer + 64
            lines.append(json.dumps({"conv_id": str(group), "turns": played}) + "\n")
    rng.shuffle(lines)
    (HERE / "rollouts.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    mooncake(sys.argv[1])
    weka(sys.argv[2])
    rollouts()
