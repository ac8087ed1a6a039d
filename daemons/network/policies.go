package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/run/measure"
	"clusterctl/daemons/run/reconcile"
	"clusterctl/kube/kubernetes"
)

// policyEnforcer enforces network policies for the pods of this machine.
type policyEnforcer struct {
	log        *slog.Logger
	client     kubernetes.Interface
	machine    kubernetes.Interface // with the credentials of the machine's node, which may read its own pods
	name       string               // of this machine
	pending    *pendingChanges
	node       *policy.Node
	groups     groupWatches
	admitted   admissions
	policies   cache.Indexer
	pods       cache.Indexer
	passed     passedPods
	tables     policyTables
	isStarted  bool        // all inputs were known once; until then the kernel's rules stay
	isInEffect atomic.Bool // the rules were written to the kernel once
	metrics    policyMetrics
}

// passedPods are the pods that were passed to the rules.
type passedPods struct {
	uids  map[string]string // by namespace/name
	turns map[string]uint64 // turns of their admissions, by the pod's UID in the API
}

// policyMetrics are the metrics of network policies.
type policyMetrics struct {
	duration prometheus.Histogram
	waiting  prometheus.Gauge
}

func newPolicyMetrics() policyMetrics {
	return policyMetrics{
		duration: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "networkpolicy_sync_duration_seconds", Help: "How long it took to bring the rules of network " +
				"policies up to date.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 15),
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "networkpolicy_waiting_pods", Help: "Pods whose rules wait until the addresses of their policies' " +
				"peers are known.",
		}),
	}
}

func newPolicyEnforcer(client, machine kubernetes.Interface, node string, log *slog.Logger,
	kernel func() tableWriter) *policyEnforcer {
	p := &policyEnforcer{
		log: log, client: client, machine: machine, name: node, pending: newPendingChanges(),
		passed:  passedPods{uids: map[string]string{}, turns: map[string]uint64{}},
		tables:  policyTables{log: log, open: kernel, kernels: map[nft.Family]tableWriter{}},
		metrics: newPolicyMetrics(),
	}
	p.node = policy.NewNode(func(o *networkingv1.NetworkPolicy, err error) {
		log.Warn("a network policy cannot be carried out as it is", "policy", o.Namespace+"/"+o.Name, "error", err)
	})
	p.groups = groupWatches{client: client, log: log, sliceChanged: p.pending.slices.Add,
		listed: p.pending.changed.Wake, passedSlices: map[string]watchedSlice{}}
	p.admitted = admissions{byUID: map[string]*admission{}, changed: p.pending.pods.Add}
	return p
}

// checkReady returns an error until the rules are in effect.
func (p *policyEnforcer) checkReady() error {
	if !p.isInEffect.Load() {
		return errors.New("the rules of network policies are not there yet")
	}
	return nil
}

// run maintains the rules until ctx ends. It leaves them in place, so that accepted traffic continues and other traffic
// stays blocked.
func (p *policyEnforcer) run(ctx context.Context) error {
	all := informers.New(p.client, informers.WithTransform(trimPolicy))
	own := informers.New(p.machine, informers.WithTransform(trimPod),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", p.name).String()
		}))
	policies, pods := informers.NetworkPolicies(all).Informer(), informers.Pods(own).Informer()
	if _, err := policies.AddEventHandler(keyHandler(p.pending.policies.Add)); err != nil {
		return fmt.Errorf("watch network policies: %w", err)
	}
	if _, err := pods.AddEventHandler(keyHandler(p.pending.pods.Add)); err != nil {
		return fmt.Errorf("watch this machine's pods: %w", err)
	}
	p.policies, p.pods = policies.GetIndexer(), pods.GetIndexer()
	all.StartWithContext(ctx)
	defer all.Shutdown()
	own.StartWithContext(ctx)
	defer own.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), policies.HasSynced, pods.HasSynced) {
		return nil
	}
	p.admitted.dropDeleted(p.podUIDs())
	defer p.groups.close()
	p.loop(ctx)
	return nil
}

// loop updates the rules after every change, until ctx ends.
func (p *policyEnforcer) loop(ctx context.Context) {
	for _, key := range p.policies.ListKeys() {
		p.pending.policies.Add(key)
	}
	for _, key := range p.pods.ListKeys() {
		p.pending.pods.Add(key)
	}
	l := reconcile.Loop{
		Log:             p.log,
		Action:          "bring the rules of network policies up to date",
		Changes:         p.pending.changed,
		Sync:            p.sync,
		CheckInterval:   checkInterval,
		CompareInterval: compareInterval,
		IsIntact:        func(whole bool) bool { return p.tables.isIntact(p.node.Tables(), whole) },
	}
	l.Run(ctx)
}

// sync updates the kernel's rules according to policies, pods and groups.
func (p *policyEnforcer) sync(ctx context.Context) error {
	start := time.Now()
	if err := p.passChanges(); err != nil {
		return err
	}
	if err := p.updateTables(ctx); err != nil {
		return err
	}
	p.metrics.waiting.Set(float64(p.node.PendingPods()))
	// Keep the rules of an earlier daemon until the rules of all pods are known. Otherwise rules would be removed whose
	// inputs have not arrived yet.
	if !p.isStarted && (len(p.node.Tables()) == 0 || p.node.PendingPods() > 0) {
		return nil
	}
	p.isStarted = true
	if p.tables.needsApply {
		if err := p.tables.apply(p.node.Tables()); err != nil {
			return err
		}
		p.metrics.duration.Observe(time.Since(start).Seconds())
	}
	if !p.isInEffect.Swap(true) {
		p.log.Info("the rules of network policies are in the kernel", "pods", len(p.passed.uids))
	}
	p.confirmAdmissions()
	return nil
}

// passChanges passes the changes to the rules.
func (p *policyEnforcer) passChanges() error {
	var failures []error
	if m := p.pending.takeMachine(); m != nil {
		if err := p.node.SetMachine(*m); err != nil {
			failures = append(failures, fmt.Errorf("set up the tables of network policies: %w", err))
		}
	}
	each := func(changed *reconcile.Keys, what string, do func(key string) error) {
		for key := range changed.Take() {
			if err := do(key); err != nil {
				changed.Retry(key)
				failures = append(failures, fmt.Errorf("%s %s: %w", what, key, err))
			}
		}
	}
	each(p.pending.policies, "read the network policy", func(key string) error {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			return err
		}
		o, _, err := p.policies.GetByKey(key)
		if err != nil {
			return err
		}
		current, _ := o.(*networkingv1.NetworkPolicy)
		p.node.SetPolicy(namespace, name, current)
		return nil
	})
	each(p.pending.pods, "read the pod", func(key string) error {
		o, _, err := p.pods.GetByKey(key)
		if err != nil {
			return err
		}
		pod, _ := o.(*corev1.Pod)
		p.passPod(key, pod)
		return nil
	})
	each(p.pending.slices, "use the addresses of", func(key string) error { return p.groups.passSlice(p.node, key) })
	return errors.Join(failures...)
}

// passPod passes a pod to the rules. pod is nil if it was deleted.
func (p *policyEnforcer) passPod(key string, pod *corev1.Pod) {
	if before := p.passed.uids[key]; before != "" && (pod == nil || string(pod.UID) != before) {
		p.node.SetPod(before, nil)
		p.admitted.remove(before)
		delete(p.passed.uids, key)
		delete(p.passed.turns, before)
	}
	if pod == nil || pod.Spec.NodeName != p.name {
		return
	}
	uid := string(pod.UID)
	rules, ok := policy.PodOf(pod)
	if !ok {
		p.node.SetPod(uid, nil)
		delete(p.passed.turns, uid)
		if pod.Spec.HostNetwork {
			p.admitted.confirmUnneeded(uidsOf(pod)) // policies do not apply to it
		} else {
			p.admitted.remove(uid)
		}
		return
	}
	if a := p.admitted.find(uid, uidsOf(pod)); a != nil {
		rules.Addresses, rules.Turn = a.addresses, a.turn
		p.passed.turns[uid] = a.turn
	}
	p.passed.uids[key] = uid
	p.node.SetPod(uid, &rules)
}

// updateTables updates the tables, and starts watches of the groups that are needed.
func (p *policyEnforcer) updateTables(ctx context.Context) error {
	for {
		changed, err := p.node.Update()
		p.tables.needsApply = p.tables.needsApply || changed
		if err != nil {
			return err
		}
		added, err := p.groups.watchNeeded(ctx, p.node.NeededGroups(), p.node)
		if err != nil || !added {
			return err
		}
	}
}

// confirmAdmissions notifies the waiting admission requests whose rules are in effect.
func (p *policyEnforcer) confirmAdmissions() {
	for uid, turn := range p.passed.turns {
		if p.node.IsCurrent(uid) {
			p.admitted.confirm(uid, turn)
			delete(p.passed.turns, uid)
		}
	}
}

// podUIDs returns the UIDs of all pods of this machine, including those that a kubelet uses for static pods.
func (p *policyEnforcer) podUIDs() map[string]bool {
	all := map[string]bool{}
	for _, o := range p.pods.List() {
		if pod, ok := o.(*corev1.Pod); ok {
			for _, id := range uidsOf(pod) {
				all[id] = true
			}
		}
	}
	return all
}

// uidsOf returns the UIDs of a pod: the API's, and for the mirror of a static pod also the kubelet's.
func uidsOf(p *corev1.Pod) []string {
	if of := p.Annotations[corev1.MirrorPodAnnotationKey]; of != "" {
		return []string{string(p.UID), of}
	}
	return []string{string(p.UID)}
}

// trimPod returns a pod with only the fields that the daemon reads.
func trimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
			CreationTimestamp: p.CreationTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork,
			Containers: trimContainers(p.Spec.Containers), InitContainers: trimContainers(p.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}
	if of := p.Annotations[corev1.MirrorPodAnnotationKey]; of != "" {
		out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: of}
	}
	return out, nil
}

func trimContainers(list []corev1.Container) (out []corev1.Container) {
	for _, c := range list {
		if len(c.Ports) > 0 {
			out = append(out, corev1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy})
		}
	}
	return out
}
