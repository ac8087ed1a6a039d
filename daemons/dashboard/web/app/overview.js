// The overview: whether everything is well, and what is not.

import {fill, h} from './dom.js';
import {get} from './api.js';
import {count, plural} from './format.js';
import {drawMetrics} from './plots.js';
import {resourceURL} from './kinds.js';
import {pause} from './watch.js';
import {section} from './parts.js';
import {shell} from './shell.js';

const refresh = 5000; // milliseconds

/** Shows the overview. */
export async function showOverview(place, {signal}) {
  shell.setTitle('Overview');
  const verdict = h('div', {class: 'verdict-line', role: 'status', 'aria-live': 'polite'});
  const tiles = h('div', {class: 'tiles'});
  const problems = h('div', {class: 'problems'});
  fill(place, verdict, tiles, problems, section('Last hour', drawMetrics({scope: 'cluster'}, signal)));
  const elements = new Map();
  while (!signal.aborted) {
    try {
      const overview = await get('/api/overview', undefined, signal);
      drawVerdict(verdict, overview);
      drawTiles(tiles, overview);
      drawProblems(problems, overview, elements);
    } catch (err) {
      if (signal.aborted) return;
      fill(verdict, h('p', {class: 'note bad'}, err.message));
    }
    await pause(refresh, signal);
  }
}

function drawVerdict(place, {problems = [], problemsTotal = 0, unseen}) {
  const errors = problems.filter((p) => p.severity === 'error').length;
  const [kind, text] = problemsTotal === 0 ? ['ok', 'Everything that you can see is well.'] :
    [errors > 0 ? 'bad' : 'warn', `${plural(problemsTotal, 'problem')} found.`];
  const hidden = (unseen ?? []).length > 0 && ` Not visible to you: ${unseen.join(', ')}.`;
  if (place.textContent === text + (hidden || '')) return;
  fill(place, h('p', {class: `verdict ${kind}`}, text, hidden && h('span', {class: 'muted'}, hidden)));
}

/** Returns the tiles: title, address, the number, the whole, more text, and how many are not well. */
function tilesOf({nodes, pods, workloads, volumes, sources}) {
  return [
    ['Nodes', '/p/nodes', nodes?.ready, nodes?.total, 'ready'],
    ['Workloads', '/p/workloads', workloads?.available, workloads?.total, 'available'],
    ['Pods', '/p/pods', pods?.running, pods?.total, ['running', pods?.pending > 0 && `${count(pods.pending)} pending`,
      pods?.failed > 0 && `${count(pods.failed)} failed`].filter(Boolean).join(', '),
    (pods?.pending ?? 0) + (pods?.failed ?? 0)],
    ['Volumes', '/p/storage', volumes?.bound, volumes?.total, 'bound'],
    ['Git sources', '/p/gitops', sources?.ready, sources?.total, 'ready'],
  ].filter(([, , , total]) => total !== undefined);
}

function drawTiles(place, overview) {
  const text = JSON.stringify(tilesOf(overview));
  if (place.shown === text) return; // a redraw would take the focus
  place.shown = text;
  fill(place, tilesOf(overview).map(([title, address, good, total, more, bad = total - good]) => {
    const bar = h('i');
    bar.style.width = `${total > 0 ? (1 - bad / total) * 100 : 100}%`;
    return h('a', {class: 'tile', href: address}, h('span', {class: 'title'}, title),
      h('span', {class: 'number'}, count(good), h('span', {class: 'muted'}, ` / ${count(total)}`)),
      h('span', {class: bad === 0 ? 'bar' : 'bar part', 'aria-hidden': 'true'}, bar),
      h('span', {class: 'muted'}, more));
  }));
}

/** Draws the problems. Those that stay keep their elements, so that updates never lose a click. */
function drawProblems(place, {problems = [], problemsTotal = 0}, elements) {
  const seen = new Set();
  const rows = problems.map(({severity, object, message}) => {
    const key = JSON.stringify([severity, object, message]);
    seen.add(key);
    if (!elements.has(key)) elements.set(key, problemRow(severity, object, message));
    return elements.get(key);
  });
  for (const key of elements.keys()) {
    if (!seen.has(key)) elements.delete(key);
  }
  if (rows.length === 0) {
    place.replaceChildren();
    return;
  }
  if (!place.list) {
    place.list = h('ul', {class: 'problem-list'});
    place.more = h('p', {class: 'muted'});
  }
  if (!place.contains(place.list)) fill(place, h('h2', null, 'What is not well'), place.list, place.more);
  rows.forEach((row, i) => {
    if (place.list.children[i] !== row) place.list.insertBefore(row, place.list.children[i] ?? null);
  });
  while (place.list.children.length > rows.length) place.list.lastChild.remove();
  place.more.textContent = problemsTotal > problems.length ? `${count(problemsTotal - problems.length)} more.` : '';
}

function problemRow(severity, object, message) {
  const address = resourceURL(object.group, object.resource, object.namespace, object.name);
  const name = `${object.namespace ? `${object.namespace}/` : ''}${object.name}`;
  return h('li', null, h('span', {class: `status ${severity === 'error' ? 'bad' : 'warn'}`}, severity === 'error' ?
    'Error' : 'Warning'), h('span', {class: 'what'}, h('span', {class: 'muted'}, `${object.kind} `),
    address ? h('a', {href: `${address}?tab=why`}, name) : name), h('span', {class: 'message-text'}, message));
}
