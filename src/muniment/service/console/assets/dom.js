// Elements: text is always text, so that nothing that a stranger wrote becomes markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string | number | boolean | ((event: Event) => void) | null | undefined>} [attributes]
 *   a function listens to the event of its name; true is an attribute without a value, false and null none
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false).map((child) =>
    child instanceof Node ? child : String(child)));
  return made;
}

/**
 * The element with an id; null where the page has none.
 * @param {string} id
 */
export function find(id) {
  return document.getElementById(id);
}

/**
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...element("div", {}, ...children).childNodes);
}

// Characters that show nothing, or move or reorder their neighbours; the pages of the registry name them as well.
const UNSEEN = /([\p{C}\p{DI}\p{Zl}\p{Zp}\u2800]|(?! )\p{Zs})/u;
// Of a text of spaces alone each is named.
const BLANK = /^\s+$/;

/**
 * The text of a stranger, apart from the direction of writing around it; unseen characters are named.
 * @param {string} text
 */
export function strange(text) {
  const isBlank = BLANK.test(text);
  return element("bdi", {}, ...text.split(isBlank ? /(.)/su : UNSEEN).map((part, at) => at % 2 && (isBlank || part !== "\n")
    ? element("span", { class: "unseen" }, `U+${(part.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`)
    : part));
}

/**
 * A field with its label above and a place for what is wrong with it below.
 * @param {Child} label
 * @param {HTMLElement} input
 * @param {Child} [hint]
 */
export function labelled(label, input, hint = "") {
  const id = input.id || `field-${(labelled.count += 1)}`;
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-hint ${id}-fault`);
  return element("div", { class: "field" },
    element("label", { for: id }, label), input,
    element("p", { class: "hint faint", id: `${id}-hint` }, hint),
    element("p", { class: "fault bad", id: `${id}-fault`, role: "alert" }));
}
labelled.count = 0;

/**
 * Say what is wrong with a field, or with an empty text that nothing is.
 * @param {HTMLElement} input
 * @param {string} words
 */
export function blame(input, words) {
  const place = find(`${input.id}-fault`);
  if (place) place.textContent = words;
  if (words) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
}

/**
 * Show what a check has found, also at the summary of the badge that it may be folded under. What is wrong is unfolded.
 * @param {HTMLElement} section
 * @param {"yes" | "no" | ""} found
 * @param {string} words
 */
export function settle(section, found, words) {
  section.className = `check ${found}`;
  const badge = section.closest("details");
  const place = badge?.querySelector(".found");
  if (!badge || !place) return;
  place.textContent = words;
  badge.className = `badge ${found}`;
  badge.open ||= found === "no";
}

/**
 * Save a text as a file.
 * @param {string} name
 * @param {string} text
 */
export function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  element("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

/** @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
