package ingress

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/events"
	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
	"clusterctl/kube/scheme"
)

// leaseName is the name of the lease of the proxy that writes statuses.
const leaseName = "kube-ingress"

// runStatusWriter elects one proxy of the cluster. That proxy writes the addresses into the status of Ingresses and
// Gateways, and records unsupported settings of Ingresses as events. A proxy that loses the lease stands for election
// again. It serves its clients in the meantime.
func runStatusWriter(
	ctx context.Context,
	cfg config.Ingress,
	env run.Env,
	clients kubernetes.Interface,
	gateways *gatewayAPI,
	w *watch,
) {
	wait := time.Second
	for ctx.Err() == nil {
		active, err := client.ObserveLeading(env.Metrics, leaseName, func(ctx context.Context) error {
			wait = time.Second
			broadcaster := events.NewBroadcaster(ctx, clients)
			defer broadcaster.Shutdown()
			t := &statusWriter{cfg: cfg, env: env, clients: clients, gateways: gateways, watch: w,
				lastEvents: map[route.Key]string{},
				events: broadcaster.NewRecorder(scheme.Scheme(),
					corev1.EventSource{Component: "kube-ingress", Host: cfg.NodeName})}
			t.run(ctx)
			return nil
		})
		if err == nil {
			err = client.Lead(ctx, clients, leaseName, env.Log, active)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		env.Log.Warn("stand for election", "lease", leaseName, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// statusWriter writes the statuses and events of Ingresses.
type statusWriter struct {
	cfg      config.Ingress
	env      run.Env
	clients  kubernetes.Interface
	gateways *gatewayAPI // nil without the Gateway API
	watch    *watch
	events   record.EventRecorder
	// lastEvents holds the last event of each Ingress, so that an event is recorded once for each change.
	lastEvents       map[route.Key]string
	writtenAddresses []networkingv1.IngressLoadBalancerIngress // addresses that were last written to all Ingresses
}

const (
	callTimeout = 10 * time.Second
	batchDelay  = 500 * time.Millisecond // changes within this time are written together
	// resyncInterval is how often all statuses are written again. A dead proxy is noticed when its endpoint was
	// removed, and failed writes are repeated.
	resyncInterval = 30 * time.Second
)

func (t *statusWriter) run(ctx context.Context) {
	look := time.NewTicker(resyncInterval)
	defer look.Stop()
	for whole := true; ; {
		// Wait until all certificates have been read, so that no status reports a certificate as missing too early.
		select {
		case <-t.watch.secrets.whenAnswered():
		case <-ctx.Done():
			return
		}
		t.writeIngresses(ctx, whole)
		t.syncServices(ctx)
		t.writeGatewaysAndRoutes(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(batchDelay):
		}
		select {
		case <-ctx.Done():
			return
		case <-t.watch.statusChanged:
			whole = false
		case <-look.C:
			whole = true
		}
	}
}

// writeIngresses writes the status of this proxy's Ingresses: of all, or of those that may have changed.
func (t *statusWriter) writeIngresses(ctx context.Context, whole bool) {
	type one struct {
		object   *networkingv1.Ingress
		problems []route.Problem
	}
	t.watch.mu.Lock()
	list, removed := map[route.Key]one{}, []route.Key{}
	status := t.ingressAddresses()
	if whole = whole || t.watch.isAllPending || !equality.Semantic.DeepEqual(status, t.writtenAddresses); whole {
		t.writtenAddresses = status
		for _, key := range t.watch.routeBuilder.Ingresses() {
			list[key] = one{t.watch.objects[key], t.watch.routeBuilder.Problems(key)}
		}
		for key := range t.lastEvents {
			if _, ours := list[key]; !ours && key.Namespace != "" {
				removed = append(removed, key)
			}
		}
	} else {
		for key := range t.watch.pendingStatus {
			if t.watch.routeBuilder.HasSource(route.Source{Namespace: key.Namespace, Name: key.Name}) {
				list[key] = one{t.watch.objects[key], t.watch.routeBuilder.Problems(key)}
			} else {
				removed = append(removed, key)
			}
		}
	}
	t.watch.isAllPending = false
	clear(t.watch.pendingStatus)
	classes := slices.Collect(maps.Values(t.watch.classes))
	t.watch.mu.Unlock()
	for _, key := range removed {
		delete(t.lastEvents, key)
	}
	for _, c := range classes {
		if p := route.ClassProblem(c); p != nil {
			t.recordEvent(route.Key{Name: c.Name}, c, []route.Problem{*p}, false)
		}
	}
	for key, in := range list {
		if ctx.Err() != nil {
			return
		}
		t.recordEvent(key, in.object, in.problems, true)
		if status == nil || equality.Semantic.DeepEqual(in.object.Status.LoadBalancer.Ingress, status) {
			continue
		}
		if err := t.writeIngress(ctx, in.object, status); err != nil {
			t.env.Log.Warn("write the status of an Ingress", "ingress", key, "err", err)
		}
	}
}

type apiObject interface {
	runtime.Object
	metav1.Object
}

// recordEvent records that an object was processed, and its problems.
func (t *statusWriter) recordEvent(key route.Key, object apiObject, problems []route.Problem, sync bool) {
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Reason+" "+p.Message)
	}
	text := fmt.Sprint(object.GetUID(), object.GetGeneration(), texts)
	if t.lastEvents[key] == text {
		return
	}
	t.lastEvents[key] = text
	if sync {
		t.events.Event(object, corev1.EventTypeNormal, "Sync", "Scheduled for sync")
	}
	for _, p := range problems {
		t.events.Event(object, corev1.EventTypeWarning, p.Reason, p.Message)
	}
}

// ingressAddresses returns the addresses of Ingresses. It returns nil if they are unknown; the written ones stay then.
func (t *statusWriter) ingressAddresses() []networkingv1.IngressLoadBalancerIngress {
	var list []networkingv1.IngressLoadBalancerIngress
	if t.cfg.PublishService != "" {
		namespace, name, _ := strings.Cut(t.cfg.PublishService, "/")
		s := t.watch.loadBalancers[route.Key{Namespace: namespace, Name: name}]
		if s == nil {
			return nil
		}
		for _, in := range s.Status.LoadBalancer.Ingress {
			list = append(list, networkingv1.IngressLoadBalancerIngress{IP: in.IP, Hostname: in.Hostname})
		}
		return list
	}
	namespace, name, _ := strings.Cut(t.cfg.ServiceName, "/")
	var all []netip.Addr
	for _, s := range t.watch.slices[route.Key{Namespace: namespace, Name: name}] {
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	for _, a := range slices.Compact(all) {
		list = append(list, networkingv1.IngressLoadBalancerIngress{IP: a.String()})
	}
	return list
}

func (t *statusWriter) writeIngress(
	ctx context.Context,
	in *networkingv1.Ingress,
	status []networkingv1.IngressLoadBalancerIngress,
) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := in.DeepCopy()
	now.Status.LoadBalancer.Ingress = status
	_, err := t.clients.NetworkingV1().Ingresses(in.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it was deleted, or the watch delivers a newer one
	}
	return err
}
