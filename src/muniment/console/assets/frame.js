// What every page does: copy buttons, and the key that leads to the search box.

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
  if (button instanceof HTMLButtonElement) void copy(button);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = document.querySelector("input[name=q]");
  if (box instanceof HTMLInputElement) {
    event.preventDefault();
    box.focus();
  }
});

/**
 * Copy what stands in `data-copy`. A page over plain HTTP has no clipboard: there the text is shown and selected.
 * @param {HTMLButtonElement} button
 */
async function copy(button) {
  const text = button.dataset.copy ?? "";
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
    return;
  }
  const shown = button.previousElementSibling;
  if (shown === null) return;
  shown.textContent = text;
  getSelection()?.selectAllChildren(shown);
}
