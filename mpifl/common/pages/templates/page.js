"use strict";
// A page says all that it says without this. Here its tables are sorted and searched, the values of its charts are
// told, and the silo that the page's address names (#silo=NAME) is drawn in the first chart. On a phone, a table that
// is too wide has its rows stacked, a figure a line, named by its heading.
const phone = matchMedia("(max-width: 760px)");
const stack = () => {
  for (const table of document.querySelectorAll(".scroll > table:not(.grid-of)")) {
    const place = table.parentElement, heads = [...table.tHead?.rows[0].cells ?? []];
    table.classList.remove("stacked");
    if (!phone.matches || !heads.length || place.scrollWidth <= place.clientWidth) continue;
    for (const row of table.tBodies[0].rows) {
      heads.forEach((head, nth) => { row.cells[nth].dataset.head = head.textContent; });
    }
    table.classList.add("stacked");
  }
};
addEventListener("resize", stack);
document.addEventListener("toggle", stack, true);
for (const table of document.querySelectorAll("table.sort")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, nth) => row.cells[nth].dataset.value ?? row.cells[nth].textContent;
  const order = (nth, up) => {
    heads.forEach((head, at) => head.ariaSort = at === nth ? (up ? "ascending" : "descending") : "none");
    const compared = (a, b) => {
      const [one, other] = [value(a, nth), value(b, nth)];
      if (one === "" || other === "") return (one === "") - (other === "");
      const words = isNaN(one) || isNaN(other);
      const by = words ? one.localeCompare(other, undefined, {numeric: true}) : one - other;
      return up ? by : -by;
    };
    body.append(...[...body.rows].sort(compared));
  };
  heads.forEach((head, nth) => {
    head.tabIndex = 0;
    head.onclick = () => order(nth, head.ariaSort !== "ascending");
    head.onkeydown = (event) => { if (event.key === "Enter") head.onclick(); };
  });
}
for (const stage of document.querySelectorAll(".stage[tabindex]")) {
  const told = JSON.parse(stage.querySelector("script").textContent);
  const plot = stage.querySelector(".plot"), tip = stage.querySelector(".tip"), cross = stage.querySelector(".cross");
  let here = -1;
  const say = (nth) => {
    here = Math.max(0, Math.min(told.x.length - 1, nth));
    const said = told.lines.filter((line) => line.said[here]).map((line) => `${line.name} ${line.said[here]}`);
    tip.textContent = [told.heads[here], ...said].join("\n");
    tip.hidden = false;
    for (const end of ["x1", "x2"]) cross.setAttribute(end, told.x[here] + "%");
    cross.classList.add("on");
    const room = plot.getBoundingClientRect(), left = room.left - stage.getBoundingClientRect().left;
    const at = left + told.x[here] / 100 * room.width, before = told.x[here] > 50;
    tip.style.left = (before ? Math.max(0, at - tip.offsetWidth - 10) : at + 10) + "px";
  };
  const hush = () => { tip.hidden = true; cross.classList.remove("on"); };
  const nearest = (event) => {
    const room = plot.getBoundingClientRect(), x = 100 * (event.clientX - room.left) / room.width;
    return told.x.reduce((best, at, nth) => Math.abs(at - x) < Math.abs(told.x[best] - x) ? nth : best, 0);
  };
  plot.onpointermove = plot.onpointerdown = (event) => say(nearest(event));
  plot.onpointerleave = stage.onblur = hush;
  stage.onkeydown = (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === "Escape") hush();
    if (by) { event.preventDefault(); say(here < 0 && by < 0 ? told.x.length - 1 : here + by); }
  };
}
for (const table of document.querySelectorAll("table.silos")) {
  const rows = [...table.tBodies[0].rows], curve = document.querySelector(".grid > .figure:first-child .marks");
  const line = curve?.lastElementChild.cloneNode(), key = document.createElement("span");
  const name = (row) => row.cells[0].dataset.value;
  line?.setAttribute("class", "line silo");
  curve?.append(line);
  const choose = () => {
    const asked = new URLSearchParams(location.hash.slice(1)).get("silo");
    const chosen = rows.find((row) => name(row) === asked), look = document.createElement("i");
    rows.forEach((row) => row.classList.toggle("chosen", row === chosen));
    line?.setAttribute("d", chosen?.querySelector(".spark path")?.getAttribute("d") ?? "");
    look.className = "silo";
    key.replaceChildren(...(chosen ? [look, `${name(chosen)} ${chosen.cells[1].textContent}`] : []));
    curve?.closest(".figure").querySelector(".keys").append(key);
    chosen?.scrollIntoView({block: "nearest"});
  };
  for (const row of rows) {
    row.onclick = () => { location.hash = "silo=" + encodeURIComponent(name(row)); };
    row.cells[0].tabIndex = 0;
    row.cells[0].onkeydown = (event) => { if (event.key === "Enter") row.onclick(); };
  }
  addEventListener("hashchange", choose);
  choose();
  const find = document.createElement("input");
  find.type = "search";
  find.placeholder = find.ariaLabel = "find a silo";
  find.oninput = () => {
    for (const row of rows) row.hidden = !name(row).toLowerCase().includes(find.value.toLowerCase());
  };
  if (rows.length > 8) table.parentElement.before(find);
}
stack();
