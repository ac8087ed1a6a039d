// Nodes with their capacity, requests, usage and pressure, and what can be done with them.

import {bytes, cores} from './format.js';
import {fill, h, setText} from './dom.js';
import {findResource, objectURL} from './kinds.js';
import {get} from './api.js';
import {actionsFor} from './actions.js';
import {pause} from './watch.js';
import {shell} from './shell.js';

const refresh = 5000; // milliseconds
const maxShown = 300; // rows; the table of all nodes is a live one

/** Shows the nodes. */
export async function showNodes(place, {query, signal}) {
  shell.setTitle('Nodes');
  const filter = h('input', {type: 'search', class: 'filter', placeholder: 'Filter', 'aria-label': 'Filter',
    'data-filter': true, spellcheck: 'false', value: query.get('filter') ?? ''});
  const counter = h('span', {class: 'muted count', role: 'status', 'aria-live': 'polite'}, 'Loading…');
  const problem = h('div', {class: 'note bad', role: 'alert', hidden: true});
  const body = h('tbody');
  const heads = ['Node', 'State', 'CPU', 'Memory', 'Pods', 'Version', 'Address', 'Actions'];
  fill(place, h('div', {class: 'toolbar'}, filter, counter, h('a', {class: 'button quiet',
    href: '/p/list/core/v1/nodes'}, 'All columns')), problem,
    h('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Nodes'},
    h('table', {class: 'nodes'}, h('thead', null, h('tr', null, heads.map((head) => h('th', {scope: 'col'}, head)))),
      body)));
  const rows = new Map(); // by name
  let nodes = [];
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matched = nodes.filter((node) => words.every((word) => JSON.stringify([node.name, node.roles, node.version,
      node.address, stateOf(node).text]).toLowerCase().includes(word)));
    drawRows(body, rows, matched.slice(0, maxShown));
    setText(counter, matched.length === nodes.length ? `${nodes.length}` : `${matched.length} of ${nodes.length}`);
    if (matched.length > maxShown) setText(counter, `${counter.textContent}, the first ${maxShown} are shown`);
  };
  filter.addEventListener('input', () => {
    shell.setQuery({filter: filter.value});
    draw();
  });
  while (!signal.aborted) {
    try {
      nodes = await get('/api/nodes', undefined, signal);
      problem.hidden = true;
      draw();
    } catch (err) {
      if (signal.aborted) return;
      problem.hidden = false;
      setText(problem, err.message);
    }
    await pause(refresh, AbortSignal.any([signal, changed()]));
  }
}

/** Returns a signal that aborts when the visitor has changed an object. */
function changed() {
  const controller = new AbortController();
  document.addEventListener('changed', () => controller.abort(), {once: true});
  return controller.signal;
}

/** Returns what a node's state is called and how it is shown. */
function stateOf(node) {
  if (!node.ready) return {text: 'Not ready', kind: 'bad'};
  if ((node.pressures ?? []).length > 0) return {text: node.pressures.join(', '), kind: 'bad'};
  return node.schedulable ? {text: 'Ready', kind: 'ok'} : {text: 'Cordoned', kind: 'warn'};
}

/** Draws rows in place by name, so that updates never lose a click. */
function drawRows(body, rows, nodes) {
  const names = new Set(nodes.map((node) => node.name));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    row.element.remove();
    rows.delete(name);
  }
  nodes.forEach((node, i) => {
    if (!rows.has(node.name)) rows.set(node.name, newRow(node));
    const row = rows.get(node.name);
    if (body.children[i] !== row.element) body.insertBefore(row.element, body.children[i] ?? null);
    row.update(node);
  });
}

function newRow(first) {
  const kind = findResource('', 'nodes');
  const ref = {...kind, namespace: '', name: first.name};
  const state = h('span', {class: 'status'});
  const cells = {cpu: gauge('CPU', cores), memory: gauge('Memory', bytes), pods: gauge('Pods', String)};
  const version = h('td');
  const address = h('td', {class: 'mono'});
  const actions = h('td', {class: 'row-actions'});
  const element = h('tr', null,
    h('td', null, h('a', {href: objectURL(ref)}, first.name),
      h('div', {class: 'muted'}, (first.roles ?? []).join(', '))),
    h('td', null, state), h('td', null, cells.cpu.element), h('td', null, cells.memory.element),
    h('td', null, cells.pods.element), version, address, actions);
  let shown = '';
  const update = (node) => {
    const {text, kind: tone} = stateOf(node);
    setText(state, text);
    state.className = `status ${tone}`;
    cells.cpu.update(node.usage?.cpu, node.requests?.cpu, node.allocatable?.cpu ?? node.capacity?.cpu);
    cells.memory.update(node.usage?.memory, node.requests?.memory, node.allocatable?.memory ?? node.capacity?.memory);
    cells.pods.update(undefined, node.requests?.pods, node.allocatable?.pods ?? node.capacity?.pods);
    setText(version, node.version ?? '');
    setText(address, node.address ?? '');
    if (shown === String(node.schedulable)) return;
    shown = String(node.schedulable);
    drawActions(actions, {kind, ref, isRow: true}, node);
  };
  return {element, update};
}

async function drawActions(place, page, node) {
  const object = {metadata: {name: node.name}, spec: {unschedulable: !node.schedulable}};
  const actions = (await actionsFor(page, object)).filter((action) => ['Cordon', 'Uncordon', 'Drain']
    .includes(action.label));
  fill(place, actions.map((action) => h('button', {type: 'button', class: action.danger ? 'danger-quiet' : 'quiet',
    'aria-label': `${action.label} ${node.name}`, on: {click: () => action.run(object)}}, action.label)));
}

/** Returns a gauge of usage and requests, as parts of what can be allocated. */
function gauge(label, format) {
  const used = h('i', {class: 'used'});
  const requested = h('i', {class: 'requested'});
  const text = h('div', {class: 'gauge-text'});
  const element = h('div', {class: 'gauge', role: 'group', 'aria-label': label}, text,
    h('span', {class: 'bar', 'aria-hidden': 'true'}, requested, used));
  const percent = (n, whole) => (n === undefined || !whole ? 0 : Math.min(100, (n / whole) * 100));
  return {element, update: (usage, requests, whole) => {
    used.style.width = `${percent(usage, whole)}%`;
    requested.style.width = `${percent(requests, whole)}%`;
    element.classList.toggle('full', percent(usage ?? requests, whole) > 90);
    const first = usage === undefined ? '' : `${format(usage)} used · `;
    setText(text, `${first}${format(requests ?? 0)} of ${format(whole ?? 0)}`);
    element.title = `${first}${format(requests ?? 0)} requested of ${format(whole ?? 0)}`;
  }};
}
