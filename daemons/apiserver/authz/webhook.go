package authz

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/remote"
)

// webhook authorizes requests by calling another server, if its match conditions match. It caches the decisions.
type webhook struct {
	name            string
	server          *remote.Server
	matcher         *authorizationcel.CELMatcher // nil if the webhook is called for every request
	timeout         time.Duration                // of a call, including retries
	allowTTL        time.Duration                // how long a decision is cached
	denyTTL         time.Duration
	failureDecision api.Decision // the decision if the call fails
	now             func() time.Time

	mu      sync.Mutex
	answers map[[sha256.Size]byte]cachedDecision
}

type cachedDecision struct {
	decision api.Decision
	reason   string
	until    time.Time
}

const maxAnswers = 8192

func newWebhook(
	name string,
	c *apiserver.WebhookConfiguration,
	matcher *authorizationcel.CELMatcher,
	other func(path string) ([]byte, error),
	now func() time.Time,
) (*webhook, error) {
	if c.ConnectionInfo.Type != apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile ||
		c.ConnectionInfo.KubeConfigFile == nil {
		return nil, fmt.Errorf("authorizer %s: connectionInfo must be of type %s", name,
			apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile)
	}
	path := *c.ConnectionInfo.KubeConfigFile
	text, err := other(path)
	if err != nil {
		return nil, fmt.Errorf("authorizer %s: read the webhook's configuration: %w", name, err)
	}
	server, err := remote.New(text, path, c.Timeout.Duration, other)
	if err != nil {
		return nil, fmt.Errorf("authorizer %s: %w", name, err)
	}
	w := &webhook{name: name, server: server, matcher: matcher, timeout: c.Timeout.Duration, now: now}
	if c.CacheAuthorizedRequests {
		w.allowTTL = c.AuthorizedTTL.Duration
	}
	if c.CacheUnauthorizedRequests {
		w.denyTTL = c.UnauthorizedTTL.Duration
	}
	if c.FailurePolicy == apiserver.FailurePolicyDeny {
		w.failureDecision = api.Deny
	}
	return w, nil
}

// Authorize calls the webhook, unless the decision is cached.
func (w *webhook) Authorize(ctx context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	review := reviewOf(u, r)
	if matches, err := w.matchesConditions(ctx, review); err != nil {
		return w.failureDecision, "", err
	} else if !matches {
		return api.NoOpinion, "", nil
	}
	digest, err := w.digest(review)
	if err != nil {
		return w.failureDecision, "", err
	}
	if a, ok := w.cachedAnswer(digest); ok {
		return a.decision, a.reason, nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	if err := w.server.Review(ctx, review); err != nil {
		return w.failureDecision, "", fmt.Errorf("authorizer %s: %w", w.name, err)
	}
	if review.Status.Allowed && review.Status.Denied {
		return api.Deny, review.Status.Reason, fmt.Errorf("authorizer %s: its answer both allows and denies", w.name)
	}
	a := cachedDecision{reason: review.Status.Reason, until: w.now().Add(w.denyTTL)}
	switch {
	case review.Status.Allowed:
		a.decision, a.until = api.Allow, w.now().Add(w.allowTTL)
	case review.Status.Denied:
		a.decision = api.Deny
	}
	w.remember(digest, a)
	return a.decision, a.reason, nil
}

// TryAuthorize decides without a call: if no condition matches, or if the decision is cached.
func (w *webhook) TryAuthorize(u api.User, r api.Request) (api.Decision, string, bool) {
	review := reviewOf(u, r)
	matches, err := w.matchesConditions(context.Background(), review) // evaluating expressions needs no waiting
	if err != nil || !matches {
		return api.NoOpinion, "", err != nil
	}
	digest, err := w.digest(review)
	if err != nil {
		return api.NoOpinion, "", true
	}
	a, ok := w.cachedAnswer(digest)
	return a.decision, a.reason, !ok
}

// matchesConditions reports whether the match conditions match a request.
func (w *webhook) matchesConditions(ctx context.Context, review *authorizationv1.SubjectAccessReview) (bool, error) {
	if w.matcher == nil {
		return true, nil
	}
	matches, err := w.matcher.Eval(ctx, review)
	if err != nil {
		return false, fmt.Errorf("authorizer %s: %w", w.name, err)
	}
	return matches, nil
}

func (w *webhook) digest(review *authorizationv1.SubjectAccessReview) ([sha256.Size]byte, error) {
	text, err := json.Marshal(review.Spec)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("authorizer %s: %w", w.name, err)
	}
	return sha256.Sum256(text), nil
}

// cachedAnswer returns the cached decision for a request, until it expires.
func (w *webhook) cachedAnswer(digest [sha256.Size]byte) (cachedDecision, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.answers[digest]
	if !ok || !w.now().Before(a.until) {
		return cachedDecision{}, false
	}
	return a, true
}

func (w *webhook) remember(digest [sha256.Size]byte, a cachedDecision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.answers) >= maxAnswers || w.answers == nil {
		w.answers = map[[sha256.Size]byte]cachedDecision{}
	}
	w.answers[digest] = a
}

// reviewOf returns the review to send for a request.
func reviewOf(u api.User, r api.Request) *authorizationv1.SubjectAccessReview {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     authorizationv1.SubjectAccessReviewSpec{User: u.Name, UID: u.UID, Groups: u.Groups},
	}
	for k, v := range u.Extra {
		if review.Spec.Extra == nil {
			review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		review.Spec.Extra[k] = v
	}
	if r.Resource {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: r.Version,
			Resource: r.GroupVersionResource.Resource, Subresource: r.Subresource, Name: r.Name,
		}
		review.Spec.ResourceAttributes.FieldSelector, review.Spec.ResourceAttributes.LabelSelector = selectorsOf(r)
	} else {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: r.Path, Verb: r.Verb}
	}
	return review
}
