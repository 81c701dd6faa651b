"""The report's style sheet: light and dark by the reader's own setting, black on white in print."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;--code:#f3f5f7;
--c0:#0b62a8;--c1:#b35900;--c2:#1a7f37;--c3:#8250df;--c4:#b3261e;--c5:#5f6b76;--c6:#007a80;--c7:#9a3b78;
--all:#b7e4c0;--some:#ffe08a;--missed:#f5b5ae;--on:#1b1f24}
@media (prefers-color-scheme:dark){:root{--ink:#e2e6ea;--soft:#9aa4ae;--paper:#12161b;--line:#333b44;--code:#1d232a;
--c0:#5aa9e6;--c1:#f2a65a;--c2:#66c27c;--c3:#b39bf0;--c4:#f07178;--c5:#98a2ad;--c6:#59c3c3;--c7:#e08fc4;
--all:#1f5a2e;--some:#6b5300;--missed:#7d2a26;--on:#f2f4f6}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:0 auto;padding:1rem}
h1,h2,h3{line-height:1.25;overflow-wrap:anywhere}
h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
p,li,td,th{overflow-wrap:anywhere}
pre,code{font-family:ui-monospace,monospace;font-size:.875em;background:var(--code)}
pre{padding:.75rem;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}
pre code{background:none}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.875rem;margin:.5rem 0}
th,td{border:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top;font-weight:400;
min-width:4rem}
thead th{font-weight:600;background:var(--code)}
figure{margin:1.5rem 0}
figcaption p{color:var(--soft);margin:.25rem 0}
.chart{width:100%;height:auto;font-family:system-ui,sans-serif}
.chart .background{fill:none}
.chart text{fill:var(--ink);stroke:none;font-size:12px}
.chart .title{text-anchor:middle}
.chart .axis.x text{text-anchor:middle}
.chart .axis.y text{text-anchor:end}
.chart .legends text{text-anchor:start}
.chart .axis path{fill:none;stroke:var(--line)}
.chart .axis .guide.line{stroke-dasharray:2 4}
.chart .vertical .axis.x .guide.line,.chart .horizontal .axis.y .guide.line{stroke:none}
.chart .nofill{fill:none}
.chart .line{stroke-width:2}
.chart .bars .rect{stroke:var(--paper);stroke-width:1}
.chart .text-overlay,.chart .tooltip{display:none}
.chart .color-0{fill:var(--c0);stroke:var(--c0)}
.chart .color-1{fill:var(--c1);stroke:var(--c1)}
.chart .color-2{fill:var(--c2);stroke:var(--c2)}
.chart .color-3{fill:var(--c3);stroke:var(--c3)}
.chart .color-4{fill:var(--c4);stroke:var(--c4)}
.chart .color-5{fill:var(--c5);stroke:var(--c5)}
.chart .color-6{fill:var(--c6);stroke:var(--c6)}
.chart .color-7{fill:var(--c7);stroke:var(--c7)}
.chart .series .line:not(.nofill){fill-opacity:.35}
.chart .series .nofill{fill:none}
.chart .color-1 .line{stroke-dasharray:8 3}
.chart .color-2 .line{stroke-dasharray:3 3}
.chart .color-3 .line{stroke-dasharray:10 3 2 3}
.chart .heat{stroke:var(--paper);stroke-width:2}
.chart .heat-all{fill:var(--all)}
.chart .heat-some{fill:var(--some)}
.chart .heat-missed{fill:var(--missed)}
.chart .heat-none{fill:none}
.chart text.cell{text-anchor:middle;fill:var(--on);font-size:11px}
@media print{:root{--ink:#000;--soft:#333;--paper:#fff;--line:#999;--code:#f3f3f3;--on:#000;--all:#d9f0de;
--some:#fff0c2;--missed:#f7d4d0}main{max-width:none;padding:0}body{font-size:10pt}
pre,figure,tr{break-inside:avoid}h2,h3{break-after:avoid}.wide{overflow:visible}}
"""
