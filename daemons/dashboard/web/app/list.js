// Pages with one live table: a filter, the number of objects, and tabs for related kinds.

import {button, fill, h, setText} from './dom.js';
import {LiveTable, countText} from './table.js';
import {findResource, listURL, lookUp, objectURL} from './kinds.js';
import {shell} from './shell.js';

const filterDelay = 150; // milliseconds after the last key

/** The pages of the navigation that show kinds, each with its tabs as group/resource. */
export const lists = {
  workloads: {title: 'Workloads', tabs: ['apps/deployments', 'apps/statefulsets', 'apps/daemonsets', 'batch/jobs',
    'batch/cronjobs', 'apps/replicasets']},
  pods: {title: 'Pods', tabs: ['/pods']},
  network: {title: 'Network', tabs: ['/services', 'networking.k8s.io/ingresses', 'gateway.networking.k8s.io/gateways',
    'gateway.networking.k8s.io/httproutes', 'discovery.k8s.io/endpointslices', 'networking.k8s.io/networkpolicies']},
  storage: {title: 'Storage', tabs: ['/persistentvolumeclaims', '/persistentvolumes', 'storage.k8s.io/storageclasses']},
  config: {title: 'Configuration', tabs: ['/configmaps', '/secrets']},
  events: {title: 'Events', tabs: ['/events'], sort: 'last seen'},
};

function tabKinds(list) {
  return list.tabs.map((tab) => findResource(...tab.split('/'))).filter(Boolean);
}

/** Shows a page of the navigation. */
export function showList(name) {
  return (place, context) => {
    const list = lists[name];
    const kinds = tabKinds(list);
    if (kinds.length === 0) throw new Error('The API does not serve these kinds, or you may not read them.');
    const chosen = kinds.find((k) => k.resource === context.query.get('kind')) ?? kinds[0];
    showTable(place, context, {title: list.title, kinds, chosen, sort: list.sort,
      tabURL: (kind) => `/p/${name}?kind=${encodeURIComponent(kind.resource)}`});
  };
}

/** Shows the objects of any kind. */
export async function showKind(place, context) {
  const [group, version, resource] = context.params;
  const kind = await lookUp(group === 'core' ? '' : group, resource, version);
  if (!kind) throw new Error(`The API does not serve ${resource}.`);
  showTable(place, context, {title: kind.kind, kinds: [kind], chosen: kind, tabURL: listURL});
}

function drawTabs(kinds, chosen, tabURL) {
  if (kinds.length < 2) return null;
  return h('nav', {class: 'tabs', 'aria-label': 'Kinds'}, kinds.map((kind) => h('a', {
    href: shell.withNamespace(tabURL(kind)), 'aria-current': kind === chosen ? 'page' : null}, pluralKind(kind))));
}

/** Returns the name of a kind's objects, such as Network policies. */
export function pluralKind(kind) {
  const words = kind.kind.replace(/([a-z])([A-Z])/g, '$1 $2').split(' ');
  const name = words.map((word, i) => (i > 0 && !/^[A-Z]+$/.test(word) ? word.toLowerCase() : word)).join(' ');
  const compact = name.replace(/^(Stateful|Daemon|Replica) set$/, '$1Set').replace('Config map', 'ConfigMap')
    .replace('Cron job', 'CronJob').replace('Endpoint slice', 'EndpointSlice').replace('HTTProute', 'HTTPRoute');
  if (/[^aeiou]y$/.test(compact)) return `${compact.slice(0, -1)}ies`;
  if (/(s|x|ss)$/.test(compact)) return compact.endsWith('Endpoints') ? compact : `${compact}es`;
  return `${compact}s`;
}

function showTable(place, context, {title, kinds, chosen, sort, tabURL}) {
  const {query, signal} = context;
  const namespace = chosen.namespaced ? query.get('ns') ?? '' : '';
  shell.setTitle(title, {namespaced: chosen.namespaced});
  const counter = h('span', {class: 'muted count', role: 'status', 'aria-live': 'polite'}, 'Loading…');
  const note = h('div', {class: 'note', hidden: true, role: 'alert'});
  const filter = h('input', {type: 'search', class: 'filter', 'aria-label': 'Filter', 'data-filter': true,
    placeholder: 'Filter: words, label:app=web, status:Running', spellcheck: 'false', autocomplete: 'off',
    value: query.get('filter') ?? ''});
  const link = (row) => objectURL({...chosen, namespace: row.namespace, name: row.name});
  const table = new LiveTable({
    label: pluralKind(chosen),
    spec: {group: chosen.group, version: chosen.version, resource: chosen.resource, namespace,
      filter: filter.value, sort: query.get('sort') ?? sort ?? 'name'},
    showNamespace: chosen.namespaced && namespace === '',
    isWide: query.get('wide') === '1',
    link, open: (row) => shell.go(link(row)),
    onSort: (value) => shell.setQuery({sort: value}),
    onFrame: (frame) => report(frame, {counter, note, table, empty: () => filter.value !== ''}),
  }, signal);
  let timer = 0;
  filter.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (signal.aborted) return;
      shell.setQuery({filter: filter.value});
      table.change({filter: filter.value});
    }, filterDelay);
  });
  filter.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== 'ArrowDown') return;
    event.preventDefault();
    table.element.focus();
  });
  const wide = button('More columns', () => {
    const isWide = wide.getAttribute('aria-pressed') !== 'true';
    wide.setAttribute('aria-pressed', String(isWide));
    table.setWide(isWide);
    shell.setQuery({wide: isWide ? '1' : ''});
  }, {'aria-pressed': String(query.get('wide') === '1'), class: 'quiet'});
  place.classList.add('fixed');
  signal.addEventListener('abort', () => place.classList.remove('fixed'));
  fill(place, drawTabs(kinds, chosen, tabURL), h('div', {class: 'toolbar'}, filter, counter, wide), note,
    table.element);
}

/** Shows what a frame tells besides its rows: how many there are, that the connection is lost, or an error. */
function report(frame, {counter, note, table, empty}) {
  note.classList.toggle('bad', Boolean(frame.error));
  if (frame.error) {
    note.hidden = false;
    setText(note, frame.error.message);
    setText(counter, '');
    if (table) table.element.hidden = true;
    return;
  }
  note.hidden = frame.state !== 'reconnecting';
  if (frame.state === 'reconnecting') setText(note, 'The connection is lost. Connecting again…');
  if (frame.matched === undefined || (frame.state === 'loading' && frame.total === 0)) return;
  setText(counter, countText(frame));
  if (frame.matched === 0 && frame.state === 'live') {
    note.hidden = false;
    setText(note, empty() ? 'No object matches the filter.' : 'There are no objects.');
  }
}
