// The summary of an object: what all objects have, and what matters of its kind.

import {ageOf, chips, conditions, facts, objectLink, plainTable, section, status} from './parts.js';
import {button, h} from './dom.js';
import {collectionPath} from './kinds.js';
import {drawMetrics} from './plots.js';
import {healthOf} from './health.js';
import {watchList} from './watch.js';

/** Returns the summary of the page's object. */
export function drawSummary(page, object, signal) {
  const {metadata} = object;
  const special = kinds[`${page.kind.group}/${page.kind.resource}`];
  const health = healthOf(object);
  return [
    facts([
      ['Health', status(health.text, health.state)],
      ...(special?.facts?.(object) ?? []),
      ['Created', [ageOf(metadata.creationTimestamp), ' ago']],
      ['Owned by', (metadata.ownerReferences ?? []).map((owner) => h('div', null,
        objectLink(owner.apiVersion, owner.kind, metadata.namespace, owner.name)))],
      ['Finalizers', metadata.deletionTimestamp && (metadata.finalizers ?? []).join(', ')],
      ['Labels', chips(metadata.labels)],
      ['Annotations', chips(withoutLong(metadata.annotations))],
    ]),
    ...(special?.sections?.(object, page, signal) ?? []),
    section('Conditions', conditions(object.status?.conditions)),
  ];
}

const longest = 400; // characters of an annotation that is shown

function withoutLong(annotations) {
  return Object.fromEntries(Object.entries(annotations ?? {}).map(([key, value]) => [key,
    value.length > longest ? `${value.slice(0, longest)}… (${value.length} characters, see YAML)` : value]));
}

/** Returns a bar of a rollout: how many of the wanted pods are updated and available. */
function rollout(updated, available, wanted) {
  const bar = (label, n) => {
    const fill = h('i');
    fill.style.width = `${wanted > 0 ? Math.min(100, (n / wanted) * 100) : 100}%`;
    return h('div', {class: 'progress'}, h('span', {class: 'label'}, `${label} ${n}/${wanted}`),
      h('span', {class: n >= wanted ? 'bar' : 'bar part', 'aria-hidden': 'true'}, fill));
  };
  return [bar('Updated', updated), bar('Available', available)];
}

function images(template) {
  return (template?.spec?.containers ?? []).map((c) => h('div', {class: 'mono'}, c.image));
}

function containerState(container) {
  const [name, detail] = Object.entries(container?.state ?? {})[0] ?? ['waiting', {}];
  if (name === 'running') return status('Running');
  const text = detail.reason ?? (name === 'terminated' ? `Exit ${detail.exitCode}` : 'Waiting');
  return [status(text, detail.exitCode ? 'bad' : undefined),
    detail.message && h('div', {class: 'muted'}, detail.message)];
}

function lastEnd(container) {
  const ended = container?.lastState?.terminated;
  return ended ? `${ended.reason ?? 'ended'}, exit code ${ended.exitCode}` : '';
}

function podContainers(pod) {
  const states = new Map([...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? []),
    ...(pod.status?.ephemeralContainerStatuses ?? [])].map((state) => [state.name, state]));
  const rows = (list, role) => (list ?? []).map((c) => {
    const state = states.get(c.name);
    return [c.name, role, containerState(state), state?.ready ? 'yes' : 'no', String(state?.restartCount ?? 0),
      lastEnd(state), h('span', {class: 'mono'}, c.image)];
  });
  return plainTable('Containers', ['Name', 'Role', 'State', 'Ready', 'Restarts', 'Last end', 'Image'], [
    ...rows(pod.spec.initContainers, 'init'), ...rows(pod.spec.containers, 'container'),
    ...rows(pod.spec.ephemeralContainers, 'ephemeral')]);
}

const link = (kind, namespace, name) => name && objectLink('v1', kind, namespace, name, name);

/** Shows the endpoints of a Service, and follows them. */
function endpoints(service, page, signal) {
  const place = h('div', {'data-live': true}, h('p', {class: 'muted'}, 'Loading…'));
  if (page.endpoints) return page.endpoints; // a redraw keeps the watch
  page.endpoints = place;
  const {namespace, name} = service.metadata;
  const draw = (slices) => {
    const rows = slices.flatMap((slice) => (slice.endpoints ?? []).map((e) => [(e.addresses ?? []).join(', '),
      (slice.ports ?? []).map((p) => `${p.name ? `${p.name} ` : ''}${p.port}/${p.protocol}`).join(', '),
      e.conditions?.ready === false ? status('Not ready', 'bad') : status('Ready'),
      e.targetRef ? objectLink('v1', e.targetRef.kind, namespace, e.targetRef.name, e.targetRef.name) : '',
      link('Node', '', e.nodeName) ?? '']));
    place.replaceChildren(rows.length > 0 ? plainTable('Endpoints', ['Address', 'Ports', 'State', 'Target', 'Node'],
      rows) : h('p', {class: 'note bad'}, 'No endpoint: no pod matches the selector, or none is ready.'));
  };
  watchList(collectionPath({group: 'discovery.k8s.io', version: 'v1', resource: 'endpointslices'}, namespace),
    {labelSelector: `kubernetes.io/service-name=${name}`}, draw,
    (err) => place.replaceChildren(h('p', {class: 'note bad'}, err.message)), page.signal);
  return place;
}

function ingressRules(ingress) {
  const {namespace} = ingress.metadata;
  const backend = (b) => (b?.service ? [objectLink('v1', 'Service', namespace, b.service.name, b.service.name),
    `:${b.service.port?.number ?? b.service.port?.name ?? ''}`] : b?.resource?.name ?? '');
  const rows = (ingress.spec.rules ?? []).flatMap((rule) => (rule.http?.paths ?? []).map((path) => [rule.host ?? '*',
    path.path ?? '/', path.pathType, h('span', null, backend(path.backend))]));
  const {defaultBackend} = ingress.spec;
  if (defaultBackend) rows.push(['*', '', 'default', h('span', null, backend(defaultBackend))]);
  return plainTable('Rules', ['Host', 'Path', 'Type', 'Service'], rows);
}

/** Shows the keys of a ConfigMap or a Secret. Values of Secrets are hidden until they are asked for. */
function dataTable(object, isSecret) {
  const decode = (text) => {
    try {
      return new TextDecoder('utf-8', {fatal: true}).decode(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
    } catch {
      return `(binary, base64) ${text}`;
    }
  };
  const cell = (value) => {
    if (!isSecret) return h('pre', {class: 'value'}, value);
    const place = h('span', null);
    const hide = () => place.replaceChildren(h('span', {class: 'muted'}, '••••••••'), ' ',
      button('Show', () => place.replaceChildren(h('pre', {class: 'value', 'data-keep': true}, decode(value)),
        button('Hide', hide, {class: 'quiet', 'data-keep': true})), {class: 'quiet'}));
    hide();
    return place;
  };
  const rows = Object.entries(object.data ?? {}).map(([key, value]) => [key, cell(value)]);
  const binary = Object.keys(object.binaryData ?? {}).map((key) => [key, h('span', {class: 'muted'}, 'binary')]);
  return rows.length + binary.length > 0 ? plainTable('Data', ['Key', 'Value'], [...rows, ...binary]) :
    h('p', {class: 'muted'}, 'There is no data.');
}

const workload = (counts) => ({
  facts: (o) => [['Rollout', rollout(...counts(o))], ['Images', images(o.spec.template)],
    ['Selector', chips(o.spec.selector?.matchLabels)], ['Paused', o.spec.paused ? 'yes' : '']],
});

/** Returns what metrics of pods and nodes are drawn in; a redraw keeps the plots. */
function metrics(scope) {
  return (object, page) => {
    page.metrics ??= drawMetrics({scope, namespace: object.metadata.namespace ?? '', name: object.metadata.name},
      page.signal);
    return section('Last hour', page.metrics);
  };
}

/** What the summaries of some kinds have, by group/resource. */
const kinds = {
  '/pods': {
    facts: (o) => [['Phase', status(o.status?.phase ?? 'Pending')], ['Node', link('Node', '', o.spec.nodeName)],
      ['Address', (o.status?.podIPs ?? []).map((p) => p.ip).join(', ')],
      ['Service account', link('ServiceAccount', o.metadata.namespace, o.spec.serviceAccountName)],
      ['Class', o.status?.qosClass], ['Priority', o.spec.priorityClassName], ['Message', o.status?.message]],
    sections: (o, page) => [section('Containers', podContainers(o)), metrics('pod')(o, page)],
  },
  '/nodes': {
    facts: (o) => [['Schedulable', o.spec.unschedulable ? status('Cordoned', 'warn') : 'yes'],
      ['Addresses', (o.status?.addresses ?? []).map((a) => `${a.type} ${a.address}`).join(', ')],
      ['Taints', (o.spec.taints ?? []).map((t) => h('div', null,
        `${t.key}${t.value ? `=${t.value}` : ''}:${t.effect}`))],
      ['Kubelet', o.status?.nodeInfo?.kubeletVersion], ['System', o.status?.nodeInfo?.osImage],
      ['Kernel', o.status?.nodeInfo?.kernelVersion], ['Runtime', o.status?.nodeInfo?.containerRuntimeVersion],
      ['Capacity', Object.entries(o.status?.capacity ?? {}).map(([k, v]) => `${k} ${v}`).join(', ')]],
    sections: (o, page) => [metrics('node')(o, page)],
  },
  'apps/deployments': workload((o) => [o.status?.updatedReplicas ?? 0, o.status?.availableReplicas ?? 0,
    o.spec.replicas ?? 1]),
  'apps/statefulsets': workload((o) => [o.status?.updatedReplicas ?? 0, o.status?.availableReplicas ?? 0,
    o.spec.replicas ?? 1]),
  'apps/daemonsets': workload((o) => [o.status?.updatedNumberScheduled ?? 0, o.status?.numberAvailable ?? 0,
    o.status?.desiredNumberScheduled ?? 0]),
  'batch/jobs': {
    facts: (o) => [['Succeeded', `${o.status?.succeeded ?? 0} of ${o.spec.completions ?? 1}`],
      ['Active', String(o.status?.active ?? 0)], ['Failed', String(o.status?.failed ?? 0)],
      ['Images', images(o.spec.template)]],
  },
  'batch/cronjobs': {
    facts: (o) => [['Schedule', h('code', null, o.spec.schedule)], ['Time zone', o.spec.timeZone],
      ['Suspended', o.spec.suspend ? status('Suspended') : 'no'], ['Last run', ageOf(o.status?.lastScheduleTime)],
      ['Active', String((o.status?.active ?? []).length)], ['Images', images(o.spec.jobTemplate?.spec?.template)]],
  },
  '/services': {
    facts: (o) => [['Type', o.spec.type], ['Addresses', (o.spec.clusterIPs ?? []).join(', ')],
      ['External', [...(o.status?.loadBalancer?.ingress ?? []).map((i) => i.ip ?? i.hostname),
        ...(o.spec.externalIPs ?? []), o.spec.externalName].filter(Boolean).join(', ')],
      ['Ports', (o.spec.ports ?? []).map((p) => h('div', null, `${p.name ? `${p.name} ` : ''}${p.port} → ` +
        `${p.targetPort}/${p.protocol}${p.nodePort ? `, node port ${p.nodePort}` : ''}`))],
      ['Selector', chips(o.spec.selector)]],
    sections: (o, page, signal) => [section('Endpoints', endpoints(o, page, signal))],
  },
  'networking.k8s.io/ingresses': {
    facts: (o) => [['Class', o.spec.ingressClassName],
      ['Addresses', (o.status?.loadBalancer?.ingress ?? []).map((i) => i.ip ?? i.hostname).join(', ')],
      ['TLS', (o.spec.tls ?? []).map((t) => h('div', null, `${(t.hosts ?? ['*']).join(', ')} `,
        link('Secret', o.metadata.namespace, t.secretName)))]],
    sections: (o) => [section('Rules', ingressRules(o))],
  },
  '/persistentvolumeclaims': {
    facts: (o) => [['Phase', status(o.status?.phase ?? '')],
      ['Volume', o.spec.volumeName && objectLink('v1', 'PersistentVolume', '', o.spec.volumeName, o.spec.volumeName)],
      ['Class', o.spec.storageClassName], ['Requested', o.spec.resources?.requests?.storage],
      ['Capacity', o.status?.capacity?.storage], ['Access', (o.spec.accessModes ?? []).join(', ')]],
  },
  '/persistentvolumes': {
    facts: (o) => [['Phase', status(o.status?.phase ?? '')], ['Capacity', o.spec.capacity?.storage],
      ['Claim', o.spec.claimRef && objectLink('v1', 'PersistentVolumeClaim', o.spec.claimRef.namespace,
        o.spec.claimRef.name, `${o.spec.claimRef.namespace}/${o.spec.claimRef.name}`)],
      ['Reclaim policy', o.spec.persistentVolumeReclaimPolicy], ['Class', o.spec.storageClassName]],
  },
  'storage.k8s.io/storageclasses': {
    facts: (o) => [['Provisioner', o.provisioner], ['Reclaim policy', o.reclaimPolicy],
      ['Binding', o.volumeBindingMode], ['Expansion', o.allowVolumeExpansion ? 'yes' : 'no']],
  },
  '/configmaps': {sections: (o) => [section('Data', dataTable(o, false))]},
  '/secrets': {facts: (o) => [['Type', o.type]], sections: (o) => [section('Data', dataTable(o, true))]},
  '/namespaces': {
    facts: (o) => [['Phase', status(o.status?.phase ?? '')], ['Contents', namespaceLinks(o.metadata.name)]],
  },
  'gitops.clusterctl.local/gitsources': {
    facts: (o) => [['Repository', o.spec.url], ['Folder', o.spec.path], ['Applied', o.status?.appliedRevision],
      ['Objects', o.status?.objects === undefined ? '' : String(o.status.objects)],
      ['Tree', h('a', {href: `/p/gitops?ns=${encodeURIComponent(o.metadata.namespace)}`}, 'GitOps')]],
  },
};

function namespaceLinks(name) {
  const parts = [['/p/pods', 'Pods'], ['/p/workloads', 'Workloads'], ['/p/network', 'Network'],
    ['/p/config', 'Configuration'], ['/p/storage', 'Storage']];
  return parts.map(([address, title], i) => [i > 0 && ' · ',
    h('a', {href: `${address}?ns=${encodeURIComponent(name)}`}, title)]);
}
