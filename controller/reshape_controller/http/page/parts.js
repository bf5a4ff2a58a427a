// Small parts that several views use: tables, states, links to jobs, errors.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { markOf } from "./job_colours.js";
import { age, clock, isReplayTime, percent, stateText } from "./text.js";

const SIGNS = {
  running: "●", adjusting: "◐", submitted: "○", initialized: "○", completed: "✓", failed: "✕",
  cancelled: "–", rejected: "✕", halted: "‖", idle: "○", "in use": "●", reserved: "◔",
  releasing: "◑", quarantined: "▲", lost: "✕",
};

/** A state: a sign, and its word. */
export function State({ value, stage }) {
  const more = stage && !["none", "training", value].includes(stage) ? ` (${stage})` : "";
  return html`<span class="state state-${value.replace(" ", "-")}"><span aria-hidden="true">${SIGNS[value] || "•"}</span> ${stateText(value)}${more}</span>`;
}

/** The heading of a view, which is the document's title too: a tab and a screen reader name it. */
export function Heading({ text, children }) {
  useEffect(() => {
    document.title = `${text} · Reshape`;
  }, [text]);
  return html`<h1 tabindex="-1">${children ?? text}</h1>`;
}

/** The address of a job's view. */
export function hrefOf(job) {
  return `#/job/${encodeURIComponent(job)}`;
}

/** A job's mark and name, which lead to its view. */
export function JobLink({ id, name }) {
  const mark = markOf(id);
  return html`<a class="job" href=${hrefOf(id)}>
    <svg class="mark" viewBox="0 0 24 16" aria-hidden="true"><rect width="24" height="16" rx="3" fill=${mark.colour} />
      <text x="12" y="12" text-anchor="middle" fill=${mark.text}>${mark.letter}</text></svg>
    <bdi>${name}</bdi></a>`;
}

/**
 * Columns: `head`, `cell(row)`, and `narrow: false` if a narrow screen does without. There a row is
 * a block: the names of columns stand before their values, and a text has a line of its own.
 */
export function Table({ label, columns, rows, keyOf, empty }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0"><table role="table">
    <thead role="rowgroup"><tr role="row">${columns.map((c) => html`<th role="columnheader" scope="col" class=${classOf(c)}>${c.head}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row, n) => html`<tr role="row" key=${keyOf ? keyOf(row) : n}>
      ${columns.map((c) => html`<td role="cell" class=${classOf(c)} data-head=${c.plain ? undefined : c.head}>${c.cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function classOf(column) {
  return `${column.narrow === false ? "wide" : ""} ${column.number ? "number" : ""} ${column.text ? "words" : ""}`;
}

/** An error of the newest load, with its remedy. */
export function Problem({ error }) {
  if (!error) return null;
  return html`<p role="alert" class="problem">${error.message}${error.hint ? `: ${error.hint}` : ""}</p>`;
}

/** A bar that shows a share. */
function Progress({ ratio, label }) {
  return html`<progress max="1" value=${ratio} aria-label=${label}></progress>`;
}

/** How far a job is, and how old the report is that says so. */
export function ProgressNow({ job, more = "" }) {
  const reported = job.reported_at_s !== null && job.finished_at_s == null;
  const bar = job.progress_ratio === null ? "" : html`<${Progress} ratio=${job.progress_ratio} label=${`progress of ${job.name}`} />${` ${percent(job.progress_ratio)} `}`;
  return html`${bar}<small>${more || (bar ? "" : "–")}${reported && html`${more && ", "}<${Moment} say=${() => `reported ${age(job.reported_at_s)}`} />`}</small>`;
}

/** A moment: its time of day, with its date if that is another day; the date and zone as a tip. */
export function Time({ at }) {
  if (at === null || at === undefined || isReplayTime(at)) return clock(at);
  const date = new Date(at * 1000);
  return html`<time datetime=${date.toISOString()} title=${date.toLocaleString([], { dateStyle: "full", timeStyle: "long" })}>${clock(at)}</time>`;
}

const clocks = new Set();
setInterval(() => document.hidden || clocks.forEach((draw) => draw()), 1000);

/** A text that goes with the time: `say()` is asked again each second. */
export function Moment({ say }) {
  const [, draw] = useState(0);
  useEffect(() => {
    const again = () => draw((count) => count + 1);
    clocks.add(again);
    return () => clocks.delete(again);
  }, []);
  return say();
}

/** A group of buttons of which one is pressed. */
export function Choice({ label, options, value, choose }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([key, text]) => html`<button type="button" aria-pressed=${key === value ? "true" : "false"}
      onClick=${() => choose(key)}>${text}</button>`)}</div>`;
}
