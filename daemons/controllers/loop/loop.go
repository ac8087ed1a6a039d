// Package loop is the base of all controllers: a queue of keys fed by watches, workers that sync one key at a time,
// retries with back-off, and expectations about writes that the watch has not shown yet. Each controller defines what a
// sync does.
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

// Context holds the dependencies of a controller.
type Context struct {
	Client    kubernetes.Interface
	Dynamic   dynamic.Interface
	Metadata  metadata.Interface
	Informers *informers.Factory
	Events    record.EventRecorder
	Config    config.ControllerManager
	Log       *slog.Logger
	Clock     clock.WithTicker          // nil means the real clock; all timers use it
	Queues    workqueue.MetricsProvider // counts the queues' items; nil means that they are not counted
	Metrics   prometheus.Registerer     // registers the controllers' own metrics; nil means that there are none
	Followers *Followers                // of the shared caches; nil means that each controller has its own handlers
	// AliveWithoutHeartbeat reports whether a node is known to be alive without a heartbeat of its own. nil means that
	// no node is.
	AliveWithoutHeartbeat func(node string) bool
}

// Now returns the time of the controllers' clock.
func (c Context) Now() time.Time { return c.clock().Now() }

// After returns a channel that receives the time after d has passed.
func (c Context) After(d time.Duration) <-chan time.Time { return c.clock().After(d) }

// NewTicker returns a ticker of the controllers' clock. The caller stops it.
func (c Context) NewTicker(period time.Duration) clock.Ticker { return c.clock().NewTicker(period) }

func (c Context) clock() clock.WithTicker {
	if c.Clock == nil {
		return clock.RealClock{}
	}
	return c.Clock
}

// RegisterMetrics registers a controller's own metrics. They replace those of a controller that ran here under an
// earlier lease.
func (c Context) RegisterMetrics(metrics prometheus.Collector) {
	if c.Metrics == nil {
		return
	}
	var former prometheus.AlreadyRegisteredError
	if err := c.Metrics.Register(metrics); errors.As(err, &former) {
		c.Metrics.Unregister(former.ExistingCollector)
		c.Metrics.MustRegister(metrics)
	}
}

// RootCA returns the bundle that verifies the API server, or nil if none is configured. It reads the file each time,
// because a rotation replaces it.
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

// Controller runs until its context ends. It is created before the informers start, so that it can request those that
// it needs.
type Controller interface {
	Run(ctx context.Context) error
}

// Loop is the usual controller: it calls Sync for each queued key until Sync succeeds.
type Loop struct {
	Name            string
	QueueMetricName string // upstream's name of the queue, used in metrics; empty means Name
	Workers         int    // zero means 5
	Context         Context
	// Sync reconciles one key. It must be safe to repeat. After an error the key is queued again with back-off.
	Sync func(ctx context.Context, key string) error
	// Synced holds the caches that must be filled before the first Sync.
	Synced []cache.InformerSynced

	once  sync.Once
	queue workqueue.TypedRateLimitingInterface[string]
}

// Queue returns the loop's queue.
func (l *Loop) Queue() workqueue.TypedRateLimitingInterface[string] {
	l.once.Do(func() {
		l.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 2*time.Minute),
			workqueue.TypedRateLimitingQueueConfig[string]{
				Name: cmp.Or(l.QueueMetricName, l.Name), MetricsProvider: l.Context.Queues, Clock: l.Context.clock()})
	})
	return l.queue
}

// Add queues an object by its key.
func (l *Loop) Add(obj any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		l.Queue().Add(key)
	}
}

// AddAfter queues a key after a delay.
func (l *Loop) AddAfter(key string, after time.Duration) { l.Queue().AddAfter(key, after) }

// Run processes the queue until ctx ends.
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
			for l.processNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
	return nil
}

// syncTimeout bounds one Sync, so that a server that hangs does not block a worker for good.
const syncTimeout = 2 * time.Minute

func (l *Loop) processNext(ctx context.Context) bool {
	key, stop := l.queue.Get()
	if stop {
		return false
	}
	defer l.queue.Done(key)
	sync, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	err := l.Sync(sync, key)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = nil // nothing can be created in a namespace that is being deleted, and its objects are deleted
	}
	if err != nil {
		level := slog.LevelInfo
		if apierrors.IsConflict(err) || ctx.Err() != nil {
			level = slog.LevelDebug // the cache was behind, which is not a fault
		}
		l.Context.Log.Log(ctx, level, "will try again", "controller", l.Name, "key", key, "reason", err)
		l.queue.AddRateLimited(key)
		return true
	}
	l.queue.Forget(key)
	return true
}

// OwnerKey returns the key of obj's controller if it has the given kind, or "". Controllers are in the namespace of
// obj.
func OwnerKey(obj metav1.Object, kind string) string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil && ref.Kind == kind {
		return obj.GetNamespace() + "/" + ref.Name
	}
	return ""
}
