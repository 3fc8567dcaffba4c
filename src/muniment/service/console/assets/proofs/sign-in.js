// Sign-In with Ethereum (ERC-4361): a text that names the registry, so that its signature is of no use at another one.

/**
 * The text with which an address logs in at the registry whose URL is `url`, for a page of the registry at `root`.
 * Throws when the URL is of another registry, which could be the one that gets the signature.
 * @param {string} url
 * @param {string} root
 * @param {string} address
 * @param {string} nonce 0x and 64 hex digits
 * @param {Date} issuedAt
 */
export function signInText(url, root, address, nonce, issuedAt) {
  // A line break would bring words of its own into the text.
  const named = /^https?:\/\/[!-~]+$/.test(url) ? new URL(url) : null;
  if (!named || placeOf(named) !== placeOf(new URL(root))) {
    throw new Error(`The registry at ${root} wants a log-in at another one to be signed, ${url}. Nothing was signed. To log in there, open its own page.`);
  }
  const origin = named.protocol === "https:" ? named.host : named.origin;
  return [
    `${origin} wants you to sign in with your Ethereum account:`, address, "",
    "Log in to this registry. The signature permits nothing else.", "",
    `URI: ${url}`, "Version: 1", "Chain ID: 1", `Nonce: ${nonce.slice(2)}`, `Issued At: ${issuedAt.toISOString()}`,
  ].join("\n");
}

/**
 * The parts of a URL that identify a registry: the scheme, the host with its port, and the path.
 * @param {URL} url
 */
function placeOf(url) {
  return url.origin + url.pathname.replace(/\/+$/, "");
}
