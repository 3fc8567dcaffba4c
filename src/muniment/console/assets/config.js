// When a trigger may run: on a schedule, on an event, or once.

import { element } from "./dom.js";
import { address, chain, checked, choice, text } from "./fields.js";
import { hex, utf8 } from "./proofs/bytes.js";
import { keccak256 } from "./proofs/crypto.js";

/** @typedef {import("./fields.js").Field} Field */

const [CRON, EVENT, ONCE] = [0, 1, 2];
const PRESETS = [
  ["0 * * * *", "Every hour"], ["0 */6 * * *", "Every six hours"], ["0 0 * * *", "Every day at 00:00"],
  ["0 9 * * 1", "Mondays at 09:00"], ["0 0 1 * *", "On the first of the month"], ["", "Own"],
];
const CRON_FIELDS = ["Minute", "Hour", "Day of month", "Month", "Weekday"];
const UNITS = /** @type {[string, string][]} */ ([["s", "seconds"], ["m", "minutes"], ["h", "hours"], ["d", "days"], ["w", "weeks"]]);
const TOPICS_MAX = 4;

/**
 * The part of the form that says when.
 * @returns {Field}
 */
export function configField() {
  const kind = choice("Kind", [["0", "On a schedule"], ["1", "On an event"], ["2", "Once"]], "/config/type", "", Number);
  const parts = { [CRON]: cron(), [EVENT]: event(), [ONCE]: once() };
  const delta = delay();
  const end = moment("Ends (UTC)", "/config/endDate", "Empty: never. Only a deactivation ends it then.");
  const show = () => Object.entries(parts).forEach(([number, part]) => { part.node.hidden = number !== String(kind.read()); });
  kind.node.addEventListener("input", show);
  show();
  return {
    node: element("div", {}, kind.node, ...Object.values(parts).map((part) => part.node), delta.node, end.node),
    pointer: "/config",
    read: () => {
      const type = Number(kind.read());
      return { type, .../** @type {object} */ (checked(parts[type] ?? cron())), delta: checked(delta), endDate: checked(end) };
    },
    write: (value) => {
      kind.write(value.type ?? CRON);
      parts[value.type ?? CRON]?.write(value);
      if (value.delta) delta.write(value.delta);
      if (value.endDate) end.write(value.endDate);
      show();
    },
    blame: (words) => kind.blame(words),
  };
}

/** @returns {Field} */
function cron() {
  const preset = choice("Schedule", /** @type {[string, string][]} */ (PRESETS), "/config/preset", "", String);
  const fields = CRON_FIELDS.map((name, at) => text(name, `/config/schedule#${at}`, (typed) => typed || "*", "", { size: 6, maxlength: 40 }));
  const write = (/** @type {string} */ schedule) => {
    schedule.split(" ").forEach((part, at) => fields[at]?.write(part));
    preset.write(PRESETS.some(([known]) => known === schedule) ? schedule : "");
  };
  preset.node.addEventListener("input", () => preset.read() && write(String(preset.read())));
  const row = element("div", { class: "five" }, ...fields.map((field) => field.node));
  row.addEventListener("input", () => preset.write(PRESETS.some(([known]) => known === read()) ? read() : ""));
  const read = () => fields.map((field) => field.read()).join(" ");
  write("0 */6 * * *");
  return {
    node: element("div", {}, preset.node, row), pointer: "/config/schedule",
    read: () => ({ schedule: read() }),
    write: (value) => value.schedule && write(value.schedule),
    blame: (words) => fields[0]?.blame(words),
  };
}

/** @returns {Field} */
function event() {
  const where = chain("/config/chainId", "");
  const contract = address("Contract", "/config/contract", "Whose event starts a run");
  const topics = Array.from({ length: TOPICS_MAX }, (_, at) => topic(at));
  const all = [where, contract, ...topics];
  return {
    node: element("div", {}, ...all.map((field) => field.node)), pointer: "/config/topics",
    read: () => {
      const chosen = topics.map((field) => /** @type {string[]} */ (checked(field)));
      while (chosen.length && !chosen[chosen.length - 1]?.length) chosen.pop();
      return { chainId: checked(where), contract: checked(contract), topics: chosen };
    },
    write: (value) => {
      if (value.chainId) where.write(value.chainId);
      if (value.contract) contract.write(value.contract);
      (value.topics ?? []).forEach((/** @type {string[]} */ each, /** @type {number} */ at) => topics[at]?.write(each.join(", ")));
    },
    blame: (words) => topics[0]?.blame(words),
  };
}

/**
 * Values of one topic, any of which will do: 32 bytes each, or for the first topic an event like
 * `Transfer(address,address,uint256)`, which is hashed here.
 * @param {number} at
 */
function topic(at) {
  const hint = at ? "32 bytes in hex, several with commas; empty: any" : "An event like Transfer(address,address,uint256), or 32 bytes in hex; empty: any";
  return text(`Topic ${at}`, `/config/topics/${at}`, (typed) => split(typed).map((part) => {
    if (/^0x[0-9a-fA-F]{64}$/.test(part)) return part;
    if (!at && /^[A-Za-z_$][A-Za-z0-9_$]*\([A-Za-z0-9_$,()[\]]*\)$/.test(part)) return hex(keccak256(utf8(part)));
    throw new Error(at ? "a topic is 0x and 64 hex digits" : "neither an event, without spaces, nor 0x and 64 hex digits");
  }), hint);
}

/**
 * Parts between the commas that stand outside of brackets.
 * @param {string} typed
 */
function split(typed) {
  return typed.split(/[\s,]+(?![^(]*\))/).filter(Boolean);
}

/** @returns {Field} */
function once() {
  const start = moment("Begins (UTC)", "/config/startDate", "Empty: as soon as possible");
  return {
    node: element("div", {}, start.node), pointer: "/config/startDate",
    read: () => ({ startDate: checked(start) }),
    write: (value) => value.startDate && start.write(value.startDate),
    blame: start.blame,
  };
}

/** @returns {Field} */
function delay() {
  const count = text("A run may be late by", "/config/delta", (typed) => {
    if (!/^[1-9][0-9]{0,8}$/.test(typed)) throw new Error("a whole number above 0");
    return typed;
  }, "", { inputmode: "numeric", size: 6 });
  const unit = choice("Unit", UNITS, "/config/delta#unit", "", String);
  count.write("10");
  unit.write("m");
  return {
    node: element("div", { class: "two" }, count.node, unit.node), pointer: "/config/delta",
    read: () => `${checked(count)}${unit.read()}`,
    write: (value) => {
      count.write(String(value).slice(0, -1));
      unit.write(String(value).slice(-1));
    },
    blame: count.blame,
  };
}

/**
 * A time in UTC, in milliseconds since 1970; 0 for an empty field.
 * @param {string} label
 * @param {string} pointer
 * @param {string} hint
 * @returns {Field}
 */
function moment(label, pointer, hint) {
  const field = text(label, pointer, (typed) => {
    const milliseconds = typed ? Date.parse(`${typed}Z`) : 0;
    if (Number.isNaN(milliseconds)) throw new Error("not a time");
    return milliseconds;
  }, hint, { type: "datetime-local" });
  const { write } = field;
  return { ...field, write: (value) => write(Number(value) ? new Date(Number(value)).toISOString().slice(0, 16) : "") };
}
