// What a reader without a wallet in this browser can do.

import { element } from "./dom.js";
import { qrCode } from "./qr.js";

/**
 * The words of the dialog in the place of wallets.
 * @param {HTMLDialogElement} dialog is closed where the page itself has another way to sign
 */
export function withoutWallet(dialog) {
  const other = document.querySelector("main details.elsewhere, dialog details.elsewhere");
  const show = () => {
    dialog.close();
    if (!(other instanceof HTMLDetailsElement)) return;
    other.open = true;
    other.scrollIntoView({ block: "nearest" });
    other.querySelector("summary")?.focus();
  };
  return [
    element("p", {}, element("strong", {}, "No wallet was found in this browser."),
      " Install one, or unlock the one that you have and load the page again. Without one:"),
    other ? element("button", { type: "button", click: show }, "Sign elsewhere") : null,
    element("p", {}, "On a phone, open this page in the browser of a wallet:"),
    qrCode(location.href, "The address of this page as a QR code"),
    element("span", { class: "id whole" }, element("span", {}, location.href),
      element("button", { type: "button", class: "copy", "data-copy": location.href, "aria-label": "Copy the address of this page" })),
    element("p", {}, "On the command line, ", element("code", {}, "muniment triggers create"), " signs a trigger, and ",
      element("code", {}, "muniment triggers deactivate"), " stops one."),
  ];
}
