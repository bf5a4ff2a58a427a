// Lines over time, drawn as SVG: speed, loss, and progress with its predicted end.

import { html } from "./vendor/preact-htm.js";
import { clock, short } from "./text.js";

const WIDTH_MAX = 520;
const HEIGHT = 170;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 10;
const RIGHT = 12;

/**
 * A line. `points`: {x, y}, x in Unix seconds. `dashed`: points of a prediction. `marks`: {x, text}
 * of reshapes. `unit` says what y counts.
 */
export function LineChart({ title, unit, points, dashed = [], marks = [], zero = false }) {
  const all = [...points, ...dashed].filter((point) => Number.isFinite(point.y));
  if (all.length < 2) return html`<figure class="chart"><figcaption>${title}</figcaption><p class="empty">Not reported yet.</p></figure>`;
  const width = Math.min(WIDTH_MAX, Math.max(280, window.innerWidth - 48));
  const xs = all.map((point) => point.x);
  const ys = all.map((point) => point.y);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  let [y0, y1] = [zero ? Math.min(0, ...ys) : Math.min(...ys), Math.max(...ys)];
  if (y1 - y0 < 1e-12) [y0, y1] = [y0 - Math.max(1e-9, Math.abs(y0) * 0.5), y1 + Math.max(1e-9, Math.abs(y1) * 0.5)];
  const x = (at) => LEFT + ((at - x0) / Math.max(1e-9, x1 - x0)) * (width - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((value - y0) / (y1 - y0)) * (HEIGHT - BOTTOM - TOP);
  const path = (line) => line.filter((p) => Number.isFinite(p.y)).map((p, n) => `${n ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("");
  const last = points.filter((point) => Number.isFinite(point.y)).at(-1);
  const label = `${title}: from ${short(ys[0])} to ${short(last ? last.y : ys.at(-1))} ${unit}, least ${short(Math.min(...ys))}, most ${short(Math.max(...ys))}`;
  return html`<figure class="chart"><figcaption>${title} <small>${unit}${last ? `, last report ${short(last.y)}` : ""}</small></figcaption>
    <svg viewBox=${`0 0 ${width} ${HEIGHT}`} role="img" aria-label=${label}>
      ${[y0, (y0 + y1) / 2, y1].map((value) => html`<line class="grid" x1=${LEFT} x2=${width - RIGHT} y1=${y(value)} y2=${y(value)} />
        <text class="tick" x=${LEFT - 6} y=${y(value) + 4} text-anchor="end">${short(value)}</text>`)}
      ${[x0, x1].map((at, n) => html`<text class="tick" x=${x(at)} y=${HEIGHT - 5} text-anchor=${n ? "end" : "start"}>${clock(at)}</text>`)}
      ${marks.filter((mark) => mark.x >= x0 && mark.x <= x1).map((mark) => html`<line class="mark-line" x1=${x(mark.x)} x2=${x(mark.x)} y1=${TOP} y2=${HEIGHT - BOTTOM} />
        <text class="tick" x=${x(mark.x) + 3} y=${TOP + 8}>${mark.text}</text>`)}
      <path class="line" d=${path(points)} />
      ${dashed.length > 1 && html`<path class="line dashed" d=${path(dashed)} />`}
    </svg></figure>`;
}

/** Two bars for each phase: predicted (hatched) and measured (full). */
export function PhaseBars({ costs }) {
  const most = Math.max(...costs.map((cost) => Math.max(cost.predicted_s || 0, cost.measured_s)), 1e-9);
  const width = (seconds) => Math.max(1, (seconds / most) * 100);
  return html`<table class="phases"><caption class="unseen">Seconds of each phase, predicted and measured</caption>
    <thead><tr><th scope="col">Phase</th><th scope="col" class="number">predicted</th><th scope="col" class="number">measured</th><th scope="col" class="wide"><span class="unseen">bars</span></th></tr></thead>
    <tbody>${costs.map((cost) => html`<tr><th scope="row">${cost.phase}${cost.how ? ` (${cost.how})` : ""}</th>
      <td class="number">${cost.predicted_s === null ? "–" : `${cost.predicted_s.toFixed(2)} s`}</td>
      <td class="number">${cost.measured_s.toFixed(2)} s</td>
      <td class="wide bars"><svg viewBox="0 0 100 16" preserveAspectRatio="none" aria-hidden="true">
        ${cost.predicted_s !== null && html`<rect class="predicted" x="0" y="1" height="6" width=${width(cost.predicted_s)} />`}
        <rect class="measured" x="0" y="9" height="6" width=${width(cost.measured_s)} /></svg></td></tr>`)}</tbody></table>
    <p class="note wide"><span class="swatch predicted"></span> predicted <span class="swatch measured"></span> measured</p>`;
}
