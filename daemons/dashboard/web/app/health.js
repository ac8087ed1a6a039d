// Whether objects are healthy, by the rules of kstatus and those of Kubernetes' own kinds.

/**
 * @typedef {{state: 'ok'|'warn'|'bad', text: string}} Health
 */

const ok = (text) => ({state: 'ok', text});
const progressing = (text) => ({state: 'warn', text});
const failed = (text) => ({state: 'bad', text});

function condition(object, type) {
  return (object.status?.conditions ?? []).find((c) => c.type === type);
}

/** Rules of kinds that have some of their own. */
const rules = {
  Deployment: (o) => {
    const wanted = o.spec.replicas ?? 1;
    if (condition(o, 'Progressing')?.reason === 'ProgressDeadlineExceeded') return failed('Rollout stuck');
    return replicas(o.status?.updatedReplicas ?? 0, o.status?.availableReplicas ?? 0, wanted);
  },
  StatefulSet: (o) => replicas(o.status?.updatedReplicas ?? 0, o.status?.readyReplicas ?? 0, o.spec.replicas ?? 1),
  DaemonSet: (o) => replicas(o.status?.updatedNumberScheduled ?? 0, o.status?.numberAvailable ?? 0,
    o.status?.desiredNumberScheduled ?? 0),
  ReplicaSet: (o) => replicas(o.spec.replicas ?? 1, o.status?.availableReplicas ?? 0, o.spec.replicas ?? 1),
  Job: (o) => {
    if (condition(o, 'Failed')?.status === 'True') return failed('Failed');
    return condition(o, 'Complete')?.status === 'True' ? ok('Complete') : progressing('Running');
  },
  Pod: (o) => {
    const phase = o.status?.phase ?? 'Pending';
    if (phase === 'Succeeded') return ok(phase);
    if (phase === 'Failed') return failed(o.status.reason ?? phase);
    return condition(o, 'Ready')?.status === 'True' ? ok('Ready') : progressing(phase);
  },
  PersistentVolumeClaim: (o) => {
    const phase = o.status?.phase ?? 'Pending';
    return phase === 'Bound' ? ok(phase) : phase === 'Lost' ? failed(phase) : progressing(phase);
  },
};

function replicas(updated, available, wanted) {
  const text = `${Math.min(updated, available)}/${wanted}`;
  return updated >= wanted && available >= wanted ? ok(text) : progressing(text);
}

/**
 * Returns the health of an object.
 * @returns {Health}
 */
export function healthOf(object) {
  if (object.metadata.deletionTimestamp) return progressing('Terminating');
  const observed = object.status?.observedGeneration;
  if (observed !== undefined && observed < object.metadata.generation) return progressing('Not yet observed');
  if (rules[object.kind]) return rules[object.kind](object);
  if (condition(object, 'Stalled')?.status === 'True') return failed(condition(object, 'Stalled').reason ?? 'Stalled');
  if (condition(object, 'Reconciling')?.status === 'True') return progressing('Reconciling');
  const ready = condition(object, 'Ready') ?? condition(object, 'Available') ?? condition(object, 'Accepted');
  if (!ready || ready.status === 'True') return ok(ready ? ready.type : 'Exists');
  return ready.status === 'False' ? failed(ready.reason ?? 'Not ready') : progressing(ready.reason ?? 'Unknown');
}
