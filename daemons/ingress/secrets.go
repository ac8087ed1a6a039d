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

// secrets follows individual Secrets: a proxy may read only the Secrets that Ingresses and Gateways refer to. The first
// maxWatched ones have a watch each. Further Secrets are polled in turn, so that their cost does not grow with their
// number.
type secrets struct {
	client kubernetes.Interface
	log    *slog.Logger
	// changed is called with a Secret that changed, or nil if it does not exist or cannot be read. ctx ends when the
	// Secret is no longer followed.
	changed func(ctx context.Context, key route.Key, s *corev1.Secret)
	pause   time.Duration // minimum interval between polls of one Secret

	mu       sync.Mutex
	wg       sync.WaitGroup
	followed map[route.Key]*followed
	watched  int         // number of followed Secrets with a watch
	polling  bool        // whether poll runs
	first    []*followed // Secrets to read now: new ones and early retries
	turns    []*followed // Secrets to poll, ordered by due
	wake     chan struct{}
	unknown  int           // number of followed Secrets that have not been answered yet
	answered chan struct{} // closed when unknown becomes 0; replaced when it increases again
}

type followed struct {
	key     route.Key
	ctx     context.Context //nolint:containedctx // ends when the Secret is no longer followed
	cancel  context.CancelFunc
	watched bool
	known   bool      // a read has succeeded or failed
	seen    string    // the last reported resourceVersion, or none
	tries   int       // consecutive failures
	refused int       // consecutive forbidden responses
	due     time.Time // time of the next poll
}

// none is the reported version of a Secret that does not exist.
const none = "-"

const (
	maxWatched    = 256
	pollEvery     = 50 * time.Millisecond // interval between two polls
	turnEvery     = 10 * time.Second      // minimum interval between polls of one Secret
	firstAtOnce   = 8                     // concurrent first reads
	refusals      = 5                     // failures before a Secret is only polled, or counts as forbidden
	secretRetry   = 200 * time.Millisecond
	secretRetries = 30 * time.Second
)

func newSecrets(client kubernetes.Interface, log *slog.Logger,
	changed func(context.Context, route.Key, *corev1.Secret)) *secrets {
	s := &secrets{client: client, log: log, changed: changed, pause: turnEvery, followed: map[route.Key]*followed{},
		wake: make(chan struct{}, 1), answered: make(chan struct{})}
	close(s.answered)
	return s
}

// follow follows a Secret until forget is called, or ctx ends.
func (s *secrets) follow(ctx context.Context, key route.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed[key] != nil {
		return
	}
	f := &followed{key: key, watched: s.watched < maxWatched}
	f.ctx, f.cancel = context.WithCancel(ctx)
	s.followed[key] = f
	if s.unknown++; s.unknown == 1 {
		s.answered = make(chan struct{})
	}
	if f.watched {
		s.watched++
		s.wg.Go(func() { s.run(f) })
		return
	}
	s.first = append(s.first, f)
	signal(s.wake)
	if !s.polling {
		s.polling = true
		s.wg.Go(func() { s.poll(ctx) })
	}
}

// forget stops following a Secret.
func (s *secrets) forget(key route.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.followed[key]
	if f == nil {
		return
	}
	f.cancel()
	delete(s.followed, key)
	if f.watched {
		s.watched--
	}
	s.learn(f)
}

// learn records that the first read of a Secret succeeded or failed. The caller holds mu.
func (s *secrets) learn(f *followed) {
	if f.known {
		return
	}
	f.known = true
	if s.unknown--; s.unknown == 0 {
		close(s.answered)
	}
}

// waiting returns a channel that is closed when every followed Secret has been answered.
func (s *secrets) waiting() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// wait waits until all goroutines have ended. Call it after the ctx of follow has ended.
func (s *secrets) wait() { s.wg.Wait() }

// tell reports a Secret to changed if its version differs from the last reported one.
func (s *secrets) tell(f *followed, secret *corev1.Secret) {
	version := none
	if secret != nil {
		version, secret = secret.ResourceVersion, leanSecret(secret)
	}
	if f.seen == "" || f.seen != version {
		f.seen = version
		s.changed(f.ctx, f.key, secret)
	}
	s.mu.Lock()
	s.learn(f)
	s.mu.Unlock()
}

// run follows a Secret with a watch.
func (s *secrets) run(f *followed) {
	pause := secretRetry
	for f.ctx.Err() == nil {
		version, err := s.read(f)
		if err == nil {
			err = s.watch(f, version)
		}
		if err == nil {
			pause = secretRetry
		} else {
			s.failed(f, err)
		}
		select {
		case <-f.ctx.Done():
		case <-time.After(pause):
		}
		if err != nil {
			pause = min(2*pause, secretRetries)
		}
	}
}

// failed records that a Secret cannot be read, so that other Secrets do not wait for it.
func (s *secrets) failed(f *followed, err error) {
	if f.ctx.Err() != nil {
		return
	}
	s.log.Debug("follow a secret", "secret", f.key, "err", err)
	s.mu.Lock()
	s.learn(f)
	s.mu.Unlock()
}

// read reads the Secret and returns the version to watch from. A missing Secret is reported as nil. A forbidden Secret
// is reported as nil at once if it was never read. If it was read before, it is reported only after several refusals:
// an API server that has just started may not know the references yet. Other failures report nothing.
func (s *secrets) read(f *followed) (version string, err error) {
	ctx, cancel := context.WithTimeout(f.ctx, callTime)
	defer cancel()
	secret, err := s.client.CoreV1().Secrets(f.key.Namespace).Get(ctx, f.key.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		f.refused = 0
		s.tell(f, secret)
		return secret.ResourceVersion, nil
	case apierrors.IsNotFound(err):
		f.refused = 0
		s.tell(f, nil)
		return "", nil
	case apierrors.IsForbidden(err):
		if f.refused++; f.seen == "" || f.refused > refusals {
			s.tell(f, nil)
		}
	}
	return "", err
}

// watch reports changes until the watch ends.
func (s *secrets) watch(f *followed, version string) error {
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
			s.tell(f, secret)
		case event.Type == apiwatch.Deleted:
			s.tell(f, nil)
		}
	}
}

// poll reads the Secrets without a watch until ctx ends: new ones at once, the others in turn.
func (s *secrets) poll(ctx context.Context) {
	for ctx.Err() == nil {
		some, again := s.next()
		var reading sync.WaitGroup
		for _, f := range some {
			reading.Go(func() { s.look(f) })
		}
		reading.Wait()
		if again {
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-time.After(pollEvery):
		}
	}
}

// next returns the Secrets to read now. again is true if the caller must not pause afterwards.
func (s *secrets) next() (some []*followed, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.first) > 0 && len(some) < firstAtOnce {
		f := s.first[0]
		if s.first = s.first[1:]; s.followed[f.key] == f {
			some = append(some, f)
		}
	}
	again = len(some) > 0
	for len(s.turns) > 0 && len(some) == 0 {
		f := s.turns[0]
		if s.followed[f.key] == f && time.Now().Before(f.due) {
			break // the following ones are due later
		}
		if s.turns = s.turns[1:]; s.followed[f.key] == f {
			some = append(some, f)
		}
	}
	return some, again
}

// look reads a Secret without a watch, and schedules its next read.
func (s *secrets) look(f *followed) {
	_, err := s.read(f)
	if err != nil {
		s.failed(f, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.tries++; err == nil {
		f.tries = 0
	}
	if f.tries == 0 || f.tries > refusals {
		f.due = time.Now().Add(s.pause)
		s.turns = append(s.turns, f)
		return
	}
	time.AfterFunc(secretRetry<<f.tries, func() {
		s.mu.Lock()
		s.first = append(s.first, f)
		s.mu.Unlock()
		signal(s.wake)
	})
}

// leanSecret returns a copy of a Secret with only the fields that the daemon reads.
func leanSecret(o *corev1.Secret) *corev1.Secret {
	c := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name,
		ResourceVersion: o.ResourceVersion, UID: o.UID}, Type: o.Type, Data: map[string][]byte{}}
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		c.Data[name] = o.Data[name]
	}
	return c
}
