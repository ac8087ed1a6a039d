// The events of one object.

import {ageOf, plainTable, status} from './parts.js';
import {fill, h} from './dom.js';
import {collectionPath} from './kinds.js';
import {watchList} from './watch.js';

const maxShown = 200;

function lastSeen(event) {
  return event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp;
}

/** Shows the events of a page's object, newest first. */
export function showEvents(panel, page, signal) {
  const {ref, kind} = page;
  // Events of nodes and other objects without a namespace are in the namespace default.
  const path = collectionPath({group: '', version: 'v1', resource: 'events'}, ref.namespace || 'default');
  const selector = `involvedObject.name=${ref.name},involvedObject.kind=${kind.kind}`;
  fill(panel, h('p', {class: 'muted'}, 'Loading…'));
  const draw = (events) => {
    if (signal.aborted) return;
    if (events.length === 0) {
      fill(panel, h('p', {class: 'muted'}, 'There are no recent events. The API server keeps events for an hour.'));
      return;
    }
    const sorted = events.toSorted((a, b) => (lastSeen(a) < lastSeen(b) ? 1 : -1)).slice(0, maxShown);
    fill(panel, plainTable('Events', ['Type', 'Reason', 'Message', 'Count', 'Last seen'], sorted.map((event) => [
      status(event.type), event.reason, event.message, String(event.series?.count ?? event.count ?? 1),
      ageOf(lastSeen(event))])));
  };
  watchList(path, {fieldSelector: selector}, draw,
    (err) => { if (!signal.aborted) fill(panel, h('p', {class: 'note bad'}, err.message)); }, signal);
}
