# weft: make demo, make check, make test, make bench, make soak, make sonic, make deb, make image. Each installs what it needs
# (tools/setup.sh).

CARGO ?= cargo
NIGHTLY = $(shell . tools/versions.sh; nightly)

.PHONY: all build deb image demo check test deny sanitize soak bench sonic mctp-preload cxlmi fmt lint doc fuzz clean

all: build

build:
	@tools/setup.sh build
	$(CARGO) build --release -p weft

# What is handed out has no symbols: a sixth of the size. Panics name file and line without them.
STRIPPED = mkdir -p build && strip --strip-all -o

# A package for Debian, build/weft_VERSION_ARCH.deb.
deb:
	@tools/setup.sh build deb
	$(CARGO) build --release -p weft
	$(STRIPPED) build/weft "$${CARGO_TARGET_DIR:-target}/release/weft"
	python3 packaging/deb.py build/weft build

# An image for containers, build/weft-oci.tar: a static binary alone, for `podman load -i` or `docker load -i`.
image:
	@tools/setup.sh build image
	@. tools/versions.sh; set -x; $(CARGO) build --release -p weft --target "$$MUSL" && \
	    $(STRIPPED) build/weft-static "$${CARGO_TARGET_DIR:-target}/$$MUSL/release/weft" && \
	    python3 packaging/oci.py build/weft-static build/weft-oci.tar \
	    --version "$$($(CARGO) pkgid -p weft | sed 's/.*[@#]//')"

# Four hosts on one switch: ping, TCP, frames of every format, an incast; under 60 s after building.
demo:
	@tools/setup.sh demo
	@$(CARGO) build --profile demo -p weft
	@python3 demo/demo.py "$${CARGO_TARGET_DIR:-target}/demo/weft"

# What a change needs before it is committed: formatting and lints as `make test` has them, the rules of the tree, and the
# unit tests of the crates that other crates stand on.
CHECKED = base parsers rpc dataplane hosts tidy
check:
	@tools/setup.sh build check
	@python3 tools/test.py fmt clippy
	$(CARGO) test --quiet $(CHECKED:%=-p weft-%) --lib
	$(CARGO) run --quiet -p weft-tidy

# All checks, fastest first; prints a table with totals at the end.
test:
	@tools/setup.sh test
	@python3 tools/test.py

# Licences, versions and sources of all dependencies, by cargo-deny; known vulnerabilities, if their database can be
# downloaded. `make test` makes the checks that need neither network nor tool (tidy/tests/tree.rs).
deny:
	@. tools/versions.sh; [ "$$($(CARGO) deny --version 2>/dev/null)" = "cargo-deny $$CARGO_DENY" ] || \
	    $(CARGO) install cargo-deny --version "=$$CARGO_DENY" --locked
	$(CARGO) deny check licenses bans sources
	$(CARGO) deny --manifest-path xdp/ebpf/Cargo.toml --config deny.toml check licenses bans sources
	@if $(CARGO) deny fetch db; then $(CARGO) deny check --disable-fetch advisories; \
	    else echo "SKIPPED advisories: their database cannot be had"; fi

# Unit tests of modules with unsafe code, under AddressSanitizer and ThreadSanitizer (nightly toolchain with rust-src), and
# of the pool and of ports' rings under Miri (make test has Miri for what threads share).
# The standard library is built with the sanitizer, too; otherwise ThreadSanitizer reports false races.
SANITIZERS ?= address thread
SANITIZE = $(CARGO) +$(NIGHTLY) test -Zbuild-std --target x86_64-unknown-linux-gnu --lib
sanitize:
	@tools/setup.sh sanitize
	for kind in $(SANITIZERS); do \
	    export RUSTFLAGS="-Zsanitizer=$$kind" TSAN_OPTIONS="halt_on_error=1" ASAN_OPTIONS="detect_leaks=1"; \
	    target="--target-dir $${CARGO_TARGET_DIR:-target}/$$kind"; \
	    $(SANITIZE) $$target -p weft-base -p weft-dataplane -- ring:: pool:: port:: && \
	    $(SANITIZE) $$target -p weft-xdp || exit 1; done
	CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-target}/miri" MIRIFLAGS=-Zmiri-disable-isolation \
	    $(CARGO) +$(NIGHTLY) miri test -p weft-dataplane --lib -- pool:: port::loan:: port::af_xdp::rings::

# Long runs: checks of dependencies and of memory (above), the XDP program built at two places, line rate and shares at
# each length, rate and cell; of a fabric (damaged TLPs and commands, routes of WEFT_TOPOLOGIES, 1 GiB over four GFDs,
# 16 MiB at 1, 2, 4 and 256 ways and every granularity, each component started again 20 times), Go-Back-N against its
# closed form, LITE over 10,000 seeds, in virtual time (WEFT_SEED=N repeats one, WEFT_SOAK_FRAMES=N sets its length), each
# checker of virtual time against mutated stages, then on sixteen AF_XDP ports (as root; for WEFT_SOAK_S seconds);
# transfers of 1 GiB between all pairs of host memory, G-FAM and device memory (WEFT_SOAK_FABRIC_BYTES sets another size); a
# sweep over a cluster of Ray's; and the package and the image, the latter started with podman and without.
soak: deny sanitize
	@tools/setup.sh soak
	$(CARGO) test --release -p weft-tests --test live -- --ignored --nocapture soak_
	$(CARGO) test --release -p weft-sim --test virtual_time -- --ignored --nocapture soak_
	python3 tools/mutants.py
	$(CARGO) test --release -p weft-cxl -p weft-pbr-switch -p weft-hosts --lib --test endpoints -- --ignored --nocapture soak_
	$(CARGO) test --release -p weft-tests --test fuzz_replay --test fabric -- --ignored --nocapture soak_
	$(CARGO) test --release -p weft-tests --test soak --test live_quiet -- --ignored --nocapture
	$(CARGO) test --release -p weft -p weft-control --lib --test commands -- --ignored --nocapture soak_
	$(CARGO) build --release -p weft
	python3 tests/py/soak_fabric_memory.py $${CARGO_TARGET_DIR:-target}/release/weft
	.venv-ray/bin/python tests/py/soak_sweep_ray.py $${CARGO_TARGET_DIR:-target}/release/weft
	$(MAKE) deb image
	python3 tests/py/soak_image.py build/weft-oci.tar

# The library that lets programs with AF_MCTP sockets speak to a switch (docs/mctp.md), and a program that has some.
MCTP_CFLAGS = -Wall -Wextra -Werror -O2
mctp-preload:
	@tools/setup.sh build
	mkdir -p target/mctp
	$(CC) $(MCTP_CFLAGS) -shared -fPIC -o target/mctp/mctp_preload.so tools/mctp_preload/mctp_preload.c -ldl -lpthread
	$(CC) $(MCTP_CFLAGS) -o target/mctp/identify tools/mctp_preload/identify.c

# Tests of generic commands and of the FM-API from LIBCXLMI, a built clone of libcxlmi, against a switch.
cxlmi: build mctp-preload
	@tools/cxlmi.py "$(LIBCXLMI)"

# Compares weft with other switches; exits with 1 when a required ratio is missed. ROWS="memory veth-express" runs some
# rows, BENCH_ARGS=--quick one round. Needs root. Results are kept in bench/results/.
bench:
	@tools/setup.sh bench
	@$(CARGO) build --release -p weft-bench
	@$(CARGO) build --release -p weft $$(grep -q '^dpdk = ' cli/Cargo.toml && \
	    pkg-config --exists libdpdk && echo --features dpdk)
	@python3 bench/side_by_side.py $(ROWS) $(BENCH_ARGS)

# SONiC's QoS tests, unmodified, out of a clone of sonic-mgmt: make sonic SONIC_MGMT=PATH [CLASSES="PFCtest WRRtest"]
# [WORKERS=2] [BACKEND=af_xdp] (docs/sonic.md). Needs root. The table is kept in bench/results/sonic/.
sonic:
	@[ -n "$(SONIC_MGMT)" ] || { echo "make sonic SONIC_MGMT=PATH: which clone of sonic-mgmt? (docs/sonic.md)" >&2; exit 2; }
	@tools/setup.sh sonic
	@$(CARGO) build --release -p weft
	@.venv-sonic/bin/python tests/py/sai/sonic.py "$(SONIC_MGMT)" $(CLASSES) $(if $(WORKERS),--workers $(WORKERS)) \
	    $(if $(BACKEND),--backend $(BACKEND)) $(SONIC_ARGS)

# Coverage-guided fuzzing, FUZZ_S seconds a target (needs cargo-fuzz and a nightly toolchain).
FUZZ_S ?= 60
fuzz:
	cd fuzz && for target in $$($(CARGO) +$(NIGHTLY) fuzz list); do \
	    $(CARGO) +$(NIGHTLY) fuzz run "$$target" -- -max_total_time=$(FUZZ_S) -timeout=10 || exit 1; done

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

clean:
	$(CARGO) clean
	rm -rf .venv .venv-sonic fuzz/target
