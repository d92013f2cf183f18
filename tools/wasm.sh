#!/usr/bin/env bash
# Builds the engine for WebAssembly (tests/wasm) and looks at what the module wants from its host: nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
dir=${CARGO_TARGET_DIR:-target}/wasm
build=(build --locked --release --target "$target" --manifest-path tests/wasm/Cargo.toml --target-dir "$dir")
log=$(mktemp)
trap 'rm -f "$log"' EXIT

has_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; }

if has_target || { command -v rustup >/dev/null && rustup target add "$target" >"$log" 2>&1 && has_target; }; then
    cargo "${build[@]}"
else
    # Debian's compiler brings the library's source, from which the target is built.
    if ! [ -x /usr/bin/cargo ] || ! [ -d /usr/lib/rustlib/src ]; then
        [ "$(id -u)" -eq 0 ] && apt-get install -y -qq --no-install-recommends rustc-web cargo-web rust-web-src lld >>"$log" 2>&1 ||
            true
    fi
    if ! [ -x /usr/bin/cargo ] || ! [ -d /usr/lib/rustlib/src ]; then
        cat "$log"
        echo "*** SKIPPED: no $target here, neither by rustup nor by rustc-web. The engine was NOT built for WebAssembly. ***"
        exit 0
    fi
    PATH=/usr/bin:$PATH RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld \
        /usr/bin/cargo "${build[@]}" -Zbuild-std=std,panic_abort
fi

node - "$dir/$target/release/bandog_wasm_probe.wasm" <<'JS'
const { readFileSync } = require('node:fs')
const module = new WebAssembly.Module(readFileSync(process.argv[2]))
const imports = WebAssembly.Module.imports(module)
if (imports.length) throw new Error(`the engine asks its host for ${imports.map((i) => `${i.module}.${i.name}`)}`)
const { exports } = new WebAssembly.Instance(module)
const steps = exports.probe()
if (steps <= 0) throw new Error(`the engine does not run as WebAssembly: ${steps}`)
console.log(`wasm: ${readFileSync(process.argv[2]).length} bytes, no imports, ran ${steps} steps`)
JS
