package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/tests/lab/plane"
)

const benchNamespace = "bench"

// controlPlane is a control plane with a running API server, and its administrator's client.
type controlPlane struct {
	*plane.Plane
	kubernetes.Interface
	meta      metadata.Interface
	config    *rest.Config
	profiles  string
	profilers errgroup.Group // profilers
}

// withControlPlane creates a control plane, calls work and closes the control plane.
func (b *bench) withControlPlane(ctx context.Context, work func(context.Context, *controlPlane) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-scheduler-")
	if err != nil {
		return err
	}
	p, err := plane.New(
		ctx,
		plane.Options{
			Bin:       b.bin,
			Dir:       dir,
			Profiling: b.profiles != "",
			ControllerSettings: func(c *config.ControllerManager) {
				c.NodeMonitorGracePeriod = 24 * time.Hour
			},
		},
	)
	if err != nil {
		return err
	}
	c := &controlPlane{Plane: p, profiles: b.profiles}
	defer func() { err = errors.Join(err, c.profilers.Wait(), p.Close()) }()
	if err := p.API[0].Start(ctx); err != nil {
		return err
	}
	if err := p.Ready(ctx, 0); err != nil {
		return err
	}
	if c.config, err = client.Config(client.Options{Kubeconfig: p.Kubeconfig(),
		UserAgent: "bench-scheduler"}); err != nil {
		return err
	}
	if c.Interface, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	if c.meta, err = metadata.NewForConfig(c.config); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	return work(ctx, c)
}

// prepare creates the namespace, and the service account that admission requires for pods.
func (c *controlPlane) prepare(ctx context.Context) error {
	if _, err := c.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.CoreV1().
		ServiceAccounts(benchNamespace).
		Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	return err
}

// eachParallel calls f for all numbers below n, up to atOnce at a time. It stops at the first error.
func eachParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	const atOnce = 32
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// watchUntil reads a watch until enough returns true. If the watch ends, it opens another at the last resource version.
func watchUntil(
	ctx context.Context,
	version string,
	open func(metav1.ListOptions) (watch.Interface, error),
	enough func(watch.Event) bool,
) error {
	for {
		w, err := open(metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(metav1.Object)
			if !ok {
				w.Stop()
				return fmt.Errorf("watch: %w", apierrors.FromObject(e.Object))
			}
			if version = o.GetResourceVersion(); enough(e) {
				w.Stop()
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// requests returns the number of requests for a resource that the API server has answered, without watches.
func (c *controlPlane) requests(ctx context.Context, resource string) (total float64, err error) {
	text, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="`+resource+`"`) ||
			strings.Contains(line, `verb="WATCH"`) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			return 0, fmt.Errorf("read the API server's metrics: %w", err)
		}
		total += n
	}
	return total, nil
}

// awaitControllers waits until the controllers have created the objects that every namespace receives, and are idle.
func (c *controlPlane) awaitControllers(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(
		ctx,
		50*time.Millisecond,
		5*time.Minute,
		true,
		func(ctx context.Context) (bool, error) {
			_, err := c.CoreV1().ConfigMaps(benchNamespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return err == nil, nil
		},
	)
	if err != nil {
		return fmt.Errorf("controllers have not started: %w", err)
	}
	return awaitIdle(ctx, c.Controllers, c.API[0])
}
