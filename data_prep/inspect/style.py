"""The looks of a page: light and dark, on a desk and on a phone."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #5b6875; --line: #e3e8ee; --blue: #2f6690;
  --pale: #b9d0e2; --page: #f6f8fa; --card: #fff; --gauge: #e9eef3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #9aa6b2; --line: #303a45;
  --blue: #5b9fe0; --pale: #2d4a66; --page: #12171c; --card: #1b2229; --gauge: #303a45; } }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--page); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 900px; margin: 0 auto; padding: 28px 20px 60px; }
main.wide { max-width: 1320px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 b { color: #fff; background: var(--blue); border-radius: 4px; padding: 0 8px; margin-right: 4px; }
h3 { font-size: 13px; margin: 0 0 12px; font-weight: 600; }
header p { margin: 0 0 4px; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(185px, 1fr)); gap: 12px;
  margin: 20px 0; }
.card, .figure, details, .compared { background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }
.card { padding: 14px 16px; }
.card h3 { color: var(--soft); margin: 0; }
.card .value { font-size: 26px; font-weight: 600; margin: 2px 0 8px; font-variant-numeric: tabular-nums; }
.card small { font-size: 14px; font-weight: 400; color: var(--soft); }
.card p { margin: 8px 0 0; font-size: 12.5px; line-height: 1.35; color: var(--soft); }
.card .value { color: var(--ink); }
.gauge { height: 6px; background: var(--gauge); border-radius: 3px; overflow: hidden; }
.gauge i { display: block; height: 100%; background: var(--blue); }
.figure { padding: 16px 16px 14px; margin: 14px 0; }
.card p, .keys, h3, dt, dd { overflow-wrap: anywhere; }
dl { margin: 0; }
dt { font-weight: 600; }
dd { margin: 2px 0 12px; }
code { background: var(--gauge); border-radius: 4px; padding: 1px 5px; font-size: 0.93em;
  overflow-wrap: anywhere; }
.framed { display: flex; }
.ticks { flex: 0 0 auto; width: 64px; padding-right: 8px; display: flex; flex-direction: column;
  text-align: right;
  font-size: 11px; line-height: 1; color: var(--soft); font-variant-numeric: tabular-nums; }
.ticks span { flex: 1 1 0; min-height: 0; display: flex; align-items: center; justify-content: flex-end;
  white-space: nowrap; overflow-x: clip; }
.ticks.between { justify-content: space-between; }
.ticks.between span { flex: 0 0 auto; }
.drawn { flex: 1 1 auto; min-width: 0; }
.bars { display: block; width: 100%; height: 110px; border-bottom: 1px solid var(--soft); }
.bars path { fill: var(--blue); }
.bars .spread { fill: var(--pale); }
.stack { position: relative; }
.heat { display: block; width: 100%; image-rendering: pixelated; border: 1px solid var(--line); }
.cells { position: absolute; inset: 0; display: grid; font-size: 11px; font-variant-numeric: tabular-nums; }
.cells span { display: flex; align-items: center; justify-content: center; color: #34414e; overflow: hidden; }
.cells .dark { color: #fff; }
.axis { flex: 1 1 auto; position: relative; height: 16px; font-size: 11px; color: var(--soft); }
.axis span { position: absolute; transform: translateX(-50%); top: 3px; }
.unit { margin: 0; padding-left: 64px; text-align: center; font-size: 11px; color: var(--soft); }
.legend { display: flex; align-items: center; gap: 8px; margin: 8px 0 0 64px; font-size: 11px;
  color: var(--soft); }
.legend img { width: 120px; height: 9px; border-radius: 2px; }
.faces { display: grid; grid-template-columns: repeat(auto-fill, minmax(84px, 1fr)); gap: 12px; }
.faces figure { margin: 0; }
.faces img { display: block; width: 100%; image-rendering: pixelated; border-radius: 4px; }
.faces figcaption { font-size: 11px; line-height: 1.25; margin-top: 3px; color: var(--soft);
  overflow-wrap: anywhere; }
.map { display: block; height: 240px; max-width: 100%; image-rendering: pixelated;
  border: 1px solid var(--line); }
.keys { display: flex; flex-wrap: wrap; gap: 4px 14px; margin-top: 10px; font-size: 12px;
  color: var(--soft); }
.keys i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px; }
td.names { text-align: left; white-space: normal; min-width: 200px; overflow-wrap: anywhere; }
details { margin: 14px 0; padding: 12px 16px; }
summary { font-size: 13px; font-weight: 600; cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
details table { margin-top: 8px; }
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child { text-align: left; font-weight: 400; padding-left: 0; }
th.left { text-align: left; }
thead th { color: var(--soft); font-weight: 400; font-size: 12px; }
tbody tr:last-child > * { border-bottom: 0; }
td.size { position: relative; min-width: 90px; }
td.size i { position: absolute; left: 4px; top: 4px; bottom: 4px; max-width: calc(100% - 8px);
  background: var(--pale); border-radius: 2px; }
td.size span { position: relative; }
.strip { display: block; width: 130px; height: 16px; image-rendering: pixelated;
  border: 1px solid var(--line); }
.compared { margin: 16px 0; border-collapse: separate; border-spacing: 0; }
.compared th:first-child { padding-left: 14px; white-space: normal; min-width: 140px; }
.compared th.left { text-align: left; }
thead th { font-weight: 600; color: var(--ink); }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 24px; margin-top: 24px; }
.two > section { min-width: 0; }
.two header { min-height: 100px; }
@media (max-width: 760px) {
  main { padding: 18px 12px 40px; }
  h1 { font-size: 21px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 8px; }
  .card { padding: 10px 12px; }
  .card .value { font-size: 21px; }
  .two { grid-template-columns: 1fr; }
  .two header { min-height: 0; }
  .figure { padding: 12px 10px; }
  .ticks { width: 56px; padding-right: 6px; }
  .unit { padding-left: 56px; }
  .legend { margin-left: 56px; flex-wrap: wrap; }
  .cells { display: none; }
  .strip { width: 84px; }
  .legend img { width: 56px; }
  tbody th:first-child { white-space: normal; min-width: 92px; overflow-wrap: anywhere; }
  details { padding: 12px 10px; }
  h3, summary { font-size: 15px; }
  .card p, .ticks, .axis, .unit, .legend, .keys, table, thead th, .faces figcaption, code { font-size: 14px; }
  th, td { padding: 4px 6px; }
}
"""
