// Builds the native addon beside this file and writes index.d.ts: header.d.ts by hand, then what the doc comments in
// src/*.rs say. `--release` for the optimised build, `--check` fails when the committed index.d.ts is out of date.
import { spawnSync } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

const here = import.meta.dirname
const check = process.argv.includes('--check')
const cli = path.join(path.dirname(createRequire(import.meta.url).resolve('@napi-rs/cli/package.json')), 'dist', 'cli.js')
const manifest = process.env.BANDOG_NODE_MANIFEST ?? path.join(here, 'Cargo.toml')

const build = spawnSync(
  process.execPath,
  [
    cli, 'build', '--manifest-path', manifest, '--output-dir', here, '--dts', 'generated.d.ts', '--no-dts-header',
    ...(process.argv.includes('--release') ? ['--release'] : []),
  ],
  { stdio: 'inherit', cwd: path.dirname(here) },
)
if (build.status !== 0) process.exit(build.status ?? 1)

// Classes by which lib/ talks to the addon. They are not exported.
const INTERNAL = ['Host', 'Cancel', 'Carrier', 'Scope']

const generated = path.join(here, 'generated.d.ts')
const classes = readFileSync(generated, 'utf8')
  .split(/(?=^\/\*\*(?:(?!\*\/)[^])*?\*\/\nexport declare class|(?<!\*\/\n)^export declare class)/m)
  .filter(part => !INTERNAL.some(name => part.includes(`export declare class ${name} `)))
  // Nothing but the library makes these.
  .map(part => part.replace(/(export declare class \w+ \{\n)/, '$1  private constructor()\n'))
  .join('')
rmSync(generated)

const types = `${readFileSync(path.join(here, 'header.d.ts'), 'utf8').trimEnd()}\n\n${classes.trim()}\n`
const target = path.join(here, 'index.d.ts')
if (check) {
  if (readFileSync(target, 'utf8') !== types) {
    console.error('bindings-node/index.d.ts is out of date: run "npm run build" and commit it')
    process.exit(1)
  }
} else {
  writeFileSync(target, types)
}
