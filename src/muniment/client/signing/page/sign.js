// Reads the request of the command line, asks a wallet (EIP-6963, EIP-1193), and gives its answer back.
"use strict";

const secret = location.hash.slice(1);
const element = (id) => document.getElementById(id);
const say = (text) => { element("what").textContent = text; };
// Controls and marks of writing direction as escapes: they would show another text than the one that is signed.
const plain = (text) => text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu,
  (each) => each === "\n" ? each : `\\u{${each.codePointAt(0).toString(16)}}`);

async function answer(given) {
  const response = await fetch("/answer", {
    method: "POST", headers: { "x-secret": secret, "content-type": "application/json" }, body: JSON.stringify(given),
  });
  element("choice").hidden = true;
  element("refuse").hidden = true;
  if (!response.ok) say("The command line took no answer: it may have one already.");
  else say(given.result ? "Done. You can close this page." : "Refused. You can close this page.");
}

function fact(name, value) {
  const term = document.createElement("dt");
  const text = document.createElement("dd");
  term.textContent = name;
  text.textContent = plain(typeof value === "string" ? value : JSON.stringify(value));
  element("facts").append(term, text);
}

function show(request) {
  element("request").hidden = false;
  element("choice").hidden = false;
  element("refuse").hidden = false;
  if (request.method === "address") {
    say("The command line asks which account you use.");
    element("whole").parentElement.hidden = true;
    return;
  }
  say("The command line asks for a signature. Read it here and in your wallet.");
  fact("account", request.address);
  if (request.method === "text") {
    fact("text", request.text);
    element("whole").textContent = plain(request.text);
    return;
  }
  fact("for", request.data.domain.name);
  fact("kind", request.data.primaryType);
  for (const [name, value] of Object.entries(request.data.message)) fact(name, value);
  element("whole").textContent = plain(JSON.stringify(request.data, null, 2));
}

function hex(text) {
  return "0x" + Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function ask(provider, request) {
  const accounts = await provider.request({ method: "eth_requestAccounts" });
  if (request.method === "address") return accounts[0];
  const own = accounts.find((each) => each.toLowerCase() === request.address.toLowerCase());
  if (!own) throw new Error(`this wallet has not connected the account ${request.address}`);
  if (request.method === "text") return provider.request({ method: "personal_sign", params: [hex(request.text), own] });
  return provider.request({ method: "eth_signTypedData_v4", params: [own, JSON.stringify(request.data)] });
}

function offer(detail, request) {
  const known = [...element("wallets").querySelectorAll("button")].some((each) => each.dataset.uuid === detail.info.uuid);
  if (known) return;
  element("none").hidden = true;
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.uuid = detail.info.uuid;
  button.textContent = detail.info.name;
  button.addEventListener("click", async () => {
    button.disabled = true;
    say(`Asking ${detail.info.name}…`);
    try {
      const result = await ask(detail.provider, request);
      if (typeof result !== "string" || !result) throw new Error("it gave no answer");
      await answer({ result });
    } catch (error) {
      say(`${detail.info.name}: ${error.message || "it gave no answer"}. Try again, or choose another wallet.`);
      button.disabled = false;
    }
  });
  item.append(button);
  element("wallets").append(item);
}

async function begin() {
  const response = await fetch("/request", { headers: { "x-secret": secret } });
  if (!response.ok) {
    say("This page belongs to no request. Open the URL that the command line shows.");
    return;
  }
  const request = await response.json();
  show(request);
  element("refuse").addEventListener("click", () => answer({ refusal: "the person refused" }));
  window.addEventListener("eip6963:announceProvider", (event) => offer(event.detail, request));
  window.dispatchEvent(new Event("eip6963:requestProvider"));
}

begin().catch(() => say("The command line has ended. You can close this page."));
