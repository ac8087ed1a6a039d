// Drains a node: no new pods, then every pod is evicted, in the way that disruption budgets allow.

import {button, fill, h, setText} from './dom.js';
import {json, patch} from './api.js';
import {collectionPath, objectPath} from './kinds.js';
import {pause} from './watch.js';
import {showDialog} from './dialog.js';

const retryPause = 5000; // milliseconds after a budget refused an eviction
const parallel = 4;
const pageSize = 500;

/** Returns why a pod stays on a drained node, or ''. */
function staysBecause(pod) {
  if (pod.metadata.annotations?.['kubernetes.io/config.mirror']) return 'static pod';
  const owner = (pod.metadata.ownerReferences ?? []).find((o) => o.controller);
  if (owner?.kind === 'DaemonSet') return 'DaemonSet';
  return pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed' ? 'has ended' : '';
}

async function podsOn(node) {
  const pods = [];
  let next = '';
  do {
    const query = new URLSearchParams({fieldSelector: `spec.nodeName=${node}`, limit: pageSize, continue: next});
    const list = await json(`/k8s/api/v1/pods?${query}`);
    pods.push(...list.items);
    next = list.metadata.continue ?? '';
  } while (next);
  return pods;
}

/** Reports whether a pod still exists. It is asked for by a list, since drains may list pods. */
async function isThere({metadata}, signal) {
  const path = collectionPath({group: '', version: 'v1', resource: 'pods'}, metadata.namespace);
  const query = new URLSearchParams({fieldSelector: `metadata.name=${metadata.name}`});
  const list = await json(`${path}?${query}`, {signal});
  return list.items.some((item) => item.metadata.uid === metadata.uid);
}

/** Evicts a pod and waits until it is gone. Budgets that refuse are asked again. */
async function evict(pod, report, signal) {
  const ref = {group: '', version: 'v1', resource: 'pods', namespace: pod.metadata.namespace, name: pod.metadata.name};
  const body = {apiVersion: 'policy/v1', kind: 'Eviction', metadata: {name: ref.name, namespace: ref.namespace},
    deleteOptions: {preconditions: {uid: pod.metadata.uid}}};
  let wait = 500;
  for (let isRequested = false; !signal.aborted;) {
    try {
      if (!isRequested) await json(objectPath(ref, 'eviction'), {method: 'POST', body, signal});
      else if (!await isThere(pod, signal)) return;
      isRequested = true;
      report('is ending');
    } catch (err) {
      if (err.code === 404 || err.code === 409) return; // gone, or another pod has its name
      if (err.code !== 429) throw err;
      report(err.message);
      wait = retryPause;
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, retryPause);
  }
}

/** Asks for confirmation, and drains the page's node with its progress in a dialog. */
export async function drain(page) {
  const node = page.ref.name;
  const state = h('p', {role: 'status', 'aria-live': 'polite'}, 'Reading the pods of this node…');
  const list = h('ul', {class: 'drain'});
  const controller = new AbortController();
  const start = button('Drain', () => run(), {class: 'danger', disabled: true});
  const close = button('Cancel', () => dialog.close());
  const dialog = showDialog(`Drain ${node}`, [state, list], [close, start]);
  dialog.addEventListener('close', () => controller.abort());
  let leaving = [];

  const run = async () => {
    start.disabled = true;
    setText(close, 'Stop');
    try {
      await patch(objectPath(page.ref), {spec: {unschedulable: true}});
      setText(state, 'The node is cordoned. Its pods are being evicted…');
      const queue = [...leaving];
      const work = async () => {
        for (let next = queue.shift(); next && !controller.signal.aborted; next = queue.shift()) {
          const {pod, note} = next;
          await evict(pod, (text) => setText(note, ` ${text}`), controller.signal);
          setText(note, ' is gone');
        }
      };
      await Promise.all(Array.from({length: parallel}, work));
      setText(state, `Node ${node} is drained.`);
      setText(close, 'Close');
    } catch (err) {
      if (!controller.signal.aborted) setText(state, `Draining has stopped: ${err.message}`);
    }
  };

  try {
    const pods = await podsOn(node);
    leaving = pods.filter((pod) => !staysBecause(pod)).map((pod) => ({pod, note: h('span', {class: 'muted'})}));
    setText(state, `Draining cordons the node and evicts ${leaving.length} of its ${pods.length} pods. Pods of ` +
      'DaemonSets and static pods stay. Pods without an owner are not created again.');
    fill(list, leaving.map(({pod, note}) => h('li', null, `${pod.metadata.namespace}/${pod.metadata.name}`, note)));
    start.disabled = false;
    start.focus();
  } catch (err) {
    setText(state, err.message);
  }
}
