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

// lease is the name of the lease of the proxy that writes statuses.
const lease = "kube-ingress"

// tell elects one proxy of the cluster. That proxy writes the addresses into the status of Ingresses and Gateways, and
// records unsupported settings of Ingresses as events. A proxy that loses the lease stands for election again. It
// serves its clients in the meantime.
func tell(
	ctx context.Context,
	cfg config.Ingress,
	env run.Env,
	clients kubernetes.Interface,
	gateways *gatewayAPI,
	w *watch,
) {
	wait := time.Second
	for ctx.Err() == nil {
		active, err := client.CountLeading(env.Metrics, lease, func(ctx context.Context) error {
			wait = time.Second
			broadcaster := events.NewBroadcaster(ctx, clients)
			defer broadcaster.Shutdown()
			t := &teller{cfg: cfg, env: env, clients: clients, gateways: gateways, w: w, told: map[route.Key]string{},
				events: broadcaster.NewRecorder(
					scheme.Scheme(),
					corev1.EventSource{Component: "kube-ingress", Host: cfg.NodeName},
				)}
			t.run(ctx)
			return nil
		})
		if err == nil {
			err = client.Lead(ctx, clients, lease, env.Log, active)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		env.Log.Warn("stand for election", "lease", lease, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// teller writes the statuses and events of Ingresses.
type teller struct {
	cfg      config.Ingress
	env      run.Env
	clients  kubernetes.Interface
	gateways *gatewayAPI // nil without the Gateway API
	w        *watch
	events   record.EventRecorder
	// told holds the last event of each Ingress, so that an event is recorded once for each change.
	told map[route.Key]string
	at   []networkingv1.IngressLoadBalancerIngress // addresses that were last written to all Ingresses
}

const (
	callTime = 10 * time.Second
	restTime = 500 * time.Millisecond // changes within this time are written together
	// lookTime is how often all statuses are written again. A dead proxy is noticed when its endpoint was removed, and
	// failed writes are repeated.
	lookTime = 30 * time.Second
)

func (t *teller) run(ctx context.Context) {
	look := time.NewTicker(lookTime)
	defer look.Stop()
	for whole := true; ; {
		// Wait until all certificates have been read, so that no status reports a certificate as missing too early.
		select {
		case <-t.w.certificates.waiting():
		case <-ctx.Done():
			return
		}
		t.ingresses(ctx, whole)
		t.services(ctx)
		t.gatewaysAndRoutes(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(restTime):
		}
		select {
		case <-ctx.Done():
			return
		case <-t.w.news:
			whole = false
		case <-look.C:
			whole = true
		}
	}
}

// ingresses writes the status of this proxy's Ingresses: of all, or of those that may have changed.
func (t *teller) ingresses(ctx context.Context, whole bool) {
	type one struct {
		object   *networkingv1.Ingress
		problems []route.Problem
	}
	t.w.mu.Lock()
	list, gone := map[route.Key]one{}, []route.Key{}
	status := t.addresses()
	if whole = whole || t.w.telling || !equality.Semantic.DeepEqual(status, t.at); whole {
		t.at = status
		for _, key := range t.w.build.Ours() {
			list[key] = one{t.w.objects[key], t.w.build.Problems(key)}
		}
		for key := range t.told {
			if _, ours := list[key]; !ours && key.Namespace != "" {
				gone = append(gone, key)
			}
		}
	} else {
		for key := range t.w.untold {
			if t.w.build.Has(route.Source{Namespace: key.Namespace, Name: key.Name}) {
				list[key] = one{t.w.objects[key], t.w.build.Problems(key)}
			} else {
				gone = append(gone, key)
			}
		}
	}
	t.w.telling = false
	clear(t.w.untold)
	classes := slices.Collect(maps.Values(t.w.classes))
	t.w.mu.Unlock()
	for _, key := range gone {
		delete(t.told, key)
	}
	for _, c := range classes {
		if p := route.ClassProblem(c); p != nil {
			t.event(route.Key{Name: c.Name}, c, []route.Problem{*p}, false)
		}
	}
	for key, in := range list {
		if ctx.Err() != nil {
			return
		}
		t.event(key, in.object, in.problems, true)
		if status == nil || equality.Semantic.DeepEqual(in.object.Status.LoadBalancer.Ingress, status) {
			continue
		}
		if err := t.write(ctx, in.object, status); err != nil {
			t.env.Log.Warn("write the status of an Ingress", "ingress", key, "err", err)
		}
	}
}

type object interface {
	runtime.Object
	metav1.Object
}

// event records that an object was processed, and its problems.
func (t *teller) event(key route.Key, object object, problems []route.Problem, sync bool) {
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.Reason+" "+p.Message)
	}
	text := fmt.Sprint(object.GetUID(), object.GetGeneration(), texts)
	if t.told[key] == text {
		return
	}
	t.told[key] = text
	if sync {
		t.events.Event(object, corev1.EventTypeNormal, "Sync", "Scheduled for sync")
	}
	for _, p := range problems {
		t.events.Event(object, corev1.EventTypeWarning, p.Reason, p.Message)
	}
}

// addresses returns the addresses of Ingresses. It returns nil if they are unknown; the written ones stay then.
func (t *teller) addresses() []networkingv1.IngressLoadBalancerIngress {
	var list []networkingv1.IngressLoadBalancerIngress
	if t.cfg.PublishService != "" {
		namespace, name, _ := strings.Cut(t.cfg.PublishService, "/")
		s := t.w.publish[route.Key{Namespace: namespace, Name: name}]
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
	for _, s := range t.w.slices[route.Key{Namespace: namespace, Name: name}] {
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

func (t *teller) write(
	ctx context.Context,
	in *networkingv1.Ingress,
	status []networkingv1.IngressLoadBalancerIngress,
) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	now := in.DeepCopy()
	now.Status.LoadBalancer.Ingress = status
	_, err := t.clients.NetworkingV1().Ingresses(in.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it was deleted, or the watch delivers a newer one
	}
	return err
}
