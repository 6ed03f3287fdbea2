"""The looks of a report: light and dark, on a desk and on a phone."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6875; --line: #e3e8ee; --page: #f6f8fa;
  --card: #fff; --one: #2a6db0; --two: #d9622b; --three: #1a9a6c; --four: #8a6bb5; --five: #c9a20a;
  --rest: #aab4bf; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #9aa6b2; --line: #303a45;
  --page: #12171c; --card: #1b2229;
  --one: #5b9fe0; --two: #ea8452; --three: #3cba8b; --four: #ab8fd3; --five: #dcbd45;
  --rest: #64707c; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--page); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 14px; margin: 0 0 2px; font-weight: 600; }
header p { margin: 0 0 4px; overflow-wrap: anywhere; }
.soft, .note { color: var(--soft); }
.card p, .key, .split, .note, .bad, h2, summary { overflow-wrap: anywhere; }
.note { font-size: 12.5px; margin: 0 0 10px; }
.bad { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(126px, 1fr)); gap: 12px;
  margin: 20px 0; }
.card, .figure, details { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.card { padding: 12px; }
.card p { margin: 0; font-size: 12.5px; line-height: 1.35; color: var(--soft); }
.card .value { font-size: 20px; white-space: nowrap; font-weight: 600; color: var(--ink);
  font-variant-numeric: tabular-nums; }
header + .grid { margin-top: 18px; }
.grid { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
.figure { padding: 14px 16px; min-width: 0; display: flex; flex-direction: column; }
.figure .plot, .figure .split { margin-top: auto; }
.grid > .figure:not(.wide):first-child:nth-last-child(odd of .figure:not(.wide)) { grid-column: 1 / -1; }
.wide { grid-column: 1 / -1; }
.key { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; color: var(--soft); margin: 0 0 8px; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
.plot { display: grid; grid-template-columns: 50px 1fr; }
.plot.ended { grid-template-columns: 50px 1fr max-content; }
.ends { position: relative; font-size: 12.5px; line-height: 1; padding-left: 8px;
  font-variant-numeric: tabular-nums; }
.ends span { position: absolute; left: 8px; transform: translateY(-50%); white-space: nowrap;
  font-weight: 600; }
.ends .room { visibility: hidden; position: static; }
.ends .one { color: var(--one); } .ends .two { color: var(--two); } .ends .three { color: var(--three); }
.ends .four { color: var(--four); } .ends .five { color: var(--five); }
.ticks { position: relative; font-size: 12px; line-height: 1; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.ticks.y span { position: absolute; right: 7px; transform: translateY(-50%); white-space: nowrap; }
.ticks.x { grid-column: 2; height: 18px; }
.ticks.x span { position: absolute; top: 5px; transform: translateX(-50%); white-space: nowrap; }
.unit { grid-column: 2; text-align: center; font-size: 12px; color: var(--soft); }
.plot svg { display: block; width: 100%; height: 190px; border-bottom: 1px solid var(--soft);
  overflow: visible; }
.plot svg.low { height: 70px; }
svg .level { stroke: var(--line); stroke-width: 1; }
svg .target { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 5 4; }
svg .dashed { stroke-dasharray: 6 4; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg path, svg line { vector-effect: non-scaling-stroke; }
svg .hover { fill: transparent; }
svg .hover:hover { fill: var(--soft); fill-opacity: 0.18; }
.one { stroke: var(--one); } .two { stroke: var(--two); } .three { stroke: var(--three); }
.four { stroke: var(--four); } .five { stroke: var(--five); }
.dot { fill: none; stroke-width: 7; stroke-linecap: round; }
.area { stroke: none; } .area.band { fill-opacity: 0.2; }
.area.one { fill: var(--one); } .area.two { fill: var(--two); } .area.three { fill: var(--three); }
.area.four { fill: var(--four); } .area.five { fill: var(--five); } .area.rest { fill: var(--rest); }
i.one { background: var(--one); } i.two { background: var(--two); } i.three { background: var(--three); }
i.four { background: var(--four); } i.five { background: var(--five); } i.rest { background: var(--rest); }
i.band { opacity: 0.35; }
.split { display: grid; grid-template-columns: minmax(56px, auto) 1fr auto; gap: 5px 10px;
  align-items: center; font-size: 12.5px; font-variant-numeric: tabular-nums; }
.split .bar { display: flex; height: 16px; }
.split .bar i { display: block; margin-right: 1px; border-radius: 1px; }
.heat path { fill: var(--one); stroke: none; }
.heat svg { height: auto; border: 1px solid var(--line); }
.ramp { display: inline-flex; vertical-align: middle; margin: 0 6px; border: 1px solid var(--line); }
.ramp i { width: 14px; height: 10px; background: var(--one); margin: 0; border-radius: 0; }
details { margin: 14px 0 0; padding: 12px 16px; }
summary { font-size: 14px; font-weight: 600; cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums;
  margin-top: 8px; }
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid var(--line); }
td, tbody th { white-space: nowrap; }
thead th { vertical-align: bottom; }
tbody th, thead th:first-child { position: sticky; left: 0; background: var(--card); }
.figure .scroll { max-height: 330px; overflow-y: auto; }
.sort thead th { cursor: pointer; position: sticky; top: 0; z-index: 1; background: var(--card); }
.sort thead th:first-child { z-index: 2; }
.sort thead th[aria-sort=ascending]::after { content: " ↑"; }
.sort thead th[aria-sort=descending]::after { content: " ↓"; }
.sort tbody th { max-width: 28ch; overflow: hidden; text-overflow: ellipsis; }
.map { display: grid; gap: 2px; font-size: 14px; font-variant-numeric: tabular-nums; overflow-x: auto; }
.map > * { padding: 8px 10px; border-radius: 4px; text-align: center; white-space: nowrap; }
.map .name { color: var(--soft); padding: 4px 10px; align-self: center; }
.map .cell { position: relative; z-index: 0; border: 2px solid transparent; color: var(--ink);
  text-decoration: none; }
.map .cell i { position: absolute; inset: 0; background: var(--one); z-index: -1; border-radius: 3px; }
.map .bright { border-color: var(--three); font-weight: 700; }
.parallel { position: relative; height: 240px; margin: 12px 34px 14px; font-size: 13px; }
.parallel svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.parallel span { position: absolute; transform: translate(-50%, -50%); background: var(--card);
  padding: 0 5px; border-radius: 3px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.axes { display: flex; justify-content: space-between; gap: 8px; font-size: 13px; color: var(--soft);
  margin-bottom: 6px; }
td.worst, th.worst { color: var(--two); font-weight: 600; }
td.best, th.best { color: var(--three); font-weight: 600; }
a { color: var(--one); }
th:first-child, .text { text-align: left; }
th:first-child { padding-left: 0; }
tbody th { font-weight: 400; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 180px; }
tbody tr:last-child > * { border-bottom: 0; }
pre { overflow-x: auto; font-size: 12.5px; line-height: 1.4; margin: 8px 0 0; }
@media (max-width: 760px) {
  main { padding: 18px 12px 40px; }
  h1 { font-size: 21px; }
  h2, summary { font-size: 15px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 8px; }
  .card { padding: 10px 12px; }
  .grid { grid-template-columns: minmax(0, 1fr); gap: 10px; }
  .figure, details { padding: 12px 10px; }
  tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 72px; }
  .sort tbody th { max-width: 15ch; white-space: nowrap; }
  .plot, .plot.ended { grid-template-columns: 52px 1fr; }
  .ended .ends { grid-column: 1 / -1; grid-row: 1; display: flex; flex-wrap: wrap; gap: 6px 14px;
    padding: 0 0 14px; }
  .ends span { position: static; transform: none; white-space: normal; line-height: 1.2; }
  .ends .room { display: none; }
  .plot svg { height: 160px; }
  .split { grid-template-columns: 1fr auto; grid-auto-flow: dense; gap: 2px 10px; }
  .split .bar { grid-column: 1 / -1; margin-bottom: 6px; }
  th, td { padding: 5px 4px; }
  .note, .key, .ticks, .unit, .ends, .split, .card p, table, pre, .axes, .parallel { font-size: 14px; }
}
@media print { body { background: none; } .figure, .card { break-inside: avoid; } }
"""
