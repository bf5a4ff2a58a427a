// GPUs over time: which job held which GPU when, as it goes on.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { get, nowS } from "./api.js";
import { draw, find, layOut, reshapesOf, scaleOf } from "./gantt_drawing.js";
import { anyEntry, useData } from "./live.js";
import { Choice, Heading, JobLink, Problem, Table } from "./parts.js";
import { clock, count, span as spanText, stateText } from "./text.js";

const ZOOMS = [["3600", "1 h"], ["21600", "6 h"], ["86400", "1 d"], ["604800", "7 d"], ["all", "all"]];
const SPANS_MAX = 3000;
const REDRAW_MS = 1000;
const ROWS_MAX = 30;
const PHASES = [
  ["training", "trains (full colour)"], ["starting", "starts"], ["saving", "saves"], ["stopping", "stops"],
  ["releasing", "is verified empty"], ["reserved", "reserved"],
];

/** `at`: a time in the middle; null: what goes on now. */
export function Gantt({ at, past }) {
  const [zoom, setZoom] = useState(past && at === null ? "all" : sessionStorage.getItem("zoom") || "3600");
  const choose = (key) => {
    sessionStorage.setItem("zoom", key);
    setZoom(key);
  };
  const load = (signal) => {
    const from_s = zoom === "all" ? 0 : Math.max(0, at === null ? nowS() - Number(zoom) : at - Number(zoom) / 2);
    const to_s = zoom === "all" || at === null ? null : at + Number(zoom) / 2;
    return get("/v1/timeline", { from_s, to_s, max_spans: SPANS_MAX }, signal);
  };
  const { data, before, error } = useData(load, [zoom], { follow: anyEntry });
  const timeline = data || before;
  return html`<${Heading} text="GPUs" /><${Problem} error=${error} />
    ${at !== null && html`<p class="note">Around ${clock(at)}, which the dashed line marks. <a href="#/gpus">Show now</a></p>`}
    <${Choice} label="Length of time" options=${ZOOMS} value=${zoom} choose=${choose} />
    ${timeline ? html`<${Chart} timeline=${timeline} zoom=${zoom} at=${at} past=${past} />` : html`<p aria-busy="true">Loading…</p>`}`;
}

function lookOf(element) {
  const style = getComputedStyle(element);
  const names = { text: "--text", muted: "--muted", line: "--line", lane: "--lane", ground: "--ground", bad: "--bad", faint: "--faint" };
  return Object.fromEntries(Object.entries(names).map(([name, variable]) => [name, style.getPropertyValue(variable).trim()]));
}

function Chart({ timeline, zoom, at, past }) {
  const canvas = useRef(null);
  const state = useRef({});
  const [chosen, setChosen] = useState(null);
  const names = useMemo(() => new Map(timeline.jobs.map((job) => [job.id, job])), [timeline]);
  const layout = useMemo(() => layOut(timeline.gpus), [timeline]);
  const reshapes = useMemo(() => reshapesOf(timeline), [timeline]);
  state.current = { timeline, layout, reshapes, zoom, at, chosen, past };

  const paint = () => {
    const target = canvas.current;
    if (!target || document.hidden) return;
    const it = state.current;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = target.parentElement.clientWidth;
    const height = it.layout.height;
    if (target.width !== width * ratio || target.height !== height * ratio) {
      target.width = width * ratio;
      target.height = height * ratio;
      target.style.height = `${height}px`;
    }
    const now = it.past || (it.at !== null && it.zoom !== "all") ? it.timeline.to_s : Math.max(it.timeline.to_s, nowS());
    const first = it.timeline.from_s;
    const from = it.zoom === "all" || it.at !== null ? first : Math.max(first, now - Number(it.zoom)); // nothing is known before
    it.scale = scaleOf(from, Math.max(now, from + 1), width);
    it.now = now;
    const context = target.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(context, it.reshapes, it.layout, it.scale, lookOf(target), it.chosen, now, it.at);
  };

  useEffect(paint);
  useEffect(() => {
    const timer = setInterval(paint, REDRAW_MS);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    for (const [target, name] of [[window, "resize"], [window, "theme"], [dark, "change"]]) target.addEventListener(name, paint);
    return () => {
      clearInterval(timer);
      for (const [target, name] of [[window, "resize"], [window, "theme"], [dark, "change"]]) target.removeEventListener(name, paint);
    };
  }, []);

  const point = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const it = state.current;
    return find(it.layout, it.scale, event.clientX - box.left, event.clientY - box.top, it.now);
  };
  const open = (found) => {
    if (found && found.span.job) location.hash = `#/job/${encodeURIComponent(found.span.job)}`;
  };
  const keys = (event) => {
    const next = step(timeline, chosen, event.key);
    if (next) {
      event.preventDefault();
      setChosen(next);
    } else if (event.key === "Enter") {
      open(chosen);
    }
  };
  return html`<${Legend} />
    <p class="readout" role="status">${chosen ? describe(chosen, names) : "Point at a span, or use the arrow keys; Enter opens its job."}</p>
    <div class="lanes"><canvas ref=${canvas} tabindex="0" role="img"
      aria-label=${`${count(timeline.gpus.length, "GPU")} and ${count(timeline.jobs.length, "job")} from ${clock(timeline.from_s)} on, ${count(reshapes.length, "reshape")}; the table below has the jobs`}
      onMouseMove=${(event) => setChosen(point(event))} onMouseLeave=${() => setChosen(null)}
      onClick=${(event) => open(point(event))} onKeyDown=${keys}></canvas></div>
    <${JobTable} timeline=${timeline} />
    <${Reshapes} found=${reshapes} />`;
}

/** The span beside the chosen one in the direction of an arrow key. */
function step(timeline, chosen, key) {
  const lanes = timeline.gpus.filter((gpu) => gpu.spans.length);
  if (!lanes.length || !["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return null;
  const at = chosen ? lanes.findIndex((gpu) => gpu.id === chosen.gpu) : -1;
  if (at < 0) return { gpu: lanes[0].id, lane: lanes[0], span: lanes[0].spans.at(-1) };
  const number = lanes[at].spans.findIndex((span) => span.from_s === chosen.span.from_s);
  if (key === "ArrowUp" || key === "ArrowDown") {
    const other = lanes[Math.max(0, Math.min(lanes.length - 1, at + (key === "ArrowUp" ? -1 : 1)))];
    const near = other.spans.filter((span) => span.from_s <= chosen.span.from_s).at(-1) || other.spans[0];
    return { gpu: other.id, lane: other, span: near };
  }
  const next = lanes[at].spans[number + (key === "ArrowLeft" ? -1 : 1)] || chosen.span;
  return { gpu: lanes[at].id, lane: lanes[at], span: next };
}

function describe({ lane, span }, names) {
  const job = span.job ? names.get(span.job) : null;
  const end = span.to_s === null ? "now" : clock(span.to_s);
  const merged = span.merged > 1 ? `, ${span.merged} short spans` : "";
  const who = job ? `${job.name} (${count(span.size, "GPU")})` : "no job";
  return `${lane.host} GPU ${lane.index}: ${who} ${span.phase}, ${clock(span.from_s)} to ${end}, ${spanText((span.to_s ?? nowS()) - span.from_s)}${merged}`;
}

function Legend() {
  return html`<ul class="legend">${PHASES.map(([phase, text]) => html`<li><span class=${`hatch hatch-${phase}`}></span>${text}</li>`)}
    <li><span aria-hidden="true">▲ ▼</span> reshape up, down</li></ul>`;
}

const JOBS = [
  { head: "Job", cell: (job) => html`<${JobLink} ...${job} />`, plain: true },
  { head: "State", cell: (job) => stateText(job.state) },
  { head: "GPUs now", cell: (job) => (job.ended_at_s === null && job.spans.length ? job.spans.at(-1).size : "–"), number: true },
  { head: "Phase", cell: (job) => (job.ended_at_s === null && job.spans.length ? stateText(job.spans.at(-1).phase) : "–") },
  { head: "Ended", cell: (job) => clock(job.ended_at_s), narrow: false },
  { head: "Steps lost", cell: (job) => (job.steps_lost_known ? job.steps_lost : job.steps_lost ? `≥ ${job.steps_lost}` : "unknown"), number: true, narrow: false },
];

function JobTable({ timeline }) {
  const found = timeline.jobs.filter((job) => job.spans.some((span) => span.size > 0)).reverse();
  const rows = found.slice(0, ROWS_MAX);
  return html`<section><h2>Jobs in this time <small>${newest(rows, found)}</small></h2><${Table} label="Jobs in this time" columns=${JOBS} rows=${rows}
    keyOf=${(job) => job.id} empty="No job held a GPU." /></section>`;
}

function newest(rows, found) {
  return rows.length < found.length ? `newest ${rows.length} of ${found.length}` : "";
}

const RESHAPES = [
  { head: "When", cell: (it) => clock(it.at) },
  { head: "Job", cell: (it) => html`<${JobLink} id=${it.job} name=${it.name} />`, plain: true },
  { head: "GPUs", cell: (it) => html`<span aria-hidden="true">${it.to > it.from ? "▲" : "▼"}</span> ${it.from} → ${it.to}` },
];

function Reshapes({ found }) {
  const rows = [...found].sort((a, b) => b.at - a.at).slice(0, ROWS_MAX);
  return html`<section><h2>Reshapes <small>${newest(rows, found)}</small></h2>
    <${Table} label="Reshapes" columns=${RESHAPES} rows=${rows} empty="No job was reshaped in this time." /></section>`;
}
