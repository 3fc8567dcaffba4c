// When a trigger may run: on a schedule, on an event, or once.

import { element } from "./dom.js";
import { address, chain, checked, choice, explained, text } from "./fields.js";
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
// 9999-12-31T23:59:59.999Z: fields for times hold years of four digits.
const LATEST_MS = 253_402_300_799_999;
// A type of a parameter with its size, or what may follow the bracket of a tuple (Solidity, ABI specification).
const TYPE = /^(?:u?int(?:8|16|24|32|40|48|56|64|72|80|88|96|104|112|120|128|136|144|152|160|168|176|184|192|200|208|216|224|232|240|248|256)|address|bool|string|bytes(?:[1-9]|[12][0-9]|3[0-2])?|function)?(?:\[[0-9]*\])*$/;

/**
 * The part of the form that says when.
 * @returns {Field}
 */
export function configField() {
  const kind = choice("Kind", [["0", "On a schedule"], ["1", "On an event"], ["2", "Once"]], "/config/type", "", Number);
  const parts = /** @type {Record<number, Field>} */ ({ [CRON]: cron(), [EVENT]: event(), [ONCE]: once() });
  const select = /** @type {HTMLSelectElement} */ (kind.node.querySelector("select"));
  const delta = delay();
  const end = moment("Ends (UTC)", "/config/endDate", "Empty: never. Only a deactivation ends it then.");
  const show = () => Object.entries(parts).forEach(([number, part]) => { part.node.hidden = number !== select.value; });
  kind.node.addEventListener("input", show);
  show();
  return {
    node: element("div", {}, kind.node, ...Object.values(parts).map((part) => part.node), delta.node, end.node),
    pointer: "/config",
    read: () => {
      const type = Number(checked(kind));
      const part = /** @type {object} */ (checked(/** @type {Field} */ (parts[type])));
      return { type, ...part, delta: checked(delta), endDate: checked(end) };
    },
    write: (value) => {
      const type = value.type ?? CRON;
      kind.write(type);
      parts[type]?.write(value);
      if (value.delta !== undefined) delta.write(value.delta);
      if (value.endDate !== undefined) end.write(value.endDate);
      show();
    },
    blame: (words) => kind.blame(words),
  };
}

/** @returns {Field} */
function cron() {
  const preset = choice("Schedule", /** @type {[string, string][]} */ (PRESETS), "/config/preset", "", String);
  let wrong = "";
  const fields = CRON_FIELDS.map((name, at) => text(name, `/config/schedule#${at}`, (typed) => {
    if (wrong) throw new Error(`the link gives “${wrong}”, which has not five fields: choose a schedule`);
    if (/\s/.test(typed)) throw new Error("one field of the schedule has no spaces");
    return typed || "*";
  }, "", { size: 6, maxlength: 100 }));
  const knownOr = (/** @type {string} */ schedule) => (PRESETS.some(([known]) => known === schedule) ? schedule : "");
  const write = (/** @type {string} */ schedule) => {
    const given = schedule.trim().split(/[ \t]+/);
    wrong = given.length === fields.length ? "" : schedule;
    fields.forEach((field, at) => field.write(wrong ? "*" : given[at]));
    preset.write(knownOr(schedule));
  };
  const read = () => fields.map((field) => checked(field)).join(" ");
  preset.node.addEventListener("input", () => preset.read() && write(String(preset.read())));
  const row = element("div", { class: "five" }, ...fields.map((field) => field.node));
  row.addEventListener("input", () => {
    wrong = "";
    const typed = [...row.querySelectorAll("input")].map((each) => each.value.trim() || "*").join(" ");
    preset.write(knownOr(typed));
  });
  write("0 */6 * * *");
  return {
    node: element("div", {}, preset.node, row), pointer: "/config/schedule",
    read: () => ({ schedule: read() }),
    write: (value) => value.schedule !== undefined && write(String(value.schedule)),
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
      if (value.chainId !== undefined) where.write(value.chainId);
      if (value.contract !== undefined) contract.write(value.contract);
      /** @type {unknown[]} */
      const given = Array.isArray(value.topics) ? value.topics : value.topics === undefined ? [] : [value.topics];
      // More topics than an event has are shown in the last field, which refuses them.
      given.forEach((each, at) => topics[Math.min(at, TOPICS_MAX - 1)]?.write(Array.isArray(each) && at < TOPICS_MAX ? each.join(", ") : each));
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
  const field = text(`Topic ${at}`, `/config/topics/${at}`, (typed) => split(typed).map((part) => {
    if (/^0x[0-9a-fA-F]{64}$/.test(part)) return part;
    if (at) throw new Error("a topic is 0x and 64 hex digits");
    return hex(keccak256(utf8(canonicalEvent(part))));
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

/**
 * An event as the hash of its first topic has it: its name and the full types of its parameters, without spaces. A short
 * type such as `uint` would give the hash of an event that no contract logs.
 * @param {string} typed
 */
function canonicalEvent(typed) {
  const event = typed.replaceAll(/\s*([(),])\s*/g, "$1");
  const [, types = null] = /^[A-Za-z_$][A-Za-z0-9_$]*(\(.*\))$/.exec(event) ?? [];
  if (types === null) throw new Error("neither an event, such as Transfer(address,address,uint256), nor 0x and 64 hex digits");
  for (const word of types.split(/[(),]/).filter(Boolean)) {
    if (!TYPE.test(word)) throw new Error(`“${word}” is no full type: write an event like Transfer(address,address,uint256), without names`);
  }
  if (!isBalanced(types)) throw new Error("the brackets of the event do not match");
  return event;
}

/** @param {string} text */
function isBalanced(text) {
  let depth = 0;
  for (const [at, each] of [...text].entries()) {
    depth += Number(each === "(") - Number(each === ")");
    if (depth < 1 && at < text.length - 1) return false;
  }
  return depth === 0;
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
      const [, digits, letter] = /^([0-9]+)([smhdw])$/.exec(String(value)) ?? [];
      count.write(digits ?? value);
      if (letter) unit.write(letter);
    },
    blame: count.blame,
  };
}

/**
 * A time in UTC, in milliseconds since 1970; 0 for an empty field. A link's value that is no time is refused until the
 * reader chooses one: without it, the trigger would never end.
 * @param {string} label
 * @param {string} pointer
 * @param {string} hint
 * @returns {Field}
 */
function moment(label, pointer, hint) {
  let wrong = "";
  const field = text(label, pointer, (typed) => {
    if (wrong) throw new Error(`the link gives “${wrong}”, which is no time in milliseconds: choose one`);
    const milliseconds = typed ? Date.parse(`${typed}Z`) : 0;
    if (Number.isNaN(milliseconds)) throw new Error("not a time");
    return milliseconds;
  }, hint, { type: "datetime-local", step: "any" });
  field.node.addEventListener("input", () => { wrong = ""; });
  return {
    ...field,
    write: (value) => {
      const isTime = /^[0-9]{1,15}$/.test(String(value)) && Number(value) <= LATEST_MS;
      wrong = isTime ? "" : String(value);
      field.write(isTime && Number(value) ? new Date(Number(value)).toISOString().slice(0, -1).replace(/:00\.000$/, "") : "");
    },
  };
}
