// node run_wasm.mjs FILE.wasm: prints the text that the module's `text` and `text_len` export.
import { readFileSync } from 'node:fs';

const module = await WebAssembly.compile(readFileSync(process.argv[2]));
const { exports } = await WebAssembly.instantiate(module, {});
const start = exports.text();
process.stdout.write(Buffer.from(exports.memory.buffer, start, exports.text_len()));
