// Rolls a workload back to an earlier revision of its pod template.

import {age} from './format.js';
import {announce, ask} from './dialog.js';
import {collectionPath, objectPath} from './kinds.js';
import {drawChanges} from './changes.js';
import {fill, h, uniqueID} from './dom.js';
import {json, patch} from './api.js';
import {toYAML} from './yaml.js';

const revisionAnnotation = 'deployment.kubernetes.io/revision';
const maxRevisions = 500; // of all workloads with these labels

/**
 * @typedef {{number: number, created: string, template: object, apply: () => Promise<any>}} Revision
 */

/** Reads the objects of a kind that the workload owns. */
async function history(page, object, resource) {
  const selector = Object.entries(object.spec.selector.matchLabels ?? {}).map(([k, v]) => `${k}=${v}`).join(',');
  const path = collectionPath({group: 'apps', version: 'v1', resource}, page.ref.namespace);
  const list = await json(`${path}?${new URLSearchParams({labelSelector: selector, limit: maxRevisions})}`);
  return list.items.filter((item) => (item.metadata.ownerReferences ?? [])
    .some((owner) => owner.uid === object.metadata.uid));
}

/** Returns the revisions of a Deployment, which are its ReplicaSets. */
async function deploymentRevisions(page, object) {
  const sets = await history(page, object, 'replicasets');
  return sets.map((set) => {
    const template = structuredClone(set.spec.template);
    delete template.metadata?.labels?.['pod-template-hash'];
    return {number: Number(set.metadata.annotations?.[revisionAnnotation] ?? 0), template,
      created: set.metadata.creationTimestamp,
      apply: () => patch(objectPath(page.ref), [
        {op: 'test', path: '/metadata/uid', value: object.metadata.uid},
        {op: 'replace', path: '/spec/template', value: template}], 'json')};
  });
}

/** Returns the revisions of a StatefulSet or DaemonSet. Each is stored as a patch of the template. */
async function controllerRevisions(page, object) {
  const revisions = await history(page, object, 'controllerrevisions');
  return revisions.map((revision) => ({number: revision.revision, created: revision.metadata.creationTimestamp,
    template: revision.data?.spec?.template ?? {},
    apply: () => patch(objectPath(page.ref), revision.data, 'strategic-merge')}));
}

/** Returns a value with sorted keys and without null, so that equal templates have equal texts. */
function canonical(value) {
  if (Array.isArray(value)) return value.map(canonical);
  if (value === null || typeof value !== 'object') return value;
  const entries = Object.entries(value).filter(([key, item]) => item !== null && key !== '$patch');
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, item]) => [key, canonical(item)]));
}

function text(template) {
  return toYAML(canonical(template));
}

/** Asks for a revision, shows what it would change, and rolls back to it. */
export async function rollBack(page, object) {
  let revisions;
  try {
    revisions = await (page.kind.resource === 'deployments' ? deploymentRevisions : controllerRevisions)(page, object);
  } catch (err) {
    announce(err.message, 'bad');
    return;
  }
  const present = text(object.spec.template);
  const earlier = revisions.toSorted((a, b) => b.number - a.number).filter((r) => text(r.template) !== present);
  if (earlier.length === 0) {
    announce('There is no earlier revision.', 'bad');
    return;
  }
  const id = uniqueID('revision');
  const changes = h('div');
  const draw = () => fill(changes, drawChanges(present, text(earlier[select.selectedIndex].template)));
  const select = h('select', {id, on: {change: draw}}, earlier.map((revision) => h('option', null,
    `Revision ${revision.number}, created ${age(revision.created)} ago`)));
  draw();
  ask({
    title: `Roll back ${page.ref.name}`, label: 'Roll back', text: 'The pod template changes to that of a revision.',
    fields: [h('p', {class: 'field'}, h('label', {for: id}, 'Revision'), select), changes],
    action: async () => {
      const chosen = earlier[select.selectedIndex];
      await chosen.apply();
      return `${page.kind.kind} ${page.ref.name} rolls back to revision ${chosen.number}.`;
    },
  });
}
