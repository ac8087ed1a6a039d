// Asks the server which requests the visitor may make, so that pages show no action that would fail.

import {json} from './api.js';

const maxBatch = 100; // checks in one request

const maxRecent = 2000; // answers
const lifetime = 30_000; // milliseconds in which an answer is used again

/** @type {Map<string, {at: number, answer: Promise<boolean>}>} */
const recent = new Map();

/** @type {Array<{check: object, resolve: (allowed: boolean) => void}>} */
let waiting = [];

async function flush() {
  const batch = waiting.splice(0, maxBatch);
  if (waiting.length > 0) queueMicrotask(flush);
  let answers = [];
  try {
    answers = await json('/api/access', {method: 'POST', body: batch.map((entry) => entry.check)});
  } catch {
    // An unknown answer hides the action, since it might fail. It is asked for again.
    recent.clear();
  }
  batch.forEach((entry, i) => entry.resolve(answers[i] === true));
}

/**
 * Reports whether the visitor may make a request. Calls of the same moment share one request.
 * @param {{verb: string, group?: string, resource: string, subresource?: string, namespace?: string, name?: string}}
 *   check
 * @returns {Promise<boolean>}
 */
export function allowed(check) {
  const whole = {group: '', subresource: '', namespace: '', name: '', ...check};
  const key = JSON.stringify(Object.entries(whole).sort());
  const known = recent.get(key);
  if (known && performance.now() - known.at < lifetime) return known.answer;
  const answer = new Promise((resolve) => {
    waiting.push({check: whole, resolve});
    if (waiting.length === 1) queueMicrotask(flush);
  });
  if (recent.size > maxRecent) recent.clear();
  recent.set(key, {at: performance.now(), answer});
  return answer;
}

/** Reports whether all requests are allowed. */
export async function allAllowed(checks) {
  return (await Promise.all(checks.map(allowed))).every(Boolean);
}
