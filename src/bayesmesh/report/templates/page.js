// Makes tables sortable, filterable and savable, figures savable, chains switchable, and lists of users choosable. Every page can be read without it.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, text = "") => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "table";
  const page = slug(document.body.dataset.name || document.title);

  const save = (name, content) => {
    const link = make("a", {download: `${page}-${name}`, href: URL.createObjectURL(content)});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // A number as written on a page: 1,234.5, −0.3, 1.2 × 10⁻⁹, 93.5%, 1.23 million; NaN for other text.
  const WORDS = {thousand: 1e3, million: 1e6, billion: 1e9, trillion: 1e12, ms: 1e-3, min: 60, h: 3600, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3};
  const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const number = (text) => {
    const plain = text.trim().replaceAll("−", "-").replace(/ × 10(⁻?)([⁰¹²³⁴⁵⁶⁷⁸⁹]+)/, (_, sign, digits) =>
      `e${sign ? "-" : ""}${[...digits].map((digit) => RAISED.indexOf(digit)).join("")}`);
    const found = plain.match(/^[^\w.-]*(-?[\d,]*\.?\d+(?:e-?\d+)?)\s*([A-Za-z]*)/);
    return found ? Number(found[1].replaceAll(",", "")) * (WORDS[found[2]] ?? 1) : NaN;
  };
  const valueOf = (cell) => cell.dataset.value ?? cell.textContent.trim();
  const isNumeric = (cell) => cell.classList.contains("num");
  const cellsOf = (row) => [...row.cells];

  // -- tables ---------------------------------------------------------------------------------------------------------

  const saved = (cell) => {
    if (cell.dataset.value !== undefined) return cell.dataset.value;
    const shown = cell.innerText.trim().replace(/\s*\n\s*/g, " ");
    const is_plain = /^[−-]?[\d,]+(\.\d+)?$/.test(shown);
    return isNumeric(cell) && is_plain ? shown.replaceAll(",", "").replaceAll("−", "-") : shown;
  };
  const savedRows = (table) => all("tr", table).filter((row) => !row.hidden).map((row) => cellsOf(row).map(saved));
  const csv = (table) => {
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    // Spreadsheets take text that begins so for a formula.
    const inert = (text) => (/^[=@\t]|^[+-](?![\d.])/.test(text) ? `'${text}` : text);
    return savedRows(table).map((row) => row.map((text) => quote(inert(text))).join(",")).join("\n") + "\n";
  };
  const parquet = (table) => {
    const [heads, ...rows] = savedRows(table);
    const isNumber = (text) => text === "" || /^nan$/i.test(text) || Number.isFinite(Number(text));
    return toParquet(heads.map((head, column) => {
      const values = rows.map((row) => row[column] ?? ""), numeric = values.every(isNumber) && values.some((text) => text !== "");
      const name = heads.indexOf(head) === column && head ? head : `${head} (${column + 1})`;
      return {name, isNumeric: numeric, values: numeric ? values.map((text) => (text === "" ? NaN : Number(text))) : values};
    }));
  };

  const sort = (table, column, head) => {
    const body = table.tBodies[0];
    const isDown = head.getAttribute("aria-sort") === "ascending";
    const key = (row) => {
      const text = row.cells[column] ? valueOf(row.cells[column]) : "";
      return isNumeric(head) || head.dataset.sort === "number" ? number(text) : text;
    };
    const compare = (a, b) => {
      if (typeof a === "string") return a.localeCompare(b, "en", {numeric: true});
      return Number.isNaN(a) - Number.isNaN(b) || a - b;
    };
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort((a, b) => (isDown && !Number.isNaN(a[0]) && !Number.isNaN(b[0]) ? -1 : 1) * compare(a[0], b[0]));
    body.append(...rows.map(([, row]) => row));
    all("[aria-sort]", table).forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
  };

  for (const frame of all(".scroll")) {
    const table = frame.querySelector("table");
    if (!table?.tHead || table.tBodies[0].rows.length < 2) continue;
    const label = frame.getAttribute("aria-label") || "table";
    cellsOf(table.tHead.rows[0]).forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = make("button", {type: "button", class: "sort", title: "Sort by this column"}, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => sort(table, column, head));
    });
    const tools = make("div", {class: "tools"});
    if (table.tBodies[0].rows.length > 10) {
      const input = make("input", {type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${label}`});
      const count = make("span", {class: "note", role: "status"});
      input.addEventListener("input", () => {
        const wanted = input.value.toLowerCase();
        const rows = [...table.tBodies[0].rows];
        rows.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
        count.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
      });
      tools.append(input, count);
    }
    const formats = {CSV: () => new Blob([csv(table)], {type: "text/csv"}), Parquet: () => parquet(table)};
    for (const [format, content] of Object.entries(formats)) {
      const button = make("button", {type: "button", "aria-label": `Save ${label} as ${format}`}, format);
      button.addEventListener("click", () => save(`${slug(label)}.${format.toLowerCase()}`, content()));
      tools.append(button);
    }
    frame.before(tools);
  }

  // -- one of several parts, such as the lists of users -------------------------------------------------------------------

  for (const frame of all("[data-pick]")) {
    const parts = all("section", frame), menu = make("select", {"aria-label": frame.dataset.pick});
    if (parts.length < 2) continue;
    const names = [`All ${parts.length}`, ...parts.map((part) => part.querySelector("h3").textContent.trim())];
    menu.append(...names.map((name, number) => make("option", {value: number}, name)));
    menu.addEventListener("change", () => {
      const chosen = Number(menu.value);
      parts.forEach((part, number) => { part.hidden = chosen > 0 && number !== chosen - 1; });
      all("details", frame).forEach((each) => {
        each.hidden = chosen > 0 && !each.contains(parts[chosen - 1]);
        each.open ||= chosen > 0 && !each.hidden;
      });
    });
    const tools = make("div", {class: "tools"});
    tools.append(menu);
    frame.prepend(tools);
  }

  // -- figures --------------------------------------------------------------------------------------------------------

  const standalone = (svg) => {
    const styles = getComputedStyle(document.documentElement);
    const copy = svg.cloneNode(true);
    const [, , width, height] = svg.getAttribute("viewBox").split(/\s+/).map(Number);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.setAttribute("font-family", "sans-serif");
    const text = new XMLSerializer().serializeToString(copy);
    return [text.replace(/var\((--[a-z0-9-]+)\)/g, (_, name) => styles.getPropertyValue(name).trim()), width, height];
  };
  const savePng = (svg, name) => {
    const [text, width, height] = standalone(svg);
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas", {width: 3 * width, height: 3 * height});
      const context = canvas.getContext("2d");
      context.fillStyle = getComputedStyle(document.body).backgroundColor;
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((content) => save(`${name}.png`, content));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  };
  for (const svg of all("svg.plot")) {
    const label = svg.getAttribute("aria-label"), name = slug(label).slice(0, 60);
    const tools = make("div", {class: "tools of-figure"});
    const formats = {SVG: () => save(`${name}.svg`, new Blob([standalone(svg)[0]], {type: "image/svg+xml"})), PNG: () => savePng(svg, name)};
    for (const [format, action] of Object.entries(formats)) {
      const button = make("button", {type: "button", "aria-label": `Save as ${format}: ${label}`}, format);
      button.addEventListener("click", action);
      tools.append(button);
    }
    svg.after(tools);
  }

  // -- chains ---------------------------------------------------------------------------------------------------------

  for (const entry of all(".legend [data-chain]")) {
    const chain = entry.dataset.chain;
    const button = make("button", {type: "button", "aria-pressed": "true", title: "Show or hide this chain"});
    button.append(...entry.childNodes);
    entry.append(button);
    // Pointing at a chain makes the others pale: the way to follow one of many.
    const fade = (opacity) => () => all("svg [data-chain]").forEach((line) => { line.style.opacity = line.dataset.chain === chain ? "" : opacity; });
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, fade("0.1"));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, fade(""));
    button.addEventListener("click", () => {
      const isShown = button.getAttribute("aria-pressed") !== "true";
      all(`.legend [data-chain="${chain}"] button`).forEach((each) => each.setAttribute("aria-pressed", isShown));
      all(`svg [data-chain="${chain}"]`).forEach((line) => { line.style.display = isShown ? "" : "none"; });
    });
  }

  // -- contents, printing, and pages inside of a report -----------------------------------------------------------------

  const links = new Map(all(".contents a").map((link) => [link.hash.slice(1), link]));
  const mark = (id) => links.forEach((link, each) => (each === id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  const targets = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  const follow = () => {
    const passed = targets.filter((target) => target.getBoundingClientRect().top < 140);
    if (targets.length) mark((passed.at(-1) ?? targets[0]).id);
  };
  addEventListener("scroll", follow, {passive: true});
  follow();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((each) => { each.open = false; }));

  // Snakemake's report holds this page without the files beside it: as an address of its own, or in a folder data/raw/DIGEST.
  if (!/^(file|https?):$/.test(location.protocol) || /\/data\/raw\/[0-9a-f]{8,}\/[^/]*$/.test(location.pathname)) {
    all('a[href]:not([href^="#"])').forEach((link) => link.replaceWith(...link.childNodes));
  }
})();
