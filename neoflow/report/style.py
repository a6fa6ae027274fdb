"""The report's look: light and dark after the reader's own setting, readable from 320 pixels on; and how it sorts."""

CSS = """
:root{--page:#fbfbfa;--card:#fff;--ink:#1d2126;--soft:#646c76;--line:#e4e6e9;--grid:#eef0f2;--blue:#2563c9;
--bar:#d6e4fa;--roof:#fbdcb0;--orange:#b45f06;--c0:#6f9fe0;--c1:#93c5b3;--c2:#b7a6dd;--c3:#e3b98a}
@media(prefers-color-scheme:dark){:root{--page:#14171b;--card:#1b1f25;--ink:#e4e7eb;--soft:#98a1ad;--line:#2e343c;
--grid:#262b32;--blue:#79aef5;--bar:#24406b;--roof:#5f431b;--orange:#eeb164;--c0:#456fa9;--c1:#3f7565;--c2:#665693;
--c3:#8a643a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Liberation Sans",sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1160px;margin:0 auto;padding:28px 20px 56px}
header p,.note{color:var(--soft)}
h1{font-size:30px;line-height:1.15;margin:0;letter-spacing:-.01em}
header p{margin:4px 0 20px}
h2{font-size:18px;margin:0 0 6px}
p{margin:0 0 12px;max-width:120ch}
.note{font-size:13px;margin:10px 0 0}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin-top:16px}
.facts{display:grid;grid-template-columns:repeat(6,1fr);gap:1px;margin:0;overflow:hidden;
border:1px solid var(--line);border-radius:10px;background:var(--line)}
.facts div{background:var(--card);padding:12px 16px}
.facts dt{color:var(--soft);font-size:13px}
.facts dd{margin:0;font-size:23px;line-height:1.3;font-variant-numeric:tabular-nums;white-space:nowrap}
.facts small{display:block;font-size:12.5px;color:var(--soft);white-space:normal;min-height:1.5em}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:20px}
figure{margin:0}figcaption{font-weight:600;font-size:14px;margin:4px 0}
.chart{display:block;width:100%;height:auto}
.chart text{font-size:12.5px;fill:var(--soft);font-variant-numeric:tabular-nums}
.chart path{fill:none}
.grid{stroke:var(--grid)}.axis{stroke:var(--line)}
.raw{stroke:var(--blue);opacity:.28}.mean{stroke:var(--blue);stroke-width:2;stroke-linejoin:round}
.level{stroke:var(--orange);stroke-dasharray:5 4}
.chart path.beside{stroke:var(--orange);stroke-width:1.5}.chart circle.beside{fill:var(--orange)}
.chart text.beside{fill:var(--orange);font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:4px}
.chart text.level{fill:var(--orange);font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:4px;
stroke-dasharray:none}
.hover rect{fill:transparent}.hover path{stroke:var(--soft);opacity:0}.hover:hover path{opacity:.8}
.wide{overflow-x:auto;margin:0 -20px;padding:0 20px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:4px 8px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid);font-weight:400}
thead th{color:var(--soft);font-size:12.5px;line-height:1.3;vertical-align:bottom;border-bottom:1px solid var(--line)}
thead i{font-style:normal;opacity:.75}
th:first-child{text-align:left;padding-left:0}
td:last-child,thead th:last-child{padding-right:0;text-align:left;padding-left:14px}
.word{text-align:left!important}
td.word{color:var(--soft);white-space:normal}
tfoot th,tfoot td{border-top:1px solid var(--line);border-bottom:0;font-weight:600}
.bar{background:linear-gradient(var(--bar),var(--bar)) no-repeat 0 50%/calc((100% - 40px)*var(--w)) 18px;
background-origin:content-box}
.roof{background-image:linear-gradient(var(--roof),var(--roof))}
.kernels .bar,.stages .bar{min-width:104px}
summary{cursor:pointer;overflow:hidden;text-overflow:ellipsis;max-width:250px}
summary::marker{color:var(--soft)}
.place{display:block;color:var(--soft);font-size:11.5px}
.sorts{cursor:pointer}.sorts:hover,th[aria-sort]{color:var(--ink)}
th[aria-sort=ascending]::after{content:" \\2191"}th[aria-sort=descending]::after{content:" \\2193"}
b.blue{color:var(--blue)}b.orange{color:var(--orange)}header code{font-size:13px}
abbr{text-decoration:none;cursor:help;color:var(--orange)}
tr.more{display:none}
tr:has(details[open])+tr.more{display:table-row}
@supports not selector(:has(a)){tr.more{display:table-row}}
tr.more td{text-align:left;padding:0 0 8px}
pre{margin:6px 0;padding:12px;background:var(--page);border:1px solid var(--line);border-radius:8px;overflow:auto;
max-height:420px;width:0;min-width:100%;font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
.map{position:relative;padding:0 0 22px 70px;font-size:12.5px;color:var(--soft);margin-top:8px}
.memory{display:block;width:100%;height:240px;border:1px solid var(--line);border-width:0 0 1px 1px}
.memory rect{stroke:var(--card);stroke-width:1px;vector-effect:non-scaling-stroke}
.memory .thin{stroke:none}
.memory rect:hover{stroke:var(--ink)}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}
.map span{position:absolute}
.top{right:calc(100% - 62px);top:-6px;white-space:nowrap}.bottom{right:calc(100% - 62px);bottom:20px}
.first{left:70px;bottom:0}.last{right:0;bottom:0}
@media(max-width:1000px){.facts{grid-template-columns:repeat(3,1fr)}}
@media(max-width:640px){main{padding:20px 12px 40px}section{padding:14px}.wide{margin:0 -14px;padding:0 14px}
.facts{grid-template-columns:1fr 1fr}.facts dd{font-size:20px}.facts div{padding:10px 12px}summary{max-width:130px}
.map{padding-left:62px}.first{left:62px}.top,.bottom{right:calc(100% - 56px)}
.kernels th:first-child{position:sticky;left:-14px;background:var(--card);padding-left:0}}
"""

SORTING = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, n) => {
    const text = row.cells[n].textContent.replace(/,/g, ""), number = parseFloat(text);
    return isNaN(number) ? text : number;
  };
  heads.forEach((head, n) => {
    head.classList.add("sorts");
    head.onclick = () => {
      const up = head.getAttribute("aria-sort") === "descending";
      heads.forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const pairs = [...body.rows].filter(r => !r.matches(".more")).map(r => [r, r.nextElementSibling]);
      pairs.sort(([a], [b]) => {
        const x = value(a, n), y = value(b, n);
        const order = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1;
        return up ? order : -order;
      });
      for (const [row, more] of pairs) { body.append(row); if (more && more.matches(".more")) body.append(more); }
    };
  });
}
"""
"""A click on a heading of a table sorts it; without scripts it stays in its first order, the longest time first."""
