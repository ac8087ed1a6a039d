package ingress

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"clusterctl/daemons/ingress/route"
	"clusterctl/kube/kubernetes"
)

// secretWatcher follows individual Secrets: a proxy may read only the Secrets that Ingresses and Gateways refer to. The
// first maxWatched ones have a watch each. Further Secrets are polled in turn, so that their cost does not grow with
// their number.
type secretWatcher struct {
	client kubernetes.Interface
	log    *slog.Logger
	// changed is called with a Secret that changed, or nil if it does not exist or cannot be read. ctx ends when the
	// Secret is no longer followed.
	changed func(ctx context.Context, key route.Key, s *corev1.Secret)
	pause   time.Duration // minimum interval between polls of one Secret

	mu              sync.Mutex
	wg              sync.WaitGroup
	secrets         map[route.Key]*followedSecret
	watchCount      int               // number of followed Secrets with a watch
	polling         bool              // whether poll runs
	readNow         []*followedSecret // Secrets to read now: new ones and early retries
	pollQueue       []*followedSecret // Secrets to poll, ordered by pollAt
	wake            chan struct{}
	unansweredCount int           // number of followed Secrets that have not been answered yet
	allAnswered     chan struct{} // closed when unansweredCount becomes 0; replaced when it increases again
}

type followedSecret struct {
	key             route.Key
	ctx             context.Context //nolint:containedctx // ends when the Secret is no longer followed
	cancel          context.CancelFunc
	hasWatch        bool
	isKnown         bool      // a read has succeeded or failed
	reportedVersion string    // the last reported resourceVersion, or none
	failures        int       // consecutive failures
	forbiddenCount  int       // consecutive forbidden responses
	pollAt          time.Time // time of the next poll
}

// noVersion is the reported version of a Secret that does not exist.
const noVersion = "-"

const (
	maxWatched     = 256
	pollSpacing    = 50 * time.Millisecond // interval between two polls
	pollInterval   = 10 * time.Second      // minimum interval between polls of one Secret
	maxFirstReads  = 8                     // concurrent first reads
	maxForbidden   = 5                     // failures before a Secret is only polled, or counts as forbidden
	minSecretRetry = 200 * time.Millisecond
	maxSecretRetry = 30 * time.Second
)

func newSecretWatcher(client kubernetes.Interface, log *slog.Logger,
	changed func(context.Context, route.Key, *corev1.Secret)) *secretWatcher {
	s := &secretWatcher{client: client, log: log, changed: changed, pause: pollInterval,
		secrets: map[route.Key]*followedSecret{},
		wake:    make(chan struct{}, 1), allAnswered: make(chan struct{})}
	close(s.allAnswered)
	return s
}

// follow follows a Secret until unfollow is called, or ctx ends.
func (s *secretWatcher) follow(ctx context.Context, key route.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets[key] != nil {
		return
	}
	f := &followedSecret{key: key, hasWatch: s.watchCount < maxWatched}
	f.ctx, f.cancel = context.WithCancel(ctx)
	s.secrets[key] = f
	if s.unansweredCount++; s.unansweredCount == 1 {
		s.allAnswered = make(chan struct{})
	}
	if f.hasWatch {
		s.watchCount++
		s.wg.Go(func() { s.runWatch(f) })
		return
	}
	s.readNow = append(s.readNow, f)
	signal(s.wake)
	if !s.polling {
		s.polling = true
		s.wg.Go(func() { s.poll(ctx) })
	}
}

// unfollow stops following a Secret.
func (s *secretWatcher) unfollow(key route.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.secrets[key]
	if f == nil {
		return
	}
	f.cancel()
	delete(s.secrets, key)
	if f.hasWatch {
		s.watchCount--
	}
	s.markAnswered(f)
}

// markAnswered records that the first read of a Secret succeeded or failed. The caller holds mu.
func (s *secretWatcher) markAnswered(f *followedSecret) {
	if f.isKnown {
		return
	}
	f.isKnown = true
	if s.unansweredCount--; s.unansweredCount == 0 {
		close(s.allAnswered)
	}
}

// whenAnswered returns a channel that is closed when every followed Secret has been answered.
func (s *secretWatcher) whenAnswered() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allAnswered
}

// wait waits until all goroutines have ended. Call it after the ctx of follow has ended.
func (s *secretWatcher) wait() { s.wg.Wait() }

// reportChange reports a Secret to changed if its version differs from the last reported one.
func (s *secretWatcher) reportChange(f *followedSecret, secret *corev1.Secret) {
	version := noVersion
	if secret != nil {
		version, secret = secret.ResourceVersion, trimSecret(secret)
	}
	if f.reportedVersion == "" || f.reportedVersion != version {
		f.reportedVersion = version
		s.changed(f.ctx, f.key, secret)
	}
	s.mu.Lock()
	s.markAnswered(f)
	s.mu.Unlock()
}

// runWatch follows a Secret with a watch.
func (s *secretWatcher) runWatch(f *followedSecret) {
	pause := minSecretRetry
	for f.ctx.Err() == nil {
		version, err := s.read(f)
		if err == nil {
			err = s.watch(f, version)
		}
		if err == nil {
			pause = minSecretRetry
		} else {
			s.recordFailure(f, err)
		}
		select {
		case <-f.ctx.Done():
		case <-time.After(pause):
		}
		if err != nil {
			pause = min(2*pause, maxSecretRetry)
		}
	}
}

// recordFailure records that a Secret cannot be read, so that other Secrets do not wait for it.
func (s *secretWatcher) recordFailure(f *followedSecret, err error) {
	if f.ctx.Err() != nil {
		return
	}
	s.log.Debug("follow a secret", "secret", f.key, "err", err)
	s.mu.Lock()
	s.markAnswered(f)
	s.mu.Unlock()
}

// read reads the Secret and returns the version to watch from. A missing Secret is reported as nil. A forbidden Secret
// is reported as nil at once if it was never read. If it was read before, it is reported only after several refusals:
// an API server that has just started may not know the references yet. Other failures report nothing.
func (s *secretWatcher) read(f *followedSecret) (version string, err error) {
	ctx, cancel := context.WithTimeout(f.ctx, callTimeout)
	defer cancel()
	secret, err := s.client.CoreV1().Secrets(f.key.Namespace).Get(ctx, f.key.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		f.forbiddenCount = 0
		s.reportChange(f, secret)
		return secret.ResourceVersion, nil
	case apierrors.IsNotFound(err):
		f.forbiddenCount = 0
		s.reportChange(f, nil)
		return "", nil
	case apierrors.IsForbidden(err):
		if f.forbiddenCount++; f.reportedVersion == "" || f.forbiddenCount > maxForbidden {
			s.reportChange(f, nil)
		}
	}
	return "", err
}

// watch reports changes until the watch ends.
func (s *secretWatcher) watch(f *followedSecret, version string) error {
	w, err := s.client.CoreV1().Secrets(f.key.Namespace).Watch(f.ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, f.key.Name).String(),
		ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		var event apiwatch.Event
		select {
		case <-f.ctx.Done():
			return nil
		case e, open := <-w.ResultChan():
			if !open {
				return nil
			}
			event = e
		}
		secret, ok := event.Object.(*corev1.Secret)
		switch {
		case event.Type == apiwatch.Error:
			return apierrors.FromObject(event.Object)
		case !ok || secret.Name != f.key.Name:
		case event.Type == apiwatch.Added, event.Type == apiwatch.Modified:
			s.reportChange(f, secret)
		case event.Type == apiwatch.Deleted:
			s.reportChange(f, nil)
		}
	}
}

// poll reads the Secrets without a watch until ctx ends: new ones at once, the others in turn.
func (s *secretWatcher) poll(ctx context.Context) {
	for ctx.Err() == nil {
		some, again := s.nextReads()
		var reading sync.WaitGroup
		for _, f := range some {
			reading.Go(func() { s.pollSecret(f) })
		}
		reading.Wait()
		if again {
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-time.After(pollSpacing):
		}
	}
}

// nextReads returns the Secrets to read now. again is true if the caller must not pause afterwards.
func (s *secretWatcher) nextReads() (some []*followedSecret, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.readNow) > 0 && len(some) < maxFirstReads {
		f := s.readNow[0]
		if s.readNow = s.readNow[1:]; s.secrets[f.key] == f {
			some = append(some, f)
		}
	}
	again = len(some) > 0
	for len(s.pollQueue) > 0 && len(some) == 0 {
		f := s.pollQueue[0]
		if s.secrets[f.key] == f && time.Now().Before(f.pollAt) {
			break // the following ones are due later
		}
		if s.pollQueue = s.pollQueue[1:]; s.secrets[f.key] == f {
			some = append(some, f)
		}
	}
	return some, again
}

// pollSecret reads a Secret without a watch, and schedules its next read.
func (s *secretWatcher) pollSecret(f *followedSecret) {
	_, err := s.read(f)
	if err != nil {
		s.recordFailure(f, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.failures++; err == nil {
		f.failures = 0
	}
	if f.failures == 0 || f.failures > maxForbidden {
		f.pollAt = time.Now().Add(s.pause)
		s.pollQueue = append(s.pollQueue, f)
		return
	}
	time.AfterFunc(minSecretRetry<<f.failures, func() {
		s.mu.Lock()
		s.readNow = append(s.readNow, f)
		s.mu.Unlock()
		signal(s.wake)
	})
}

// trimSecret returns a copy of a Secret with only the fields that the daemon reads.
func trimSecret(o *corev1.Secret) *corev1.Secret {
	c := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name,
		ResourceVersion: o.ResourceVersion, UID: o.UID}, Type: o.Type, Data: map[string][]byte{}}
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		c.Data[name] = o.Data[name]
	}
	return c
}
