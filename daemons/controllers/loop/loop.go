// Package loop is what all controllers share: a queue of keys fed by watches, workers
// that bring one key at a time from what is to what should be, retries with back-off,
// and expectations about writes that the watch has not yet shown. What to do about a
// key is each controller's own.
package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/kube/kubernetes"
)

// Context is what every controller is made from.
type Context struct {
	Client    kubernetes.Interface
	Dynamic   dynamic.Interface
	Metadata  metadata.Interface
	Informers *informers.Factory
	Events    record.EventRecorder
	Config    config.ControllerManager
	Log       *slog.Logger
	Clock     clock.WithTicker          // nil means the real one; all that waits goes by it
	Queues    workqueue.MetricsProvider // what counts what goes through queues; nil means that nothing does
	Metrics   prometheus.Registerer     // what controllers count of themselves; nil means that nobody asks
	Followers *Followers                // of the shared caches; nil means that each controller has handlers of its own
	// Vouched says of which nodes it is known that they live, without a word of theirs; nil means of none.
	Vouched func(node string) bool
}

// Now is the time by the controllers' clock.
func (c Context) Now() time.Time { return c.clock().Now() }

// After is sent the time once that much of it has passed.
func (c Context) After(d time.Duration) <-chan time.Time { return c.clock().After(d) }

// NewTicker returns a ticker of the controllers' clock. Who asks for it stops it.
func (c Context) NewTicker(period time.Duration) clock.Ticker { return c.clock().NewTicker(period) }

func (c Context) clock() clock.WithTicker {
	if c.Clock == nil {
		return clock.RealClock{}
	}
	return c.Clock
}

// Count has a controller's own metrics served, in the place of those of one that led before.
func (c Context) Count(metrics prometheus.Collector) {
	if c.Metrics == nil {
		return
	}
	var former prometheus.AlreadyRegisteredError
	if err := c.Metrics.Register(metrics); errors.As(err, &former) {
		c.Metrics.Unregister(former.ExistingCollector)
		c.Metrics.MustRegister(metrics)
	}
}

// RootCA is the bundle that the API server is verified with, nil where none is configured; read each time, for a
// rotation replaces the file.
func (c Context) RootCA() ([]byte, error) {
	if c.Config.RootCAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.Config.RootCAFile)
	if err != nil {
		return nil, fmt.Errorf("read the root CA: %w", err)
	}
	return text, nil
}

// A Controller runs until its context ends. It is made before the informers start,
// so that it can say which it needs.
type Controller interface {
	Run(ctx context.Context) error
}

// Loop is the usual controller: keys in, Sync until there is nothing left to do.
type Loop struct {
	Name    string
	Counted string // what upstream calls the queue, which dashboards know it by; empty means Name
	Workers int    // zero means 5
	Context Context
	// Sync brings one key to where it should be. It must be safe to repeat. An
	// error makes the loop try again later.
	Sync func(ctx context.Context, key string) error
	// Synced are the caches that must be filled before the first Sync.
	Synced []cache.InformerSynced

	once  sync.Once
	queue workqueue.TypedRateLimitingInterface[string]
}

// Queue is the loop's queue.
func (l *Loop) Queue() workqueue.TypedRateLimitingInterface[string] {
	l.once.Do(func() {
		l.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 2*time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{
				Name: cmp.Or(l.Counted, l.Name), MetricsProvider: l.Context.Queues, Clock: l.Context.clock()})
	})
	return l.queue
}

// Add queues an object by its key.
func (l *Loop) Add(obj any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		l.Queue().Add(key)
	}
}

// AddAfter queues a key at a later time.
func (l *Loop) AddAfter(key string, after time.Duration) { l.Queue().AddAfter(key, after) }

// Run works off the queue until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	queue := l.Queue()
	defer queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), l.Synced...) {
		return fmt.Errorf("controller %s: %w before its caches were filled", l.Name, ctx.Err())
	}
	workers := l.Workers
	if workers == 0 {
		workers = 5
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for l.step(ctx) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
	return nil
}

// syncTimeout bounds one Sync, so that a server that hangs does not hold a worker for good.
const syncTimeout = 2 * time.Minute

func (l *Loop) step(ctx context.Context) bool {
	key, stop := l.queue.Get()
	if stop {
		return false
	}
	defer l.queue.Done(key)
	sync, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	err := l.Sync(sync, key)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = nil // nothing can be made there any more, and what is there goes
	}
	if err != nil {
		level := slog.LevelInfo
		if apierrors.IsConflict(err) || ctx.Err() != nil {
			level = slog.LevelDebug // the cache was behind, which is nobody's trouble
		}
		l.Context.Log.Log(ctx, level, "will try again", "controller", l.Name, "key", key, "reason", err)
		l.queue.AddRateLimited(key)
		return true
	}
	l.queue.Forget(key)
	return true
}

// Owner returns the key of obj's controller in obj's namespace when that is of a kind,
// or "".
func Owner(obj metav1.Object, kind string) string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil && ref.Kind == kind {
		return obj.GetNamespace() + "/" + ref.Name
	}
	return ""
}
