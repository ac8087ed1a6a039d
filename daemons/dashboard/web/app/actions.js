// What a visitor may do with an object. Actions that the API would refuse are left out.

import {allAllowed} from './access.js';
import {announce, ask} from './dialog.js';
import {collectionPath, findResource, objectPath, objectURL} from './kinds.js';
import {drain} from './drain.js';
import {h, uniqueID} from './dom.js';
import {json, patch} from './api.js';
import {rollBack} from './rollback.js';
import {shell} from './shell.js';

/**
 * @typedef {{label: string, danger?: boolean, rights: object[], run: (object: object) => void}} Action
 */

const key = (page) => `${page.kind.group}/${page.kind.resource}`;
const isOneOf = (page, ...names) => names.includes(key(page));

/**
 * Returns the right to a verb on the page's object. Lists of many objects ask for the right to all objects of the
 * namespace, which is one question for all rows.
 */
function right(page, verb, subresource = '') {
  const {group, resource, namespace, name} = page.ref;
  return {verb, group, resource, subresource, namespace, name: page.isRow ? '' : name};
}

/** All actions in their order: which objects have them, which rights they need, and what they do. */
const actions = [
  {label: 'Scale', danger: false, run: scale, rights: (page) => [right(page, 'patch', 'scale')],
    applies: (page) => isOneOf(page, 'apps/deployments', 'apps/statefulsets', 'apps/replicasets')},
  {label: 'Restart', run: restart, rights: (page) => [right(page, 'patch')],
    applies: (page, o) => isOneOf(page, 'apps/deployments', 'apps/statefulsets', 'apps/daemonsets') && !o.spec.paused},
  {label: 'Roll back', run: rollBack, rights: (page) => [right(page, 'patch'), {verb: 'list', group: 'apps',
    namespace: page.ref.namespace, resource: key(page) === 'apps/deployments' ? 'replicasets' : 'controllerrevisions'}],
  applies: (page, o) => isOneOf(page, 'apps/deployments', 'apps/statefulsets', 'apps/daemonsets') && !o.spec.paused},
  {label: 'Pause', run: (page) => change(page, {spec: {paused: true}}, 'is paused'),
    rights: (page) => [right(page, 'patch')],
    applies: (page, o) => isOneOf(page, 'apps/deployments') && !o.spec.paused},
  {label: 'Resume', run: (page) => change(page, {spec: {paused: null}}, 'is resumed'),
    rights: (page) => [right(page, 'patch')], applies: (page, o) => isOneOf(page, 'apps/deployments') && o.spec.paused},
  {label: 'Run now', run: runNow, applies: (page) => isOneOf(page, 'batch/cronjobs'),
    rights: (page) => [{verb: 'create', group: 'batch', resource: 'jobs', namespace: page.ref.namespace}]},
  {label: 'Suspend', run: (page) => change(page, {spec: {suspend: true}}, 'is suspended'),
    rights: (page) => [right(page, 'patch')], applies: (page, o) => canSuspend(page, o) && !o.spec.suspend},
  {label: 'Resume', run: (page) => change(page, {spec: {suspend: false}}, 'is resumed'),
    rights: (page) => [right(page, 'patch')], applies: (page, o) => canSuspend(page, o) && o.spec.suspend},
  {label: 'Sync', run: sync, rights: (page) => [right(page, 'patch')],
    applies: (page, o) => isOneOf(page, 'gitops.clusterctl.local/gitsources') && !o.spec.suspend},
  {label: 'Cordon', run: (page) => change(page, {spec: {unschedulable: true}}, 'is cordoned'),
    rights: (page) => [right(page, 'patch')], applies: (page, o) => isOneOf(page, '/nodes') && !o.spec.unschedulable},
  {label: 'Uncordon', run: (page) => change(page, {spec: {unschedulable: null}}, 'is uncordoned'),
    rights: (page) => [right(page, 'patch')], applies: (page, o) => isOneOf(page, '/nodes') && o.spec.unschedulable},
  {label: 'Drain', danger: true, run: drain, applies: (page) => isOneOf(page, '/nodes'),
    rights: (page) => [right(page, 'patch'), {verb: 'list', resource: 'pods'},
      {verb: 'create', resource: 'pods', subresource: 'eviction'}]},
  {label: 'Delete', danger: true, run: remove, rights: (page) => [right(page, 'delete')],
    applies: (page, o) => page.kind.verbs.includes('delete') && !o.metadata.deletionTimestamp},
];

function canSuspend(page, object) {
  if (isOneOf(page, 'batch/jobs')) return !object.status?.completionTime;
  return isOneOf(page, 'batch/cronjobs', 'gitops.clusterctl.local/gitsources');
}

/**
 * Returns the actions on an object that the visitor may use.
 * @returns {Promise<Array<{label: string, danger: boolean, run: (object: object) => void}>>}
 */
export async function actionsFor(page, object) {
  const candidates = actions.filter((action) => action.applies(page, object));
  const may = await Promise.all(candidates.map((action) => allAllowed(action.rights(page))));
  return candidates.filter((action, i) => may[i]).map((action) => ({label: action.label, danger: action.danger,
    run: (present) => action.run(page, present)}));
}

const named = (page) => `${page.kind.kind} ${page.ref.name}`;

/** Applies a merge patch that needs no confirmation, since the opposite action is one click away. */
async function change(page, body, done) {
  try {
    await patch(objectPath(page.ref), body);
    announce(`${named(page)} ${done}.`);
    document.dispatchEvent(new Event('changed')); // pages that read at intervals read now
  } catch (err) {
    announce(err.message, 'bad');
  }
}

function scale(page, object) {
  const id = uniqueID('replicas');
  const input = h('input', {id, type: 'number', min: '0', max: '10000', required: true,
    value: object.spec.replicas ?? 1});
  ask({
    title: `Scale ${page.ref.name}`, label: 'Scale',
    text: `${named(page)} has ${object.spec.replicas ?? 1} replicas.`,
    fields: h('p', {class: 'field'}, h('label', {for: id}, 'Replicas'), input),
    action: async () => {
      const replicas = Number.parseInt(input.value, 10);
      await patch(objectPath(page.ref, 'scale'), {spec: {replicas}});
      return `${named(page)} is scaled to ${replicas}.`;
    },
  });
}

function restart(page) {
  ask({
    title: `Restart ${page.ref.name}`, label: 'Restart',
    text: 'All pods are replaced, in the way that the update strategy declares.',
    action: async () => {
      const annotations = {'kubectl.kubernetes.io/restartedAt': new Date().toISOString()};
      await patch(objectPath(page.ref), {spec: {template: {metadata: {annotations}}}});
      return `${named(page)} restarts.`;
    },
  });
}

function runNow(page, object) {
  ask({
    title: `Run ${page.ref.name} now`, label: 'Run now', text: 'A Job is created from the template of this CronJob.',
    action: async () => {
      const template = object.spec.jobTemplate;
      const suffix = Math.floor(Date.now() / 1000).toString(36);
      const job = {
        apiVersion: 'batch/v1', kind: 'Job', spec: template.spec,
        metadata: {
          name: `${page.ref.name.slice(0, 44)}-${suffix}`, namespace: page.ref.namespace,
          labels: template.metadata?.labels,
          annotations: {...template.metadata?.annotations, 'cronjob.kubernetes.io/instantiate': 'manual'},
          ownerReferences: [{apiVersion: object.apiVersion, kind: 'CronJob', name: page.ref.name,
            uid: object.metadata.uid, controller: true}],
        },
      };
      const jobs = findResource('batch', 'jobs');
      const created = await json(`${collectionPath(jobs, page.ref.namespace)}?fieldManager=clusterctl-dashboard`,
        {method: 'POST', body: job});
      shell.go(objectURL({...jobs, namespace: page.ref.namespace, name: created.metadata.name}));
      return `Job ${created.metadata.name} is created.`;
    },
  });
}

function sync(page) {
  return change(page, {metadata: {annotations: {'gitops.clusterctl.local/sync': new Date().toISOString()}}},
    'is reconciled now');
}

function remove(page, object) {
  ask({
    title: `Delete ${page.ref.name}`, label: 'Delete', danger: true, typed: page.ref.name,
    text: `${named(page)}${page.ref.namespace ? ` in ${page.ref.namespace}` : ''} is deleted, with all ` +
      'objects that it owns. This cannot be undone.',
    action: async () => {
      await json(objectPath(page.ref), {method: 'DELETE', body: {apiVersion: 'v1', kind: 'DeleteOptions',
        propagationPolicy: 'Background', preconditions: {uid: object.metadata.uid}}});
      return `${named(page)} is being deleted.`;
    },
  });
}
