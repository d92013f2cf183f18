#!/usr/bin/env bash
# Installs what is missing, with the ordinary clients of the system (apt, rustup, pip, npm), and says what it does.
# Finds everything in place on the second run and returns at once.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

install_packages() {
    command -v apt-get >/dev/null || fail "please install $* with the package manager of this system, then try again"
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "please install $* (apt-get install $*): neither root nor sudo here"
        root=(sudo)
    fi
    say "installing $* (apt-get)"
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

at_least() { # wanted found
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

command -v redis-server >/dev/null || install_packages redis-server
command -v cc >/dev/null || install_packages build-essential

if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
    fail "cargo is in $HOME/.cargo/bin but not in PATH: . \"$HOME/.cargo/env\""
fi
if ! command -v cargo >/dev/null; then
    command -v curl >/dev/null || install_packages curl ca-certificates
    say "installing Rust (rustup)"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy,rustfmt
    fail "Rust is installed; open a new shell or run . \"$HOME/.cargo/env\", then try again"
fi
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$(rustc --version | cut -d' ' -f2)
at_least "$wanted" "$found" || fail "Rust $wanted or newer is needed, this is $found: rustup update stable"

python=${PYTHON:-python3}
command -v "$python" >/dev/null || install_packages python3 python3-venv
found=$("$python" -c 'import platform; print(platform.python_version())')
at_least 3.11 "$found" || fail "Python 3.11 or newer is needed, $python is $found: set PYTHON to a newer one"
"$python" -c 'import ensurepip' 2>/dev/null || install_packages python3-venv

command -v node >/dev/null || fail "Node 20.17 or newer is needed: https://nodejs.org/en/download"
found=$(node --version)
at_least 20.17 "${found#v}" || fail "Node 20.17 or newer is needed, this is $found"

# A copy of what was installed from tells whether it is still what is asked for.
if ! cmp -s tests/python/requirements.txt .venv/requirements.txt; then
    say "installing the Python tools into .venv (pip)"
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
    cp tests/python/requirements.txt .venv/requirements.txt
fi
if ! cmp -s package-lock.json node_modules/.installed-from; then
    say "installing the Node tools into node_modules (npm ci)"
    npm ci --no-fund --no-audit --loglevel=error
    cp package-lock.json node_modules/.installed-from
fi
