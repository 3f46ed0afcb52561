// Names for landmarks that the theme leaves alike, and the keyboard's focus for what scrolls; the theme adds some of them later.
const improve = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll("nav.md-nav, nav.md-code__nav").forEach((each, i) => {
    each.removeAttribute("aria-labelledby");
    each.setAttribute("aria-label", `${each.className.split(" ")[0] === "md-nav" ? "Pages" : "Code"} ${i + 1}`);
  });
  document.querySelectorAll(".md-typeset__scrollwrap, pre > code").forEach(each => { each.tabIndex = 0; });
};
improve();
new MutationObserver(improve).observe(document.body, { childList: true, subtree: true });
