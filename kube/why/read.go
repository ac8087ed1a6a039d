package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"clusterctl/kube/kubernetes"
)

const (
	pageSize = 500
	maxPages = 20 // of a list
)

// reader reads what one report needs. It lists the objects of a kind in a namespace at most once.
type reader struct {
	clients Clients
	now     time.Time
	lists   map[string]listed // by what is listed
	unseen  []string

	foundNodes map[string]foundNode // those that were read without a list
}

type foundNode struct {
	node      *corev1.Node
	existence existence
}

// listed is a list that was read. Without isComplete, an object that is not in it may exist.
type listed struct {
	objects    any
	isComplete bool
}

func newReader(c Clients, now time.Time) *reader {
	return &reader{clients: c, now: now, lists: map[string]listed{}, foundNodes: map[string]foundNode{}}
}

func (r *reader) core() kubernetes.CoreV1 { return r.clients.Kubernetes.CoreV1() }

// miss records what could not be read.
func (r *reader) miss(what string, err error) {
	text := what + ": " + err.Error()
	switch {
	case apierrors.IsForbidden(err):
		text = what + ": forbidden"
	case apierrors.IsUnauthorized(err):
		text = what + ": unauthorized"
	case errors.Is(err, context.DeadlineExceeded):
		text = what + ": the API server did not answer in time"
	}
	if !slices.Contains(r.unseen, text) {
		r.unseen = append(r.unseen, text)
	}
}

type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}

type getter[P runtime.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (P, error)
}

// list returns the objects of a kind, and whether these are all of them.
func list[P runtime.Object, L runtime.Object](
	ctx context.Context, r *reader, what, namespace string, from lister[L],
) ([]P, bool) {
	if namespace != "" {
		what += " of namespace " + namespace
	}
	if cached, ok := r.lists[what]; ok {
		objects, _ := cached.objects.([]P)
		return objects, cached.isComplete
	}
	objects, isComplete := []P{}, true
	opts := metav1.ListOptions{Limit: pageSize}
	for page := 0; ; page++ {
		if page == maxPages {
			r.unseen = append(r.unseen, fmt.Sprintf("%s: only the first %d were read", what, len(objects)))
			isComplete = false
			break
		}
		answer, err := from.List(ctx, opts)
		if err != nil {
			r.miss(what, err)
			isComplete = false
			break
		}
		_ = meta.EachListItem(answer, func(o runtime.Object) error {
			if one, ok := o.(P); ok {
				objects = append(objects, one)
			}
			return nil
		}) // the function returns no error
		if m, err := meta.ListAccessor(answer); err == nil {
			opts.Continue = m.GetContinue()
		}
		if opts.Continue == "" {
			break
		}
	}
	r.lists[what] = listed{objects, isComplete}
	return objects, isComplete
}

// existence is what is known of an object after reading it.
type existence int

const (
	hidden existence = iota // it could not be read
	absent
	present
)

// find reads one object that another one refers to.
func find[P runtime.Object](ctx context.Context, r *reader, ref Ref, from getter[P]) (P, existence) {
	object, err := from.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return object, present
	case apierrors.IsNotFound(err):
		return object, absent
	}
	r.miss(ref.String(), err)
	return object, hidden
}

// read reads the object that is explained.
func read[P runtime.Object](ctx context.Context, ref Ref, from getter[P]) (P, error) {
	object, err := from.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return object, nil
	case apierrors.IsNotFound(err):
		return object, fmt.Errorf("%s does not exist", ref)
	case apierrors.IsForbidden(err):
		return object, &hiddenError{err}
	}
	return object, fmt.Errorf("read %s: %w", ref, err)
}

func (r *reader) pods(ctx context.Context, namespace string) ([]*corev1.Pod, bool) {
	if namespace == "" {
		return list[*corev1.Pod](ctx, r, "pods of all namespaces", "", r.core().Pods(""))
	}
	return list[*corev1.Pod](ctx, r, "pods", namespace, r.core().Pods(namespace))
}

// missesPods reports whether pods of a namespace were listed and some of them may be missing.
func (r *reader) missesPods(namespace string) bool {
	cached, ok := r.lists["pods of namespace "+namespace]
	return ok && !cached.isComplete
}

func (r *reader) nodes(ctx context.Context) ([]*corev1.Node, bool) {
	return list[*corev1.Node](ctx, r, "nodes", "", r.core().Nodes())
}

// findNode returns a node, or nil if it could not be read or does not exist.
func (r *reader) findNode(ctx context.Context, name string) (*corev1.Node, existence) {
	if cached, ok := r.lists["nodes"]; ok && cached.isComplete {
		all, _ := cached.objects.([]*corev1.Node)
		for _, n := range all {
			if n.Name == name {
				return n, present
			}
		}
		return nil, absent
	}
	if cached, ok := r.foundNodes[name]; ok {
		return cached.node, cached.existence
	}
	n, current := find(ctx, r, kindRef("Node", "", name), r.core().Nodes())
	r.foundNodes[name] = foundNode{n, current}
	return n, current
}

func (r *reader) claims(ctx context.Context, namespace string) ([]*corev1.PersistentVolumeClaim, bool) {
	return list[*corev1.PersistentVolumeClaim](ctx, r, "persistentvolumeclaims", namespace,
		r.core().PersistentVolumeClaims(namespace))
}

func (r *reader) services(ctx context.Context, namespace string) ([]*corev1.Service, bool) {
	return list[*corev1.Service](ctx, r, "services", namespace, r.core().Services(namespace))
}

func (r *reader) replicaSets(ctx context.Context, namespace string) ([]*appsv1.ReplicaSet, bool) {
	return list[*appsv1.ReplicaSet](ctx, r, "replicasets", namespace,
		r.clients.Kubernetes.AppsV1().ReplicaSets(namespace))
}

func (r *reader) jobs(ctx context.Context, namespace string) ([]*batchv1.Job, bool) {
	return list[*batchv1.Job](ctx, r, "jobs", namespace, r.clients.Kubernetes.BatchV1().Jobs(namespace))
}

func (r *reader) policies(ctx context.Context, namespace string) ([]*networkingv1.NetworkPolicy, bool) {
	return list[*networkingv1.NetworkPolicy](ctx, r, "networkpolicies", namespace,
		r.clients.Kubernetes.NetworkingV1().NetworkPolicies(namespace))
}

func (r *reader) volumes(ctx context.Context) ([]*corev1.PersistentVolume, bool) {
	return list[*corev1.PersistentVolume](ctx, r, "persistentvolumes", "", r.core().PersistentVolumes())
}

func (r *reader) slices(ctx context.Context, namespace string) ([]*discoveryv1.EndpointSlice, bool) {
	return list[*discoveryv1.EndpointSlice](ctx, r, "endpointslices", namespace,
		r.clients.Kubernetes.DiscoveryV1().EndpointSlices(namespace))
}

// dynamicList reads objects of a kind for which there is no typed client.
func (r *reader) dynamicList(
	ctx context.Context, kind schema.GroupVersionResource, namespace string,
) ([]*unstructured.Unstructured, bool) {
	if r.clients.Dynamic == nil {
		return nil, false
	}
	var from dynamic.ResourceInterface = r.clients.Dynamic.Resource(kind)
	if namespace != "" {
		from = r.clients.Dynamic.Resource(kind).Namespace(namespace)
	}
	return list[*unstructured.Unstructured](ctx, r, kind.GroupResource().String(), namespace, from)
}

// eventsOf returns the events of an object, the latest first.
func (r *reader) eventsOf(ctx context.Context, ref Ref, object metav1.Object) []*corev1.Event {
	namespace := cmp.Or(ref.Namespace, metav1.NamespaceDefault)
	all, _ := list[*corev1.Event](ctx, r, "events", namespace, r.core().Events(namespace))
	var out []*corev1.Event
	for _, e := range all {
		of := e.InvolvedObject
		if of.Kind != ref.Kind || of.Name != ref.Name {
			continue
		}
		// A node's events have its name as their UID.
		if uid := object.GetUID(); uid != "" && of.UID != "" && of.UID != uid && ref.Kind != "Node" {
			continue
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b *corev1.Event) int { return EventTime(b).Compare(EventTime(a)) })
	return out
}

// EventTime returns when an event occurred last.
func EventTime(e *corev1.Event) time.Time {
	latest := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(latest) {
			latest = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(latest) {
		latest = e.Series.LastObservedTime.Time
	}
	return latest
}

// mayReadEvents reports whether the events of a namespace could be read, so that a missing one means something.
func (r *reader) mayReadEvents(namespace string) bool {
	return r.lists["events of namespace "+namespace].isComplete
}

// findEvent returns the latest event that has one of the reasons, or nil.
func findEvent(events []*corev1.Event, reasons ...string) *corev1.Event {
	for _, e := range events {
		if slices.Contains(reasons, e.Reason) {
			return e
		}
	}
	return nil
}

// eventEvidence names an event.
func eventEvidence(e *corev1.Event) string {
	text := "event " + e.Reason
	if n := e.Count; n > 1 {
		text += fmt.Sprintf(", %d times", n)
	}
	return text
}

// lastWords returns the last lines of a container's log, or "".
func (r *reader) lastWords(ctx context.Context, p *corev1.Pod, container string, previous bool) string {
	if r.clients.Logs == nil {
		return ""
	}
	text, err := r.clients.Logs(ctx, p, container, previous)
	if err != nil {
		r.miss(fmt.Sprintf("log of container %s of %s", container, refTo("Pod", p)), err)
		return ""
	}
	lines := strings.FieldsFunc(string(text[max(0, len(text)-logBytes):]), func(c rune) bool { return c == '\n' })
	return strings.Join(lines[max(0, len(lines)-logLines):], " | ")
}
