// Numbers and times as text for people.

import { nowS } from "./api.js";

/** A span of time: 12 s, 4 min 5 s, 3 h 20 min, 2 d 4 h. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${span(-seconds)}`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return join(s, 60, "min", 1, "s");
  if (s < 86400) return join(s, 3600, "h", 60, "min");
  return join(s, 86400, "d", 3600, "h");
}

function join(s, large, largeName, small, smallName) {
  const rest = Math.floor((s % large) / small);
  return `${Math.floor(s / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

const REPLAY_BEFORE_S = 1e8;

/** Whether a time is one of a replay, which counts from its begin. */
export function isReplayTime(at) {
  return at < REPLAY_BEFORE_S;
}

/** Hours, minutes and seconds since the begin of a replay. */
export function sinceBegin(at) {
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  return `${Math.floor(at / 3600)}:${two((at % 3600) / 60)}:${two(at % 60)}`;
}

/** A time of day, with its date if that is another day than today. */
export function clock(at) {
  if (at === null || at === undefined) return "–";
  if (isReplayTime(at)) return sinceBegin(at);
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const today = new Date(nowS() * 1000).toDateString() === date.toDateString();
  const local = new Date(date - date.getTimezoneOffset() * 60000);
  return today ? time : `${local.toISOString().slice(0, 10)} ${time}`;
}

/** When it will be, or was: "in 5 min", "3 h ago". */
export function fromNow(at) {
  if (at === null || at === undefined) return "–";
  const left = at - nowS();
  if (Math.abs(left) < 1) return "now";
  return left >= 0 ? `in ${span(left)}` : `${span(-left)} ago`;
}

const OLD_S = 86400;

/** The age of something in whole seconds: "12 s ago"; of an old one its date. */
export function age(at) {
  const seconds = Math.max(0, Math.round(nowS() - at));
  return seconds < OLD_S ? `${seconds < 10 ? `${seconds} s` : span(seconds)} ago` : clock(at);
}

export function percent(ratio) {
  return ratio === null || ratio === undefined ? "–" : `${(100 * ratio).toFixed(ratio < 0.1 ? 1 : 0)} %`;
}

/** How many steps a job has lost, as far as it is known. */
export function lostSteps({ steps_lost: steps, steps_lost_known: known }) {
  if (known) return count(steps, "step");
  return steps ? `at least ${count(steps, "step")}` : "an unknown number of steps";
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function short(number) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e5 || size < 1e-3) return number.toExponential(2);
  return String(Number(number.toPrecision(4)));
}

export function hours(gpuSeconds) {
  return (gpuSeconds / 3600).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

/** A state as people read it. */
export function stateText(state) {
  return state === "halted" ? "paused" : state;
}
