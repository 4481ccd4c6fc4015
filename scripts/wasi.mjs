// Runs a WebAssembly program that was compiled for WASI, such as a crate's tests: node scripts/wasi.mjs PROGRAM [ARGUMENT…]
//
//     CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings scripts/wasi.mjs" cargo test --target wasm32-wasip1 …

import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const args = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args, env: process.env, returnOnExit: true });
const module = await WebAssembly.compile(await readFile(args[0]));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
