#!/usr/bin/env python3
"""Builds every test of the workspace and runs the binaries two at a time: most of them wait more than they compute.

What one said is shown when it has ended; all of them run, whatever fails. It ends with how long each took.
"""

import concurrent.futures
import json
import os
import resource
import ssl
import subprocess
import sys
import tempfile
import time

AT_A_TIME = 2
# One that hangs is ended, and has failed.
SECONDS_MAX = 1800
# Those that take longest begin first. One that is not named here is run behind them.
FIRST = ["oncegate::cluster", "oncegate::it", "oncegate-store::it", "oncegate::kills", "oncegate-model::it"]


def built():
    """Name, directory and file of each test binary, as cargo tells them."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cargo:
        for line in cargo.stdout:
            told = json.loads(line)
            if told.get("reason") == "compiler-artifact" and told["profile"]["test"] and told["executable"]:
                folder = os.path.dirname(told["manifest_path"])
                name = f"{os.path.basename(folder)}::{told['target']['name']}"
                yield name, folder, told["executable"]
    if cargo.returncode != 0:
        sys.exit(cargo.returncode)


def declared():
    """The names of all binaries in the folders `tests`, so that none is missed."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"], stdout=subprocess.PIPE, text=True, check=True
    )
    for package in json.loads(told.stdout)["packages"]:
        folder = os.path.basename(os.path.dirname(package["manifest_path"]))
        # What is not run with the others says so in its manifest.
        tests = (target for target in package["targets"] if "test" in target["kind"] and target["test"])
        yield from (f"{folder}::{target['name']}" for target in tests)


def authority(folder):
    """One of the system's certificate authorities. A gate reads all of them when it starts, which is most of what a
    start takes in a build for tests, and no test asks anybody who has a certificate of theirs."""
    bundle = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    try:
        with open(bundle, encoding="ascii", errors="replace") as all_of_them:
            first = all_of_them.read().partition("-----END CERTIFICATE-----")
    except OSError:
        return {}
    one = os.path.join(folder, "authority.pem")
    with open(one, "w", encoding="ascii", errors="replace") as file:
        file.write(first[0] + first[1] + "\n")
    return {"SSL_CERT_FILE": one}


def run(test, more):
    name, folder, file = test
    began = time.monotonic()
    try:
        ended = subprocess.run(
            [file],
            cwd=folder,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
            check=False,
        )
        code, said = ended.returncode, ended.stdout
    except subprocess.TimeoutExpired as late:
        code, said = f"no end within {SECONDS_MAX} s", late.stdout or b""
    return name, code, said.decode(errors="replace"), time.monotonic() - began


def main():
    tests = sorted(built(), key=lambda test: FIRST.index(test[0]) if test[0] in FIRST else len(FIRST))
    # A name that nobody has any more would begin nothing first.
    if gone := (set(FIRST) | set(declared())) - {name for name, _, _ in tests}:
        sys.exit(f"scripts/tests.py: not built: {', '.join(sorted(gone))}")
    took, failed = [], []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        more = authority(folder)
        for ended in concurrent.futures.as_completed([pool.submit(run, test, more) for test in tests]):
            name, code, said, seconds = ended.result()
            print(f"\n-- {name}\n{said}", flush=True)
            took.append(f"{seconds:6.0f} s  {name}")
            if code != 0:
                failed.append(f"{name} ended with {code}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("\n".join(sorted(took, reverse=True)))
    print(f"{used.ru_utime + used.ru_stime:6.0f} s of all processors, the compiler's with them", flush=True)
    if failed:
        sys.exit("scripts/tests.py: " + "; ".join(failed))


main()
