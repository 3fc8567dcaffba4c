// Learn that something may have changed, while the page is seen.

import { root } from "./api.js";

/** Between two looks: a busy registry has hundreds of events in a second. */
const REST_MS = 1_000;

/**
 * Call `look` when something may have changed, until it says that it has seen enough.
 *
 * The change feed says when, by server-sent events. Where it is off or breaks for good, `look` is called every `pollMs`.
 * What happens while no stream is open is not lost: each opening is a reason to look. A hidden tab has no stream and
 * asks nothing: all tabs together have six connections to a host, and a registry serves so many streams to a client.
 * @param {string} types of events, with commas between; none: the feed is not used
 * @param {() => Promise<boolean>} look whether it has seen enough
 * @param {number} pollMs
 */
export function follow(types, look, pollMs) {
  /** @type {EventSource | undefined} */
  let stream;
  let timer = 0;
  let looking = false;
  let again = false;
  let enough = false;

  const hint = () => {
    again = looking;
    if (looking || enough) return;
    looking = true;
    setTimeout(async () => {
      enough = await look().catch(() => false);
      looking = false;
      if (enough) rest();
      else if (again) hint();
    }, REST_MS);
  };
  const poll = () => {
    timer = setInterval(hint, pollMs);
  };
  const rest = () => {
    stream?.close();
    stream = undefined;
    clearInterval(timer);
    timer = 0;
  };
  const begin = () => {
    if (enough || document.hidden || stream || timer) return;
    if (!types) return poll();
    const opened = stream = new EventSource(new URL(`events/stream?types=${types}`, root));
    opened.onopen = opened.onmessage = hint;
    opened.addEventListener("reset", hint);
    opened.onerror = () => {
      if (stream === opened && opened.readyState === EventSource.CLOSED && !timer) poll();
    };
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return rest();
    begin();
    hint();
  });
  begin();
}
