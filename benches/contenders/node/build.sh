#!/bin/sh
# Installs what the Node contenders are built on; their commands are node benches/contenders/node/<name>.mjs.
set -eu
cd "$(dirname "$0")"
# One of them asks for a newer Node than this project does, and works without.
npm ci --silent --no-audit --no-fund
