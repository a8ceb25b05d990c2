# Every target is a short script in tools/ or tests/; here is only the list of them.
# PG is the server version (15, 16, 17, 18), PROFILE the build profile (release, debug).
PG ?= 15
PROFILE ?= release
export PG PROFILE

.DEFAULT_GOAL := help
.PHONY: help demo test soak bench install installcheck psql prerequisites build lint unit regress isolation security server clients readme freeze upgrade-script clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
demo: build ## build and run the demo; KEEP=1 leaves its server running
	@tools/demo.sh
test: ## all tests; STAGE="regress demo" only these stages, PG=16 on that version of PostgreSQL
	@tests/run.sh
soak: $(if $(JUDGE),,build) ## many sessions and faults for MINUTES=60; SEED=n does one run again
	@tests/soak/run.sh
bench: build ## the benchmark; BENCH="features keeper" only these parts
	@tools/cluster.sh run bench bench/run.sh
install: prerequisites ## install into the server of PG_CONFIG (default: the system's); needs root or sudo
	@tools/build.sh install
installcheck: ## pg_regress against the running server that PGHOST, PGPORT ... name
	@tests/regress/run.sh
psql: ## a shell on the running demo server
	@tools/cluster.sh psql demo
prerequisites: ## install what building and testing need (Debian)
	@tools/prerequisites.sh
build: prerequisites ## build into a private copy of the server
	@tools/build.sh
lint: ## formatting and warnings
	@STAGE=lint tests/run.sh
unit: ## tests in Rust, inside a server (pgrx)
	@STAGE=pgrx tests/run.sh
regress: ## tests of the contract (pg_regress); TESTS="a b", ACCEPT=1
	@STAGE=regress tests/run.sh
isolation: ## tests of races between two sessions
	@STAGE=isolation tests/run.sh
security: ## pgspot over the SQL scripts
	@STAGE=security tests/run.sh
clients: ## the README's drivers, and all through PgBouncer
	@STAGE=clients tests/run.sh
server: ## tests that start servers of their own
	@STAGE=server tests/run.sh
readme: ## what the README shows
	@STAGE=readme tests/run.sh
freeze: build ## at a release: keep this version's install script for ever
	@tools/upgrade.sh freeze
upgrade-script: build ## make the upgrade script from the last frozen version anew (see tools/upgrade.py)
	@tools/upgrade.sh script
clean: ## stop servers, remove clusters and build output
	@tools/clean.sh
distclean: ## and also cargo-pgrx and the Python environment
	@tools/clean.sh all
