// Package webhook calls the webhooks of MutatingWebhookConfigurations and ValidatingWebhookConfigurations for writes,
// and applies their responses. Package match decides which writes a webhook matches, and package backend connects to
// it.
package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/apiserver/match"
	"clusterctl/daemons/kinds/expression"
)

// Options configures the plugins.
type Options struct {
	Objects   api.Objects
	May       api.Authorizer // for authorization checks in match conditions; nil denies everything
	Connector *backend.Connector
	Log       *slog.Logger
	Counts    *Counts // nil records no metrics
}

// hook is one webhook, compiled.
type hook struct {
	name, configuration string // of is the name of its configuration
	id                  string // unique among all webhooks
	criteria            *match.Criteria
	conditions          plugincel.ConditionEvaluator
	target              backend.Webhook
	broken              error // why it cannot be called for any write
	failsClosed         bool  // whether a write fails if the call fails
	reinvokes           bool  // whether it is called again after later changes of the object
	timeout             time.Duration
	version             string // version of the AdmissionReview
}

// set holds the webhooks of all configurations of a kind, ordered by name. It is rebuilt when a configuration changes.
type set struct {
	o        Options
	resource schema.GroupResource
	current  atomic.Pointer[compiledSet]
	mu       sync.Mutex // held while compiling
}

type compiledSet struct {
	revision int64
	hooks    []*hook
	byObject map[runtime.Object][]*hook // by stored configuration
}

// hooks returns the current webhooks.
func (s *set) hooks() []*hook {
	revision := s.o.Objects.Revision(s.resource)
	if c := s.current.Load(); c != nil && c.revision == revision {
		return c.hooks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current.Load()
	if before == nil {
		before = &compiledSet{}
	}
	next := &compiledSet{revision: revision, byObject: map[runtime.Object][]*hook{}}
	for _, obj := range s.o.Objects.List(s.resource, "") {
		hooks, ok := before.byObject[obj]
		if !ok {
			hooks = newHooks(obj)
		}
		next.byObject[obj] = hooks
		next.hooks = append(next.hooks, hooks...)
	}
	s.current.Store(next)
	return next.hooks
}

func newHooks(obj runtime.Object) []*hook {
	var all []*hook
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, newHook(c.Name, i, &c.Webhooks[i]))
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i, h := range c.Webhooks {
			all = append(all, newHook(c.Name, i, &admissionregistrationv1.MutatingWebhook{
				Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy,
				MatchPolicy:       h.MatchPolicy,
				NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector,
				TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions,
				MatchConditions: h.MatchConditions,
			}))
		}
	}
	return all
}

func newHook(configuration string, i int, w *admissionregistrationv1.MutatingWebhook) *hook {
	h := &hook{
		name:          w.Name,
		configuration: configuration,
		id:            configuration + "/" + w.Name + "/" + strconv.Itoa(i),
		timeout:       10 * time.Second,
	}
	h.failsClosed = w.FailurePolicy == nil || *w.FailurePolicy == admissionregistrationv1.Fail
	h.reinvokes = w.ReinvocationPolicy != nil &&
		*w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
	if w.TimeoutSeconds != nil {
		h.timeout = time.Duration(*w.TimeoutSeconds) * time.Second
	}
	for _, v := range w.AdmissionReviewVersions {
		if h.version == "" && (v == "v1" || v == "v1beta1") {
			h.version = v
		}
	}
	if h.criteria, h.broken = match.New(match.WithoutNames(w.Rules), nil, w.MatchPolicy, w.NamespaceSelector,
		w.ObjectSelector); h.broken != nil {
		// Validation refuses such a configuration. If one is stored nevertheless, the webhook fails for everything that
		// its rules match.
		h.criteria, _ = match.New(match.WithoutNames(w.Rules), nil, w.MatchPolicy, nil, nil)
		return h
	}
	h.conditions = expression.Conditions(w.MatchConditions)
	h.target, h.broken = backend.NewWebhook(w.ClientConfig)
	return h
}

// matchedHook is a webhook that matches a write, and the write in the form for it.
type matchedHook struct {
	*hook
	version    api.Version
	attributes *admission.VersionedAttributes
}

// matchHook reports whether a write matches a webhook, by returning it or nil. An error fails the write.
func (s *set) matchHook(ctx context.Context, h *hook, a *api.Admission) (*matchedHook, error) {
	v, ok, err := h.criteria.Match(a, s.o.Objects)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("find out whether webhook %q is concerned: %w", h.name, err))
	}
	if !ok {
		return nil, nil
	}
	seen, err := match.Versioned(ctx, a, v)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("show webhook %q the object as %s: %w", h.name, v.Kind, err))
	}
	if h.conditions != nil {
		bindings := plugincel.OptionalVariableBindings{Authorizer: match.Authorizer(s.o.May)}
		holds, err := match.ConditionsHold(ctx, h.conditions, seen, v, bindings, match.NamespaceOf(a, s.o.Objects))
		if err != nil {
			s.o.Log.Warn("the match conditions of a webhook could not be evaluated", "webhook", h.name, "err", err)
			if h.failsClosed {
				return nil, apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, err)
			}
			return nil, nil
		}
		if !holds {
			return nil, nil
		}
	}
	return &matchedHook{h, v, seen}, nil
}

// failureError returns the error for a write whose webhook call failed; nil if the failure policy is to ignore it.
func (s *set) failureError(ctx context.Context, h *hook, a *api.Admission, kind string, round, index int,
	err error) error {
	if ctx.Err() != nil && context.Cause(ctx) == context.Canceled {
		return apierrors.NewTimeoutError("the request was given up before webhook "+strconv.Quote(h.name)+" answered",
			0)
	}
	if h.failsClosed {
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.name, err))
	}
	s.o.Log.Warn("a webhook failed that may be ignored", "webhook", h.name, "err", err)
	if a.Origin != nil {
		a.Origin.Annotate(fmt.Sprintf("failed-open.%s.webhook.admission.k8s.io/round_%d_index_%d", kind, round, index),
			h.name)
	}
	return nil
}
