// A QR code of a text as a picture, to carry the address of a page to a phone.

import { encode } from "./qr-code.js";

const QUIET = 4; // Modules of margin, which readers need.
const BYTES_MAX = 858; // What phones read from a screen (version 20).

/**
 * The picture; null for a text that is too long.
 * @param {string} text
 * @param {string} label
 */
export function qrCode(text, label) {
  if (new TextEncoder().encode(text).length > BYTES_MAX) return null;
  const { size, data } = encode(text, { border: QUIET });
  const made = (/** @type {string} */ name, /** @type {Record<string, string>} */ attributes) => {
    const part = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    return part;
  };
  const path = data.map((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : "")).join("")).join("");
  const svg = made("svg", { viewBox: `0 0 ${size} ${size}`, class: "qr", role: "img", "aria-label": label });
  svg.append(made("rect", { width: String(size), height: String(size), fill: "#fff" }), made("path", { d: path, fill: "#000" }));
  return svg;
}
