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
const UNITS = /** @type {[string, string][]} */ ([["s", "seconds"], ["m", "minutes"], ["h", "hours"], ["d", "days"], ["w", "weeks"]]);
const TOPICS_MAX = 4;
const MINUTE_MS = 6e4;
// Ninety days: a forgotten trigger ends by itself.
const ENDS_IN_MINUTES = 129600;
/** @type {((typed: string) => string) | null} */
let topicOf = null;

/** The part of the form that says when. @returns {Field} */
export function configField() {
  const kind = choice("Kind", [["0", "On a schedule"], ["1", "On an event"], ["2", "Once"]], "/config/type", "", Number);
  const delta = delay();
  const parts = /** @type {Record<number, Field>} */ ({ [CRON]: cron(delta), [EVENT]: event(), [ONCE]: once() });
  const select = /** @type {HTMLSelectElement} */ (kind.node.querySelector("select"));
  const end = orNone("Ends", "at a time", "never: only a deactivation ends it", moment("Ends (UTC)", "/config/endDate", "", true), 0);
  end.write(Math.floor(Date.now() / MINUTE_MS + ENDS_IN_MINUTES) * MINUTE_MS);
  const show = () => {
    Object.entries(parts).forEach(([number, part]) => { part.node.hidden = number !== select.value; });
    if (select.value === "1" && !topicOf) void readEvents(parts[EVENT]?.node);
  };
  kind.node.addEventListener("input", show);
  show();
  return {
    node: element("div", {}, kind.node, ...Object.values(parts).map((part) => part.node), delta.node, end.node),
    read: () => {
      const type = Number(checked(kind));
      const part = /** @type {object} */ (checked(/** @type {Field} */ (parts[type])));
      return { type, ...part, delta: checked(delta), endDate: checked(end) };
    },
    write: (value) => {
      const type = value.type ?? 0;
      kind.write(type);
      parts[type]?.write(value);
      if (value.delta !== undefined) delta.write(value.delta);
      if (value.endDate !== undefined) end.write(value.endDate);
      show();
    },
  };
}

/** @param {Field} delta @returns {Field} */
function cron(delta) {
  const preset = choice("Schedule", /** @type {[string, string][]} */ (PRESETS), "/config/preset", "", String);
  const fields = CRON_FIELDS.map((name, at) => text(name, `/config/schedule#${at}`, (typed) => typed || "*", "", { size: 6, maxlength: 100 }));
  const choose = (/** @type {string} */ schedule) => {
    preset.write(PRESETS.some(([known]) => known === schedule) ? schedule : "");
    delta.write(`${(/^[*][/]?([1-4]?) /.exec(schedule)?.[1] ?? 5) || 1}m`);
  };
  const write = (/** @type {string} */ schedule) => {
    const given = schedule.trim().split(/\s+/);
    // A text without five fields stands in the first in quotes: it is refused.
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
