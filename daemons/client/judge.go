package client

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
	"clusterctl/kube/kubernetes"
)

// Judge asks the API server which user a token belongs to, and who may read a daemon's own pages. Use NewJudge to
// create one.
type Judge struct {
	client kubernetes.Interface
	now    func() time.Time

	mu   sync.Mutex
	said map[[sha256.Size]byte]verdict
}

// verdict is an answer of the API server.
type verdict struct {
	user  api.User
	yes   bool
	until time.Time
}

// Limits for cached answers: their age, as in upstream's daemons, and their number, because unknown clients can send
// any token. judgeTime is the limit of one request.
const (
	keepVerdicts = 10 * time.Second
	mostVerdicts = 1024
	judgeTime    = 10 * time.Second
)

// NewJudge returns a Judge that uses client.
func NewJudge(client kubernetes.Interface) *Judge {
	return &Judge{client: client, now: time.Now, said: map[[sha256.Size]byte]verdict{}}
}

// Token returns the user of a token. It returns false if the token is not valid.
func (j *Judge) Token(ctx context.Context, token string) (api.User, bool, error) {
	v, err := j.ask("token\x00"+token, func() (v verdict, err error) {
		ctx, cancel := context.WithTimeout(ctx, judgeTime)
		defer cancel()
		review, err := j.client.AuthenticationV1().
			TokenReviews().
			Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
				metav1.CreateOptions{})
		if err != nil {
			return v, fmt.Errorf("review a token: %w", err)
		}
		u := review.Status.User
		v.user, v.yes = api.User{
			Name:   u.Username,
			UID:    u.UID,
			Groups: u.Groups,
			Extra:  map[string][]string{},
		}, review.Status.Authenticated
		for k, values := range u.Extra {
			v.user.Extra[k] = values
		}
		return v, nil
	})
	return v.user, v.yes, err
}

// May reports whether a user may get a path.
func (j *Judge) May(ctx context.Context, user api.User, path string) (bool, error) {
	return j.may(
		ctx,
		user,
		"get "+path,
		authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		},
	)
}

// MayUse reports whether a user may perform an action on resources.
func (j *Judge) MayUse(ctx context.Context, user api.User, what authorizationv1.ResourceAttributes) (bool, error) {
	about := fmt.Sprintf(
		"%q %q %q %q %q %q",
		what.Verb,
		what.Group,
		what.Version,
		what.Resource,
		what.Namespace,
		what.Name,
	)
	return j.may(ctx, user, about, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &what})
}

func (j *Judge) may(
	ctx context.Context,
	user api.User,
	about string,
	spec authorizationv1.SubjectAccessReviewSpec,
) (bool, error) {
	v, err := j.ask(
		fmt.Sprintf("may\x00%q %q %q %q %s", user.Name, user.UID, user.Groups, user.Extra, about),
		func() (v verdict, err error) {
			ctx, cancel := context.WithTimeout(ctx, judgeTime)
			defer cancel()
			spec.User, spec.UID, spec.Groups = user.Name, user.UID, user.Groups
			for k, values := range user.Extra {
				if spec.Extra == nil {
					spec.Extra = map[string]authorizationv1.ExtraValue{}
				}
				spec.Extra[strings.ToLower(k)] = values
			}
			review, err := j.client.AuthorizationV1().
				SubjectAccessReviews().
				Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			if err != nil {
				return v, fmt.Errorf("ask whether %s may %s: %w", user.Name, about, err)
			}
			v.yes = review.Status.Allowed
			return v, nil
		},
	)
	return v.yes, err
}

// ask returns a cached answer, or calls answer. Errors are not cached.
func (j *Judge) ask(about string, answer func() (verdict, error)) (verdict, error) {
	key := sha256.Sum256([]byte(about))
	j.mu.Lock()
	v, ok := j.said[key]
	j.mu.Unlock()
	if ok && j.now().Before(v.until) {
		return v, nil
	}
	v, err := answer()
	if err != nil {
		return verdict{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.said) >= mostVerdicts {
		clear(j.said)
	}
	v.until = j.now().Add(keepVerdicts)
	j.said[key] = v
	return v, nil
}
