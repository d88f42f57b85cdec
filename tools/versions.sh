# Versions of tools that decide what is built and checked; sourced by setup.sh, test.py and the Makefile.
NIGHTLY=nightly-2026-05-20                            # Miri, sanitizers, fuzzing
NIGHTLY_RUSTC="1.97.0-nightly (e50aa6fba 2026-05-19)" # what its rustc says
BPF_LINKER=0.13.0
CARGO_DENY=0.20.2
CARGO_DEB=3.8.0
MUSL="$(uname -m)-unknown-linux-musl"                   # what the binary of the image is built for

nightly() { # prints the toolchain to use: that one, or the one called nightly here
    rustup toolchain list 2>/dev/null | grep -q "^$NIGHTLY" && echo "$NIGHTLY" || echo nightly
}
