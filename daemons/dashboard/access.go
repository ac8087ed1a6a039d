package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The limits of questions about rights.
const (
	maxQuestions    = 100 // in one request
	accessLifetime  = 30 * time.Second
	maxAccessCached = 4096 // answers of one session
	accessWorkers   = 16   // requests at the same time
	maxAccessBody   = 256 << 10
)

// accessQuestion asks whether the visitor may do something.
type accessQuestion struct {
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
}

type accessAnswer struct {
	isAllowed bool
	expires   time.Time
}

// accessCache caches what a visitor may do. It is safe for concurrent use.
type accessCache struct {
	now func() time.Time

	mu      sync.Mutex
	answers map[accessQuestion]accessAnswer
}

func newAccessCache(now func() time.Time) *accessCache {
	return &accessCache{now: now, answers: map[accessQuestion]accessAnswer{}}
}

func (c *accessCache) find(q accessQuestion) (isAllowed, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.answers[q]
	return a.isAllowed, ok && c.now().Before(a.expires)
}

func (c *accessCache) record(q accessQuestion, isAllowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) >= maxAccessCached {
		clear(c.answers)
	}
	c.answers[q] = accessAnswer{isAllowed, c.now().Add(accessLifetime)}
}

// mayDo reports whether the visitor of a session may do something.
func (s *session) mayDo(ctx context.Context, q accessQuestion) (bool, error) {
	if isAllowed, ok := s.access.find(q); ok {
		return isAllowed, nil
	}
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: q.Verb, Group: q.Group, Resource: q.Resource,
			Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name},
	}}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectAccessReview"
	err := s.visitor.post(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review, &review)
	if err != nil {
		return false, err
	}
	s.access.record(q, review.Status.Allowed)
	return review.Status.Allowed, nil
}

// serveAccess answers which of several things the visitor may do.
func serveAccess(w http.ResponseWriter, r *http.Request) {
	var questions []accessQuestion
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAccessBody)).Decode(&questions); err != nil {
		writeError(w, apierrors.NewBadRequest("the body is not a list of questions"))
		return
	}
	if len(questions) > maxQuestions {
		writeError(w, apierrors.NewBadRequest("more than 100 questions"))
		return
	}
	answers := make([]bool, len(questions))
	s := sessionOf(r)
	g, ctx := errgroup.WithContext(r.Context())
	g.SetLimit(accessWorkers)
	for i, q := range questions {
		if at := slices.Index(questions, q); at < i { // asked already
			continue
		}
		g.Go(func() (err error) {
			answers[i], err = s.mayDo(ctx, q)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		writeError(w, err)
		return
	}
	for i, q := range questions {
		answers[i] = answers[slices.Index(questions, q)]
	}
	writeJSON(w, http.StatusOK, answers)
}
