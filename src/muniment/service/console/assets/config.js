// When a trigger may run: on a schedule, on an event, or once.

import { element } from "./dom.js";
import { address, chain, checked, choice, explained, orNone, text } from "./fields.js";

/** @typedef {import("./fields.js").Field} Field */

const [CRON, EVENT, ONCE] = [0, 1, 2];
const PRESETS = [
  ["0 * * * *", "Every hour"], ["0 */6 * * *", "Every six hours"], ["0 0 * * *", "Every day at 00:00"],
  ["0 9 * * 1", "Mondays at 09:00"], ["0 0 1 * *", "On the first of the month"], ["", "Own"],
];
const CRON_FIELDS = ["Minute", "Hour", "Day of month", "Month", "Weekday"];
const HOUR = 60;
// Functions give their intents a few minutes: a later run may come to nothing.
const LATE_MINUTES = 5;
const UNITS = /** @type {[string, string][]} */ ([["s", "seconds"], ["m", "minutes"], ["h", "hours"], ["d", "days"], ["w", "weeks"]]);
const TOPICS_MAX = 4;
const MINUTE_MS = 60_000;
// Ninety days: a trigger that its owner forgets ends by itself.
const ENDS_IN_MINUTES = 90 * 24 * 60;
/** @type {((typed: string) => string) | null} */
let topicOf = null;

/**
 * The part of the form that says when.
 * @returns {Field}
 */
export function configField() {
  const kind = choice("Kind", [["0", "On a schedule"], ["1", "On an event"], ["2", "Once"]], "/config/type", "", Number);
  const parts = /** @type {Record<number, Field>} */ ({ [CRON]: cron(), [EVENT]: event(), [ONCE]: once() });
  const select = /** @type {HTMLSelectElement} */ (kind.node.querySelector("select"));
  const delta = delay();
  const end = orNone("Ends", "at a time", "never: only a deactivation ends it", moment("Ends (UTC)", "/config/endDate", "", true), 0);
  end.write(Math.floor(Date.now() / MINUTE_MS + ENDS_IN_MINUTES) * MINUTE_MS);
  const show = () => {
    Object.entries(parts).forEach(([number, part]) => { part.node.hidden = number !== select.value; });
    if (select.value === String(EVENT) && !topicOf) void readEvents(parts[EVENT]?.node);
  };
  kind.node.addEventListener("input", show);
  show();
  // Until its owner says otherwise, a run may be late by the interval of the schedule.
  const usual = () => {
    const minutes = /** @type {HTMLInputElement | null} */ (parts[CRON]?.node.querySelector(".five input"))?.value.trim();
    return `${select.value === String(CRON) ? shortest(minutes || "*") : LATE_MINUTES}m`;
  };
  let last = usual();
  delta.write(last);
  const node = element("div", {}, kind.node, ...Object.values(parts).map((part) => part.node), delta.node, end.node);
  node.addEventListener("input", () => {
    const fields = /** @type {NodeListOf<HTMLInputElement>} */ (delta.node.querySelectorAll("input, select"));
    const isUsual = [...fields].map((field) => field.value).join("") === last;
    if (last !== (last = usual()) && isUsual) delta.write(last);
  });
  return {
    node,
    read: () => {
      const type = Number(checked(kind));
      const part = /** @type {object} */ (checked(/** @type {Field} */ (parts[type])));
      return { type, ...part, delta: checked(delta), endDate: checked(end) };
    },
    write: (value) => {
      const type = value.type ?? CRON;
      kind.write(type);
      parts[type]?.write(value);
      last = usual();
      delta.write(value.delta ?? last);
      if (value.endDate !== undefined) end.write(value.endDate);
      show();
    },
  };
}

/**
 * The shortest time between two minutes of a schedule, at most five minutes: `usual_delta` of the command line.
 * @param {string} minutes the field of the schedule
 */
function shortest(minutes) {
  const due = new Set();
  for (const part of minutes.split(",")) {
    const [all, first, end, step] = /^(?:[*?]|([0-9]+)(?:-([0-9]+))?)(?:\/([0-9]+))?$/.exec(part) ?? [];
    if (!all) return LATE_MINUTES;
    const to = Number(end ?? (first && !step ? first : HOUR));
    for (let minute = Number(first ?? 0); minute <= to && minute < HOUR; minute += Number(step ?? 1) || HOUR) due.add(minute);
  }
  const steps = Array.from({ length: LATE_MINUTES }, (_, at) => at + 1);
  return steps.find((step) => [...due].some((minute) => due.has((minute + step) % HOUR))) ?? LATE_MINUTES;
}

/** @returns {Field} */
function cron() {
  const preset = choice("Schedule", /** @type {[string, string][]} */ (PRESETS), "/config/preset", "", String);
  const fields = CRON_FIELDS.map((name, at) => text(name, `/config/schedule#${at}`, (typed) => typed || "*", "", { size: 6, maxlength: 100 }));
  const choose = (/** @type {string} */ schedule) => preset.write(PRESETS.some(([known]) => known === schedule) ? schedule : "");
  const write = (/** @type {string} */ schedule) => {
    const given = schedule.trim().split(/[ \t]+/);
    // A text without five fields stands in the first one in quotes, which the registry refuses.
    fields.forEach((field, at) => field.write(given.length === fields.length ? given[at] : at ? "*" : JSON.stringify(schedule)));
    choose(schedule);
  };
  preset.node.addEventListener("input", () => preset.read() && write(String(preset.read())));
  const row = element("div", { class: "five" }, ...fields.map((field) => field.node));
  row.addEventListener("input", () => {
    choose([...row.querySelectorAll("input")].map((each) => each.value.trim() || "*").join(" "));
  });
  write("0 */6 * * *");
  return {
    node: element("div", {}, preset.node, row),
    read: () => ({ schedule: fields.map(checked).join(" ") }),
    write: (value) => value.schedule !== undefined && write(String(value.schedule)),
  };
}

/**
 * Load what reads events, and read again what was typed before: few triggers wait for one.
 * @param {HTMLElement | undefined} node
 */
async function readEvents(node) {
  topicOf = (await import("./events.js")).topicOf;
  for (const field of node?.querySelectorAll(".field") ?? []) field.dispatchEvent(new Event("input", { bubbles: true }));
}

/** @returns {Field} */
function event() {
  const where = chain("/config/chainId", "");
  const contract = address("Contract", "/config/contract", "Whose event starts a run");
  const topics = Array.from({ length: TOPICS_MAX }, (_, at) => topic(at));
  return {
    node: element("div", {}, where.node, contract.node, ...topics.map((field) => field.node)),
    read: () => {
      const chosen = topics.map((field) => /** @type {string[]} */ (checked(field)));
      while (chosen.length && !chosen[chosen.length - 1]?.length) chosen.pop();
      return { chainId: checked(where), contract: checked(contract), topics: chosen };
    },
    write: (value) => {
      if (value.chainId !== undefined) where.write(value.chainId);
      if (value.contract !== undefined) contract.write(value.contract);
      /** @type {unknown[]} */
      const given = Array.isArray(value.topics) ? value.topics : value.topics === undefined ? [] : [value.topics];
      // More topics than an event has are shown in the last field, which refuses them.
      given.forEach((each, at) => topics[Math.min(at, TOPICS_MAX - 1)]?.write(Array.isArray(each) && at < TOPICS_MAX ? each.join(", ") : each));
    },
  };
}

/**
 * Values of one topic, any of which will do: 32 bytes each, or for the first topic an event like
 * `Transfer(address,address,uint256)`, which is hashed here.
 * @param {number} at
 */
function topic(at) {
  const hint = `${at ? "" : "An event like Transfer(address,address,uint256), or "}32 bytes in hex, several with commas; empty: any`;
  const field = text(`Topic ${at}`, `/config/topics/${at}`, (typed) => split(typed).map((part) => {
    if (/^0x[0-9a-fA-F]{64}$/.test(part)) return part;
    if (at) throw new Error("a topic is 0x and 64 hex digits");
    if (!topicOf) throw new Error("this event is still read");
    return topicOf(part);
  }), hint);
  return explained(field, hint, (values) => (values.length ? `= ${values.join(", ")}` : ""));
}

/**
 * Parts between the commas and spaces that stand outside of brackets.
 * @param {string} typed
 */
function split(typed) {
  const parts = [""];
  let depth = 0;
  for (const each of typed) {
    depth += Number(each === "(") - Number(each === ")");
    if (depth <= 0 && /[\s,]/.test(each)) parts.push("");
    else parts[parts.length - 1] += each;
  }
  return parts.filter(Boolean);
}

/** @returns {Field} */
function once() {
  const start = moment("Begins (UTC)", "/config/startDate", "Empty: as soon as possible");
  return {
    node: element("div", {}, start.node),
    read: () => ({ startDate: checked(start) }),
    write: (value) => value.startDate && start.write(value.startDate),
  };
}

/** @returns {Field} */
function delay() {
  const count = text("A run may be late by", "/config/delta", (typed) => {
    if (!/^[1-9][0-9]{0,8}$/.test(typed)) throw new Error("a whole number above 0");
    return typed;
  }, "", { inputmode: "numeric", size: 6 });
  const unit = choice("Unit", UNITS, "/config/delta#unit", "", String);
  return {
    node: element("div", { class: "two" }, count.node, unit.node),
    read: () => `${checked(count)}${unit.read()}`,
    write: (value) => {
      const [, digits, letter] = /^([0-9]+)([smhdw])$/.exec(String(value)) ?? [];
      count.write(digits ?? value);
      if (letter) unit.write(letter);
    },
  };
}

/**
 * A time in UTC, in milliseconds since 1970; 0 for an empty field, if it may be empty.
 * @param {string} label
 * @param {string} pointer
 * @param {string} hint
 * @param {boolean} [isNeeded]
 * @returns {Field}
 */
function moment(label, pointer, hint, isNeeded = false) {
  const field = text(label, pointer, (typed) => {
    if (isNeeded && !typed) throw new Error("a time is missing");
    return typed ? Date.parse(`${typed}Z`) : 0;
  }, hint, { type: "datetime-local", step: "any" });
  return {
    ...field,
    write: (value) => {
      const time = new Date(Number(value));
      if (!(time.getTime() >= 0)) return field.write(value);
      // In the spelling of the browser: what it drops is refused, since a trigger without an end is another trigger.
      field.write(Number(value) ? time.toISOString().slice(0, -1).replace(/(:00)?\.000$/, "") : "");
    },
  };
}
