package authn

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/remote"
	"clusterctl/daemons/apiserver/settings"
)

// webhook verifies tokens by calling another server. It caches the results.
type webhook struct {
	server    *settings.File[*remote.Server]
	audiences []string
	ttl       time.Duration
	now       func() time.Time

	mu         sync.Mutex
	answeredBy *remote.Server // the server that gave the cached results
	answers    map[[sha256.Size]byte]cachedAnswer
}

type cachedAnswer struct {
	user      api.User
	audiences []string
	err       error
	until     time.Time
}

const maxAnswers = 4096

func (w *webhook) verify(ctx context.Context, token string, wanted []string) (api.User, []string, error) {
	if len(wanted) == 0 {
		wanted = w.audiences
	}
	server := w.server.Get()
	digest := sha256.Sum256([]byte(token + "\x00" + strings.Join(wanted, "\x00")))
	w.mu.Lock()
	if w.answeredBy != server { // results of another server are not valid any more
		w.answeredBy, w.answers = server, nil
	}
	a, ok := w.answers[digest]
	w.mu.Unlock()
	if ok && w.now().Before(a.until) {
		return a.user, a.audiences, a.err
	}
	review := &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: wanted},
	}
	if err := server.Review(ctx, review); err != nil { // errors are not cached, so the next request calls again
		return api.User{}, nil, fmt.Errorf("ask the token webhook: %w", err)
	}
	a = answerOf(review, w.audiences, wanted)
	a.until = w.now().Add(w.ttl)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answeredBy != server {
		return a.user, a.audiences, a.err
	}
	if len(w.answers) >= maxAnswers || w.answers == nil {
		w.answers = map[[sha256.Size]byte]cachedAnswer{}
	}
	w.answers[digest] = a
	return a.user, a.audiences, a.err
}

func answerOf(r *authenticationv1.TokenReview, own, wanted []string) (a cachedAnswer) {
	s := r.Status
	if !s.Authenticated || s.User.Username == "" {
		a.err = errInvalidToken
		if s.Error != "" {
			a.err = fmt.Errorf("%w: the token webhook says %s", errInvalidToken, s.Error)
		}
		return a
	}
	audiences := s.Audiences
	if len(audiences) == 0 { // the webhook does not support audiences
		audiences = own
	}
	if a.audiences, a.err = audiencesOf(own, wanted, audiences); a.err != nil {
		return a
	}
	a.user = api.User{Name: s.User.Username, UID: s.User.UID, Groups: s.User.Groups}
	for k, v := range s.User.Extra {
		if a.user.Extra == nil {
			a.user.Extra = map[string][]string{}
		}
		a.user.Extra[strings.ToLower(k)] = v
	}
	return a
}
