// Owners of an object, and the objects that it owns.

import {allowed} from './access.js';
import {ageOf, objectLink, plainTable, section} from './parts.js';
import {collectionPath, findResource} from './kinds.js';
import {fill, h} from './dom.js';
import {json} from './api.js';

const metadataList = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1';
const maxListed = 500; // objects of one kind that are looked through

/** What objects of some kinds own, as group/resource. Other kinds are looked for among all of these. */
const owned = {
  'apps/deployments': ['apps/replicasets'],
  'apps/replicasets': ['/pods'],
  'apps/statefulsets': ['/pods', 'apps/controllerrevisions', '/persistentvolumeclaims'],
  'apps/daemonsets': ['/pods', 'apps/controllerrevisions'],
  'batch/cronjobs': ['batch/jobs'],
  'batch/jobs': ['/pods'],
  '/services': ['discovery.k8s.io/endpointslices'],
  '/pods': [],
};
const common = ['/pods', 'apps/deployments', 'apps/statefulsets', 'apps/daemonsets', 'apps/replicasets', 'batch/jobs',
  'batch/cronjobs', '/services', '/configmaps', '/secrets', '/serviceaccounts', '/persistentvolumeclaims'];

/** Returns the label selector that an object's pods have, or ''. */
function selectorOf(object) {
  const labels = object.spec?.selector?.matchLabels;
  return labels ? Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(',') : '';
}

/**
 * Returns the objects of one kind that an object owns, and whether all were looked through.
 * @returns {Promise<{kind: object, items: object[], isWhole: boolean}>}
 */
async function ownedOf(kind, object, signal) {
  const params = {limit: maxListed};
  const selector = selectorOf(object);
  if (selector && ['pods', 'replicasets', 'controllerrevisions'].includes(kind.resource)) {
    params.labelSelector = selector;
  }
  const path = collectionPath(kind, kind.namespaced ? object.metadata.namespace : '');
  const list = await json(`${path}?${new URLSearchParams(params)}`, {accept: metadataList, signal});
  const items = list.items.filter((item) => (item.metadata.ownerReferences ?? [])
    .some((owner) => owner.uid === object.metadata.uid));
  return {kind, items, isWhole: !list.metadata.continue};
}

/** Returns the objects that an object owns, and what could not be read. */
async function findOwned(page, object, signal) {
  const names = owned[`${page.kind.group}/${page.kind.resource}`] ?? common;
  const served = names.map((name) => findResource(...name.split('/'))).filter(Boolean);
  const may = await Promise.all(served.map(({group, resource}) => allowed({verb: 'list', group, resource,
    namespace: object.metadata.namespace ?? ''})));
  const kinds = served.filter((kind, i) => may[i]);
  const results = await Promise.allSettled(kinds.map((kind) => ownedOf(kind, object, signal)));
  const unseen = served.filter((kind, i) => !may[i]).map((kind) => `${kind.resource}: you may not list them`);
  const found = [];
  results.forEach((result, i) => {
    if (result.status === 'rejected') unseen.push(`${kinds[i].resource}: ${result.reason.message}`);
    else found.push(result.value);
    if (result.value?.isWhole === false) unseen.push(`${kinds[i].resource}: only the first ${maxListed} were searched`);
  });
  return {found, unseen};
}

/** Shows the owners and the owned objects of the page's object. */
export function showRelated(panel, page, signal) {
  fill(panel, h('p', {class: 'muted'}, 'Loading…'));
  let isStarted = false;
  page.onObject(async (object) => {
    if (isStarted) return;
    isStarted = true;
    const {found, unseen} = await findOwned(page, object, signal);
    if (signal.aborted) return;
    const owners = (object.metadata.ownerReferences ?? []).map((owner) => [owner.kind,
      objectLink(owner.apiVersion, owner.kind, object.metadata.namespace, owner.name, owner.name),
      owner.controller ? 'yes' : 'no']);
    const rows = found.flatMap(({kind, items}) => items.map((item) => [kind.kind, objectLink(
      kind.group ? `${kind.group}/${kind.version}` : kind.version, kind.kind, item.metadata.namespace,
      item.metadata.name, item.metadata.name), ageOf(item.metadata.creationTimestamp)]));
    fill(panel,
      section('Owners', owners.length > 0 ? plainTable('Owners', ['Kind', 'Name', 'Controller'], owners) :
        h('p', {class: 'muted'}, 'No object owns this one.')),
      section('Owned objects', rows.length > 0 ? plainTable('Owned objects', ['Kind', 'Name', 'Age'], rows) :
        h('p', {class: 'muted'}, 'This object owns no other one.')),
      unseen.length > 0 && section('Not searched', h('ul', null, unseen.map((text) => h('li', null, text)))));
  }, signal);
}
