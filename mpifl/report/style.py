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
.note { font-size: 12.5px; margin: 0 0 10px; }
.bad { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(126px, 1fr)); gap: 12px;
  margin: 20px 0; }
.card, .figure, details { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.card { padding: 12px; }
.card p { margin: 0; font-size: 12.5px; line-height: 1.35; color: var(--soft); }
.card .value { font-size: 20px; white-space: nowrap; font-weight: 600; color: var(--ink);
  font-variant-numeric: tabular-nums; }
.grid { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
.figure { padding: 14px 16px; min-width: 0; display: flex; flex-direction: column; }
.figure .plot, .figure .split { margin-top: auto; }
.grid > .figure:not(.wide):first-child:nth-last-child(odd of .figure:not(.wide)) { grid-column: 1 / -1; }
.wide { grid-column: 1 / -1; }
.key { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; color: var(--soft); margin: 0 0 8px; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
.plot { display: grid; grid-template-columns: 46px 1fr; }
.ticks { position: relative; font-size: 11px; line-height: 1; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.ticks.y span { position: absolute; right: 7px; transform: translateY(-50%); white-space: nowrap; }
.ticks.x { grid-column: 2; height: 18px; }
.ticks.x span { position: absolute; top: 5px; transform: translateX(-50%); white-space: nowrap; }
.unit { grid-column: 2; text-align: center; font-size: 11px; color: var(--soft); }
.plot svg { display: block; width: 100%; height: 190px; border-bottom: 1px solid var(--soft);
  overflow: visible; }
.plot svg.low { height: 70px; }
svg .level { stroke: var(--line); stroke-width: 1; }
svg .target { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 5 4; }
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
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, .text { text-align: left; }
th:first-child { padding-left: 0; }
tbody th { font-weight: 400; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 180px; }
tbody tr:last-child > * { border-bottom: 0; }
pre { overflow-x: auto; font-size: 12.5px; line-height: 1.4; margin: 8px 0 0; }
@media (max-width: 760px) {
  main { padding: 18px 12px 40px; }
  h1 { font-size: 21px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 8px; }
  .card { padding: 10px 12px; }
  .card .value { font-size: 20px; }
  .grid { grid-template-columns: 1fr; gap: 10px; }
  .figure, details { padding: 12px 10px; }
  .plot svg { height: 160px; }
  th, td { padding: 4px 7px; }
  table { font-size: 12px; }
}
@media print { body { background: none; } .figure, .card { break-inside: avoid; } }
"""
