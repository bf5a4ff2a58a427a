// The daemon's events as they come. Does: follows the log, each record once, also after a restart
// of the daemon; tells views when to load again. State: the number of the newest record.

import { useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { get, url } from "./api.js";

export const SOON_MS = 150;
const LEAST_MS = 900;
export const LATER_MS = 8000;
const AGAIN_MS = [500, 1000, 2000, 4000, 8000];
const RECENT_MAX = 200;
const RECENT_SHOWN = 50;

class Live {
  constructor() {
    this.status = "off";
    this.seq = null;
    this.recent = [];
    this.readers = new Set();
    this.source = null;
    this.failures = 0;
    this.timer = null;
    this.nextEntry = 0;
    this.run = 0; // an answer for a run before is dropped
  }

  /** Begin with the newest entries of the history; then, if it `follows`, those that come. */
  async start({ follows }) {
    this.stop();
    const run = this.run;
    await this.fill();
    if (follows && run === this.run) this.open();
  }

  /** Load the newest entries of the history. Without an answer the news begin with the next one. */
  async fill() {
    const run = this.run;
    const found = await get("/v1/history", { limit: RECENT_SHOWN }).catch(() => null);
    if (!found || run !== this.run) return;
    this.seq = Math.max(this.seq ?? 0, found.seq);
    this.recent = [];
    this.add(found.events, found.seq);
    this.tell("status", {});
  }

  add(entries, seq) {
    for (const entry of entries) this.recent.unshift({ ...entry, seq, key: this.nextEntry++ });
    this.recent.length = Math.min(this.recent.length, RECENT_MAX);
  }

  stop() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = this.timer = null;
    this.seq = null;
    this.recent = [];
    this.run += 1;
    this.set("off");
  }

  open() {
    this.timer = null;
    this.set(this.failures ? "lost" : "connecting");
    const source = new EventSource(url("/v1/events", { after: this.seq }));
    this.source = source;
    for (const kind of ["ready", "reset", "record"]) {
      source.addEventListener(kind, (event) => this.take(kind, JSON.parse(event.data)));
    }
    source.onerror = () => {
      this.set("lost");
      if (source.readyState !== EventSource.CLOSED) return; // the browser connects again
      source.close();
      this.source = null;
      const wait = AGAIN_MS[Math.min(this.failures++, AGAIN_MS.length - 1)];
      this.timer = setTimeout(() => this.open(), wait);
      get("/v1/whoami").catch(() => {}); // a 401 leads to the login
    };
  }

  take(kind, data) {
    this.failures = 0;
    this.set("live");
    if (kind === "record") {
      if (this.seq !== null && data.seq <= this.seq) return;
      this.add(data.history, data.seq);
    }
    this.seq = kind === "reset" ? data.seq : Math.max(this.seq ?? 0, data.seq);
    if (kind === "reset") this.fill(); // of entries that came meanwhile
    this.tell(kind, data);
  }

  set(status) {
    if (status === this.status) return;
    this.status = status;
    this.tell("status", {});
  }

  tell(kind, data) {
    for (const reader of [...this.readers]) reader(kind, data);
  }
}

export const live = new Live();

/** The state of the connection, and the newest entries of the history. */
export function useFeed() {
  const [, draw] = useState(0);
  useEffect(() => {
    const read = () => draw((count) => count + 1);
    live.readers.add(read);
    return () => live.readers.delete(read);
  }, []);
  return { status: live.status, recent: live.recent };
}

/** How soon a record is followed: one of mere progress later. */
export const anyRecord = (record) => (record.history.length ? SOON_MS : LATER_MS);
/** How soon a record is followed, if it is no mere progress. */
export const anyEntry = (record) => (record.history.length ? SOON_MS : null);

/**
 * What `load(signal)` gives, loaded again when a record says that it may be another.
 *
 * `follow(record, data)`: in how many ms a record is followed; null: it changes nothing here.
 * `everyMs(data)`: load again so often, for what no record says; 0: never. `inputs`: values on
 * which `load` depends.
 */
export function useData(load, inputs, { follow = anyRecord, everyMs = () => 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null });
  const latest = useRef({});
  latest.current = { load, follow, data: state.data };
  const again = useRef(() => {});
  useEffect(() => {
    let timer = null;
    let due = Infinity;
    let begun = 0;
    let abort = null;
    let stopped = false;
    setState((old) => ({ data: null, error: null, before: old.data }));

    const run = async () => {
      timer = null;
      due = Infinity;
      if (document.hidden) return; // it loads when it is looked at
      begun = Date.now();
      if (abort) abort.abort();
      const mine = (abort = new AbortController());
      try {
        const data = await latest.current.load(mine.signal);
        if (!stopped && !mine.signal.aborted) setState({ data, error: null });
      } catch (error) {
        if (stopped || mine.signal.aborted) return;
        setState((old) => ({ data: old.data, error }));
        if (!error.status) within(5000);
      }
      const ms = stopped ? 0 : everyMs(latest.current.data);
      if (ms) within(ms);
    };
    const within = (ms) => {
      const at = Math.max(Date.now() + ms, begun + LEAST_MS);
      if (at >= due) return;
      clearTimeout(timer);
      due = at;
      timer = setTimeout(run, at - Date.now());
    };
    const read = (kind, data) => {
      if (kind === "ready" || kind === "reset") within(SOON_MS);
      const ms = kind === "record" ? latest.current.follow(data, latest.current.data) : null;
      if (ms !== null) within(ms);
    };
    const seen = () => !document.hidden && within(0);
    again.current = () => within(0);
    live.readers.add(read);
    document.addEventListener("visibilitychange", seen);
    run();
    return () => {
      stopped = true;
      clearTimeout(timer);
      if (abort) abort.abort();
      live.readers.delete(read);
      document.removeEventListener("visibilitychange", seen);
    };
  }, inputs);
  return { ...state, again: () => again.current() };
}
