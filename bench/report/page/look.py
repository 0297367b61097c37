"""How report.html looks: one column, the system's letters, no script, nothing fetched from anywhere."""

from __future__ import annotations

CSS = """
.bench, .bench * { box-sizing: border-box; }
.bench { max-width: 46rem; margin: 0 auto; padding: 1rem; color: #1b1b1b; background: #fff; line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere; }
.bench h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; }
.bench h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; padding-top: .6rem; border-top: 1px solid #ddd; }
.bench h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; }
.bench code { font-size: .88em; background: #f3f3f3; padding: .05em .25em; border-radius: 3px; }
.bench pre { overflow-x: auto; background: #f6f6f6; padding: .6rem; border-radius: 4px; }
.bench pre code { background: none; padding: 0; }
.bench figure { margin: 1rem 0 .4rem; }
.bench figure img { width: 100%; max-width: 36rem; height: auto; display: block; margin: 0 auto; }
.bench figcaption { font-size: .82rem; color: #555; margin-top: .4rem; }
.bench .says { border-left: 3px solid #0072b2; padding-left: .7rem; }
.bench .gap { border-left: 3px solid #999; padding-left: .7rem; color: #555; font-style: italic; }
.bench .stamp { background: #fff4d6; border: 1px solid #e0b84c; padding: .4rem .7rem;
  margin: .4rem 0; border-radius: 4px; }
.bench .first { background: #f4f8fb; border: 1px solid #cfdfea; border-radius: 6px; padding: .2rem 1rem;
  margin: 1rem 0; }
.bench .first li { margin: .5rem 0; }
.bench .advice { font-weight: 600; }
.bench .small { font-size: .85rem; color: #444; }
.bench .cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: .8rem;
  align-items: start; }
.bench .card { border: 1px solid #ccc; border-left-width: 6px; border-radius: 6px; padding: .6rem .9rem; }
.bench .card h3 { margin: 0 0 .3rem; }
.bench .card dl { margin: 0; display: grid; grid-template-columns: 5.5rem 1fr; gap: .15rem .5rem; font-size: .9rem; }
.bench .card dt { color: #555; }
.bench .card dd { margin: 0; }
.bench .holds { border-left-color: #009e73; } .bench .does_not_hold { border-left-color: #d55e00; }
.bench .not_decided { border-left-color: #e69f00; } .bench .not_measured { border-left-color: #aaa; }
.bench .level { display: inline-block; min-width: 4.2em; text-align: center; border: 1px solid #888; border-radius: 3px;
  font-size: .78rem; font-weight: 600; padding: 0 .4em; margin-right: .4em; background: #fff; }
.bench .level.invalid { background: #d55e00; color: #fff; border-color: #d55e00; }
.bench .level.warn { background: #ffe9b8; border-color: #e69f00; }
.bench .checks { list-style: none; padding: 0; } .bench .checks li { margin: .45rem 0; }
.bench .remedy { color: #444; font-size: .9rem; }
.bench .scroll { overflow-x: auto; margin: .8rem 0; max-width: 100%; overflow-wrap: normal; }
.bench table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
.bench th, .bench td { text-align: left; vertical-align: top; padding: .28rem .6rem .28rem 0;
  border-bottom: 1px solid #e6e6e6; }
.bench thead th { border-bottom: 1px solid #888; white-space: nowrap; }
.bench .numbers td, .bench .numbers tbody th { white-space: nowrap; }
.bench .words td { min-width: 6rem; } .bench .words td:nth-child(2) { min-width: 14rem; }
.bench .words td:last-child { min-width: 3rem; }
.bench .reading td:nth-child(2) { min-width: 6rem; } .bench .reading td:last-child { min-width: 14rem; }
.bench .numbers tbody th, .bench .numbers thead th:first-child { position: sticky; left: 0; background: #fff; }
.bench details { margin: .6rem 0; } .bench summary { cursor: pointer; color: #0072b2; font-size: .88rem; }
.bench details.code { margin: .1rem 0; } .bench details.code > summary { color: #999; font-size: .72rem; }
.bench nav ol { margin: .3rem 0; padding-left: 1.4rem; font-size: .9rem; }
@media (max-width: 600px) { .bench { padding: .7rem; } .bench .first { padding: .1rem .7rem; }
  .bench ul { padding-left: 1.1rem; }
  .bench .words thead { display: none; } .bench .words tr { display: block; padding: .4rem 0;
    border-bottom: 1px solid #ccc; }
  .bench .words th, .bench .words td { display: block; border: 0; padding: .1rem 0; }
  .bench .words td[data-label]:not([data-label=""])::before { content: attr(data-label) ": "; color: #666; } }
@media print { .bench details, .bench nav { display: none; } .bench h2 { break-after: avoid; }
  .bench figure, .bench .card { break-inside: avoid; } }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="bench report">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<main class="bench">
{body}
</main>
</body>
</html>
"""
