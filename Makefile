# The tasks of the project: demo, test, check, bench. Whatever is needed beyond cargo, python3 and make is installed here.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check bench icount soak overload compare results table recording docs tools build browser

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Fuzz targets are only compiled, so the engine that would drive them is not.
NO_FUZZER := CUSTOM_LIBFUZZER_PATH=$(CURDIR)/none/none.a

help: ## List the tasks
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: build $(STAMP) ## Simulated engines, Envoy and the picker serve real requests; prints where each went and why
	@$(PYTHON) envoy/demo.py target/release/epp

test: build $(STAMP) browser ## Rust tests, then end-to-end tests with a real Envoy and real gRPC clients
	cargo test --workspace --locked
	cargo test -p epp-plugins --features tokenizers --locked --lib producers::token
	$(PYTHON) -m pytest -q -p no:cacheprovider --timeout=60 --epp target/release/epp tests/e2e

check: tools ## Formatting, lints, borders between rooms, licences and advisories
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p epp-plugins --features tokenizers --all-targets --locked -- -D warnings
	$(NO_FUZZER) cargo check --manifest-path fuzz/Cargo.toml --target-dir target --bins --locked
	cargo test --test it --locked tidy
	@if command -v cargo-deny > /dev/null; then \
	  cargo deny --locked check licenses bans sources; \
	  if cargo deny --locked fetch db 2> /dev/null; then cargo deny --locked check advisories; \
	  else echo "advisories were not checked: their database cannot be reached"; fi; \
	else echo "cargo-deny is not here: licences and advisories were not checked (cargo install cargo-deny)"; fi

bench: build ## Costs, each beside its baseline in the same run
	cargo bench -p epp-prefix-index -- --quick
	cargo bench -p epp-plugins -- --quick
	cargo bench -p epp -- --quick

icount: tools ## Instructions of a lookup in the prefix index, of hashing a prompt, of an event; needs valgrind
	plugins/prefix-index/benches/icount.sh "$$(cargo bench -q -p epp-prefix-index --bench figures --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*figures[^"]*\)".*/\1/p')"

SOAK ?=
OVERLOAD ?=

soak: build ## A minute of hard use: clients leave, endpoints and configs change; SOAK="--rate=500 --seconds=20" changes it
	cargo bench -p epp --bench soak -- $(SOAK)

overload: build ## Three times the requests that the engines take: goodput, waits of high priority, reasons of refusals
	cargo bench -p epp --bench overload -- $(OVERLOAD)

compare: build $(STAMP) ## The same arms simulated and over real sockets: writes docs/results/ranking.md; takes a quarter of an hour
	$(PYTHON) tests/compare/compare.py target/release/epp --out docs/results/ranking.md

TRACES ?=

results: build ## Simulates the traffic of docs/results and writes what is there; TRACES=DIR, see docs/results/README.md
	@[ -n "$(TRACES)" ] || { echo "expected TRACES=DIR, see docs/results/README.md"; exit 1; }
	python3 benches/results/results.py target/release/epp $(TRACES)

OTHER ?=

table: build $(STAMP) ## What a request costs: this picker, a server of constants, and with OTHER=PATH another picker
	$(PYTHON) benches/table/table.py target/release/epp $(if $(OTHER),--other $(OTHER))

recording: build $(STAMP) ## What --record costs: CPU time a request with and without it, in turns; takes five minutes
	$(PYTHON) benches/table/recording.py target/release/epp

docs: tools ## Writes docs/plugins.md, docs/refusals.md and docs/metrics.md, which tests keep current
	@mkdir -p docs
	cargo run -q --locked -- plugins --markdown > docs/plugins.md.new
	@mv docs/plugins.md.new docs/plugins.md
	cargo run -q --locked -- refusals > docs/refusals.md.new
	@mv docs/refusals.md.new docs/refusals.md
	cargo run -q --locked -- metrics --markdown > docs/metrics.md.new
	@mv docs/metrics.md.new docs/metrics.md

build: tools
	cargo build --release --locked

tools:
	@for tool in cargo python3 cc; do \
	  command -v $$tool > /dev/null || { echo "missing: $$tool (cargo by rustup, python3 3.10 or later with venv, a C compiler)"; exit 1; }; done

# Pages of reports are looked at in a browser. Without one, and without the right to install it, their tests are skipped.
browser:
	@if ! command -v chromium chromium-browser google-chrome > /dev/null; then \
	  as_root=; [ "$$(id -u)" = 0 ] || as_root="sudo -n"; \
	  { command -v apt-get > /dev/null && $$as_root apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive $$as_root apt-get -qq install -y --no-install-recommends chromium > /dev/null; } \
	  || echo "chromium is not here and could not be installed: no page of a report will be looked at"; fi

$(STAMP): tests/e2e/requirements.txt | tools
	@python3 -m venv $(VENV) || { echo "missing: the venv module of python3 (Debian: python3-venv)"; exit 1; }
	$(VENV)/bin/pip -q --disable-pip-version-check install -r tests/e2e/requirements.txt
	@touch $@
