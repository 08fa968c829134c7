"use strict";
// Tables with the class "sortable" are sorted by their headings; a table's LaTeX text can be copied.
(() => {
  // Sorting: the best first, then the other way, then back to the order of the report. What has no value stands last.
  const key = (row, column) => row.cells[column].dataset.sort;
  const number = (text) => {
    const found = String(text).replace("−", "-").match(/[-+]?\d+(\.\d+)?(e[-+]?\d+)?/i);
    return found ? Number(found[0]) : NaN;
  };
  const compare = (one, other, numeric) =>
    numeric ? number(one) - number(other) : one.localeCompare(other, "en", { numeric: true });

  function sort(button) {
    const heading = button.closest("th");
    const table = button.closest("table");
    const rows = [...table.tBodies[0].rows];
    rows.forEach((row, place) => { row.dataset.order ??= place; });
    const first = button.dataset.first;
    const second = first === "ascending" ? "descending" : "ascending";
    const next = { none: first, [first]: second, [second]: "none" }[heading.getAttribute("aria-sort")];
    table.querySelectorAll("th[aria-sort]").forEach((one) => one.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", next);
    table.classList.toggle("sorted", next !== "none");
    const column = Number(button.dataset.column);
    const numeric = heading.classList.contains("number");
    const lacks = (row) => { const text = key(row, column); return numeric ? Number.isNaN(number(text)) : text === ""; };
    rows.sort((one, other) => {
      const order = Number(one.dataset.order) - Number(other.dataset.order);
      if (next === "none") return order;
      if (lacks(one) || lacks(other)) return lacks(one) - lacks(other) || order;
      const sign = next === "ascending" ? 1 : -1;
      return sign * compare(key(one, column), key(other, column), numeric) || order;
    });
    table.tBodies[0].append(...rows);
  }

  async function copy(button) {
    const text = JSON.parse(document.getElementById(button.dataset.copy).textContent);
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // a browser that allows it only on request: the old way
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy as LaTeX"; }, 2000);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.classList.contains("copy")) copy(button);
    if (button?.classList.contains("sort") && button.closest("table.sortable")) sort(button);
  });
})();
