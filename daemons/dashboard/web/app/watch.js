// Follows objects through the proxy, by the watches of the API server.

import {ApiError, json, send} from './api.js';

const firstPause = 1000; // milliseconds before a broken watch is started again
const longestPause = 30_000;
const pageSize = 500; // objects in one answer
const maxItems = 5000;
const pollInterval = 10_000; // without the right to watch

/** Waits for a time in milliseconds, or until signal aborts. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    }, {once: true});
  });
}

/**
 * Calls onLine for each line of a response's body.
 * @param {Response} response
 * @param {(line: string) => void} onLine
 */
export async function readLines(response, onLine) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    lines.forEach(onLine);
  }
  if (rest) onLine(rest);
}

/** Waits until the page is visible, or signal aborts. */
function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, {once: true, signal});
    signal.addEventListener('abort', resolve, {once: true});
  });
}

function query(params) {
  return `?${new URLSearchParams(params)}`;
}

/** Reads a collection page by page. The watch begins at its revision, since those of its objects may be too old. */
async function listAll(path, params, signal) {
  const items = new Map();
  let next = '';
  let resourceVersion = '';
  do {
    const list = await json(path + query({...params, limit: pageSize, ...(next && {continue: next})}), {signal});
    // Items of a list have no kind of their own.
    const type = {kind: list.kind.replace(/List$/, ''), apiVersion: list.apiVersion};
    for (const item of list.items ?? []) items.set(item.metadata.uid, {...type, ...item});
    next = list.metadata.continue ?? '';
    resourceVersion = list.metadata.resourceVersion;
  } while (next && items.size < maxItems);
  return {items, resourceVersion};
}

/**
 * Reads a collection and follows its changes until signal aborts.
 * @param {string} path of the collection
 * @param {Object<string, string>} params such as fieldSelector
 * @param {(items: object[]) => void} onItems is called with all objects after each change
 * @param {(err: Error) => void} onError is called when the collection cannot be read; reading goes on
 * @param {AbortSignal} signal
 */
export async function watchList(path, params, onItems, onError, signal) {
  let wait = firstPause;
  while (!signal.aborted) {
    try {
      const {items, resourceVersion} = await listAll(path, params, signal);
      onItems([...items.values()]);
      wait = firstPause;
      await follow(path, params, resourceVersion, items, onItems, signal);
    } catch (err) {
      if (signal.aborted) return;
      if (!(err instanceof ApiError) || err.code !== 410) onError(err);
      if (err.code === 403 || err.code === 404) wait = longestPause;
    }
    await pause(wait, signal);
    await visible(signal);
    wait = Math.min(wait * 2, longestPause);
  }
}

/**
 * Applies the events of one watch to items. Returns when the server ends the watch, or when the page is hidden:
 * browsers allow few connections, so that hidden pages must not use them up.
 */
async function follow(path, params, resourceVersion, items, onItems, signal) {
  const hidden = new AbortController();
  const stop = () => { if (document.hidden) hidden.abort(); };
  document.addEventListener('visibilitychange', stop, {signal});
  try {
    await readEvents(path, params, resourceVersion, items, onItems, AbortSignal.any([signal, hidden.signal]));
  } catch (err) {
    if (!hidden.signal.aborted || signal.aborted) throw err;
  } finally {
    document.removeEventListener('visibilitychange', stop);
  }
}

async function readEvents(path, params, resourceVersion, items, onItems, signal) {
  const watchParams = {...params, watch: 'true', resourceVersion, allowWatchBookmarks: 'true'};
  const response = await send(path + query(watchParams), {signal, timeout: 0});
  let isAnnounced = true;
  const announce = () => {
    isAnnounced = true;
    if (!signal.aborted) onItems([...items.values()]);
  };
  await readLines(response, (line) => {
    const event = JSON.parse(line);
    if (event.type === 'ERROR') throw new ApiError(event.object.code, event.object.reason, event.object.message);
    if (event.type === 'BOOKMARK') return;
    if (event.type === 'DELETED') items.delete(event.object.metadata.uid);
    else items.set(event.object.metadata.uid, event.object);
    if (isAnnounced) {
      isAnnounced = false;
      setTimeout(announce, 100);
    }
  });
}

/**
 * Reads an object and follows its changes until signal aborts. Without the right to watch, it reads at intervals.
 * @param {string} collection path of the object's collection
 * @param {string} name
 * @param {(object: object|null) => void} onObject is called with null when the object does not exist
 * @param {(err: Error) => void} onError
 * @param {AbortSignal} signal
 * @param {boolean} mayWatch whether the visitor may list and watch the object, and the kind can be watched
 */
export async function watchObject(collection, name, onObject, onError, signal, mayWatch) {
  if (mayWatch) {
    const report = (items) => onObject(items.at(-1) ?? null);
    await watchList(collection, {fieldSelector: `metadata.name=${name}`}, report, onError, signal);
    return;
  }
  while (!signal.aborted) {
    try {
      onObject(await json(`${collection}/${encodeURIComponent(name)}`, {signal}));
    } catch (err) {
      if (signal.aborted) return;
      if (err.code === 404) onObject(null);
      else onError(err);
    }
    await pause(pollInterval, signal);
    await visible(signal);
  }
}
