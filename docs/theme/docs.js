/* The theme wraps the copy button of each block of code in a <nav> without a name; for screen readers it is none. */
new MutationObserver(() => {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) nav.setAttribute("role", "none");
}).observe(document.documentElement, { childList: true, subtree: true });
