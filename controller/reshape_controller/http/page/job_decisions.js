// The decisions about a job: what was decided, what else was possible, and what it cost.

import { html } from "./vendor/preact-htm.js";
import { PhaseBars } from "./job_chart.js";
import { hrefOf, JobLink, Table } from "./parts.js";
import { clock, count, span } from "./text.js";

/** The starts and reshapes of a job, with their phases as predicted and as measured. */
export function Costs({ job, decisions }) {
  const found = decisions
    .map((decision) => ({ decision, costs: decision.costs.filter((cost) => cost.job === job.id) }))
    .filter(({ costs }) => costs.length);
  if (!found.length) return html`<p class="empty">No start or reshape of it is measured yet.</p>`;
  return found.reverse().map(({ decision, costs }, n) => html`<details key=${decision.seq} open=${n === 0}>
    <summary><time>${clock(decision.event.at_s)}</time> ${effect(job, decision)}: ${total(costs)}</summary>
    <${PhaseBars} costs=${costs} /></details>`);
}

function effect(job, decision) {
  const target = decision.targets.find((each) => each.job === job.id);
  return target ? `on ${count(target.gpus, "GPU")} of ${target.host}` : decision.reason_code;
}

const WHOLE = "whole reshape";
const PARTS_OF_START = new Set(["import", "build", "restore", "position", "first step"]);

function total(costs) {
  const sums = costs.filter((cost) => cost.phase === WHOLE);
  const whole = sums.length ? sums : costs.filter((cost) => !PARTS_OF_START.has(cost.phase));
  const measured = whole.reduce((sum, cost) => sum + cost.measured_s, 0);
  const known = whole.every((cost) => cost.predicted_s !== null);
  const predicted = whole.reduce((sum, cost) => sum + (cost.predicted_s || 0), 0);
  return `${span(measured)} measured${known ? `, ${span(predicted)} predicted` : ""}`;
}

/** What a job gave to others by the decisions about it and has not got back: the newest last. */
export function loansOf(job, decisions) {
  let size = null;
  let loans = [];
  for (const { event, targets } of decisions) {
    const target = targets.find((each) => each.job === job.id);
    if (!target) continue;
    const before = size;
    size = target.gpus;
    const starts = event.job === job.id && !(size > before);
    if (!size || starts) loans = [];
    else if (size > before) loans = giveBack(loans, size - before);
    else if (before !== null && size < before) loans = [...loans, { job: event.job, name: event.name ?? event.job, at_s: event.at_s, gpus: before - size }];
  }
  return job.size && job.size === size ? loans : []; // else a change is under way, or was refused
}

/** The loans that are left when a job has got some GPUs more: the newest is paid back first. */
function giveBack(loans, gpus) {
  const left = [];
  for (const loan of [...loans].reverse()) {
    const paid = Math.max(0, Math.min(gpus, loan.gpus));
    gpus -= paid;
    if (loan.gpus > paid) left.unshift({ ...loan, gpus: loan.gpus - paid });
  }
  return left;
}

/** Every decision with its table of options. */
export function Decisions({ decisions }) {
  if (!decisions.length) return html`<p class="empty">No decision names it yet.</p>`;
  return [...decisions].reverse().map((decision, n) => html`<details key=${decision.seq} open=${n === 0}>
    <summary><time>${clock(decision.event.at_s)}</time> <bdi>${decision.text}</bdi></summary>
    <p class="links">${namedIn(decision).map(([id, name]) => html`<${JobLink} id=${id} name=${name} /> `)}
      <a href=${`#/gpus/${decision.event.at_s}`}>GPUs at that time</a></p>
    <p class="note">Policy ${decision.event.policy}, ${count(decision.weighed, "option")} weighed${
      decision.tie_break ? `; tie: ${decision.tie_break}` : ""}${
      decision.assumed.length ? `; assumed: ${decision.assumed.join(", ")}` : ""}.</p>
    <${Options} decision=${decision} /></details>`);
}

/** Ids and names of the jobs that a decision is about, changes, or notes something about. */
function namedIn({ event, targets, chosen, options }) {
  const found = new Map(event.job === null ? [] : [[event.job, event.name ?? event.job]]);
  for (const target of [...targets, ...(chosen === null ? [] : options[chosen].targets)]) found.set(target.job, target.name);
  return [...found];
}

function Options({ decision }) {
  const rows = decision.options.map((option, number) => ({ ...option, number }));
  rows.sort((a, b) => Number(b.number === decision.chosen) - Number(a.number === decision.chosen) || rank(a) - rank(b));
  const columns = [
    { head: "Option", cell: (it) => html`${it.number === decision.chosen && html`<b class="chosen">✓ chosen </b>`}${words(it)}`, text: true, plain: true },
    { head: "All jobs done after", cell: (it) => span(it.makespan_s), number: true },
    { head: "Sum of completion times", cell: (it) => span(it.completion_sum_s), number: true, narrow: false },
    { head: "Note", cell: (it) => it.refused || it.note || "", text: true, plain: true },
  ];
  return html`<${Table} label="Options of the decision" columns=${columns} rows=${rows.slice(0, 30)} keyOf=${(it) => it.number}
    empty="The policy weighs no options for this." />`;
}

function rank(option) {
  return option.makespan_s ?? Infinity;
}

function words(option) {
  if (!option.targets.length) return "change nothing";
  return option.targets.map((target, n) => html`${n > 0 && ", "}<a href=${hrefOf(target.job)}><bdi>${target.name}</bdi></a> ${target.gpus ? `on ${count(target.gpus, "GPU")}` : "leaves"}`);
}
