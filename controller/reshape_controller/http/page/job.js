// One job: its state and why, when it ends, how it trains, its reshapes, decisions, log and record.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, getText, nowS } from "./api.js";
import { Actions } from "./job_actions.js";
import { LineChart } from "./job_chart.js";
import { Costs, Decisions, loansOf } from "./job_decisions.js";
import { anyRecord, LATER_MS, useData } from "./live.js";
import { Heading, JobLink, Moment, Problem, ProgressNow, State, Table, Time } from "./parts.js";
import { age, clock, count, fromNow, lostSteps, short, span } from "./text.js";

const LOG_MS = 5000;
const HISTORY = 100;
const DECISIONS = 20;
const TAIL = 100;
const AHEAD_MAX = 20;

/** A job's own pages; null where the reader may not see them. */
async function load(key, signal) {
  const path = `/v1/jobs/${encodeURIComponent(key)}`;
  const ask = (name, query) => get(`${path}/${name}`, query, signal).catch((error) => {
    if (error.status === 403 || error.status === 404) return null;
    throw error;
  });
  const [job, series, decisions, history] = await Promise.all([
    get(path, {}, signal), ask("series"), ask("decisions", { limit: DECISIONS }), ask("history", { limit: HISTORY }),
  ]);
  return { job, points: series?.points ?? [], decisions: decisions?.decisions ?? [], events: history?.events ?? [], hidden: !history };
}

/** Records about the job are followed at once. Others may change its place, its end, or why it is not larger. */
function follow(record, data) {
  const job = data?.job;
  if (!job || record.jobs.some((each) => each.id === job.id) || record.history.some((entry) => entry.job === job.id)) return anyRecord(record);
  return record.history.length && job.finished_at_s === null ? LATER_MS : null;
}

export function Job({ id, who }) {
  const { data, error, again } = useData((signal) => load(id, signal), [id], { follow });
  if (!data) return html`<${Heading} text=${id}>Job <bdi>${id}</bdi><//><${Problem} error=${error} />${!error && html`<p aria-busy="true">Loading…</p>`}`;
  const { job, points, decisions, events } = data;
  return html`<${Problem} error=${error} />
    <${Heading} text=${job.name}><${JobLink} id=${job.id} name=${job.name} /><//>
    <${Head} job=${job} decisions=${decisions} />
    ${!data.hidden && html`<${Actions} job=${job} who=${who} again=${again} />`}
    ${data.hidden && html`<p class="note">The job belongs to another user; you see its public part.</p>`}
    <${Training} job=${job} points=${points} />
    <section><h2>Starts and reshapes <small>${count(job.reshape_ups, "reshape")} up, ${job.reshape_downs} down, ${lostSteps(job)} lost</small></h2>
      <${Costs} job=${job} decisions=${decisions} /></section>
    <section><h2>Decisions</h2><${Decisions} decisions=${decisions} /></section>
    <section><h2>History</h2><${Table} label="History" columns=${EVENTS} rows=${[...events].reverse()} empty="No entry." /></section>
    ${!data.hidden && html`<${LogTail} job=${job} past=${who.past} />`}
    <${Record} job=${job} />`;
}

const predicted = (at) => html`predicted <${Moment} say=${() => `${fromNow(at)}, at ${clock(at)}`} />`;

function Head({ job, decisions }) {
  const ended = job.finished_at_s !== null;
  const facts = [
    ["State", html`<${State} value=${job.state} stage=${job.stage} />`],
    ["GPUs", job.size ? `${job.size} on ${job.hosts.length ? job.hosts.join(" and ") : job.host}` : job.next_gpus.length ? `gets ${job.next_gpus.length}` : "none"],
    ["Wanted", `${job.optional_gpus.join(", ")}${job.pinned ? `; fixed: ${job.pinned}` : ""}`],
    job.position !== null && ["Place in the queue", job.position],
    ["Submitted", html`<${Time} at=${job.submitted_at_s} />`],
    ["Started", job.started_at_s !== null ? html`<${Time} at=${job.started_at_s} />` : job.predicted_start_at_s !== null ? predicted(job.predicted_start_at_s) : "–"],
    [ended ? "Ended" : "Ends", ended ? html`<${Time} at=${job.finished_at_s} />, after ${span(job.finished_at_s - job.submitted_at_s)}`
      : job.predicted_end_at_s !== null ? predicted(job.predicted_end_at_s) : "not known"],
    job.trajectory && ["Trajectory", `${job.trajectory}${proved(job)}`],
    job.user && ["User", html`<bdi>${job.user}</bdi>`],
  ].filter(Boolean);
  const why = [job.reason, job.not_larger && !job.fixed_because && `Not larger: ${job.not_larger}`, job.fixed_because && `Not reshaped: ${job.fixed_because}`, job.proof_result && `Proof: ${job.proof_result}`,
    job.first_difference && job.first_difference !== job.proof_result && `First difference: ${job.first_difference}`,
    job.exception && `${job.exception}: ${job.exception_message ?? ""}`, job.error, !job.reachable && "Its SideCar is silent; training goes on."];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${why.filter(Boolean).map((text) => html`<p class="why"><bdi>${text}</bdi></p>`)}
    <${Overtaken} by=${job.overtaken_by} /><${Loans} job=${job} decisions=${decisions} />`;
}

const BESIDE = "state beside training is not in the proof";

/** How often a first step after a restart has shown that the trajectory is exact. */
function proved(job) {
  if (job.trajectory !== "exact" || !job.proofs_agreed) return "";
  const times = job.proofs_agreed === 1 ? "once" : `${job.proofs_agreed} times`;
  return job.proofs_missing ? `, proved in ${job.proofs_agreed} of ${job.proofs_agreed + job.proofs_missing} restarts; ${BESIDE}` : `, proved ${times}; ${BESIDE}`;
}

/** The later job that went ahead of this one, and why. */
function Overtaken({ by }) {
  if (!by) return null;
  return html`<p class="why"><${JobLink} id=${by.job} name=${by.name} /> came later and went ahead <${Moment} say=${() => age(by.at_s)} />${by.reason && html`: <bdi>${by.reason}</bdi>`}</p>`;
}

/** The GPUs that others got of this job, and have not given back. */
function Loans({ job, decisions }) {
  return loansOf(job, decisions).map((loan) => html`<p class="why">${count(loan.gpus, "GPU")} of it went to <${JobLink} id=${loan.job} name=${loan.name} /> at ${clock(loan.at_s)} and ${loan.gpus === 1 ? "has" : "have"} not come back.</p>`);
}

function Training({ job, points }) {
  const marks = [];
  points.forEach((point, n) => n && point.size !== points[n - 1].size && marks.push({ x: point.at_s, text: `${points[n - 1].size}→${point.size}` }));
  const line = (value) => points.map((point) => ({ x: point.at_s, y: value(point) ?? NaN }));
  const last = points.at(-1);
  const far = last ? AHEAD_MAX * (last.at_s - points[0].at_s) + 60 : 0; // a line to a later end would hide all else
  const ends = last && job.finished_at_s === null && job.predicted_end_at_s !== null && job.total_steps && job.predicted_end_at_s - last.at_s < far;
  const dashed = ends ? [{ x: last.at_s, y: last.step }, { x: Math.max(job.predicted_end_at_s, nowS()), y: job.total_steps }] : [];
  const steps = [
    job.total_steps ? `step ${whole(job.step)} of ${whole(job.total_steps)}` : `step ${whole(job.step)}`,
    job.seconds_per_step && `${short(job.seconds_per_step)} s a step`,
    job.epoch_end_s && `${short(job.epoch_end_s)} s at the end of an epoch`,
    job.evaluation_s && `${short(job.evaluation_s)} s an evaluation`,
    job.loss !== null && `loss ${short(job.loss)}`,
    job.accuracy !== null && `accuracy ${short(job.accuracy)}`,
  ].filter(Boolean).join(", ");
  return html`<section><h2>Training</h2>
    <p><${ProgressNow} job=${job} more=${steps} /></p>
    <div class="charts">
      <${LineChart} title="Progress" unit=${dashed.length ? "steps; dashed: predicted" : "steps"} points=${line((p) => p.step)} dashed=${dashed} marks=${marks} zero />
      <${LineChart} title="Speed" unit="steps/s" points=${line((p) => (p.seconds_per_step ? 1 / p.seconds_per_step : null))} marks=${marks} zero />
      ${points.some((p) => p.loss !== null) && html`<${LineChart} title="Loss" unit="" points=${line((p) => p.loss)} marks=${marks} />`}
      ${points.some((p) => p.accuracy !== null) && html`<${LineChart} title="Accuracy" unit="" points=${line((p) => p.accuracy)} marks=${marks} />`}
    </div></section>`;
}

const whole = (number) => number.toLocaleString("en");

const EVENTS = [
  { head: "When", cell: (entry) => html`<${Time} at=${entry.at_s} />`, plain: true },
  { head: "Kind", cell: (entry) => html`<code>${entry.kind}</code>`, plain: true },
  { head: "GPUs", cell: (entry) => entry.size || "", number: true, narrow: false },
  { head: "Text", cell: (entry) => html`<bdi>${entry.text}</bdi>`, text: true, plain: true },
];

function LogTail({ job, past }) {
  const [state, setState] = useState({ text: "", error: null });
  const ended = job.finished_at_s !== null;
  const reports = job.reported_at_s !== null; // then a record comes with each new progress
  useEffect(() => {
    const abort = new AbortController();
    const read = () => document.hidden || getText(`/v1/jobs/${encodeURIComponent(job.id)}/logs`, { tail: TAIL }, abort.signal)
      .then((text) => setState({ text, error: null }), (error) => error.name !== "AbortError" && setState({ text: "", error }));
    read();
    const timer = ended || past || reports || !job.size ? null : setInterval(read, LOG_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [job.id, job.seq, ended, reports]);
  const none = state.error && state.error.status === 404 ? "There is no log." : "";
  return html`<section><h2>Log <small>last ${TAIL} lines</small></h2>
    ${state.error && !none ? html`<${Problem} error=${state.error} />` : html`<pre class="log" tabindex="0" role="region" aria-label="Log">${none || visible(state.text) || "Nothing is written yet."}</pre>`}</section>`;
}

/** A log's text: of a progress bar its last state, and control characters as signs. */
function visible(text) {
  const lines = text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "").replaceAll("\r\n", "\n").split("\n");
  return lines.map(lastState).join("\n").replace(/[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** A line of a log as `reshape logs` shows it: what comes before its first carriage return, and its last state. */
function lastState(line) {
  const [before, ...states] = line.split("\r");
  return [before, states.filter((state) => state.trim()).at(-1)].filter(Boolean).join("\n");
}

const FIELDS = [
  "id", "command", "framework", "length", "job_type", "optional_gpus", "priority", "retries", "reshape_if", "proof", "on_difference", "may_restart", "on_save_timeout",
  "min_runtime_s", "max_run_s", "on_max_run", "progress_timeout_s", "start_timeout_s", "start_limit_s", "notify", "code", "dataset", "checkpoints", "log_folder", "attempt", "failures", "process_restarts", "container_restarts", "preemptions",
];

function Record({ job }) {
  const text = (value) => (Array.isArray(value) ? value.join(" ") : String(value));
  const rows = FIELDS.filter((name) => job[name] !== null && text(job[name]) !== "");
  return html`<section><details><summary><h2>Record</h2></summary><dl class="record">${rows.map((name) => html`<div><dt>${name}</dt><dd><bdi>${text(job[name])}</bdi></dd></div>`)}</dl></details></section>`;
}
