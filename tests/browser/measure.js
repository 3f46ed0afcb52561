// Runs inside a page: measures what a reader sees, uses what a reader would use, and posts the findings to the page around.
"use strict";
addEventListener("load", async () => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const short = (item) => item.outerHTML.slice(0, 120);
  const saved = [];
  URL.createObjectURL = (content) => { saved.push(content); return "data:,"; };
  HTMLAnchorElement.prototype.click = function () {};

  // Before anything is opened or clicked: what lies behind an open section is measured below.
  all("details").forEach((item) => { item.open = true; });
  const found = {name: location.hash.slice(1), inner: [innerWidth, innerHeight]};
  const isShown = (item) => item.checkVisibility({opacityProperty: true, visibilityProperty: true});

  found.links = all('a[href]:not([href^="#"])').length;
  found.anchors = all('.contents a').filter((link) => !document.getElementById(link.hash.slice(1))).map(short);

  // -- layout
  const wide = (item) => item.getBoundingClientRect().right > innerWidth + 1 && !item.closest(".scroll, .plot, .contents, .command");
  const empty = (item) => { const box = item.getBoundingClientRect(); return box.width < 20 || box.height < 8; };
  found.scrollWidth = document.documentElement.scrollWidth;
  found.wide = all("body *").filter(wide).map(short);
  found.svgs = all("svg").length;
  found.empty = all("svg, figure, .stack, .bar").filter(empty).map(short);
  found.clipped = all(".scroll").filter((item) => getComputedStyle(item).overflowX !== "auto").length;
  found.smallest = Math.min(99, ...all("svg text").map((item) => item.getBoundingClientRect().height));
  const badges = all(".gates .badge");
  found.gates = badges.length;
  found.gatesCut = badges.filter((item) => item.getBoundingClientRect().right > innerWidth || !isShown(item)).length;

  // -- accessibility
  const nameOf = (item) => item.getAttribute("aria-label") || item.textContent.trim() || item.getAttribute("alt") || "";
  found.nameless = all("button, a[href], input, img, svg, summary, [role=region], nav").filter((item) => !nameOf(item) && !item.closest("svg svg")).map(short);
  const ids = all("[id]").map((item) => item.id);
  found.repeatedIds = ids.filter((id, position) => ids.indexOf(id) !== position);
  const levels = all("h1, h2, h3, h4").map((item) => Number(item.tagName[1]));
  found.skippedHeadings = levels.filter((level, position) => level > (levels[position - 1] ?? 0) + 1);
  found.jumps = all("[tabindex]").filter((item) => item.tabIndex > 0).length;
  const parse = (colour) => {
    const [red, green, blue, alpha = 1] = (colour.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    const unit = colour.startsWith("color(srgb") ? 255 : 1;
    return {rgb: [unit * red, unit * green, unit * blue], alpha};
  };
  const luminance = (rgb) => rgb.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, position) => sum + part * [0.2126, 0.7152, 0.0722][position], 0);
  let surfaces = new Map();
  const behind = (item) => {
    if (!item) return [255, 255, 255];
    if (!surfaces.has(item)) {
      const {rgb, alpha} = item.closest("svg") ? {alpha: 0} : parse(getComputedStyle(item).backgroundColor);
      surfaces.set(item, alpha > 0.99 ? rgb : behind(item.parentElement));
    }
    return surfaces.get(item);
  };
  const contrast = (item) => {
    const style = getComputedStyle(item);
    const colour = item instanceof SVGElement ? style.fill : style.color;
    const [light, dark] = [luminance(parse(colour).rgb), luminance(behind(item))].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const isLarge = (style) => parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
  const hasText = (item) => [...item.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const isPale = (item) => contrast(item) < (isLarge(getComputedStyle(item)) ? 3 : 4.5);
  const pale = () => all("body *:not(script, style, title)").filter((item) => hasText(item) && isShown(item) && isPale(item))
    .map((item) => `${contrast(item).toFixed(2)} ${short(item)}`).slice(0, 8);
  found.pale = pale();
  const dark = [...document.styleSheets[0].cssRules].find((rule) => rule.conditionText?.includes("dark")).cssRules[0].style;
  [...dark].forEach((name) => document.documentElement.style.setProperty(name, dark.getPropertyValue(name)));
  surfaces = new Map();
  found.paleInDark = pale();
  found.darkSurface = getComputedStyle(document.body).backgroundColor;
  [...dark].forEach((name) => document.documentElement.style.removeProperty(name));

  const reach = all("a[href], button, input, select, summary, [tabindex]").filter(isShown);
  found.unreachable = reach.filter((item) => { item.focus({preventScroll: true}); return document.activeElement !== item; }).map(short);
  document.activeElement.blur();
  // Its rules of contrast take most of its time: both themes are measured above.
  const judged = await axe.run(document, {resultTypes: ["violations"], rules: {"color-contrast": {enabled: false}}});
  found.axe = {violations: judged.violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`), passed: judged.passes.length};

  // -- use
  const picked = document.querySelector("[data-pick]");
  if (picked) {
    const menu = picked.querySelector("select"), shown = () => all("section", picked).filter(isShown).map((part) => part.querySelector("h3").textContent.trim());
    const choose = (number) => { menu.value = number; menu.dispatchEvent(new Event("change")); return shown(); };
    const last = menu.options.length - 1;
    found.picker = {names: [...menu.options].map((option) => option.text), one: choose(1), last: choose(last), every: choose(0).length};
  }
  const table = document.querySelector("table.learned");
  if (table) {
    const head = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.startsWith("Mean"));
    const button = table.tHead.rows[0].cells[head].querySelector("button");
    const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[head].dataset.value));
    const sorted = [];
    const read = () => { button.click(); sorted.push(button.parentElement.getAttribute("aria-sort")); return values(); };
    const [ascending, descending] = [read(), read()];
    const tools = table.closest(".scroll").previousElementSibling, input = tools.querySelector("input");
    input.value = table.tBodies[0].rows[0].cells[0].textContent.trim().toUpperCase();
    input.dispatchEvent(new Event("input"));
    const rows = [...table.tBodies[0].rows];
    const first = rows.find((row) => !row.hidden).cells[0], name = first.textContent;
    first.textContent = "=1+1";
    const [asCsv, asParquet] = tools.querySelectorAll("button");
    asCsv.click();
    asParquet.click();
    const parquet = [...new Uint8Array(await saved.pop().arrayBuffer())];
    first.textContent = name;
    const status = tools.querySelector("[role=status]").textContent;
    found.table = {sorted, ascending, descending, rows: rows.length, kept: rows.filter((row) => !row.hidden).length, status, csv: await saved.pop().text(), parquet};

    const [asSvg, asPng] = all(".of-figure button");
    asSvg.click();
    const text = await saved.pop().text(), root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    found.svg = {root: root.tagName, variables: text.split("var(").length - 1, width: root.hasAttribute("width"), tips: !!root.querySelector("g > title")};
    asPng.click();
    while (!saved.length) await new Promise((done) => setTimeout(done, 20));
    found.png = await new Promise((done) => { const reader = new FileReader(); reader.onload = () => done(reader.result.slice(0, 40)); reader.readAsDataURL(saved.pop()); });

    const chain = document.querySelector(".legend [data-chain] button");
    chain.dispatchEvent(new Event("pointerenter"));
    const faded = all("svg [data-chain]").filter((line) => line.style.opacity === "0.1").map((line) => line.dataset.chain);
    chain.dispatchEvent(new Event("pointerleave"));
    const restored = all("svg [data-chain]").every((line) => line.style.opacity === "");
    chain.click();
    const number = chain.parentElement.dataset.chain, lines = all(`svg [data-chain="${number}"]`);
    const hidden = (line) => line.style.display === "none";
    found.faded = {isOwn: faded.includes(number), some: faded.length > 0, restored};
    found.chains = {lines: lines.length, hidden: lines.filter(hidden).length, others: all("svg [data-chain]").filter((line) => !lines.includes(line) && hidden(line)).length};

    document.getElementById("repeat").scrollIntoView();
    dispatchEvent(new Event("scroll"));
    found.contentsTop = Math.round(document.querySelector(".contents").getBoundingClientRect().top);
    found.current = document.querySelector(".contents [aria-current]")?.hash;
  }
  parent.postMessage(found, "*");
});
