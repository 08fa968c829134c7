"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dialog = document.getElementById("provenance");
  const body = document.getElementById("provenance-body");

  // Provenance: all text is set as text, never as markup.
  function element(name, text, ...children) {
    const made = document.createElement(name);
    if (text !== null && text !== undefined) made.textContent = String(text);
    made.append(...children);
    return made;
  }
  const shown = (value) => (value === null ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value));

  function pairs(entries) {
    const table = element("table");
    table.className = "pairs";
    for (const [name, value] of entries) {
      const heading = element("th", name);
      heading.scope = "row";
      table.append(element("tr", null, heading, element("td", shown(value))));
    }
    return table;
  }

  function details(id) {
    const run = data.runs[id];
    const overrides = Object.entries(run.overrides).map(([name, value]) => `${name}=${shown(value)}`).join(" ");
    const made = element("details", null, element("summary", null, element("code", id), ` ${run.status}`));
    const about = { trial: run.trial, attempt: run.attempt, preset: run.preset, with: overrides || "no overrides",
      "started (UTC)": run.started ?? "", "stopped (UTC)": run.stopped ?? "", ...data.machines[run.machine] };
    const config = Object.entries({ ...data.common, ...run.config }).sort(([one], [other]) => (one < other ? -1 : 1));
    made.append(pairs(Object.entries(about)), element("h3", "Configuration"), pairs(config));
    if (Object.keys(run.cost).length) made.append(element("h3", "Cost"), pairs(Object.entries(run.cost)));
    return made;
  }

  function open(button) {
    const place = data.places[Number(button.dataset.place)];
    document.getElementById("provenance-title").textContent = place.where;
    body.replaceChildren(element("p", place.title), element("p", place.row));
    const listed = place.measured.some(([seed, value]) => seed !== null || value !== null);
    if (listed) {
      const table = element("table");
      table.className = "runs";
      table.append(element("tr", null, ...["Seed", "Value", "State", "Run"].map((text) => element("th", text))));
      for (const [seed, value, state, run] of place.measured) {
        table.append(element("tr", null, ...[seed ?? "–", value ?? "—", state, run].map((text) => element("td", text))));
      }
      body.append(table);
    }
    const ids = [...new Set(place.measured.map(([, , , run]) => run))].filter((id) => id in data.runs);
    body.append(...ids.map(details));
    if (ids.length === 1) body.querySelector("details").open = true;
    dialog.showModal();
    dialog.scrollTop = 0;
  }

  // Contents: open beside the page; in a narrow window a bar above it, which a link closes.
  const contents = document.getElementById("contents");
  const wide = matchMedia("(min-width: 60.01rem)");
  const fit = () => { contents.open = wide.matches; };
  wide.addEventListener("change", fit);
  fit();
  contents.addEventListener("click", (event) => { if (event.target.closest("a")) fit(); });
  const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "0px 0px -75% 0px" });
  document.querySelectorAll("section, header").forEach((one) => near.observe(one));

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.classList.contains("value")) open(button);
    else if (event.target === dialog) dialog.close();
  });
})();
