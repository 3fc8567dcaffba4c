// An intent that has not ended: ask whether it has changed, and say so. The page changes only when the reader wants it.

import { ask } from "./api.js";
import { element, find } from "./dom.js";

const POLL_MS = 5_000;

const life = find("life");
const hash = life?.dataset["hash"];
if (life && hash) {
  const headers = { "if-none-match": life.dataset["etag"] ?? "" };
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const response = await ask(`intents/${hash}`, { headers }).catch(() => null);
    if (response?.status !== 200 || response.headers.get("etag") === headers["if-none-match"]) return;
    clearInterval(timer);
    life.append(element("button", { type: "button", click: () => location.reload() }, "It has changed, show"));
  }, POLL_MS);
}
