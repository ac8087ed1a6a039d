package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/tests/suites/chaos/check"
)

// namespace contains the recorded objects.
const namespace = "chaos"

// History records what clients do with a few keys and what answers they receive.
type History struct {
	start time.Time

	mu         sync.Mutex
	operations []check.Operation
	slowest    time.Duration // longest time between two answered operations of a client that uses all servers
	slowestAt  time.Duration
}

const (
	keyCount       = 4                // number of keys in use at a time
	keyLifetime    = 10 * time.Second // of a key, so that histories stay short enough to be checked
	operationPause = 60 * time.Millisecond
	// requestTimeout is the timeout of a request. After a write of unknown outcome, a client makes no other request
	// until this time is over. Each such write doubles the number of histories to check, and servers that have lost
	// their store answer with an error at once.
	requestTimeout = 5 * time.Second
)

// Client operates on the keys until ctx ends. every is true if it may use all servers.
func (h *History) Client(ctx context.Context, number int, every bool, api kubernetes.Interface) {
	r := rand.New(rand.NewPCG(uint64(number), 1))
	lastRead := map[string]corev1.ConfigMap{} // the object as this client last read it
	tick := time.NewTicker(operationPause)
	defer tick.Stop()
	answered := time.Now()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The key is unique to this run, because the history does not contain objects of earlier runs.
		key := fmt.Sprintf("k%d-%d-%d", h.start.Unix(), r.IntN(keyCount), time.Since(h.start)/keyLifetime)
		o := check.Operation{Client: number, Key: key, Kind: check.Get, Value: fmt.Sprintf("%d-%d", number, n)}
		last, seen := lastRead[key]
		switch at := r.IntN(10); {
		case at < 2 || !seen && at < 5:
			o.Kind = check.Create
		case at < 6 && seen:
			o.Kind = check.Update
		case at < 7 && seen:
			o.Kind = check.Delete
		}
		startedAt := time.Now()
		now, certain := h.request(ctx, api.CoreV1().RESTClient(), &o, last)
		if now != nil {
			lastRead[key] = *now
		} else if o.Outcome == check.OutcomeNotFound || o.Kind == check.Delete && o.Outcome == check.OutcomeOK {
			delete(lastRead, key)
		}
		h.mu.Lock()
		if certain {
			h.operations = append(h.operations, o)
		}
		if isDefinite := o.Outcome != check.OutcomeUnknown && o.Outcome != ""; isDefinite && every {
			if gap := time.Since(answered); gap > h.slowest {
				h.slowest, h.slowestAt = gap, time.Since(h.start)
			}
			answered = time.Now()
		}
		h.mu.Unlock()
		if o.Outcome == check.OutcomeUnknown {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(startedAt.Add(requestTimeout))):
			}
		}
	}
}

// request makes one request. It returns the object if the answer has it, and whether the operation belongs in the
// history. An operation that certainly did not take place does not.
func (h *History) request(
	ctx context.Context,
	api rest.Interface,
	o *check.Operation,
	last corev1.ConfigMap,
) (*corev1.ConfigMap, bool) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: o.Key, Namespace: namespace},
		Data:       map[string]string{"value": o.Value},
	}
	// There are no retries, because a request that is sent twice would have two outcomes.
	var request *rest.Request
	switch o.Kind {
	case check.Create:
		request = api.Post().Body(object)
	case check.Update:
		o.Base, object.ResourceVersion = last.Data["value"], last.ResourceVersion
		request = api.Put().Name(o.Key).Body(object)
	case check.Delete:
		o.Value = ""
		request = api.Delete().Name(o.Key).Body(&metav1.DeleteOptions{})
	default:
		o.Value = ""
		request = api.Get().Name(o.Key)
	}
	o.Call = time.Since(h.start)
	answer, err := request.Namespace(namespace).Resource("configmaps").MaxRetries(0).Do(ctx).Get()
	o.Return = time.Since(h.start)
	var dial *net.OpError
	switch {
	case err == nil:
		o.Outcome = check.OutcomeOK
	case apierrors.IsAlreadyExists(err):
		o.Outcome = check.OutcomeExists
	case apierrors.IsNotFound(err):
		o.Outcome = check.OutcomeNotFound
	case apierrors.IsConflict(err):
		o.Outcome = check.OutcomeConflict
	case errors.As(err, &dial) && dial.Op == "dial", o.Kind == check.Get:
		return nil, false
	default:
		o.Outcome = check.OutcomeUnknown
		return nil, true
	}
	got, ok := answer.(*corev1.ConfigMap)
	if err != nil || !ok {
		return nil, true
	}
	o.Revision = revision(got)
	if o.Kind == check.Get {
		o.Value = got.Data["value"]
	}
	return got, true
}

func revision(object runtime.Object) int64 {
	accessor, ok := object.(metav1.ObjectMetaAccessor)
	if !ok {
		return 0
	}
	var n int64
	_, _ = fmt.Sscan(accessor.GetObjectMeta().GetResourceVersion(), &n)
	return n
}

// Acknowledged returns the revisions of creates and updates that were answered with success.
func (h *History) Acknowledged() []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []int64
	for _, o := range h.operations {
		if o.Outcome == check.OutcomeOK && (o.Kind == check.Create || o.Kind == check.Update) {
			list = append(list, o.Revision)
		}
	}
	return list
}
