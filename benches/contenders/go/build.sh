#!/bin/sh
# Builds the Go contenders into build/contenders/go; their commands are build/contenders/go/redsync and .../rueidislock.
set -eu
cd "$(dirname "$0")"
out=$(cd ../../.. && pwd)/build/contenders/go
mkdir -p "$out"
go build -o "$out/" ./redsync ./rueidislock
