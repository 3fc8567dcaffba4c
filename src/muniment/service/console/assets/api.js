// The registry's API, from wherever the page is: all paths are relative to the root that the page names.

export const root = new URL(document.documentElement.dataset["root"] ?? "./", document.baseURI);

/** @typedef {{detail: string, pointer?: string, parameter?: string}} Fault */

/** A refusal of the registry (RFC 9457). */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{code?: string, detail?: string, errors?: Fault[], requestId?: string}} document
   */
  constructor(status, document) {
    super(document.detail ?? `the registry answered with status ${status}`);
    this.status = status;
    this.code = document.code ?? "";
    this.faults = document.errors ?? [];
    this.requestId = document.requestId ?? "";
  }
}

/**
 * @typedef {object} Asked
 * @property {string} [method]
 * @property {unknown} [body] JSON
 * @property {string} [token]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */

/**
 * The response of the registry; throws a `Problem` for a refusal.
 * @param {string} path relative to the root, without a slash at its beginning
 * @param {Asked} [asked]
 */
export async function ask(path, { method = "GET", body, token, headers = {}, signal } = {}) {
  /** @type {Record<string, string>} */
  const given = { accept: "application/json", ...headers };
  if (body !== undefined) given["content-type"] = "application/json";
  if (token) given["x-auth-token"] = token;
  const response = await fetch(new URL(path, root), {
    method, headers: given, body: body === undefined ? null : JSON.stringify(body), signal: signal ?? null,
    credentials: "omit",
  }).catch((error) => {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Error("the registry cannot be reached");
  });
  if (response.status >= 400) throw new Problem(response.status, await response.json().catch(() => ({})));
  return response;
}

/**
 * The JSON of an answer, null for one without content.
 * @param {string} path
 * @param {Asked} [asked]
 * @returns {Promise<any>}
 */
export async function call(path, asked) {
  const response = await ask(path, asked);
  return response.status === 204 ? null : response.json();
}

/**
 * Send a form, telling how much of it has gone out, which `fetch` cannot.
 * @param {string} path
 * @param {FormData} form
 * @param {Record<string, string>} headers
 * @param {(sent: number, total: number) => void} onProgress
 * @returns {Promise<any>}
 */
export function upload(path, form, headers, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", new URL(path, root));
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded, event.total));
    request.addEventListener("error", () => reject(new Error("the registry cannot be reached")));
    request.addEventListener("load", () => {
      if (request.status < 400) resolve(request.response);
      else reject(new Problem(request.status, request.response ?? {}));
    });
    request.send(form);
  });
}
