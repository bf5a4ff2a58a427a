// The overview: how many GPUs and jobs, which jobs wait and why, and what failed.

import { html } from "./vendor/preact-htm.js";
import { get, nowS } from "./api.js";
import { FirstJob } from "./first_job.js";
import { useData, useFeed } from "./live.js";
import { Heading, hrefOf, JobLink, Moment, Problem, ProgressNow, State, Table, Time } from "./parts.js";
import { age, count, fromNow, span } from "./text.js";

/** What no record says: whether the controller is ready. */
const againMs = (overview) => (overview && !overview.ready ? 5000 : 60000);

/** The overview, and whether there was never a job. */
async function load(signal) {
  const found = await get("/v1/overview", {}, signal);
  const lists = found.running + found.queued + found.paused + found.failed + found.completions.length;
  return { ...found, isNew: !lists && !(await get("/v1/jobs", { limit: 1 }, signal)).total };
}

export function Overview({ who }) {
  const { data, before, error } = useData(load, [], { everyMs: againMs });
  const found = data || before;
  return html`<${Problem} error=${error} />
    <${Heading} text="Overview" />
    ${found ? html`<${Cards} it=${found} />${found.isNew ? html`<${FirstJob} who=${who} />` : html`<${Lists} it=${found} />`}<${Recent} />` : html`<p aria-busy="true">Loading…</p>`}`;
}

function Cards({ it }) {
  const { gpus } = it;
  const all = gpus.in_use + gpus.idle + gpus.preparing + gpus.quarantined + gpus.lost;
  const cards = [
    ["GPUs in use", gpus.in_use, `of ${all}`],
    ["idle", gpus.idle, "GPUs"],
    ["preparing", gpus.preparing, "reserved or being verified"],
    ["quarantined", gpus.quarantined, gpus.lost ? `and ${gpus.lost} lost` : "GPUs", gpus.quarantined + gpus.lost > 0],
    ["running", it.running, "jobs"],
    ["queued", it.queued, it.paused ? `and ${it.paused} paused` : "jobs"],
    ["failed", it.failed, "jobs in 24 h", it.failed > 0],
    ["controller", it.role, it.ready ? `ready, record ${it.seq}` : "not ready", !it.ready],
  ];
  return html`<dl class="cards">${cards.map(([name, value, more, bad]) => html`
      <div class=${bad ? "card bad" : "card"}><dt>${bad && html`<span aria-hidden="true">▲ </span>`}${name}</dt><dd><b>${value}</b> <span>${more}</span></dd></div>`)}</dl>
    ${it.reason && html`<p role="status" class="problem">${it.reason}</p>`}`;
}

function Lists({ it }) {
  return html`
    <section><h2>Queue <small>${shown(it.queue, it.queued)}</small></h2>
      <${Table} label="Queue" columns=${queueColumns(it.gpus.idle)} rows=${it.queue} keyOf=${(job) => job.id} empty="No job waits." /></section>
    <section><h2>Running <small>${shown(it.runs, it.running)}</small></h2>
      <${Table} label="Running jobs" columns=${RUNS} rows=${it.runs} keyOf=${(job) => job.id} empty="No job holds GPUs." /></section>
    <section><h2>Failed in 24 h <small>${shown(it.failures, it.failed)}</small></h2>
      <${Table} label="Failures" columns=${FAILURES} rows=${it.failures} keyOf=${(job) => job.id} empty="No job failed." /></section>
    <section><h2>Newest completed</h2>
      <${Table} label="Completed jobs" columns=${COMPLETIONS} rows=${it.completions} keyOf=${(job) => job.id} empty="No job completed in 24 h." /></section>`;
}

function shown(rows, total) {
  if (rows.length < total) return html`first ${rows.length} of ${count(total, "job")}, <a href="#/jobs">all</a>`;
  return total ? count(total, "job") : "";
}

const sizes = (job) => (job.pinned ? `${job.pinned} (pinned)` : job.optional_gpus.join(", "));

/** Why a job waits: the engine's reason, or, for a job that no plan has named yet, what it lacks. */
function whyItWaits(job, idle) {
  if (job.reason && job.reason !== "is queued") return job.reason;
  const least = job.pinned ?? Math.min(...job.optional_gpus);
  const lacks = idle < least ? `needs ${count(least, "GPU")}, and ${idle || "none"} ${idle > 1 ? "are" : "is"} idle` : "its turn has not come";
  return job.position > 1 ? `${lacks}; ${count(job.position - 1, "job")} before it` : lacks;
}

const when = (at) => html`<${Moment} say=${() => fromNow(at)} />`;

const queueColumns = (idle) => [
  { head: "Place", cell: (job) => job.position ?? "next", number: true },
  { head: "Job", cell: (job) => html`<${JobLink} ...${job} />`, plain: true },
  { head: "User", cell: (job) => html`<bdi>${job.user}</bdi>`, narrow: false },
  { head: "GPUs wanted", cell: sizes, narrow: false },
  { head: "Waits", cell: (job) => html`<${Moment} say=${() => span(nowS() - job.submitted_at_s)} />`, number: true, narrow: false },
  { head: "Starts", cell: (job) => when(job.predicted_start_at_s) },
  { head: "Ends", cell: (job) => when(job.predicted_end_at_s), narrow: false },
  { head: "Why it waits", cell: (job) => html`${whyItWaits(job, idle)}${job.overtaken_by && html`; <a href=${hrefOf(job.overtaken_by.job)} title=${job.overtaken_by.reason}><bdi>${job.overtaken_by.name}</bdi></a> came later and went ahead <${Moment} say=${() => age(job.overtaken_by.at_s)} />`}`, text: true, plain: true },
];

const RUNS = [
  { head: "Job", cell: (job) => html`<${JobLink} ...${job} />`, plain: true },
  { head: "User", cell: (job) => html`<bdi>${job.user}</bdi>`, narrow: false },
  { head: "State", cell: (job) => html`<${State} value=${job.state} stage=${job.stage} />`, plain: true },
  { head: "GPUs", cell: (job) => `${job.size} of ${job.pinned ?? job.optional_gpus.join(", ")}`, number: true },
  { head: "Host", cell: (job) => (job.hosts.length ? job.hosts.join(", ") : job.host), narrow: false },
  { head: "Progress", cell: (job) => html`<${ProgressNow} job=${job} />`, narrow: false },
  { head: "Ends", cell: (job) => when(job.predicted_end_at_s) },
];

const FAILURES = [
  { head: "Job", cell: (job) => html`<${JobLink} ...${job} />`, plain: true },
  { head: "User", cell: (job) => html`<bdi>${job.user}</bdi>`, narrow: false },
  { head: "When", cell: (job) => html`<${Time} at=${job.at_s} />` },
  { head: "Reason", cell: (job) => job.reason || "–", text: true, plain: true },
];

const COMPLETIONS = [
  { head: "Job", cell: (job) => html`<${JobLink} ...${job} />`, plain: true },
  { head: "User", cell: (job) => html`<bdi>${job.user}</bdi>`, narrow: false },
  { head: "When", cell: (job) => html`<${Time} at=${job.at_s} />` },
  { head: "Reason", cell: (job) => job.reason || "–", text: true, plain: true, narrow: false },
];

function Recent() {
  const { recent } = useFeed();
  const entries = recent.filter((entry) => entry.text && entry.kind !== "profile-recorded").slice(0, 20);
  return html`<section><h2>Newest events</h2>
    ${entries.length ? html`<ol class="feed">${entries.map((entry) => html`<li key=${entry.key} data-seq=${entry.seq}>
      <${Time} at=${entry.at_s} /> ${entry.job && html`<a href=${hrefOf(entry.job)}><bdi>${entry.job}</bdi></a> `}<code>${entry.kind}</code> <bdi>${entry.text}</bdi></li>`)}</ol>`
      : html`<p class="empty">Nothing has happened yet.</p>`}</section>`;
}
