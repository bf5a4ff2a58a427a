// GPU-hours by user, job, type, host or job type, and what they were used for; also as CSV.

import { html, useState } from "./vendor/preact-htm.js";
import { get, nowS } from "./api.js";
import { useData } from "./live.js";
import { Choice, Heading, Problem, Table } from "./parts.js";
import { clock, hours, lostSteps } from "./text.js";

const KINDS = [["user", "user"], ["job-type", "job type"], ["job", "job"], ["host", "host"], ["type", "GPU type"]];
const TIMES = [["86400", "1 d"], ["604800", "7 d"], ["2592000", "30 d"], ["all", "all"]];
const USES = [["trained", "trained"], ["starting", "starting"], ["saving", "saving"], ["waiting", "reserved"], ["free", "idle"], ["quarantined", "quarantined"], ["silent", "host silent"]];
const EVERY_MS = 60000;

export function Usage({ past }) {
  const [by, setBy] = useState("user");
  const [time, setTime] = useState(past ? "all" : "86400");
  const load = (signal) => get("/v1/usage", { by, from_s: time === "all" ? 0 : Math.max(0, nowS() - Number(time)) }, signal);
  const { data, before, error } = useData(load, [by, time], { follow: () => null, everyMs: () => EVERY_MS });
  const usage = data || before;
  return html`<${Heading} text="Usage" /><${Problem} error=${error} />
    <${Choice} label="Rows" options=${KINDS} value=${by} choose=${setBy} />
    <${Choice} label="Length of time" options=${TIMES} value=${time} choose=${setTime} />
    ${usage ? html`<${Report} usage=${usage} />` : html`<p aria-busy="true">Loading…</p>`}`;
}

const value = (row, use) => row[`${use}_gpu_s`];

function Report({ usage }) {
  const rows = [...usage.rows].sort((a, b) => b.held_gpu_s - a.held_gpu_s || (a.name < b.name ? -1 : 1));
  const all = usage.all_gpu_s || 1e-9;
  const sums = USES.map(([use, text]) => ({ use, text, sum: rows.reduce((total, row) => total + value(row, use), 0) }));
  const repeated = rows.reduce((total, row) => total + row.repeated_gpu_s, 0);
  const columns = [
    { head: usage.by, cell: (row) => (row.name ? html`<bdi>${row.name}</bdi>` : "(no job)") },
    { head: "GPU type", cell: (row) => row.gpu_type, narrow: false },
    { head: "held", cell: (row) => hours(row.held_gpu_s), number: true },
    ...USES.map(([use, text]) => ({ head: text, cell: (row) => hours(value(row, use)), number: true, narrow: use === "trained" || use === "free" ? undefined : false })),
  ];
  return html`<p>${`${hours(usage.all_gpu_s)} GPU-hours since ${clock(usage.from_s)}. These jobs have lost ${lostSteps(usage)}${repeated ? `, and ${hours(repeated)} of the GPU-hours trained were repeated` : ""}.`}</p>
    <ul class="legend">${sums.filter((it) => it.sum > 0).map((it) => html`<li><svg class="mark" viewBox="0 0 24 16" aria-hidden="true"><rect class=${`use-${it.use}`} width="24" height="16" rx="3" /></svg>
      ${it.text} ${((100 * it.sum) / all).toFixed(1)} %</li>`)}</ul>
    <svg class="stack" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label="Shares of the uses">${bars(sums, all)}</svg>
    <${Table} label="Usage" columns=${columns} rows=${rows} keyOf=${(row) => `${row.name} ${row.gpu_type}`} empty="No GPU was there." />
    <p><button type="button" onClick=${() => save(usage, rows)}>Save as CSV</button></p>`;
}

function bars(sums, all) {
  let x = 0;
  return sums.map((it) => {
    const width = (100 * it.sum) / all;
    x += width;
    return html`<rect class=${`use-${it.use}`} x=${x - width} y="0" width=${width} height="4"><title>${it.text}</title></rect>`;
  });
}

/** A field of a CSV file; a text that a spreadsheet would take for a formula gets an apostrophe. */
export function csvField(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function save(usage, rows) {
  const head = [usage.by, "gpu_type", "held_gpu_s", ...USES.map(([use]) => `${use}_gpu_s`)];
  const lines = rows.map((row) => [csvField(row.name), csvField(row.gpu_type), row.held_gpu_s, ...USES.map(([use]) => value(row, use))]);
  const text = [head, ...lines].map((line) => line.join(",")).join("\r\n") + "\r\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `usage-by-${usage.by}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
