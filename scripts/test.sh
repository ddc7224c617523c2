#!/usr/bin/env bash
# The one test command: formatting, lints, every test, what the providers' libraries sign, the API against its description,
# the documentation. It needs Rust, a C compiler, Python, Node and PostgreSQL's programs, and no running service. What it
# says is what it does; it stops at the first step that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

# Runs one step under a heading and tells how long it took.
step() {
    local heading=$1 began=$SECONDS
    shift
    say "$heading"
    "$@"
    printf -- '-- %s: %d s\n' "$heading" $((SECONDS - began))
}

stop() {
    printf 'scripts/test.sh: %s\n' "$*" >&2
    exit 1
}

# SQLite and the TLS library are compiled from C.
c_compiler() {
    if command -v cc > /dev/null; then
        cc --version | head -n 1
        return
    fi
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
        stop 'there is no C compiler (cc); install one, e.g. with: sudo apt-get install gcc libc6-dev'
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev > /dev/null
    cc --version | head -n 1
}

rust() {
    command -v cargo > /dev/null || stop 'there is no cargo; install Rust 1.90 or later (https://rustup.rs)'
    cargo --version
    local part
    for part in fmt clippy; do
        cargo "$part" --version > /dev/null 2>&1 && continue
        command -v rustup > /dev/null || stop "cargo $part is missing; install it beside your Rust"
        case $part in
            fmt) rustup component add rustfmt ;;
            clippy) rustup component add clippy ;;
        esac
    done
}

# The tests start servers of their own; what finds their programs is the tests' own code.
postgresql() {
    cargo build --quiet -p oncegate-testing
    if cargo run --quiet -p oncegate-testing -- version 2> /dev/null; then
        return
    fi
    if [ -z "${ONCEGATE_TEST_POSTGRES_BIN:-}" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql-common > /dev/null
        # Debian would make and start a server for everybody; nobody here asked for one.
        sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql > /dev/null
    fi
    cargo run --quiet -p oncegate-testing -- version || stop 'the tests need the programs of PostgreSQL, see above'
}

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet; }

# What is left after the tests is bound by one processor each, so it goes side by side; what each said is shown in turn.
rest() {
    local said waits='' failed=''
    said=$(mktemp -d)
    # What this starts compiles nothing any more; so it need not wait for what the others compile.
    (step 'API description' scripts/api.sh) > "$said/api" 2>&1 &
    waits="api:$!"
    # Not joined by `&&`: within it a step that fails would not end.
    (
        step "Providers' libraries" scripts/official.sh
        step 'Documentation' documentation
    ) > "$said/others" 2>&1 &
    waits="$waits others:$!"
    local one
    for one in $waits; do
        wait "${one#*:}" || failed="$failed ${one%:*}"
        cat "$said/${one%:*}"
    done
    rm -rf "$said"
    [ -z "$failed" ] || stop "failed, see above:$failed"
}

step 'C compiler' c_compiler
step 'Rust' rust
step 'PostgreSQL' postgresql
# The network works while the compiler does. Not before: two installations at a time are in each other's way.
scripts/official.sh --install &
libraries=$!
step 'Formatting' cargo fmt --all --check
step 'Lints' cargo clippy --workspace --all-targets --quiet -- -D warnings
# The recipes run on the Node that the libraries brought, where there is no other.
wait "$libraries" || stop "the providers' libraries could not be installed, see above"
step 'Tests' scripts/tests.py
step 'Examples in comments' cargo test --workspace --doc --quiet
rest
say "All passed in $SECONDS s"
