"use strict";
// A page says all that it says without this. Here its tables are sorted and searched, the values of its charts are
// told, charts are zoomed and saved, lines are hidden, and the silo that the page's address names (#silo=NAME) is drawn in the first chart. On a phone, a table that
// is too wide has its rows stacked, a figure a line, named by its heading.
const phone = matchMedia("(max-width: 760px)");
const axis = (head) => all(".axis", head).map((one) => "bar from " + all("text", one).map((end) => end.textContent).join(" to "));
const stack = () => {
  for (const table of document.querySelectorAll(".scroll > table:not(.grid-of)")) {
    const place = table.parentElement, heads = [...table.tHead?.rows[0].cells ?? []];
    table.classList.remove("stacked");
    if (!phone.matches || !heads.length || place.scrollWidth <= place.clientWidth) continue;
    for (const row of table.tBodies[0].rows) {
      heads.forEach((head, nth) => { row.cells[nth].dataset.head = [head.firstChild?.textContent ?? "", ...axis(head)].join(", "); });
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
const all = (what, within = document) => [...within.querySelectorAll(what)];
const drawn = (name) => document.createElementNS(document.querySelector(".plot").namespaceURI, name);
const stages = all(".stage[tabindex]").map((stage) => {
  const told = JSON.parse(stage.querySelector("script").textContent), {rows, values, low, high, share} = told;
  const plot = stage.querySelector(".plot"), tip = stage.querySelector(".tip"), cross = stage.querySelector(".cross");
  const bytes = values && Uint8Array.from(atob(values), (one) => one.charCodeAt(0));
  const until = told.heads.map((head) => parseFloat(head.split(" ").at(-1))), ends = [until[0], until.at(-1)];
  let here = -1, row = 0, from = null, view = [0, 100];
  const place = (x) => 100 * (x - view[0]) / (view[1] - view[0]);
  const cell = () => {
    const at = 2 * (row * told.x.length + here), code = bytes[at] + 256 * bytes[at + 1];
    const value = low + code / 65534 * (high - low);
    return code === 65535 ? "not scored" : share ? `${(100 * value).toFixed(2)}%` : Number(value.toPrecision(4));
  };
  const say = (nth, down = row) => {
    here = Math.max(0, Math.min(told.x.length - 1, nth));
    row = rows ? Math.max(0, Math.min(rows.length - 1, down)) : 0;
    const lines = bytes ? [{name: rows[row], text: cell()}]
      : told.lines.map(({name, said}) => ({name, text: said[here]})).filter(({text}) => text);
    tip.textContent = [told.heads[here], ...lines.map(({name, text}) => `${name} ${text}`)].join("\n");
    tip.hidden = false;
    marked().forEach((other) => other.mark(until[here]));
    const room = plot.getBoundingClientRect(), left = room.left - stage.getBoundingClientRect().left;
    const to = place(told.x[here]), at = left + to / 100 * room.width, before = to > 50;
    tip.style.left = (before ? Math.max(0, at - tip.offsetWidth - 10) : at + 10) + "px";
  };
  const hush = () => { tip.hidden = true; from = null; marked().forEach((other) => other.mark(NaN)); };
  const mark = (at) => {  // the cross at a round, or at none
    const x = bytes ? told.x[until.findIndex((one) => one >= at)]
      : told.x[0] + (told.x.at(-1) - told.x[0]) * (at - ends[0]) / (ends[1] - ends[0]);
    for (const end of ["x1", "x2"]) cross.setAttribute(end, (place(x) || 0) + "%");
    cross.classList.toggle("on", place(x) >= 0 && place(x) <= 100);
  };
  const within = (where, start, size) => (where - plot.getBoundingClientRect()[start]) / plot.getBoundingClientRect()[size];
  const across = (event) => view[0] + (view[1] - view[0]) * within(event.clientX, "left", "width");
  const nearest = (event) => told.x.reduce(
    (best, at, nth) => Math.abs(at - across(event)) < Math.abs(told.x[best] - across(event)) ? nth : best, 0);
  const down = (event) => rows && Math.floor(rows.length * within(event.clientY, "top", "height"));
  const zoom = (first, last) => {  // along what the chart is over, such as rounds
    view = [first, last].map((end) => 100 * (end - ends[0]) / (ends[1] - ends[0]));
    const marks = plot.querySelector(".marks"), [, , wide, deep] = plot.dataset.box.split(" ").map(Number);
    marks.setAttribute("viewBox", `${wide * view[0] / 100} 0 ${wide * (view[1] - view[0]) / 100} ${deep}`);
    marks.classList.toggle("zoomed", view[0] > 0 || view[1] < 100);
    const inside = told.x.map((_, nth) => nth).filter((nth) => place(told.x[nth]) >= 0 && place(told.x[nth]) <= 100);
    const step = Math.ceil(inside.length / 6);
    all(".below", plot).forEach((one) => one.remove());
    for (const nth of inside.filter((_, at) => at % step === 0)) {
      const text = drawn("text");
      text.setAttribute("class", "below");
      for (const [key, value] of [["x", place(told.x[nth]) + "%"], ["y", "100%"], ["dy", 17]]) text.setAttribute(key, value);
      text.textContent = told.heads[nth].split(" ").at(-1);
      plot.append(text);
    }
  };
  const marked = () => stages.filter((other) => other.unit === unit);
  const alike = () => bytes ? [] : marked().filter((other) => other.zoom);
  const unit = stage.querySelector(".unit")?.textContent;
  const value = (at) => ends[0] + at / 100 * (ends[1] - ends[0]);
  plot.onpointermove = (event) => say(nearest(event), down(event));
  plot.onpointerdown = (event) => { from = across(event); say(nearest(event), down(event)); };
  plot.onpointerup = (event) => {
    const to = across(event), far = from !== null && Math.abs(to - from) > (view[1] - view[0]) / 50;
    if (far && event.pointerType !== "touch") {
      const between = [from, to].sort((a, b) => a - b).map((at) => value(Math.max(0, Math.min(100, at))));
      alike().forEach((other) => other.zoom(...between));
    }
    from = null;
  };
  plot.ondblclick = () => alike().forEach((other) => other.zoom(...other.ends));
  plot.onpointerleave = stage.onblur = hush;
  stage.onkeydown = (event) => {
    const by = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, rows && -1], ArrowDown: [0, rows && 1]}[event.key];
    if (event.key === "Escape") hush();
    if (!by?.some(Boolean)) return;
    event.preventDefault();
    say(here < 0 && by[0] < 0 ? told.x.length - 1 : here + by[0], row + by[1]);
  };
  return {unit, ends, mark, zoom: bytes ? null : zoom};
});
const keys = all(".figure .keys span").filter((key) => key.querySelector("i"));
for (const key of keys) {
  const look = key.querySelector("i").className, name = key.querySelector("bdi").textContent;
  const same = keys.filter((other) => other.querySelector("bdi").textContent === name);
  const lines = same.flatMap((one) => all(".marks path", one.closest(".figure")))
    .filter((path) => path.classList.contains(look));
  if (!lines.length) continue;
  key.tabIndex = 0;
  key.role = "button";
  key.onclick = () => {
    const off = !key.classList.contains("off");
    [...same, ...lines].forEach((one) => one.classList.toggle("off", off));
    same.forEach((one) => { one.ariaPressed = !off; });
  };
  key.onkeydown = (event) => { if (event.key === "Enter") key.onclick(); };
}
const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "text-anchor",
  "vector-effect", "display", "visibility"];
for (const plot of all(".plot")) {
  const save = document.createElement("button");
  save.className = "save";  // its words stand in the style: they are no part of what the page says
  save.ariaLabel = "save as SVG";
  save.onclick = () => {
    const whole = drawn("svg"), copy = plot.cloneNode(true), {width, height} = plot.getBoundingClientRect();
    const styles = [plot, ...all("*", plot)].map((one) => getComputedStyle(one));
    [copy, ...all("*", copy)].forEach((one, nth) => {
      for (const key of KEPT) one.setAttribute(key, styles[nth].getPropertyValue(key));
      one.removeAttribute("class");
    });
    for (const [key, value] of [["x", 150], ["y", 12], ["width", width], ["height", height]]) copy.setAttribute(key, value);
    for (const [key, value] of [["width", width + 170], ["height", height + 40]]) whole.setAttribute(key, value);
    whole.append(copy);
    const link = document.createElement("a");
    link.download = plot.ariaLabel.replace(/\W+/g, "-").toLowerCase() + ".svg";
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(whole)], {type: "image/svg+xml"}));
    link.click();
  };
  plot.closest(".stage").append(save);
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
    if (chosen) all("details").forEach((one) => { one.open ||= one.contains(chosen); });
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
