// The lanes of GPUs on a canvas. Does: draws, and finds what is under a point. Never: asks the
// daemon, or keeps anything.

import { markOf } from "./job_colours.js";
import { isReplayTime, sinceBegin } from "./text.js";

export const LABEL_PX = 86;
const HEAD_PX = 20;
const AXIS_PX = 22;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** The rows of lanes, from top to bottom: a head for each host, and a lane for each GPU. */
export function layOut(gpus) {
  const lanePx = gpus.length > 64 ? 12 : 22;
  const rows = [];
  let top = AXIS_PX;
  let host = null;
  for (const gpu of gpus) {
    if (gpu.host !== host) {
      rows.push({ host: (host = gpu.host), top, height: HEAD_PX });
      top += HEAD_PX;
    }
    rows.push({ gpu, top, height: lanePx });
    top += lanePx;
  }
  return { rows, height: top + 4 };
}

/** The times at which a job went on with another number of GPUs. */
export function reshapesOf(timeline) {
  const found = [];
  for (const job of timeline.jobs) {
    let size = 0;
    for (const span of job.spans) {
      if (span.phase !== "starting" && span.phase !== "training") continue;
      if (size && span.size && span.size !== size) {
        found.push({ job: job.id, name: job.name, at: span.from_s, from: size, to: span.size });
      }
      size = span.size || size;
    }
  }
  return found;
}

/** From time to pixels within the lanes. */
export function scaleOf(fromS, toS, width) {
  const px = Math.max(1, width - LABEL_PX) / Math.max(1e-9, toS - fromS);
  return {
    fromS, toS, width,
    x: (at) => LABEL_PX + Math.max(0, Math.min(toS, at) - fromS) * px,
    at: (x) => fromS + (x - LABEL_PX) / px,
  };
}

export function ticks(scale) {
  const least = (scale.toS - scale.fromS) * (90 / Math.max(90, scale.width - LABEL_PX));
  const step = STEPS_S.find((each) => each >= least) || 604800;
  const zone = isReplayTime(scale.fromS) ? 0 : -new Date(scale.fromS * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((scale.fromS + zone) / step) * step - zone; at <= scale.toS; at += step) found.push(at);
  return { found, step };
}

const HATCHES = {
  starting: [[0, 8, 8, 0]],
  saving: [[0, 0, 8, 8]],
  stopping: [[0, 8, 8, 0], [0, 0, 8, 8]],
  releasing: [[0, 4, 8, 4]],
  reserved: [[4, 0, 4, 8]],
};

const patterns = new Map();

function patternOf(context, phase, colour, ground) {
  const key = `${phase} ${colour} ${ground}`;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.fillStyle = ground;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    for (const [x1, y1, x2, y2] of HATCHES[phase]) {
      pen.beginPath();
      for (const shift of [-8, 0, 8]) {
        pen.moveTo(x1 + shift, y1);
        pen.lineTo(x2 + shift, y2);
      }
      pen.stroke();
    }
    patterns.set(key, context.createPattern(tile, "repeat"));
  }
  return patterns.get(key);
}

/** How a span is filled: its job's colour, hatched unless the job trains. */
function fillOf(context, span, look) {
  if (span.phase === "quarantined") return look.bad;
  if (span.phase === "lost") return look.faint;
  const colour = span.job ? markOf(span.job).colour : look.muted;
  if (span.phase === "training" || !(span.phase in HATCHES)) return colour;
  return patternOf(context, span.phase, colour, look.ground);
}

/** Draw the lanes. `look`: colours of the theme; `chosen`: the span that is pointed at; `at`: a time to mark. */
export function draw(context, reshapes, layout, scale, look, chosen, nowS, at) {
  context.clearRect(0, 0, scale.width, layout.height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  drawAxis(context, layout, scale, look);
  for (const row of layout.rows) {
    if (row.host !== undefined) {
      context.fillStyle = look.text;
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(row.host, 2, row.top + row.height / 2 + 2, scale.width - 4);
      context.font = "11px system-ui, sans-serif";
    } else {
      drawLane(context, row, scale, look, chosen, nowS);
    }
  }
  drawReshapes(context, reshapes, layout, scale, look);
  if (at !== null) drawTime(context, layout, scale, look, at);
}

function drawTime(context, layout, scale, look, at) {
  const x = Math.round(scale.x(at)) + 0.5;
  context.strokeStyle = look.text;
  context.lineWidth = 1;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x, AXIS_PX);
  context.lineTo(x, layout.height);
  context.stroke();
  context.setLineDash([]);
}

function drawAxis(context, layout, scale, look) {
  const { found, step } = ticks(scale);
  for (const at of found) {
    const x = Math.round(scale.x(at)) + 0.5;
    context.strokeStyle = look.line;
    context.beginPath();
    context.moveTo(x, 18);
    context.lineTo(x, layout.height);
    context.stroke();
    context.fillStyle = look.muted;
    const text = tickText(at, step);
    const width = context.measureText(text).width;
    context.fillText(text, Math.min(scale.width - width, Math.max(LABEL_PX - 8, x - width / 2)), 9);
  }
}

function tickText(at, step) {
  if (isReplayTime(at)) return sinceBegin(at);
  const date = new Date(at * 1000);
  if (step >= 86400) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const with_s = step < 60 ? { second: "2-digit" } : {};
  return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false, ...with_s });
}

function drawLane(context, row, scale, look, chosen, nowS) {
  const { gpu, top, height } = row;
  context.fillStyle = look.muted;
  context.fillText(`GPU ${gpu.index}`, 8, top + height / 2);
  context.fillStyle = look.lane;
  context.fillRect(LABEL_PX, top + 1, scale.width - LABEL_PX, height - 2);
  for (const span of gpu.spans) {
    const end = span.to_s ?? nowS;
    if (end < scale.fromS || span.from_s > scale.toS) continue;
    const x = scale.x(span.from_s);
    const width = Math.max(1, scale.x(end) - x);
    context.fillStyle = fillOf(context, span, look);
    context.fillRect(x, top + 1, width, height - 2);
    if (width > 3) {
      context.strokeStyle = look.ground;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, top + 1.5, width - 1, height - 3);
    }
    drawLetter(context, span, x, width, row, look);
    if (chosen && chosen.gpu === gpu.id && chosen.span.from_s === span.from_s) {
      context.strokeStyle = look.text;
      context.lineWidth = 2;
      context.strokeRect(x + 1, top + 2, Math.max(2, width - 2), height - 4);
    }
  }
}

function drawLetter(context, span, x, width, row, look) {
  if (row.height < 12 || (!span.job && span.phase !== "quarantined" && span.phase !== "lost")) return;
  const letter = span.phase === "quarantined" ? "▲ quarantined" : span.phase === "lost" ? "✕ lost" : markOf(span.job).letter;
  const wide = context.measureText(letter).width;
  if (width < wide + 6) return;
  const solid = span.phase === "training";
  if (!solid && span.job) {
    context.fillStyle = look.ground;
    context.fillRect(x + 2, row.top + 3, wide + 4, row.height - 6);
  }
  context.fillStyle = solid ? markOf(span.job).text : span.phase === "quarantined" ? look.ground : look.text;
  context.fillText(letter, x + 4, row.top + row.height / 2 + 0.5);
}

function drawReshapes(context, reshapes, layout, scale, look) {
  for (const reshape of reshapes) {
    if (reshape.at < scale.fromS || reshape.at > scale.toS) continue;
    const row = layout.rows.find(({ gpu }) => gpu && gpu.spans.some(
      (span) => span.job === reshape.job && span.from_s <= reshape.at && (span.to_s ?? Infinity) > reshape.at));
    if (!row) continue;
    const x = scale.x(reshape.at);
    const up = reshape.to > reshape.from ? -1 : 1;
    const y = row.top + row.height / 2;
    context.beginPath();
    context.moveTo(x, y + up * 6);
    context.lineTo(x - 6, y - up * 5);
    context.lineTo(x + 6, y - up * 5);
    context.closePath();
    context.fillStyle = look.text;
    context.strokeStyle = look.ground;
    context.lineWidth = 1.5;
    context.stroke();
    context.fill();
  }
}

/** The GPU and span at a point; null if there is none. */
export function find(layout, scale, x, y, nowS) {
  const row = layout.rows.find((each) => each.gpu && y >= each.top && y < each.top + each.height);
  if (!row || x < LABEL_PX) return null;
  const at = scale.at(x);
  const slack = (scale.toS - scale.fromS) * (2 / Math.max(1, scale.width - LABEL_PX));
  const span = row.gpu.spans.find((each) => at >= each.from_s - slack && at <= (each.to_s ?? nowS) + slack);
  return span ? { gpu: row.gpu.id, lane: row.gpu, span } : null;
}
