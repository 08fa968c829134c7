"use strict";
// The pages of `harness view`. All text is inserted as text, never as markup, except the report's own HTML.
(() => {
  const { kind, root, suffix } = document.body.dataset;
  const live = !suffix;
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const EVERY = 2000;

  // Elements and texts.

  function el(name, properties = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key === "class") made.className = value;
      else if (key in made && key !== "list") made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
    return made;
  }
  const number = (value, digits = 4) => (typeof value === "number" ? (Number.isInteger(value) ? String(value) : value.toPrecision(digits)) : value ?? "");
  function duration(seconds) {
    if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }
  const since = (time) => (time ? duration((Date.now() - Date.parse(`${time}Z`)) / 1000) : "");
  const bytes = (size) => (size < 1e4 ? `${size} B` : size < 1e7 ? `${(size / 1e3).toFixed(0)} kB` : `${(size / 1e6).toFixed(0)} MB`);

  function link(page, ...parts) {
    if (page === "studies") return live ? root : `${root}index.html`;
    return root + [page, ...parts.map(encodeURIComponent)].join("/") + suffix;
  }
  const runLink = (id) => el("a", { href: link("run", id) }, el("code", {}, id.slice(0, 8) + id.slice(16)));

  function table(heads, rows, numeric = []) {
    const head = heads.map((text, place) => el("th", { class: numeric.includes(place) ? "number" : "" }, text));
    const body = rows.map((cells) => el("tr", {}, ...cells.map((cell, place) => el("td", { class: numeric.includes(place) ? "number" : "" }, cell))));
    return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)));
  }
  function pairs(document_, title, open = true) {
    const entries = Object.entries(document_);
    if (!entries.length) return null;
    const rows = entries.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, typeof value === "object" && value !== null ? JSON.stringify(value) : value ?? "null")));
    return el("details", { class: "pairs", open }, el("summary", {}, `${title} (${entries.length})`), el("table", {}, ...rows));
  }
  function download(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    el("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  const csv = (rows) => rows.map((row) => row.map((cell) => {
    const text = String(cell ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\r\n") + "\r\n";

  // Requests. A page asks for what is new every few seconds while it is visible; unchanged answers are empty.

  const tags = new Map();
  async function ask(path, parameters = new URLSearchParams(), again = false) {
    const query = String(parameters);
    const address = `${root}data/${path}${query ? `?${query}` : ""}`;
    const headers = again && tags.has(address) ? { "If-None-Match": tags.get(address) } : {};
    const answer = await fetch(address, { headers, cache: "no-store" });
    if (answer.status === 304) return null;
    const document_ = await answer.json();
    if (!answer.ok) throw new Error(document_.error ?? answer.statusText);
    tags.set(address, answer.headers.get("ETag"));
    return document_;
  }
  function poll(request, show) {
    if (!live) return;
    const pulse = at("pulse");
    setInterval(async () => {
      if (document.hidden) return;
      try {
        const answer = await request();
        if (answer) show(answer);
        pulse.textContent = answer?.trouble ? `the store cannot be read: ${answer.trouble}` : "live";
        pulse.classList.toggle("warnings", Boolean(answer?.trouble));
      } catch (error) {
        pulse.textContent = `no answer: ${error.message}`;
        pulse.classList.add("warnings");
      }
    }, EVERY);
  }

  // Plots.

  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8f96"];
  const DASHES = ["solid", "dash", "dashdot", "dot"];
  function plot(place, traces, x, y, more = {}) {
    const style = getComputedStyle(document.body);
    const axis = { gridcolor: style.getPropertyValue("--line"), zeroline: false, automargin: true };
    Plotly.react(place, traces, {
      font: { family: style.fontFamily, size: 12, color: style.color },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: { ...axis, title: { text: x } }, yaxis: { ...axis, title: { text: y } },
      margin: { l: 50, r: 10, t: 24, b: 40 }, hovermode: "closest", uirevision: "same",
      legend: { orientation: "h", yref: "container", yanchor: "bottom", y: 0 }, ...more,
    }, { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] });
  }
  const translucent = (colour) => `${colour}2e`;

  function drawCurves(place, found, band, single) {
    const traces = [];
    found.groups.forEach((group, number_) => {
      const colour = COLOURS[number_ % COLOURS.length];
      const line = { color: colour, width: 2, dash: DASHES[Math.floor(number_ / COLOURS.length) % DASHES.length] };
      const label = escapeLabel(group.label);
      const edges = group.n > 1 ? group.bands[band] : undefined;
      if (edges) {
        traces.push({ x: group.x, y: edges.low, mode: "lines", line: { width: 0 }, legendgroup: label, showlegend: false, hoverinfo: "skip" });
        traces.push({ x: group.x, y: edges.high, mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: translucent(colour), legendgroup: label, showlegend: false, hoverinfo: "skip" });
      }
      if (single && group.n > 1) {
        for (const run of group.runs) {
          traces.push({ x: run.x, y: run.y, mode: "lines", line: { color: colour, width: 0.7 }, legendgroup: label, showlegend: false, name: `${label}, seed ${run.seed}`, hovertemplate: `${escapeLabel(run.run)}, seed ${run.seed}: %{y:.4g}<extra></extra>` });
        }
      }
      traces.push({ x: group.x, y: group.mean, mode: group.x.length > 40 ? "lines" : "lines+markers", marker: { size: 4 }, line, legendgroup: label, name: `${label} (n = ${group.n})`, hovertemplate: `${label}: %{y:.4g}<extra></extra>` });
    });
    plot(place, traces, found.x, found.metric);
    const lines = found.groups.flatMap((group) => group.runs);
    const drawn = lines.reduce((sum, run) => sum + run.x.length, 0), measured = lines.reduce((sum, run) => sum + run.points, 0);
    const few = drawn < measured ? ` ${drawn.toLocaleString("en")} of ${measured.toLocaleString("en")} points are drawn: the lowest and highest of each stretch.` : "";
    at("curve-note").textContent = `Mean over seeds, ${lines.length} runs.${few}`;
  }
  // Plotly reads a little markup in labels; a name is not markup.
  const escapeLabel = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "% {");

  function predictedPlot(place, runs) {
    const traces = runs.filter((run) => run.predictions).map((run, number_) => ({
      x: run.predictions.true, y: run.predictions.predicted, text: run.predictions.architecture.map(escapeLabel), mode: "markers", type: "scatter",
      marker: { size: 5, color: COLOURS[number_ % COLOURS.length], opacity: 0.6 }, name: `${escapeLabel(run.row || run.id)}, seed ${run.config.seed}`,
      hovertemplate: "%{text}<br>true %{x}, predicted %{y}<extra></extra>",
    }));
    place.hidden = !traces.length;
    if (traces.length) plot(place, traces, "true accuracy (%)", "predicted accuracy (%)", { showlegend: runs.length > 1 });
  }

  // State in the address.

  const state = new URLSearchParams(location.search);
  function remember(changes) {
    for (const [name, value] of Object.entries(changes)) {
      state.delete(name);
      for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") state.append(name, one);
    }
    const query = String(state);
    history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
  }

  function curveControls(metrics, request) {
    const form = at("curve-controls");
    const fill = (names) => form.metric.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    fill(metrics);
    for (const name of ["metric", "axis", "band"]) {
      const wanted = state.get(name);
      if (wanted && [...form[name].options].some((option) => option.value === wanted)) form[name].value = wanted;
    }
    form.single.checked = state.get("single") === "1";
    let shown = null;
    async function update(again = false) {
      if (!form.metric.value) { at("curve-note").textContent = "No curve was observed."; return; }
      try {
        shown = (await request(form.metric.value, form.axis.value, again)) ?? shown;
      } catch (error) { at("curve-note").textContent = error.message; return; }
      if (shown) drawCurves(at("curves"), shown, form.band.value, form.single.checked);
    }
    form.addEventListener("change", () => {
      remember({ metric: form.metric.value, axis: form.axis.value, band: form.band.value, single: form.single.checked ? "1" : "" });
      update();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    const files = at("curve-files");
    const save = (text, action) => files.append(el("button", { type: "button", onclick: action }, text));
    save("CSV", () => download(`${shown.metric}.csv`, csv([["group", "run", "seed", shown.axis, shown.metric], ...shown.groups.flatMap((group) => group.runs.flatMap((run) => run.x.map((x, place) => [group.label, run.run, run.seed, x, run.y[place]])))]), "text/csv"));
    if (live) {
      for (const form_ of ["svg", "pdf"]) {
        save(form_.toUpperCase(), () => {
          const query = request.query(form.metric.value, form.axis.value);
          query.set("band", form.band.value);
          el("a", { href: `${root}figure/curves.${form_}?${query}`, download: `${shown.metric}.${form_}` }).click();
        });
      }
    } else save("SVG", () => Plotly.downloadImage(at("curves"), { format: "svg", filename: shown.metric, width: 800, height: 500 }));
    update();
    return { update, fill };
  }

  // Pages.

  const pages = {
    studies() {
      function show(found) {
        const trouble = at("trouble");
        trouble.hidden = !found.trouble;
        trouble.textContent = found.trouble ? `The store cannot be read: ${found.trouble}` : "";
        const parts = [...new Set(found.studies.map((one) => one.part))];
        const shown = parts.flatMap((part) => [
          el("h2", {}, part),
          table(["Study", "Preset", "Done", "", "Running", "Failed", "Stopped", "Waiting", "Time left"], found.studies.filter((one) => one.part === part).map((one) => [
            el("a", { href: link("study", one.preset, one.name) }, one.title), one.preset, `${one.done} of ${one.trials}`, el("progress", { max: one.trials, value: one.done }),
            one.running || "", one.failed ? el("span", { class: "count" }, one.failed) : "", one.stopped || "", one.waiting || "", one.seconds_left ? `about ${duration(one.seconds_left)}` : "",
          ]), [2, 4, 5, 6, 7, 8]),
        ]);
        at("studies").replaceChildren(...(shown.length ? shown : [el("p", {}, "The store holds no run of a known study. Start one: ", el("code", {}, "harness run STUDY"))]));
        at("working").replaceChildren(found.working.length ? table(["Run", "Host", "Process", "Device", "Stage", "Step", "", "Loss", "τ", "Running for", "Last heartbeat"], found.working.map((one) => [
          runLink(one.run), one.host, one.process, one.device ?? "", one.stage ?? "starting", one.steps ? `${one.step} of ${one.steps}` : "", one.steps ? el("progress", { max: one.steps, value: one.step }) : "",
          number(one.loss), number(one.tau, 3), since(one.started), one.heartbeat ? `${since(one.heartbeat)} ago` : "",
        ]), [7, 8, 9, 10]) : el("p", { class: "soft" }, "No trial is running."));
        at("failed").replaceChildren(...(found.failed.length ? [el("h2", {}, "Failed"), table(["Run", "Study", "Row", "Reason"], found.failed.map((one) => [runLink(one.run), one.study, one.row, one.reason]))] : []));
        at("problems").replaceChildren(...(found.problems.length ? [el("h2", {}, "Cannot be used"), table(["Where", "Why"], found.problems.map((one) => [one.place, one.reason]))] : []));
      }
      show(data);
      poll(() => ask("studies", undefined, true), show);
    },

    study() {
      const here = [data.preset, data.name];
      const query = (metric, axis) => new URLSearchParams({ study: data.name, preset: data.preset, metric, axis });
      const request = live
        ? (metric, axis, again) => ask("curves", query(metric, axis), again)
        : async (metric, axis) => data.curves[metric]?.[axis] ?? null;
      request.query = query;
      function standing(found) {
        const left = found.seconds_left ? `, about ${duration(found.seconds_left)} left` : "";
        const counts = [[found.running, "running"], [found.failed, "failed"], [found.stopped, "stopped"], [found.waiting, "waiting"]];
        at("standing").textContent = `${found.done} of ${found.trials} trials done${counts.map(([count, name]) => (count ? `, ${count} ${name}` : "")).join("")}${left}. Preset ${found.preset}.`;
      }
      standing(data);
      let places = data.places;
      const controls = curveControls(data.metrics, request);
      document.addEventListener("click", (event) => {
        const button = event.target.closest("button.value");
        if (!button) return;
        const place = places[Number(button.dataset.place)];
        const rows = place.measured.map(([seed, value, status, run]) => [seed ?? "–", value ?? "—", status, run ? runLink(run) : ""]);
        const runs = place.measured.map(([, , , run]) => run).filter(Boolean);
        const all = el("p", {}, el("a", { href: `${link("compare")}?${new URLSearchParams(runs.map((run) => ["run", run]))}` }, "compare these runs"));
        opened(place.where || place.title, el("p", {}, place.row), table(["Seed", "Value", "State", "Run"], rows, [0, 1]), runs.length > 1 ? all : null);
      });
      poll(() => ask(["study", ...here.map(encodeURIComponent)].join("/"), undefined, true), (found) => {
        standing(found);
        places = found.places;
        const folds = [...document.querySelectorAll("#section details")].map((one) => one.open);
        const fresh = document.createRange().createContextualFragment(found.html);  // the report's own HTML, escaped by its templates
        at("section").replaceChildren(fresh);
        document.querySelectorAll("#section details").forEach((one, place) => { if (place in folds) one.open = folds[place]; });
        controls.update(true);
      });
      if (live) setInterval(() => { if (!document.hidden) controls.update(true); }, 3 * EVERY);
    },

    runs() {
      const HEIGHT = 25;
      let { columns, chosen, facets, known } = data;
      const rows = new Map(data.rows.map((row) => [row[0], row]));
      let version = data.version, matching = data.matching ? new Set(data.matching) : null, visible = [];
      const marked = new Set();
      const form = at("filter"), body = at("runs").tBodies[0];
      const wrong = at("wrong");
      if (form.where) form.where.value = state.get("where") ?? "";
      form.text.value = state.get("text") ?? "";
      const place = (name) => columns.indexOf(name);
      const wanted = (name) => state.getAll(`f.${name}`);

      const passes = (row, but) => {
        if (matching && !matching.has(row[0])) return false;
        const text = form.text.value.toLowerCase();
        if (text && !row.some((cell) => String(cell ?? "").toLowerCase().includes(text))) return false;
        return facets.every((name) => name === but || !wanted(name).length || wanted(name).includes(String(row[place(name)])));
      };
      function arrange() {
        visible = [...rows.values()].filter((row) => passes(row));
        const [by, order] = (state.get("sort") ?? "started:down").split(":");
        const column = place(by), sign = order === "down" ? -1 : 1;
        if (column >= 0) {
          const lacks = (row) => row[column] === null || row[column] === undefined;
          visible.sort((one, other) => {
            if (lacks(one) || lacks(other)) return lacks(one) - lacks(other);
            const [a, b] = [one[column], other[column]];
            return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
          });
        }
        at("counted").textContent = `${visible.length.toLocaleString("en")} of ${rows.size.toLocaleString("en")} runs`;
        head();
        narrow();
        draw();
      }
      function head() {
        const [by, order] = (state.get("sort") ?? "started:down").split(":");
        const cells = ["run_id", ...chosen].map((name) => el("th", { class: numeric(name) ? "number" : "", "aria-sort": name === by ? (order === "down" ? "descending" : "ascending") : "none" },
          el("button", { type: "button", class: "sort", onclick: () => { remember({ sort: `${name}:${name === by && order === "down" ? "up" : "down"}` }); arrange(); } }, name)));
        at("runs").tHead.replaceChildren(el("tr", {}, el("th", { "aria-label": "compare" }), ...cells));
      }
      const numeric = (name) => { for (const row of visible) { const cell = row[place(name)]; if (cell !== null && cell !== undefined) return typeof cell === "number"; } return false; };
      function narrow() {
        at("facets").replaceChildren(...facets.map((name) => {
          const counts = new Map();
          for (const row of rows.values()) if (passes(row, name)) { const key = String(row[place(name)] ?? ""); counts.set(key, (counts.get(key) ?? 0) + 1); }
          const values = [...counts].sort((one, other) => other[1] - one[1] || one[0].localeCompare(other[0], "en", { numeric: true }));
          if (values.length < 2 && !wanted(name).length) return null;
          const boxes = values.slice(0, 30).map(([text, count]) => el("label", {}, el("input", { type: "checkbox", checked: wanted(name).includes(text), onchange: (event) => {
            remember({ [`f.${name}`]: event.target.checked ? [...wanted(name), text] : wanted(name).filter((one) => one !== text) });
            arrange();
          } }), ` ${text || "(none)"} `, el("span", { class: "soft" }, count)));
          return el("details", { open: true }, el("summary", {}, name), ...boxes, values.length > 30 ? el("span", { class: "soft" }, `and ${values.length - 30} more`) : null);
        }).filter(Boolean));
      }
      // Only the rows in sight are in the page.
      function draw() {
        const top = body.getBoundingClientRect().top;
        const first = Math.max(0, Math.floor(-top / HEIGHT) - 20), last = Math.min(visible.length, first + Math.ceil(innerHeight / HEIGHT) + 40);
        const space = (count) => el("tr", { class: "space", style: `height:${count * HEIGHT}px` }, el("td", { colSpan: chosen.length + 2 }));
        body.replaceChildren(space(first), ...visible.slice(first, last).map((row) => {
          const cells = chosen.map((name) => { const cell = row[place(name)]; return el("td", { class: typeof cell === "number" ? "number" : "", title: cell ?? "" }, number(cell)); });
          const box = el("input", { type: "checkbox", checked: marked.has(row[0]), "aria-label": `compare ${row[0]}`, onchange: (event) => { event.target.checked ? marked.add(row[0]) : marked.delete(row[0]); mark(); } });
          return el("tr", { class: row[place("status")] }, el("td", {}, box), el("td", {}, runLink(row[0])), ...cells);
        }), space(visible.length - last));
      }
      function mark() {
        const anchor = at("compare");
        anchor.hidden = marked.size < 2;
        anchor.textContent = `Compare ${marked.size} runs`;
        anchor.href = `${link("compare")}?${new URLSearchParams([...marked].map((run) => ["run", run]))}`;
      }
      function chooser() {
        at("columns").replaceChildren(...known.filter((name) => name !== "run_id").map((name) => el("label", {}, el("input", { type: "checkbox", checked: chosen.includes(name), disabled: !live && !columns.includes(name), onchange: (event) => {
          chosen = event.target.checked ? [...chosen, name] : chosen.filter((one) => one !== name);
          remember({ columns: chosen.join(",") });
          if (live && !columns.includes(name)) fetchAll(); else arrange();
        } }), ` ${name}`)));
      }
      const parameters = () => {
        const query = new URLSearchParams({ columns: chosen.join(","), since: version, seen: columns.join(",") });
        if (form.where?.value) query.set("where", form.where.value);
        return query;
      };
      function take(found) {
        wrong.hidden = !found.wrong;
        wrong.textContent = found.wrong ?? "";
        if (found.wrong) return;
        if (found.columns.join() !== columns.join()) rows.clear();
        ({ columns, chosen, facets } = found);
        found.rows.forEach((row) => rows.set(row[0], row));
        found.removed.forEach((run) => rows.delete(run));
        matching = found.matching ? new Set(found.matching) : null;
        version = found.version;
        arrange();
      }
      async function fetchAll() {
        try { take(await ask("runs", parameters())); } catch (error) { wrong.textContent = error.message; wrong.hidden = false; }
      }
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        remember({ where: form.where?.value ?? "", text: form.text.value });
        if (live) fetchAll(); else arrange();
      });
      form.text.addEventListener("input", () => { remember({ text: form.text.value }); arrange(); });
      at("csv").addEventListener("click", (event) => {
        event.preventDefault();
        const places = ["run_id", ...chosen].map(place);
        download("runs.csv", csv([["run_id", ...chosen], ...visible.map((row) => places.map((one) => row[one]))]), "text/csv");
      });
      addEventListener("scroll", draw, { passive: true });
      addEventListener("resize", draw);
      if (data.wrong) { wrong.textContent = data.wrong; wrong.hidden = false; }
      chooser();
      arrange();
      poll(() => ask("runs", parameters(), true), take);
    },

    run() {
      show(data);
      let end = 0;
      const log = at("log");
      async function tail() {
        if (!live) return;
        const query = new URLSearchParams({ after: end || -1 });
        const found = await ask(`log/${encodeURIComponent(data.id)}`, query, true);
        if (!found || found.to === end) return;
        const bottom = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
        if (!end && found.from) log.append(`… the first ${bytes(found.from)} are not shown\n`);
        log.append(found.text);
        end = found.to;
        if (bottom) log.scrollTop = log.scrollHeight;
      }
      if (live) tail(); else log.textContent = data.log.text;
      let running = Boolean(data.working);
      poll(async () => {
        if (!running) return null;
        await tail();
        return ask(`run/${encodeURIComponent(data.id)}`, undefined, true);
      }, (found) => { running = Boolean(found.working); show(found); });

      function show(run) {
        const study = run.study ? el("a", { href: link("study", run.preset, run.study) }, run.study) : "no study";
        at("about").replaceChildren(el("strong", {}, run.status), run.invalid ? `, declared invalid: ${run.invalid}` : "", ", ", study, run.row ? `, ${run.row}` : "", `, seed ${run.config.seed}`);
        const one = run.working;
        at("progress").replaceChildren(...(one ? [el("p", {}, `${one.stage ?? "starting"} `, one.steps ? el("progress", { max: one.steps, value: one.step }) : "", one.steps ? ` ${one.step} of ${one.steps}` : "", one.loss !== null && one.loss !== undefined ? `, loss ${number(one.loss)}` : "", ` on ${one.host}, for ${since(one.started)}`)] : []));
        at("trace").replaceChildren(...(run.trace ? [el("h2", {}, "Traceback"), el("pre", {}, run.trace)] : []));
        const plots = at("run-curves");
        for (const [name, curve] of Object.entries(run.curves)) {
          let place = plots.querySelector(`[data-curve="${CSS.escape(name)}"]`);
          if (!place) plots.append(place = el("div", { class: "plot small", "data-curve": name }));
          plot(place, [{ x: curve.step[0], y: curve.step[1], mode: curve.step[0].length > 40 ? "lines" : "lines+markers", marker: { size: 4 }, line: { color: COLOURS[0] } }], "step", escapeLabel(name));
        }
        predictedPlot(at("predicted"), [run]);
        const files = Object.entries(run.files).map(([name, size]) => [live ? el("a", { href: `${root}file/${encodeURIComponent(run.id)}/${name.split("/").map(encodeURIComponent).join("/")}` }, name) : name, bytes(size)]);
        const related = [["starts from", run.parents], ["continued by", run.children]].filter(([, runs]) => runs.length).map(([text, runs]) => el("p", {}, `${text} `, ...runs.flatMap((id) => [runLink(id), " "])));
        at("details").replaceChildren(...[
          ...related, pairs(run.result, "Result"), pairs(run.heading, "About"), pairs(run.config, "Configuration", false), pairs(run.cost, "Cost", false), pairs(run.panel, "Ranking measures", false),
          el("details", {}, el("summary", {}, `Files (${files.length})`), table(["Name", "Size"], files, [1])),
          el("details", { open: true }, el("summary", {}, "Commands"), el("pre", {}, run.commands.join("\n"))),
        ].filter(Boolean));
      }
    },

    async compare() {
      const ids = state.getAll("run");
      at("chosen").replaceChildren(...(ids.length ? ids.flatMap((id) => [runLink(id), " "]) : ["Choose runs in the table of ", el("a", { href: link("runs") }, "runs"), "."]));
      const runs = (await Promise.all(ids.map((id) => runData(id).catch((error) => { at("chosen").append(` ${id}: ${error.message}`); return null; })))).filter(Boolean);
      const flat = (run) => ({
        status: run.status, study: run.study, row: run.row,
        ...prefixed("", run.config), ...prefixed("code: ", run.sources), ...prefixed("environment: ", run.heading), ...prefixed("result: ", run.result), ...prefixed("cost: ", run.cost),
      });
      const prefixed = (prefix, entries) => Object.fromEntries(Object.entries(entries).map(([name, value]) => [prefix + name, value]));
      const columns = runs.map(flat);
      const keys = [...new Set(columns.flatMap(Object.keys))].filter((name) => !["environment: trial", "environment: made by", "environment: attempt"].includes(name));
      const differs = (name) => new Set(columns.map((one) => JSON.stringify(one[name] ?? null))).size > 1;
      const heads = ["", ...runs.map((run) => runLink(run.id))];
      const line = (name) => [name, ...columns.map((one) => (name in one ? number(one[name], 6) : "—"))];
      const different = keys.filter(differs);
      const shown = table(heads, different.map((name) => {
        const cells = line(name);
        if (live && name.startsWith("code: ") && runs.length === 2) {
          cells[0] = el("button", { type: "button", class: "value", onclick: async () => {
            const query = new URLSearchParams({ one: runs[0].id, other: runs[1].id, name: name.slice(6) });
            opened(name, el("pre", {}, (await ask("diff", query)).diff || "the texts are equal"));
          } }, name);
        }
        return cells;
      }), runs.map((_, number_) => number_ + 1));
      at("differences").replaceChildren(runs.length ? shown : "");
      at("equal").replaceChildren(table(["", "all"], keys.filter((name) => !differs(name)).map((name) => line(name).slice(0, 2)), [1]));
      const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))].sort((one, other) => (other === "train_loss") - (one === "train_loss") || one.localeCompare(other));
      const query = (metric, axis) => new URLSearchParams([...ids.map((id) => ["run", id]), ["metric", metric], ["axis", axis]]);
      const own = (metric, axis) => ({
        metric, axis, x: axis, groups: runs.filter((run) => metric in run.curves).map((run) => {
          const [x, y] = run.curves[metric][axis];
          return { label: `${run.row || run.id}, seed ${run.config.seed}`, n: 1, x, mean: y, bands: {}, runs: [{ run: run.id, seed: run.config.seed, x, y, points: run.curves[metric].points }] };
        }),
      });
      const request = live ? (metric, axis, again) => ask("curves", query(metric, axis), again) : async (metric, axis) => own(metric, axis);
      request.query = query;
      if (runs.length) curveControls(metrics, request);
      predictedPlot(at("predicted"), runs);
      at("found").replaceChildren(...runs.filter((run) => run.found).map((run) => el("figure", { class: "sheet" }, picture(run.found.svg), el("figcaption", {}, `${run.row || run.id}, seed ${run.config.seed}: ${run.found.name}`))));
    },
  };

  // A drawing made by the server or the export: shown as an image, so that nothing in it can run.
  const picture = (svg) => el("img", { src: `data:image/svg+xml;utf8,${encodeURIComponent(svg)}`, alt: "" });

  function runData(id) {
    if (live) return ask(`run/${encodeURIComponent(id)}`);
    return new Promise((resolve, reject) => {
      globalThis.harnessRuns ??= {};
      const script = el("script", { src: `${root}data/${encodeURIComponent(id)}.js` });
      script.addEventListener("load", () => resolve(globalThis.harnessRuns[id]));
      script.addEventListener("error", () => reject(new Error("is not in this copy")));
      document.head.append(script);
    });
  }

  function opened(title, ...children) {
    at("opened-title").textContent = title;
    at("opened-body").replaceChildren(...children.filter(Boolean));
    at("opened").showModal();
  }
  document.addEventListener("click", (event) => { if (event.target === at("opened")) at("opened").close(); });

  pages[kind]();
})();
