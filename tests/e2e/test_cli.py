"""The subcommands as a person uses them, and starts that must fail with a reason."""
import json, os, pty, subprocess

import pytest

from stand import CONFIG, ROOT


@pytest.fixture
def epp(request):
    def run(*argv, timeout=20):
        p = subprocess.run([request.config.getoption("--epp"), *map(str, argv)], capture_output=True, text=True, timeout=timeout)
        return p.returncode, p.stdout, p.stderr
    return run


def test_pick_shows_the_endpoint_and_the_scores(start, epp):
    s = start(engines=2)
    code, out, err = epp("pick", f"127.0.0.1:{s.grpc_port}", "--prompt", "hello")
    assert code == 0, err
    assert out.split()[0] in {f"127.0.0.1:{p}" for p in s.engine_ports} and " ms" in out and out.count("score") == 2


def test_pick_takes_token_ids(start, epp):
    s = start(engines=1)
    code, out, err = epp("pick", f"127.0.0.1:{s.grpc_port}", "--token-ids", "1,2,3")
    assert (code, out.split()[0]) == (0, f"127.0.0.1:{s.engine_ports[0]}"), err


def test_pick_speaks_tls(start, epp):
    s = start(engines=1, flags=("--secure-serving=true",))
    code, out, err = epp("pick", f"127.0.0.1:{s.grpc_port}", "--tls")
    assert (code, out.split()[0]) == (0, f"127.0.0.1:{s.engine_ports[0]}"), err


def test_pick_tells_why_there_is_no_endpoint(start, epp):
    s = start(engines=0)
    code, _, err = epp("pick", f"127.0.0.1:{s.grpc_port}")
    assert code == 1 and "503" in err and "endpoint candidates" in err


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda p: p.name)
def test_check_accepts_every_sample(epp, path):
    code, out, err = epp("check", path, "--allow-experimental-plugins")
    assert code == 0, err
    assert "schedulingProfiles" in out


def test_check_tells_every_mistake_with_its_place(epp, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace("active-request-scorer}", "wibble-scorer}", 1) + "wobble: 1\n")
    code, _, err = epp("check", path)
    assert code == 1
    assert f"{path}:6:" in err and "wibble-scorer" in err
    assert "wobble" in err


def test_a_bad_config_at_the_start_names_every_mistake(start, epp):
    s = start(config=CONFIG.replace("prefix-cache-scorer}", "wibble-scorer}", 1) + "wobble: 1\n", ready=False, engines=0)
    assert s.epp.child.wait(10) == 1
    errors = [json.loads(line) for line in s.epp.log().splitlines() if '"level":"error"' in line]
    assert any("wibble-scorer" in e["msg"] for e in errors) and any("wobble" in e["msg"] for e in errors)


@pytest.mark.parametrize("argv", [["trace", "tests/data/traces/mooncake.jsonl"], ["simulate", "--rl", "groups=4,samples=2,output=64,steps=1", "--arm", "random"]], ids=lambda argv: argv[0])
def test_long_runs_tell_a_terminal_how_far_they_are(request, argv):
    """On a terminal there is a line that goes away again; elsewhere there is none."""
    argv = [request.config.getoption("--epp"), *argv]
    terminal, end = pty.openpty()
    told = subprocess.run(argv, stdout=subprocess.PIPE, stderr=end, cwd=ROOT, timeout=20)
    os.close(end)
    heard = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    quiet = subprocess.run(argv, capture_output=True, cwd=ROOT, timeout=20)
    assert told.returncode == quiet.returncode == 0 and told.stdout == quiet.stdout
    assert " of " in heard and " a second" in heard and heard.endswith("\r\x1b[K"), heard
    assert quiet.stderr == b""
