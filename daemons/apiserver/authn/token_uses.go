package authn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lastUsedLabel is the label of a Secret with the day on which its token was last used.
const lastUsedLabel = "kubernetes.io/legacy-token-last-used"

const (
	// maxQueuedUses is how many Secrets may wait to be labelled. Further uses are recorded when the token is used
	// again.
	maxQueuedUses = 256
	// relabelAfter is how long to wait for a label to appear before it is written again.
	relabelAfter = 10 * time.Minute
)

// tokenUses counts uses of tokens in Secrets, and queues the Secrets whose label must be updated.
type tokenUses struct {
	all, auto, manual, invalid prometheus.Counter
	queue                      chan tokenUse

	mu     sync.Mutex
	queued map[types.NamespacedName]time.Time
}

// tokenUse is the use of a Secret's token on a day.
type tokenUse struct {
	secret types.NamespacedName
	day    string
}

func newUses() *tokenUses {
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "serviceaccount_" + name, Help: help})
	}
	return &tokenUses{
		all:     count("legacy_tokens_total", "Uses of service accounts' tokens that lie in Secrets."),
		auto:    count("legacy_auto_token_uses_total", "Uses of those whose Secret the service account lists."),
		manual:  count("legacy_manual_token_uses_total", "Uses of those whose Secret it does not list."),
		invalid: count("invalid_legacy_auto_token_uses_total", "Uses of those that are marked invalid."),
		queue:   make(chan tokenUse, maxQueuedUses), queued: map[types.NamespacedName]time.Time{},
	}
}

// record queues a label for a Secret whose token is used, unless it has that label already.
func (u *tokenUses) record(secret *corev1.Secret, now time.Time) {
	now = now.UTC()
	day, current := now.Format(time.DateOnly), secret.Labels[lastUsedLabel]
	if current == day || current == now.AddDate(0, 0, 1).Format(time.DateOnly) { // another server may be a day ahead
		return
	}
	key := types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}
	u.mu.Lock()
	defer u.mu.Unlock()
	if at, ok := u.queued[key]; ok && now.Sub(at) < relabelAfter {
		return
	}
	select {
	case u.queue <- tokenUse{key, day}:
	default:
		return
	}
	if len(u.queued) >= maxRemembered {
		clear(u.queued)
	}
	u.queued[key] = now
}

// count counts a use of a Secret's token.
func (u *tokenUses) count(account *corev1.ServiceAccount, secret string) {
	u.all.Inc()
	for _, listed := range account.Secrets {
		if listed.Name == secret {
			u.auto.Inc()
			return
		}
	}
	u.manual.Inc()
}

// RegisterMetrics registers the metrics of uses of tokens in Secrets.
func (t *Tokens) RegisterMetrics(to prometheus.Registerer) error {
	return errors.Join(to.Register(t.uses.all), to.Register(t.uses.auto), to.Register(t.uses.manual),
		to.Register(t.uses.invalid))
}

// RecordUses calls label with the day on which the token of a Secret was used, until ctx ends.
func (t *Tokens) RecordUses(
	ctx context.Context,
	label func(ctx context.Context, namespace, name, key, day string) error,
	log *slog.Logger,
) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-t.uses.queue:
			bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
			err := label(bounded, one.secret.Namespace, one.secret.Name, lastUsedLabel, one.day)
			cancel()
			if err != nil && ctx.Err() == nil {
				log.Warn("the use of a token could not be noted on its secret", "secret", one.secret, "err", err)
			}
		}
	}
}
