package client

import (
	"context"
	"errors"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/api"
	"clusterctl/kube/kubernetes/fake"
)

// The API server decides who may read a daemon's metrics. Its answers are cached for a short time, and errors are not
// cached.
// Proves S33.
func TestAccessReviewsAreCachedBriefly(t *testing.T) {
	now, requests, away := time.Unix(0, 0), 0, false
	server := fake.NewClientset()
	server.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if requests++; away {
			return true, nil, errors.New("away")
		}
		switch o := a.(clienttesting.CreateAction).GetObject().(type) {
		case *authenticationv1.TokenReview:
			o.Status.Authenticated = o.Spec.Token == "good"
			o.Status.User = authenticationv1.UserInfo{Username: "prometheus", Groups: []string{"system:monitoring"}}
			return true, o, nil
		case *authorizationv1.SubjectAccessReview:
			at := o.Spec.NonResourceAttributes
			o.Status.Allowed = o.Spec.User == "prometheus" && len(o.Spec.Groups) == 1 && at.Path == "/metrics" &&
				at.Verb == "get"
			return true, o, nil
		}
		return false, nil, nil
	})
	j := NewAccessReviewer(server)
	j.now = func() time.Time { return now }
	ctx := context.Background()
	user, ok, err := j.TokenUser(ctx, "good")
	if err != nil || !ok || user.Name != "prometheus" || !user.InGroup("system:monitoring") {
		t.Fatalf("%+v, %t, %v", user, ok, err)
	}
	if _, ok, err := j.TokenUser(ctx, "bad"); err != nil || ok {
		t.Errorf("a bad token: %t, %v", ok, err)
	}
	for range 2 {
		if allowed, err := j.IsPathAllowed(ctx, user, "/metrics"); err != nil || !allowed {
			t.Errorf("%t, %v", allowed, err)
		}
		if allowed, err := j.IsPathAllowed(ctx, api.User{Name: "system:node:a"}, "/metrics"); err != nil || allowed {
			t.Errorf("a node: %t, %v", allowed, err)
		}
	}
	if requests != 4 {
		t.Errorf("asked %d times, want once for each of two tokens and two users", requests)
	}
	away = true
	if allowed, err := j.IsPathAllowed(ctx, user, "/metrics"); err != nil || !allowed {
		t.Errorf("what was said a moment ago is forgotten: %t, %v", allowed, err)
	}
	now = now.Add(reviewLifetime)
	for range 2 {
		if allowed, err := j.IsPathAllowed(ctx, user, "/metrics"); err == nil || allowed {
			t.Errorf("without a server: %t, %v", allowed, err)
		}
	}
	away = false
	if allowed, err := j.IsPathAllowed(ctx, user, "/metrics"); err != nil || !allowed {
		t.Errorf("once there is an answer: %t, %v", allowed, err)
	}
}
