// Is what the registry gives for a CID the content of that CID? Every block is hashed here.

import { ask } from "./api.js";
import { element, fill, find, messageOf } from "./dom.js";

const place = find("check");
const cid = place?.dataset["cid"];
if (place && cid) {
  const verdict = element("p", { class: "verdict", "aria-live": "polite" }, "Not checked yet.");
  const button = element("button", { type: "button", class: "first", click: () => void check(place, cid, verdict) }, "Check");
  fill(place, place.querySelector("h2"), verdict, button);
}

/**
 * @param {HTMLElement} shown
 * @param {string} name
 * @param {HTMLElement} verdict
 */
async function check(shown, name, verdict) {
  verdict.textContent = "Checking …";
  try {
    const { checkCar } = await import("./proofs/car.js");
    const response = await ask(`ipfs/${name}?format=car`, { headers: { accept: "application/vnd.ipld.car" } });
    const car = new Uint8Array(await response.arrayBuffer());
    const begun = performance.now();
    const { blocks, files } = await checkCar(name, car);
    const milliseconds = Math.round(performance.now() - begun);
    checkManifest(files.find((file) => file.name === "manifest.json")?.bytes);
    const listed = files.map((file) => `${file.name} (${file.bytes.length.toLocaleString("en")} bytes)`).join(" and ");
    shown.className = "check yes";
    verdict.textContent = `Yes. ${blocks} blocks hash to what ${name} names: ${listed}. Checked here in ${milliseconds} ms.`;
  } catch (error) {
    shown.className = "check no";
    verdict.textContent = `No. ${messageOf(error)}`;
  }
}

/**
 * The page's words come from the registry: they are compared with the manifest that was checked.
 * @param {Uint8Array | undefined} bytes
 */
function checkManifest(bytes) {
  if (!bytes) throw new Error("The bundle has no manifest.json.");
  const manifest = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  const shown = document.querySelector("h1 bdi");
  const title = [...(shown?.childNodes ?? [])].every((each) => each.nodeType === Node.TEXT_NODE) ? shown?.textContent : manifest.name;
  if (title !== manifest.name) throw new Error(`The manifest has another name than this page: ${manifest.name}`);
  const named = [...document.querySelectorAll('table[aria-label="Inputs"] tbody tr')].length;
  if (named !== Object.keys(manifest.inputs ?? {}).length) throw new Error("The manifest has other inputs than this page.");
}
