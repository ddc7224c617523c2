#!/usr/bin/env bash
# Runs examples/n8n/gate.json in real n8n, against a gate and a receiver that counts: many triggers at once, retries of
# executions, failures, beside n8n's own Remove Duplicates. n8n is large (3 GB, ten minutes the first time), so this is not
# part of scripts/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

stop() {
    printf 'scripts/n8n.sh: %s\n' "$*" >&2
    exit 1
}

tools=target/n8n
command -v npm > /dev/null || stop 'npm is needed; install Node'
major() { node -p 'process.versions.node.split(".")[0]' 2> /dev/null || echo 0; }
quietly() { npm "$@" --no-package-lock --no-audit --no-fund --loglevel error; }

# n8n wants Node 24; npm has one.
if [ "$(major)" -lt 24 ]; then
    if [ ! -x "$tools/node/node_modules/.bin/node" ]; then
        mkdir -p "$tools/node"
        printf '{ "private": true }\n' > "$tools/node/package.json"
        (cd "$tools/node" && quietly install node@24)
    fi
    PATH="$PWD/$tools/node/node_modules/.bin:$PATH"
fi
[ "$(major)" -ge 24 ] || stop 'Node 24 or later is needed, and npm could not get one'

if ! cmp -s scripts/n8n/package.json "$tools/wanted"; then
    mkdir -p "$tools"
    cp scripts/n8n/package.json "$tools/package.json"
    printf 'scripts/n8n.sh: installing n8n, which takes minutes\n'
    # Of the packages' own scripts only sqlite3's is wanted: others build or fetch what nothing here uses.
    (cd "$tools" && quietly install --ignore-scripts && quietly rebuild sqlite3)
    cp scripts/n8n/package.json "$tools/wanted"
fi

cargo build --quiet -p oncegate
work=$(mktemp -d)
if node scripts/n8n/drive.mjs "$PWD/${CARGO_TARGET_DIR:-target}/debug/oncegate" "$PWD/$tools" "$work"; then
    rm -rf "$work"
else
    stop "failed, see above; the logs are in $work"
fi
