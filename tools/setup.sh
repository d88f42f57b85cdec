#!/bin/sh
# Installs what weft's make targets need and what is missing; asks no questions, and is quick the second time.
#
# setup.sh [build|check|test|demo|deb|image|sanitize|soak|bench|sonic]... ; without arguments everything.
# Needs: Debian 12 or newer with cargo (rustup). As root it installs packages; otherwise it prints which are missing.
set -eu
cd "$(dirname "$0")/.."

wants() { # wants GROUP: whether it was asked for
    [ -z "$asked" ] && return 0
    case " $asked " in *" $1 "*) return 0 ;; esac
    return 1
}
asked="$*"
. tools/versions.sh
missing=""
need() { # need COMMAND PACKAGE
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

# Bench and tests start daemons of their own: what is installed for them must not start the system's (policy-rc.d, 101 is
# "forbidden"). A policy that is there already stays in force.
policy=/usr/sbin/policy-rc.d
forbid_services() {
    [ -e "$policy" ] && return
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
}

# A linker for rustc and its C library.
need cc gcc
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
if wants test || wants demo || wants bench || wants soak || wants sonic; then
    need ip iproute2       # namespaces, veth
    need tc iproute2       # rates and classifiers of the tests
    need ping iputils-ping # hosts that answer
    need fping fping       # pings that are all waited for
    need iperf3 iperf3     # TCP through the switch
    need unshare util-linux
    need nsenter util-linux
    need ethtool ethtool   # offloads
    need python3 python3
    need ps procps
fi
if wants test; then
    need lspci pciutils # reads configuration spaces independently of ours
    need chromium chromium # shows a page of results
    need tshark tshark     # runs the dissector
    need setpriv util-linux
    need lua5.4 lua5.4 # the Lua of newer Wiresharks
    need promtool prometheus # checks metrics
fi
if wants test || wants soak; then
    need etcd etcd-server # what several fabric managers share
    need nft nftables     # cuts one of them off
fi
if wants test || wants sonic; then
    need thrift thrift-compiler # stubs of the SAI service, for testers in Python
fi
if wants test || wants deb || wants soak; then
    need dpkg-shlibdeps dpkg-dev # libraries that the package depends on
fi
if wants test; then
    need ssh openssh-client    # machines of a fabric
    need dropbear dropbear-bin # a server for it that no service starts
    need mn mininet # whose switch weft can be
    need systemd-analyze systemd # what is wrong with the unit
fi
if wants image || wants soak; then
    need musl-gcc musl-tools # C of the static binary
fi
if wants soak; then
    need podman podman # runs the image
    need runc runc     # where control groups are those of version 1
fi
# DPDK, for the port kind of that name: what is built against, and drivers of virtual devices.
if wants test || wants bench; then
    need pkg-config pkg-config
    need clang clang # headers of its own, which bindgen's libclang reads
    ls /usr/lib/llvm-*/lib/libclang.so >/dev/null 2>&1 || missing="$missing libclang-dev"
    pkg-config --exists libdpdk 2>/dev/null || missing="$missing libdpdk-dev"
    for driver in af-packet memif null pcap ring tap; do
        ls /usr/lib/*/dpdk/pmds-*/librte_net_"$(echo $driver | tr - _)".so >/dev/null 2>&1 ||
            missing="$missing librte-net-${driver}23"
    done
    for part in bus_vdev/librte-bus-vdev23 mempool_ring/librte-mempool-ring23; do
        ls /usr/lib/*/dpdk/pmds-*/librte_"${part%/*}".so >/dev/null 2>&1 ||
            missing="$missing ${part#*/}"
    done
fi
if wants bench; then
    need taskset util-linux
    need sysctl procps
    need dpdk-testpmd dpdk-dev # and with it libdpdk-dev and every PMD
    [ -x /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk ] || missing="$missing openvswitch-switch-dpdk"
fi
if wants test || wants demo || wants soak || wants sonic; then
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
    # ptf needs netifaces, which is built where it is installed.
    python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' >/dev/null 2>&1 ||
        missing="$missing python3-dev"
fi

missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
if [ -n "${missing% }" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "setup: missing, install as root: apt-get install $missing" >&2
        exit 1
    fi
    echo "setup: installing $missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    case "$missing" in *openvswitch* | *etcd* | *prometheus*) no_services=1 ;; *) no_services="" ;; esac
    [ -n "$no_services" ] && forbid_services
    # shellcheck disable=SC2086 # a list of words
    if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } \
        >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        echo "setup: apt-get could not install: $missing" >&2
        exit 1
    fi
    rm -f "$log"
    # Nor at the next start of the machine.
    if [ -n "$no_services" ] && command -v systemctl >/dev/null 2>&1; then
        # Only what was installed now: another one is the user's.
        case "$missing" in *openvswitch*) systemctl disable openvswitch-switch >/dev/null 2>&1 || true ;; esac
        case "$missing" in *etcd*) systemctl disable etcd >/dev/null 2>&1 || true ;; esac
        case "$missing" in *prometheus*) systemctl disable prometheus >/dev/null 2>&1 || true ;; esac
    fi
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "setup: no cargo in PATH; install a Rust toolchain with rustup (https://rustup.rs)" >&2
    exit 1
fi

# Makes the package; built quickly, as xz and gzip do the work.
if { wants deb || wants test || wants soak; } && [ "$(cargo deb --version 2>/dev/null)" != "cargo-deb $CARGO_DEB" ]; then
    echo "setup: building cargo-deb $CARGO_DEB"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
        cargo install cargo-deb --version "=$CARGO_DEB" --locked --quiet </dev/null ||
        echo "setup: cargo-deb is not available: no package can be made" >&2
fi
if { wants image || wants soak; } && command -v rustup >/dev/null 2>&1; then
    rustup target list --installed | grep -qx "$MUSL" || rustup target add "$MUSL" </dev/null
fi

# The program in the kernel: sources of the core library, and a linker for BPF with an LLVM that is no
# older than the compiler's. Without them weft builds all the same, says so, and is only slower.
ebpf_linker() {
    [ -n "$(PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin" command -v bpf-linker)" ] && return 0
    oldest=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    llvm=$(seq "${oldest:-22}" 23 | while read -r version; do
        [ -e "/usr/lib/llvm-$version/lib/libLLVM.so" ] && echo "$version" && break
    done)
    if [ -z "$llvm" ] && [ "$(id -u)" = 0 ]; then
        apt-get update >/dev/null 2>&1 </dev/null || true
        llvm=$(seq "${oldest:-22}" 23 | while read -r version; do
            apt-cache show "llvm-$version-dev" >/dev/null 2>&1 && echo "$version" && break
        done)
        [ -z "$llvm" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
            "llvm-$llvm-dev" >/dev/null 2>&1 </dev/null || llvm=""
    fi
    if [ -z "$llvm" ]; then
        echo "setup: LLVM ${oldest:-22} or newer is not available (llvm-${oldest:-22}-dev)" >&2
        return 1
    fi
    echo "setup: building bpf-linker with LLVM $llvm"
    log=$(mktemp)
    if ! env LLVM_PREFIX="/usr/lib/llvm-$llvm" RUSTFLAGS="-L /usr/lib/llvm-$llvm/lib" \
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=false \
        cargo install bpf-linker --version "=$BPF_LINKER" --locked --quiet \
        --no-default-features --features "llvm-$llvm" >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
if [ ! -e "$(rustc --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" ] &&
    command -v rustup >/dev/null 2>&1; then
    echo "setup: adding the sources of Rust's core library"
    rustup component add rust-src >/dev/null 2>&1 </dev/null || true
fi
ebpf_linker || echo "setup: weft is built without its fast path in the kernel" >&2

# Packages of Python in an environment of their own, made anew when what is wanted of it changes.
python_env() { # python_env FOLDER REQUIREMENTS
    want=$(cksum <"$2")
    if [ "$(cat "$1/weft-stamp" 2>/dev/null)" != "$want" ] || ! "$1/bin/python" -c '' 2>/dev/null; then
        echo "setup: making $1 with the packages of $2"
        rm -rf "$1"
        python3 -m venv "$1"
        "$1/bin/python" -m pip install -q --disable-pip-version-check --no-input -r "$2" </dev/null
        printf '%s\n' "$want" >"$1/weft-stamp"
    fi
}
# The independent side of the tests: scapy, numpy, ptf.
if wants test || wants demo; then
    python_env .venv tests/py/requirements.txt
fi
# SONiC's tests, which also import paramiko.
if wants sonic; then
    python_env .venv-sonic tools/requirements-sonic.txt
fi
# Sweeps over several machines: apart, as it is 285 MB.
if wants soak; then
    python_env .venv-ray tools/requirements-ray.txt
fi

# Rust components beyond the compiler; what is not available is skipped by name later.
# The nightly toolchain that tools/versions.sh names; if only another one is installed, that is used, with a message.
if { wants test || wants sanitize; } && command -v rustup >/dev/null 2>&1; then
    rustup toolchain list | grep -q '^nightly' ||
        rustup toolchain install "$NIGHTLY" --profile minimal --component rust-src --no-self-update </dev/null || true
    found=$(rustc "+$(nightly)" --version 2>/dev/null || true)
    [ -z "$found" ] || [ "$found" = "rustc $NIGHTLY_RUSTC" ] ||
        echo "setup: nightly is $found, not the $NIGHTLY_RUSTC of tools/versions.sh" >&2
fi
if { wants test || wants check; } && command -v rustup >/dev/null 2>&1; then
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
        rustup component add rustfmt clippy </dev/null || true
fi
if { wants test || wants sanitize; } && command -v rustup >/dev/null 2>&1; then
    if ! cargo "+$(nightly)" miri --version >/dev/null 2>&1; then
        echo "setup: adding Miri to the nightly toolchain"
        rustup component add miri rust-src --toolchain "$(nightly)" </dev/null ||
            echo "setup: Miri is not available: its tests will be skipped" >&2
    fi
fi
