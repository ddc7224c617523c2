# What developers run; `make help` lists it. The one command that has to pass is `make test`.
.PHONY: help test torture lint api bench fuzz test-n8n

FUZZ_SECONDS ?= 30
FUZZ_TARGETS ?= $(shell sed -n 's/^name = "\([a-z_]*\)"$$/\1/p' fuzz/Cargo.toml | grep -v '^fuzz$$')

help: ## List these targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

test: ## Everything that has to pass: formatting, lints, tests, documentation
	scripts/test.sh

torture: ## Kill the gate 10,000 times, or as ONCEGATE_KILLS=n, TORTURE_HOURS=h and ONCEGATE_SEED=s say (docs/torture.md)
	@test -n "$$ONCEGATE_KILLS$$TORTURE_HOURS" || export ONCEGATE_KILLS=10000; \
	cargo test -p oncegate --test kills -- --exact campaign::every_window_is_killed_in_and_nothing_is_lost_or_doubled

lint: ## Formatting and lints alone
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

api: ## Compare /openapi.json with a running server (needs Python 3)
	scripts/api.sh

test-n8n: ## Run examples/n8n/gate.json in real n8n (needs npm; 3 GB, ten minutes the first time)
	scripts/n8n.sh

bench: ## Measure claims per second (docs/benchmark.md)
	cargo build --release && cargo run --release -p oncegate-bench -- --docs docs

fuzz: ## Feed each parser with bytes the fuzzer learns: FUZZ_SECONDS=30 each, FUZZ_TARGETS="json form" (needs nightly Rust)
	@cargo fuzz --version > /dev/null 2>&1 || cargo install cargo-fuzz --locked
	cargo +nightly fuzz build --sanitizer none
	@for target in $(FUZZ_TARGETS); do \
		printf '\n== %s\n' "$$target"; \
		cargo +nightly fuzz run --sanitizer none "$$target" -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 -print_final_stats=1 -verbosity=0 || exit 1; \
	done
