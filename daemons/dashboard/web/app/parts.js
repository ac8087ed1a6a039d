// Parts that several pages show: tables of plain rows, labels, links to objects, conditions.

import {age, localTime, tone} from './format.js';
import {h} from './dom.js';
import {urlOf} from './kinds.js';

/**
 * Returns a table of rows that fit on a page.
 * @param {string} label
 * @param {string[]} heads
 * @param {Array<Array<any>>} rows cells are texts or elements
 */
export function plainTable(label, heads, rows) {
  return h('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label}, h('table', null,
    h('thead', null, h('tr', null, heads.map((head) => h('th', {scope: 'col'}, head)))),
    h('tbody', null, rows.map((row) => h('tr', null, row.map((cell) => h('td', null, cell)))))));
}

/** Returns a section with a heading, or null if it has no content. */
export function section(title, ...content) {
  return content.flat().some(Boolean) ? h('section', null, h('h2', null, title), content) : null;
}

/**
 * Returns a list of terms and descriptions. Descriptions that are empty are left out.
 * @param {Array<[string, any]>} entries
 */
export function facts(entries) {
  const isEmpty = (value) => value === undefined || value === null || value === '' || value === false ||
    (Array.isArray(value) && value.length === 0);
  const shown = entries.filter(([, value]) => !isEmpty(value));
  return h('dl', {class: 'facts'}, shown.map(([term, value]) => [h('dt', null, term), h('dd', null, value)]));
}

/** Returns labels or annotations as a list of chips. */
export function chips(map) {
  const entries = Object.entries(map ?? {});
  if (entries.length === 0) return null;
  return h('ul', {class: 'chips'}, entries.map(([key, value]) => h('li', {title: `${key}: ${value}`},
    h('span', {class: 'muted'}, `${key}: `), value)));
}

/** Returns a status with its mark. */
export function status(text, kind = tone(text)) {
  return h('span', {class: `status ${kind}`}, text);
}

/** Returns a link to an object that apiVersion and kind name, or its name if the kind is not served. */
export function objectLink(apiVersion, kind, namespace, name, text = `${kind} ${name}`) {
  const address = urlOf(apiVersion, kind, namespace, name);
  return address ? h('a', {href: address}, text) : text;
}

/** Returns a time as an age, with the time as its tooltip. */
export function ageOf(time) {
  return time ? h('time', {datetime: time, title: localTime(time)}, age(time)) : '';
}

/** Returns a table of conditions. */
export function conditions(list) {
  if (!Array.isArray(list) || list.length === 0) return null;
  return plainTable('Conditions', ['Type', 'Status', 'Reason', 'Message', 'Since'], list.map((c) => [c.type,
    status(c.status, conditionTone(c)), c.reason ?? '', c.message ?? '', ageOf(c.lastTransitionTime)]));
}

/** Returns how a condition is shown: some are good when they are False. */
function conditionTone(condition) {
  const isProblem = /(Pressure|Failure|Failed|Unavailable|Stalled|Dangling|Disrupt|Conflict|Terminating)/
    .test(condition.type);
  if (condition.status === 'Unknown') return 'warn';
  if (/^(Suspended|Reconciling|Progressing|Complete|SuccessCriteriaMet)$/.test(condition.type) &&
    condition.status === 'False') return '';
  return (condition.status === 'True') === isProblem ? 'bad' : 'ok';
}
