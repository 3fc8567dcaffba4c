// Who uses this tab: the wallet that was chosen, and the log-in. Pages forget all else.

/** @typedef {{rdns: string, address: string, name: string}} Remembered */
/** @typedef {{address: string, token: string, until: number}} Session */

/** Another registry on this host has a path of its own. */
const path = new URL(document.documentElement.dataset["root"] ?? "./", document.baseURI).pathname;
const WALLET = `muniment-wallet ${path}`;
const SESSION = `muniment-session ${path}`;
/** What a log-out forgets. The keys of logs stay: they would be worth nothing if they were forgotten. */
const OF_THE_TAB = [WALLET, SESSION, "muniment-wizard"];
const OF_THE_BROWSER = /^(logged .*|times)$/;

/**
 * The wallet of this tab: by its name in reverse (EIP-6963), with its address; null before one is chosen.
 * @returns {Remembered | null}
 */
export function remembered() {
  const found = stored(WALLET);
  return typeof found?.rdns === "string" && typeof found.address === "string" ? found : null;
}

/**
 * Keep the wallet for the next pages of this tab, or forget it. A log-in of another address ends.
 * @param {Remembered | null} wallet
 */
export function remember(wallet) {
  if (wallet) sessionStorage.setItem(WALLET, JSON.stringify(wallet));
  else sessionStorage.removeItem(WALLET);
  if (wallet && session()?.address !== wallet.address) sessionStorage.removeItem(SESSION);
  document.dispatchEvent(new Event("account"));
}

/**
 * The log-in of this tab; null without one, or when its token has expired.
 * @returns {Session | null}
 */
export function session() {
  const found = stored(SESSION);
  if (!found || found.until > Date.now()) return found;
  sessionStorage.removeItem(SESSION);
  return null;
}

/** @param {Session} made */
export function keepSession(made) {
  sessionStorage.setItem(SESSION, JSON.stringify(made));
  document.dispatchEvent(new Event("account"));
}

/** The address of this tab's reader, and whether it has logged in; null while nobody has said who reads. */
export function identity() {
  const by = session();
  const wallet = remembered();
  if (by) return { address: by.address, isLoggedIn: true, name: wallet?.name ?? "" };
  return wallet && { address: wallet.address, isLoggedIn: false, name: wallet.name };
}

/** Log out and disconnect: the keys of logs stay, and that log-ins were in words. */
export function leave() {
  for (const name of OF_THE_TAB) sessionStorage.removeItem(name);
  for (const name of Object.keys(localStorage)) if (OF_THE_BROWSER.test(name)) localStorage.removeItem(name);
  document.dispatchEvent(new Event("account"));
}

/**
 * @param {string} name
 * @returns {any}
 */
function stored(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? "null");
  } catch {
    return null; // The value is not ours, or the browser keeps nothing.
  }
}
