// An intent that has not ended: ask whether it has changed, and say so. The page changes only when the reader wants it.

import { ask } from "./api.js";
import { element, fill, find } from "./dom.js";
import { follow } from "./follow.js";

const POLL_MS = 5_000;

const place = find("changed");
if (place) {
  const headers = { "if-none-match": place.dataset["etag"] ?? "" };
  follow("", async () => {
    const response = await ask(`intents/${place.dataset["hash"]}`, { headers });
    if (response.status !== 200 || response.headers.get("etag") === headers["if-none-match"]) return false;
    fill(place, element("button", { type: "button", click: () => location.reload() }, "It has changed, show"));
    return true;
  }, POLL_MS);
}
