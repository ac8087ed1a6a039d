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

// AccessReviewer asks the API server which user a token belongs to, and who may read a daemon's own pages. Use
// NewAccessReviewer to create one.
type AccessReviewer struct {
	client kubernetes.Interface
	now    func() time.Time

	mu      sync.Mutex
	reviews map[[sha256.Size]byte]cachedAnswer
}

// cachedAnswer is an answer of the API server.
type cachedAnswer struct {
	user      api.User
	isAllowed bool
	expires   time.Time
}

// Limits for cached answers: their age, as in upstream's daemons, and their number, because unknown clients can send
// any token. reviewTimeout is the limit of one request.
const (
	reviewLifetime = 10 * time.Second
	maxReviews     = 1024
	reviewTimeout  = 10 * time.Second
)

// NewAccessReviewer returns an AccessReviewer that uses client.
func NewAccessReviewer(client kubernetes.Interface) *AccessReviewer {
	return &AccessReviewer{client: client, now: time.Now, reviews: map[[sha256.Size]byte]cachedAnswer{}}
}

// TokenUser returns the user of a token. It returns false if the token is not valid.
func (j *AccessReviewer) TokenUser(ctx context.Context, token string) (api.User, bool, error) {
	v, err := j.cachedReview("token\x00"+token, func() (v cachedAnswer, err error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		review, err := j.client.AuthenticationV1().
			TokenReviews().
			Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
				metav1.CreateOptions{})
		if err != nil {
			return v, fmt.Errorf("review a token: %w", err)
		}
		u := review.Status.User
		v.user, v.isAllowed = api.User{
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
	return v.user, v.isAllowed, err
}

// IsPathAllowed reports whether a user may get a path.
func (j *AccessReviewer) IsPathAllowed(ctx context.Context, user api.User, path string) (bool, error) {
	return j.reviewAccess(
		ctx,
		user,
		"get "+path,
		authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		},
	)
}

// IsResourceAllowed reports whether a user may perform an action on resources.
func (j *AccessReviewer) IsResourceAllowed(ctx context.Context, user api.User,
	what authorizationv1.ResourceAttributes) (bool, error) {
	about := fmt.Sprintf("%q %q %q %q %q %q", what.Verb, what.Group, what.Version, what.Resource, what.Namespace,
		what.Name)
	return j.reviewAccess(ctx, user, about, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &what})
}

func (j *AccessReviewer) reviewAccess(
	ctx context.Context,
	user api.User,
	about string,
	spec authorizationv1.SubjectAccessReviewSpec,
) (bool, error) {
	v, err := j.cachedReview(
		fmt.Sprintf("may\x00%q %q %q %q %s", user.Name, user.UID, user.Groups, user.Extra, about),
		func() (v cachedAnswer, err error) {
			ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
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
			v.isAllowed = review.Status.Allowed
			return v, nil
		},
	)
	return v.isAllowed, err
}

// cachedReview returns a cached answer, or calls answer. Errors are not cached.
func (j *AccessReviewer) cachedReview(about string, answer func() (cachedAnswer, error)) (cachedAnswer, error) {
	key := sha256.Sum256([]byte(about))
	j.mu.Lock()
	v, ok := j.reviews[key]
	j.mu.Unlock()
	if ok && j.now().Before(v.expires) {
		return v, nil
	}
	v, err := answer()
	if err != nil {
		return cachedAnswer{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.reviews) >= maxReviews {
		clear(j.reviews)
	}
	v.expires = j.now().Add(reviewLifetime)
	j.reviews[key] = v
	return v, nil
}
