// Makes the console's vendored files of their packages: `npm ci && node build.mjs FOLDER`. The same packages give the same
// bytes.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
const MADE = "Made by tests/e2e/vendored/build.mjs; not edited by hand.";
const NOBLE = `// @noble/hashes ${version("@noble/hashes")} and @noble/secp256k1 ${version("@noble/secp256k1")}, MIT License,
// Copyright (c) 2022 Paul Miller (https://paulmillr.com). ${MADE}`;
const UQR = `// @license uqr ${version("uqr")}, MIT License, Copyright (c) 2023 Anthony Fu and contributors,
// with QR Code generator by Project Nayuki, MIT License. ${MADE}`;

const make = (entry, file, banner) => build({
  entryPoints: [new URL(entry, import.meta.url).pathname],
  outfile: join(process.argv[2], file),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  banner: { js: banner },
});

await make("entry.js", "crypto.js", NOBLE);
await make("qr-code.js", "qr-code.js", UQR);
