// Makes crypto.js of noble's packages: `npm ci && node build.mjs TARGET`. The same packages give the same bytes.
import { build } from "esbuild";
import { readFileSync } from "node:fs";

const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
const banner = `// @noble/hashes ${version("@noble/hashes")} and @noble/secp256k1 ${version("@noble/secp256k1")}, MIT License,
// Copyright (c) 2022 Paul Miller (https://paulmillr.com). Made by tests/e2e/vendored/build.mjs; not edited by hand.`;

await build({
  entryPoints: [new URL("entry.js", import.meta.url).pathname],
  outfile: process.argv[2],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  banner: { js: banner },
});
